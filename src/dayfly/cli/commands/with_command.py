"""`dayfly with`: resources for as long as one command runs.

Whatever ends the command ends the resource: its exit, a signal, a failure before it started. If this very process is
killed, nobody renews the lease and the server cleans up. If a server that was started for the command is killed, it is
started again.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import apply_spec, options, outputs, secret_files, temporary_spec, watch
from dayfly.cli.backends import lookup
from dayfly.cli.backends.target_server import CLUSTER, ServerClient, is_elsewhere
from dayfly.cli.local.child import Interrupted, Signals
from dayfly.cli.local.temporary_server import SharedServer, running_server
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit, RefusedError, UnreachableError
from dayfly.client.home import Home
from dayfly.spec.report import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

LEASE_S = 30
SUSPENDED_S = 86_400
"""How long a command that Ctrl-Z has stopped keeps its resource: as long as a server lets a lease be."""
KEPT_S = 3600
RENEW_S = 5
CLEANUP_S = 600
_CLEANUP_ATTEMPTS = 3

_CANNOT_BE_RUN = 126
_NO_SUCH_COMMAND = 127
_SIGNALLED = 128
_NO_MORE = (404, 409)
"""How the server answers to a lease of a sandbox that is gone or going."""


@click.command("with", context_settings={"allow_interspersed_args": False})
@options.server
@click.option(
    "--cluster", metavar="NAME", help="The cluster for plugins' files; by default the server's only one, or local."
)
@options.files()
@options.sets
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A param of the plugin. Repeatable.")
@click.option(
    "--param-file", "param_files", multiple=True, metavar="NAME=PATH", help="A param that is a file's text. Repeatable."
)
@options.secrets_file
@click.option(
    "-e", "--env", "renames", multiple=True, metavar="VAR=STEP.OUTPUT", help="One more name for an output. Repeatable."
)
@click.option("--keep", is_flag=True, help="If it fails, keep what it had for an hour, to look at.")
@click.option("--reuse", is_flag=True, help="Keep it for a day, for the next --reuse of the same files and params.")
@options.timeout("5m")
@options.named("command_line", "a_file", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    params: tuple[str, ...],
    param_files: tuple[str, ...],
    renames: tuple[str, ...],
    *,
    cluster: str | None,
    secrets_file: str | None,
    keep: bool,
    reuse: bool,
    timeout: float,
    command_line: tuple[str, ...],
) -> int:
    """Provision plugins or a sandbox, run COMMAND with their outputs in its environment, clean up, and return its code.

    Outputs are named as `dayfly env` names them: <RESOURCE>_<STEP>_<OUTPUT>, with the plugin's name for the resource's.
    Cleanup comes in any case, also after Ctrl-C. Where no server runs, one is started and stopped again.
    """
    borrowed = temporary_spec.read(files, sets, params, param_files, renames)
    if cluster and borrowed.is_sandbox:
        raise DayflyError(Exit.USAGE, "a sandbox's file names its cluster", "leave --cluster out")
    if keep and reuse:
        raise DayflyError(Exit.USAGE, "--reuse keeps it in any case, --keep after a failure", "give one of them")
    if shutil.which(program := command_line[0]) is None:
        there = os.path.exists(program) if os.sep in program else shutil.which(program, os.F_OK) is not None  # noqa: PTH110 # Path has opinions of names
        what = "exists but cannot be run" if there else "no such command"
        show.talk(f"dayfly: {program}: {what}; nothing was provisioned")
        return _CANNOT_BE_RUN if there else _NO_SUCH_COMMAND
    given = functools.partial(secret_files.given, borrowed.body, secrets_file)
    # Before anything starts, unless the server has to be asked what its plugins take.
    secrets = given() if borrowed.is_whole else None
    with Signals() as signals, running_server(Home.find()) as server_:
        ending = Ending.REUSE if reuse else Ending.KEEP if keep else Ending.REMOVE
        if secrets is None:
            secrets = given(server_.client)
        body = _wish(server_.client, borrowed, cluster, secrets, reuse=reuse)
        return _use(server_, signals, body, borrowed.aliases, command_line, seconds=timeout, ending=ending)


def _wish(
    client: ServerClient, borrowed: temporary_spec.Borrowed, cluster: str | None, secrets: Any, *, reuse: bool
) -> Any:
    """The sandbox for this server, whose baselines it has by then.

    Raises:
        DayflyError: it cannot be had there.
    """
    if not borrowed.is_sandbox:
        borrowed = borrowed.placed(_cluster(client, cluster))
    name = borrowed.same_name(client.address.key, secrets) if reuse else borrowed.name()
    body = {**borrowed.body, "name": name, "lease": {"seconds": LEASE_S}}
    if secrets:
        secret_files.refuse_elsewhere(client.address.url)
        body["secrets"] = secrets
    for baseline in borrowed.baselines:
        apply_spec.hand_over(client, baseline)
    return body


def _cluster(client: ServerClient, named: str | None) -> str:
    """Where plugins run that come without a sandbox.

    Raises:
        DayflyError: the server has several clusters, and none is named.
    """
    if named or not is_elsewhere():
        return named or CLUSTER
    known = [each["name"] for each in client.get("clusters")]
    if CLUSTER in known or not known:
        return CLUSTER
    if len(known) > 1:
        raise DayflyError(
            Exit.USAGE, f"{client.address.url} has the clusters {', '.join(known)}", "give --cluster NAME"
        )
    return str(known[0])


class Ending(enum.Enum):
    """What becomes of it after the command."""

    REMOVE = "remove"
    KEEP = "keep"
    REUSE = "reuse"


def _use(
    server_: SharedServer,
    signals: Signals,
    body: Any,
    aliases: dict[str, str],
    command_line: tuple[str, ...],
    *,
    seconds: float,
    ending: Ending,
) -> int:
    """Provision, run, clean up; the exit code."""
    client, name = server_.client, body["name"]
    first = "dayfly up --detach; " if server_.started else ""
    code: int = Exit.FAILED
    lease = _Lease(server_, name)
    try:
        try:
            with lease, signals.pausing(lease.suspended):
                with signals.raising():
                    _put(client, body, ending)
                    watch.until_ready(client, name, seconds, first=first)
                    environment = _environment(client.get("sandboxes", name, "outputs"), aliases)
                lease.kept = True
                # Several commands may share one sandbox that is used again.
                mark = f"{name}/{os.getpid()}" if ending is Ending.REUSE else name
                code = signals.run(command_line, environment, mark)
        except Interrupted as fault:
            show.talk(f"dayfly: {fault}; cleaning up")
            code = 128 + fault.number
        except DayflyError as fault:
            show.talk(f"dayfly: {fault}")
            code = fault.code
        except OSError as fault:
            show.talk(f"dayfly: {command_line[0]}: {(fault.strerror or 'cannot be run').lower()}; cleaning up")
            code = _CANNOT_BE_RUN
    finally:
        if (ending is Ending.REUSE and lease.kept) or (ending is Ending.KEEP and 0 < code < _SIGNALLED):
            lease.settle()
            ended = _keep(server_, signals, name, ending)
        else:
            ended = _clean_up(server_, signals, name)
    return code or ended


def _put(client: ServerClient, body: Any, ending: Ending) -> None:
    """Wish for the sandbox. One that is to be used again, and has failed meanwhile, is made anew."""
    name = body["name"]
    if ending is Ending.REUSE:
        report = client.get("sandboxes", name, "report") if lookup.exists(client, name) else {}
        if report.get("reason") in FAILED or report.get("closed"):
            client.delete("sandboxes", name)
            watch.until_gone(client, name, report["uid"], CLEANUP_S)
    client.put("sandboxes", name, body=body)


def _keep(server_: SharedServer, signals: Signals, name: str, ending: Ending) -> int:
    """Let it live for a while."""
    client = _client_after_signal(server_, signals)
    for_, seconds = ("an hour", KEPT_S) if ending is Ending.KEEP else ("a day", SUSPENDED_S)
    try:
        client.put("sandboxes", name, "lease", body={"seconds": seconds})
    except DayflyError as fault:
        return _left(name, str(fault), fault.code)
    where = f"{name}{client.flags}"
    show.talk(f"{name} is kept for {for_}; see: dayfly get sandbox {where}; end it with: dayfly sandbox delete {where}")
    return Exit.OK


def _clean_up(server_: SharedServer, signals: Signals, name: str) -> int:
    """Delete the sandbox and wait until it is gone. One more signal ends the waiting, not the cleanup."""
    try:
        for attempt in range(1, _CLEANUP_ATTEMPTS + 1):
            client = _client_after_signal(server_, signals)
            try:
                # No look first: the wish for it may still be on its way, and the server takes this one behind it.
                client.delete("sandboxes", name)
                uid = client.get("sandboxes", name, "report").get("uid", "")
                with signals.raising():
                    watch.until_gone(client, name, uid, CLEANUP_S)
                break
            except UnreachableError:
                if attempt == _CLEANUP_ATTEMPTS or not server_.was_killed:
                    raise
    except RefusedError as fault:
        if fault.code == Exit.NOT_FOUND:  # it was never made
            return Exit.OK
        return _left(name, str(fault), fault.code)
    except Interrupted as fault:
        return _left(name, f"{fault}; the server goes on cleaning up", 128 + fault.number)
    except DayflyError as fault:
        return _left(name, str(fault), fault.code)
    return Exit.OK


def _client_after_signal(server_: SharedServer, signals: Signals) -> ServerClient:
    """Return the client with a new connection: a signal may have interrupted an exchange."""
    server_.client.close()
    signals.forget()
    server_.follow(server_.client)
    return server_.client


def _left(name: str, message: str, code: int) -> int:
    show.talk(f"dayfly: {name}: {message}")
    return code


class _Lease:
    """Keeps the sandbox while this process lives: renewed by a thread of its own, with a connection of its own.

    Attributes:
        kept: Whether the sandbox is there and stays until we end it; that it goes before is worth a word.
    """

    def __init__(self, server_: SharedServer, name: str) -> None:
        self.kept = False
        self._server = server_
        self._client = ServerClient(server_.client.address, timeout=RENEW_S)
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
            except RefusedError as fault:
                self._told.set()
                if self.kept and fault.status in _NO_MORE and not self._over.is_set():
                    show.talk(f"dayfly: {self._name} has ended, and the command is still running: {fault.message}")
                    self.kept = False  # said once
            except DayflyError:
                if not self._over.is_set():
                    self._server.follow(self._client)
        self._client.close()

    def __enter__(self) -> Self:
        Signals.start_blocked(self._thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._news.set()

    def settle(self) -> None:
        """Wait until its last renewal is over, which would shorten a longer lease."""
        self._thread.join()

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


def _environment(found: list[Any], aliases: dict[str, str]) -> dict[str, str]:
    """Our own environment and every output that a variable can carry."""
    environment = dict(os.environ)
    values: dict[str, str] = {}
    for variable in outputs.variables(found):
        if variable.value is None:
            show.talk(f"{variable.lacks}, so no variable holds it")
            continue
        if variable.is_too_long:
            show.talk(f"{variable.name} has {variable.size} bytes, which is more than a variable can hold")
            continue
        environment[variable.name] = variable.value
        way = "/".join(part for part in (variable.resource, variable.step) if part)
        values[f"{way}.{variable.output}"] = variable.value
    for name, key in aliases.items():
        meant = [each for each in values if each == key or each.endswith(f"/{key}")]
        if len(meant) != 1:
            why = "it is missing, binary, too large, or sensitive in a cluster that dials in"
            raise DayflyError(Exit.FAILED, f"the output {key} cannot be in {name}", why)
        environment[name] = values[meant[0]]
    return environment
