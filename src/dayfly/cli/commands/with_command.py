"""`dayfly with`: create resources, run a command, delete the resources.

The resources are deleted when the command exits, after a signal, and if the command cannot start. If this process is
killed, its lease expires and the server cleans up. If a server that was started for the command is killed, it is
restarted.
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

from dayfly.cli import apply_spec, installed, options, outputs, secret_files, temporary_spec, watch
from dayfly.cli.backends import lookup
from dayfly.cli.backends.target_server import CLUSTER, ServerClient, is_remote
from dayfly.cli.command_classes import verb
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
SUSPENDED_LEASE_S = 86_400
"""The lease while Ctrl-Z has stopped the command, and the lease after `--reuse`: the longest lease of a server."""
KEPT_LEASE_S = 3600
RENEW_INTERVAL_S = 5
CLEANUP_TIMEOUT_S = 600
_CLEANUP_ATTEMPTS = 3

_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_SIGNAL_BASE = 128
_NO_LEASE = (404, 409)
"""Statuses with which the server rejects the lease of a deleted or ending sandbox."""


@verb("with", context_settings={"allow_interspersed_args": False})
@options.server
@click.option("--cluster", metavar="NAME", help="The cluster for plugins; by default the server's only one, or local.")
@options.files()
@options.variables_option
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A param of the plugin. Repeatable.")
@options.param_files
@options.secrets_file
@click.option(
    "-e",
    "--env",
    "renames",
    multiple=True,
    metavar="VAR=STEP.OUTPUT",
    help="Another variable for an output. Repeatable.",
)
@click.option("--keep", is_flag=True, help="After a failure, keep the resources for an hour.")
@click.option(
    "--reuse", is_flag=True, help="Keep the resources for a day, for the next --reuse with the same files and params."
)
@options.timeout("5m")
@options.name_argument(
    "command_line", "file_paths", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED
)
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

    Outputs are named as by `dayfly env`: <RESOURCE>_<STEP>_<OUTPUT>. A plugin's resource has the plugin's name. The
    cleanup also runs after Ctrl-C. If no server runs, one is started, and stopped at the end.
    """
    installed.require_linux()
    spec = temporary_spec.read(files, sets, params, param_files, renames)
    if cluster and spec.source is not None:
        raise DayflyError(Exit.USAGE, "a sandbox's file names its cluster", "remove --cluster")
    if keep and reuse:
        raise DayflyError(
            Exit.USAGE, "--reuse always keeps the resources, --keep only after a failure", "use one of them"
        )
    if shutil.which(program := command_line[0]) is None:
        exists = os.path.exists(program) if os.sep in program else shutil.which(program, os.F_OK) is not None  # noqa: PTH110 # Path normalises names
        what = "exists but is not executable" if exists else "no such command"
        show.print_message(f"dayfly: {program}: {what}; nothing was provisioned")
        return _NOT_EXECUTABLE if exists else _NOT_FOUND
    choose_secrets = functools.partial(secret_files.choose_for_sandbox, spec.body, secrets_file, source=spec.source)
    # Choose the secrets before anything starts, unless published plugins must be fetched from the server.
    secrets = choose_secrets() if spec.is_self_contained else None
    with Signals() as signals, running_server(Home.find()) as server_:
        after = AfterCommand.REUSE if reuse else AfterCommand.KEEP if keep else AfterCommand.DELETE
        if secrets is None:
            secrets = choose_secrets(server_.client)
        body = _prepare(server_.client, spec, cluster, secrets, reuse=reuse)
        return _provision_and_run(server_, signals, body, spec.aliases, command_line, seconds=timeout, after=after)


def _prepare(
    client: ServerClient, spec: temporary_spec.TemporarySpec, cluster: str | None, secrets: Any, *, reuse: bool
) -> Any:
    """Return the body of the sandbox, and declare its baselines.

    Raises:
        DayflyError: the server is not suitable.
    """
    if not spec.source is not None:
        spec = spec.in_cluster(_choose_cluster(client, cluster))
    name = spec.stable_name(client.address.key, secrets) if reuse else spec.unique_name()
    body = {**spec.body, "name": name, "lease": {"seconds": LEASE_S}}
    if secrets:
        secret_files.reject_remote_server(client.address.url)
        body["secrets"] = secrets
    for baseline in spec.baselines:
        apply_spec.apply_one(client, baseline)
    return body


def _choose_cluster(client: ServerClient, named: str | None) -> str:
    """Return the cluster for plugins without a sandbox.

    Raises:
        DayflyError: the server has several clusters, and `--cluster` is missing.
    """
    if named or not is_remote():
        return named or CLUSTER
    known = [each["name"] for each in client.get("clusters")]
    if CLUSTER in known or not known:
        return CLUSTER
    if len(known) > 1:
        raise DayflyError(Exit.USAGE, f"{client.address.url} has the clusters {', '.join(known)}", "add --cluster NAME")
    return str(known[0])


class AfterCommand(enum.Enum):
    """What happens to the sandbox after the command."""

    DELETE = "delete"
    KEEP = "keep"
    REUSE = "reuse"


def _provision_and_run(
    server_: SharedServer,
    signals: Signals,
    body: Any,
    aliases: dict[str, str],
    command_line: tuple[str, ...],
    *,
    seconds: float,
    after: AfterCommand,
) -> int:
    """Create the sandbox, run the command, clean up. Return the exit code."""
    client, name = server_.client, body["name"]
    first = "dayfly up --detach; " if server_.started else ""
    code: int = Exit.FAILED
    lease = _Lease(server_, name)
    try:
        try:
            with lease, signals.use_pause(lease.suspend):
                with signals.raise_interrupts():
                    _create(client, body, after)
                    watch.until_ready(client, name, seconds, first=first)
                    environment = _environment(client.get("sandboxes", name, "outputs"), aliases)
                lease.is_ready = True
                # Several commands may share a sandbox of --reuse.
                mark = f"{name}/{os.getpid()}" if after is AfterCommand.REUSE else name
                code = signals.run(command_line, environment, mark)
        except Interrupted as fault:
            show.print_message(f"dayfly: {fault}; cleaning up")
            code = 128 + fault.number
        except DayflyError as fault:
            show.print_message(f"dayfly: {fault}")
            code = fault.code
        except OSError as fault:
            show.print_message(f"dayfly: {command_line[0]}: {(fault.strerror or 'cannot be run').lower()}; cleaning up")
            code = _NOT_EXECUTABLE
    finally:
        if (after is AfterCommand.REUSE and lease.is_ready) or (after is AfterCommand.KEEP and 0 < code < _SIGNAL_BASE):
            lease.join()
            ended = _keep(server_, signals, name, after)
        else:
            ended = _clean_up(server_, signals, name)
    return code or ended


def _create(client: ServerClient, body: Any, after: AfterCommand) -> None:
    """Create the sandbox. With `REUSE`, an existing sandbox that failed or ended is replaced."""
    name = body["name"]
    if after is AfterCommand.REUSE:
        report = client.get("sandboxes", name, "report") if lookup.exists(client, name) else {}
        if report.get("reason") in FAILED or report.get("closed"):
            client.delete("sandboxes", name)
            watch.until_gone(client, name, report["uid"], CLEANUP_TIMEOUT_S)
    client.put("sandboxes", name, body=body)


def _keep(server_: SharedServer, signals: Signals, name: str, after: AfterCommand) -> int:
    """Extend the lease instead of deleting the sandbox."""
    client = _client_after_signal(server_, signals)
    for_, seconds = ("an hour", KEPT_LEASE_S) if after is AfterCommand.KEEP else ("a day", SUSPENDED_LEASE_S)
    try:
        client.put("sandboxes", name, "lease", body={"seconds": seconds})
    except DayflyError as fault:
        return _report_kept(name, str(fault), fault.code)
    where = f"{name}{client.flags}"
    show.print_message(
        f"{name} is kept for {for_}; see: dayfly get sandbox {where}; delete it with: dayfly sandbox delete {where}"
    )
    return Exit.OK


def _clean_up(server_: SharedServer, signals: Signals, name: str) -> int:
    """Delete the sandbox and wait until it is gone. Another signal ends the wait, not the cleanup."""
    try:
        for attempt in range(1, _CLEANUP_ATTEMPTS + 1):
            client = _client_after_signal(server_, signals)
            try:
                # Do not check first that it exists: the PUT may be in flight, and the server handles it before this.
                client.delete("sandboxes", name)
                uid = client.get("sandboxes", name, "report").get("uid", "")
                with signals.raise_interrupts():
                    watch.until_gone(client, name, uid, CLEANUP_TIMEOUT_S)
                break
            except UnreachableError:
                if attempt == _CLEANUP_ATTEMPTS or not server_.was_killed:
                    raise
    except RefusedError as fault:
        if fault.code == Exit.NOT_FOUND:  # it was never created
            return Exit.OK
        return _report_kept(name, str(fault), fault.code)
    except Interrupted as fault:
        return _report_kept(name, f"{fault}; the server continues the cleanup", 128 + fault.number)
    except DayflyError as fault:
        return _report_kept(name, str(fault), fault.code)
    return Exit.OK


def _client_after_signal(server_: SharedServer, signals: Signals) -> ServerClient:
    """Return the client with a new connection: a signal may have interrupted an exchange."""
    server_.client.close()
    signals.clear_pending()
    server_.update_address(server_.client)
    return server_.client


def _report_kept(name: str, message: str, code: int) -> int:
    show.print_message(f"dayfly: {name}: {message}")
    return code


class _Lease:
    """Renews the lease of the sandbox while this process lives, in a separate thread with its own connection.

    Attributes:
        is_ready: Whether the sandbox is ready. From then on, its end is reported.
    """

    def __init__(self, server_: SharedServer, name: str) -> None:
        self.is_ready = False
        self._server = server_
        self._client = ServerClient(server_.client.address, timeout=RENEW_INTERVAL_S)
        self._name = name
        self._seconds = LEASE_S
        self._changed, self._renewed, self._stopped = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def _renew(self) -> None:
        while True:
            self._changed.wait(RENEW_INTERVAL_S)
            self._changed.clear()
            if self._stopped.is_set():
                break
            seconds = self._seconds
            try:
                self._client.put("sandboxes", self._name, "lease", body={"seconds": seconds})
                if seconds == self._seconds:
                    self._renewed.set()
            except RefusedError as fault:
                self._renewed.set()
                if self.is_ready and fault.status in _NO_LEASE and not self._stopped.is_set():
                    show.print_message(
                        f"dayfly: {self._name} has ended, and the command is still running: {fault.message}"
                    )
                    self.is_ready = False  # reported once
            except DayflyError:
                if not self._stopped.is_set():
                    self._server.update_address(self._client)
        self._client.close()

    def __enter__(self) -> Self:
        Signals.start_blocked(self._thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._changed.set()

    def join(self) -> None:
        """Wait for the last renewal. If it came later, it would shorten a longer lease."""
        self._thread.join()

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Extend the lease before Ctrl-Z stops this process, because a stopped process cannot renew it."""
        self._seconds = SUSPENDED_LEASE_S
        self._renewed.clear()
        self._changed.set()
        if self._renewed.wait(RENEW_INTERVAL_S) and self.is_ready:
            show.print_message(f"dayfly: {self._name} is kept while the command is suspended, at most for a day")
        yield
        self._seconds = LEASE_S
        self._changed.set()


def _environment(found: list[Any], aliases: dict[str, str]) -> dict[str, str]:
    """Return the environment of this process with all outputs that a variable can hold."""
    environment = dict(os.environ)
    values: dict[str, str] = {}
    for variable in outputs.settable_variables(outputs.variables(found), show.print_message):
        assert variable.value is not None, "usable"
        environment[variable.name] = variable.value
        step = "/".join(part for part in (variable.resource, variable.step) if part)
        values[f"{step}.{variable.output}"] = variable.value
    for name, key in aliases.items():
        meant = [each for each in values if each == key or each.endswith(f"/{key}")]
        if len(meant) != 1:
            why = "it is missing, binary, too large, or sensitive in a cluster with an agent"
            raise DayflyError(Exit.FAILED, f"the variable {name} cannot hold the output {key}", why)
        environment[name] = values[meant[0]]
    return environment
