"""`dayfly with`: a plugin's resource for as long as one command runs.

Whatever ends the command ends the resource: its exit, a signal, a failure before it started. If this very process is
killed, nobody renews the lease and the server cleans up.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import string
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import lock, options, outputs, server, show, watch
from dayfly.cli.child import Interrupted, Signals
from dayfly.cli.client import CLUSTER, ApiError, Client, find
from dayfly.cli.exits import CliError, Exit
from dayfly.client import files as reading
from dayfly.client.home import Home
from dayfly.compile.references import nearest
from dayfly.spec import documents, names
from dayfly.spec.plugin import Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

LEASE_S = 30
SUSPENDED_S = 86_400
"""How long a command that Ctrl-Z has stopped keeps its resource: as long as a server lets a lease be."""
RENEW_S = 5
CLEANUP_S = 600
_STOP_S = 60

_CANNOT_BE_RUN = 126
_NO_SUCH_COMMAND = 127
_NO_MORE = (404, 409)
"""How the server answers to a lease of a sandbox that is gone or going."""


@click.command("with", context_settings={"allow_interspersed_args": False})
@options.files()
@options.sets
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A param of the plugin. Repeatable.")
@click.option(
    "-e", "--env", "renames", multiple=True, metavar="VAR=STEP.OUTPUT", help="One more name for an output. Repeatable."
)
@options.timeout("5m")
@options.named("command_line", "a_file", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    params: tuple[str, ...],
    renames: tuple[str, ...],
    timeout: float,
    command_line: tuple[str, ...],
) -> int:
    """Provision a plugin, run COMMAND with its outputs in the environment, clean up, and return COMMAND's exit code.

    Outputs are named as `dayfly env` names them: <PLUGIN>_<STEP>_<OUTPUT>. Cleanup comes in any case, also after
    Ctrl-C. Where no server runs, one is started and stopped again.
    """
    plugin = reading.load_one(files, sets, "plugin").wish
    assert isinstance(plugin, Plugin), "asked for by its kind"
    aliases = _aliases(plugin, renames)
    body = _body(plugin, params)
    if shutil.which(program := command_line[0]) is None:
        there = os.path.exists(program) if os.sep in program else shutil.which(program, os.F_OK) is not None  # noqa: PTH110 # Path has opinions of names
        what = "exists but cannot be run" if there else "no such command"
        show.talk(f"dayfly: {program}: {what}; nothing was provisioned")
        return _CANNOT_BE_RUN if there else _NO_SUCH_COMMAND
    with Signals() as signals, _running_server(Home.find()) as server_:
        return _use(server_, signals, body, aliases, command_line, seconds=timeout)


class _Server(NamedTuple):
    """The home's server, and whether it was started for this command and is stopped after it."""

    client: Client
    ours: bool


def _use(
    server_: _Server,
    signals: Signals,
    body: Any,
    aliases: dict[str, str],
    command_line: tuple[str, ...],
    *,
    seconds: float,
) -> int:
    """Provision, run, clean up; the exit code."""
    client, name = server_.client, body["name"]
    first = "dayfly up --detach; " if server_.ours else ""
    code: int = Exit.FAILED
    try:
        try:
            with _Lease(client, name) as lease, signals.pausing(lease.suspended):
                with signals.raising():
                    client.put("sandboxes", name, body=body)
                    watch.until_ready(client, name, seconds, first=first)
                    environment = _environment(client.get("sandboxes", name, "outputs"), aliases)
                lease.kept = True
                code = signals.run(command_line, environment, name)
        except Interrupted as fault:
            show.talk(f"dayfly: {fault}; cleaning up")
            code = 128 + fault.number
        except CliError as fault:
            show.talk(f"dayfly: {fault}")
            code = fault.code
        except OSError as fault:
            show.talk(f"dayfly: {command_line[0]}: {(fault.strerror or 'cannot be run').lower()}; cleaning up")
            code = _CANNOT_BE_RUN
    finally:
        ended = _clean_up(client, signals, name)
    return code or ended


def _clean_up(client: Client, signals: Signals, name: str) -> int:
    """Delete the sandbox and wait until it is gone. One more signal ends the waiting, not the cleanup."""
    client.close()  # a signal may have come in the middle of an exchange
    signals.forget()
    _look_where_it_is(client)
    try:
        # Without a look first: the wish for it may still be on its way, and the server takes this one behind it.
        client.delete("sandboxes", name)
        uid = client.get("sandboxes", name, "report").get("uid", "")
        with signals.raising():
            watch.until_gone(client, name, uid, CLEANUP_S)
    except ApiError as fault:
        if fault.code == Exit.NOT_FOUND:  # it was never made
            return Exit.OK
        return _left(name, str(fault), fault.code)
    except Interrupted as fault:
        return _left(name, f"{fault}; the server goes on cleaning up", 128 + fault.number)
    except CliError as fault:
        return _left(name, str(fault), fault.code)
    return Exit.OK


def _left(name: str, message: str, code: int) -> int:
    show.talk(f"dayfly: {name}: {message}")
    return code


def _look_where_it_is(client: Client) -> None:
    """Turn to where the home's server listens now: one that was started again may be elsewhere (`--port 0`)."""
    with contextlib.suppress(CliError):
        address = find(Home.find())
        if address is not None and address.url != client.address.url:
            client.turn_to(address)


class _Lease:
    """Keeps the sandbox while this process lives: renewed by a thread of its own, with a connection of its own.

    Attributes:
        kept: Whether the sandbox is there and stays until we end it; that it goes before is worth a word.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.kept = False
        self._client = Client(client.address, timeout=RENEW_S)
        self._name = name
        self._seconds = LEASE_S
        self._news, self._told, self._over = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def _renew(self) -> None:
        while True:
            self._news.wait(RENEW_S)
            self._news.clear()
            if self._over.is_set():
                break
            seconds = self._seconds
            try:
                self._client.put("sandboxes", self._name, "lease", body={"seconds": seconds})
                if seconds == self._seconds:
                    self._told.set()
            except ApiError as fault:
                self._told.set()
                if self.kept and fault.status in _NO_MORE and not self._over.is_set():
                    show.talk(f"dayfly: {self._name} has ended, and the command is still running: {fault.message}")
                    self.kept = False  # said once
            except CliError:
                _look_where_it_is(self._client)  # away for a moment, it is asked again
        self._client.close()

    def __enter__(self) -> Self:
        Signals.start_blocked(self._thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._news.set()

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Within this nobody renews it, for Ctrl-Z stops us: it is made long before, and short again after."""
        self._seconds = SUSPENDED_S
        self._told.clear()
        self._news.set()
        if self._told.wait(RENEW_S) and self.kept:
            show.talk(f"dayfly: {self._name} is kept while the command is suspended, for a day at most")
        yield
        self._seconds = LEASE_S
        self._news.set()


@contextlib.contextmanager
def _running_server(home: Home) -> Iterator[_Server]:
    """The home's server. One that is started for us is stopped after us, unless others use it by then."""
    client, ours = _reach(home)
    try:
        yield _Server(client, ours is not None)
    finally:
        if ours is not None:
            _stop_unless_used(home, client, ours)


def _reach(home: Home) -> tuple[Client, int | None]:
    """A client, and the process of its server if that was started for us."""
    try:
        client = Client.open(home)
        client.health()
        if os.environ.get("DAYFLY_URL") or not lock.is_left_behind(home):
            return client, None
    except CliError as fault:
        if fault.code != Exit.NO_SERVER or os.environ.get("DAYFLY_URL"):
            raise
    try:
        client = server.start(home, ["--port", "0"])
        return client, lock.process(home)
    except CliError:
        started = server.answering(home)
        if started is None:
            raise
        return started, None  # somebody else was quicker


def _stop_unless_used(home: Home, client: Client, ours: int) -> None:
    try:
        used = bool(client.get("sandboxes"))
        if lock.process(home) != ours:  # it was stopped, and what may run by now is somebody else's
            return
        if used:
            show.talk(
                "The server that was started keeps running, because it still has sandboxes; stop it with: dayfly down"
            )
        else:
            server.stop(home, ours, _STOP_S)
    except CliError as fault:
        show.talk(f"dayfly: {fault}")


def given_params(plugin: Plugin, params: tuple[str, ...]) -> dict[str, str]:
    """The `NAME=VALUE` of `-p`, as a sandbox gives them.

    Raises:
        CliError: one of another form or name, or one that is required and not given.
    """
    given = {}
    known = plugin.spec.params()
    for pair in params:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CliError(Exit.USAGE, f"-p expects NAME=VALUE, got {pair!r}", "write e.g. -p size=3")
        if name not in known:
            raise CliError(Exit.USAGE, f'no step of "{plugin.name}" takes "{name}" from -p', nearest(name, known))
        given[name] = value
    for name, rule in known.items():
        if rule.required and name not in given:
            message = f'"{plugin.name}" needs the param "{name}" (its step "{rule.step}")'
            raise CliError(Exit.USAGE, message, f"give it with -p {name}=VALUE")
    return given


def _body(plugin: Plugin, params: tuple[str, ...]) -> Any:
    """The sandbox that has the plugin's steps in place, under a name of its own, and a lease."""
    given = given_params(plugin, params)
    chance = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(6))
    room = names.LIMITS["sandbox"] - len("with--") - len(chance)
    resource = {
        "name": plugin.name[: names.LIMITS["resource"]].rstrip("-"),
        "spec": documents.export(plugin)["spec"],
        "params": given,
    }
    return {
        "name": f"with-{plugin.name[:room].rstrip('-')}-{chance}",
        "spec": {"cluster": CLUSTER, "description": "dayfly with", "forks": [], "resources": [resource]},
        "lease": {"seconds": LEASE_S},
    }


def _aliases(plugin: Plugin, renames: tuple[str, ...]) -> dict[str, str]:
    """`VAR=step.output` pairs, by variable.

    Raises:
        CliError: another form, or an output the plugin does not have.
        SpecError: no name for a variable.
    """
    known = [f"{step.name}.{output.name}" for step in plugin.spec.create for output in step.outputs]
    found = {}
    for pair in renames:
        variable, equals, key = pair.partition("=")
        if not equals:
            raise CliError(Exit.USAGE, f"-e expects VAR=STEP.OUTPUT, got {pair!r}", "write e.g. -e DB=provision.url")
        names.check_environment(variable)
        if key not in known:
            raise CliError(Exit.USAGE, f'"{plugin.name}" has no output "{key}"', nearest(key, known))
        found[variable] = key
    return found


def _environment(found: list[Any], aliases: dict[str, str]) -> dict[str, str]:
    """Our own environment and every output that a variable can carry."""
    environment = dict(os.environ)
    values: dict[str, str] = {}
    for variable in outputs.variables(found):
        if variable.value is None:
            show.talk(f"{variable.name} is binary ({variable.size} bytes), so no variable holds it")
            continue
        environment[variable.name] = variable.value
        values[f"{variable.step}.{variable.output}"] = variable.value
    for name, key in aliases.items():
        if key not in values:
            raise CliError(Exit.FAILED, f"the output {key} cannot be in {name}", "it is missing or binary")
        environment[name] = values[key]
    return environment
