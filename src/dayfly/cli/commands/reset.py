"""`dayfly reset`: give a resource of a sandbox another pool member, or remove a home with everything in it."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.backends.target_server import ServerClient, is_remote
from dayfly.cli.command_classes import verb
from dayfly.cli.delete import delete_all
from dayfly.cli.local import server_process
from dayfly.cli.output import show
from dayfly.client import address, subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

_STOP_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.2


@verb("reset")
@options.name_argument("sandbox", "sandboxes", required=False, default="")
@click.argument("resource", required=False, default="")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before the home is removed.")
@options.timeout("10m")
@options.backend_options
def command(
    sandbox: str, resource: str, *, yes: bool, timeout: float, context: str | None, namespace: str | None
) -> None:
    """Give RESOURCE of SANDBOX another pool member; without arguments, remove the home of this machine.

    The sandbox stays as it is, its former member is removed, and `dayfly env` prints the new values. Nothing else may
    use the resource: no create step for the sandbox, fork, hook or other resource.

    Without arguments, all sandboxes of the home are deleted with their resources, its server stops, and the home is
    removed. If a cleanup fails, nothing more is removed: the home has what is needed to clean up later.
    """
    if sandbox and not resource:
        raise click.UsageError("give SANDBOX and RESOURCE, or neither", click.get_current_context())
    if not sandbox:
        if context is not None or namespace is not None:
            raise DayflyError(Exit.USAGE, "reset without arguments works on this machine only", "give SANDBOX RESOURCE")
        _remove_home(timeout, yes=yes)
        return
    host = hosts.find(context, namespace)
    replaced = host.reset(sandbox, resource)
    show.print_message(f"{resource} gets another pool member in place of {replaced}.")
    show.print_message(f"See: dayfly env {sandbox}{host.flags}")


def _remove_home(timeout: float, *, yes: bool) -> None:
    if is_remote():
        raise DayflyError(Exit.USAGE, "reset works on the home of this machine", "unset DAYFLY_URL")
    home = Home.find()
    if not home.path.exists():
        show.print_message(f"There is no home at {home.path}.")
        return
    home.check()
    if not home.store.exists() and not home.key.exists():
        raise DayflyError(Exit.USAGE, f"{home.path} is not the home of a server", "correct DAYFLY_HOME")
    if not yes:
        if not sys.stdin.isatty():
            raise DayflyError(Exit.USAGE, f"this deletes all sandboxes of {home.path}", "add --yes")
        question = f"Delete all sandboxes of {home.path}, and the home with the keys of `dayfly login`?"
        click.confirm(question, abort=True, err=True)
    if home.server_process() is None:
        server_process.start(home, ["--port", "0"])  # only a server can clean up
    _delete_all(home, timeout)
    _wait_until_clean(home, timeout)
    pid = home.server_process()
    if pid is not None:
        server_process.stop(home, pid, _STOP_TIMEOUT_S)
    shutil.rmtree(home.path)
    show.print_message(f"Removed {home.path}.")


def _delete_all(home: Home, timeout: float) -> None:
    """Delete all runs and wait until they are gone.

    Raises:
        DayflyError: one of them is not gone.
    """
    found = address.find(home, of_home=True)
    assert found is not None, "its server runs"
    client = ServerClient(found, home=home)
    kinds: dict[str, Any] = {
        "routegroups": subject.group_subject,
        "sandboxes": str,
        "resourcepools": subject.pool_subject,
    }
    names = [as_subject(each["name"]) for plural, as_subject in kinds.items() for each in client.get(plural)]
    if code := delete_all(names, wait=True, timeout=timeout, server=client):
        see = "see: dayfly why NAME; then repeat: dayfly reset"
        raise DayflyError(Exit(code), "the home is kept, because a cleanup has not ended", see)


def _wait_until_clean(home: Home, timeout: float) -> None:
    """Wait until also the pool members and shared parents that sandboxes have left are gone.

    Raises:
        DayflyError: one of them still exists.
    """
    from dayfly.embedded.startup import count_living_runs

    deadline = time.monotonic() + timeout
    while living := count_living_runs(home.path):
        if time.monotonic() > deadline:
            text = f"the home is kept, because {living} pool members or shared parents are not removed yet"
            raise DayflyError(Exit.TIMED_OUT, text, "a parent stays for its `linger`; repeat dayfly reset later")
        time.sleep(_POLL_INTERVAL_S)
