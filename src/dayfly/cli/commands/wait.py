"""`dayfly wait`: wait until sandboxes, route groups or pools are ready, or gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import progress, show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from dayfly.cli.backends.protocol import Backend

_POLL_INTERVAL_S = 0.5
_READY, _DELETED = "ready", "deleted"
_GOALS = {_READY: _READY, _DELETED: _DELETED, "condition=Ready": _READY, "delete": _DELETED}
"""The values of `--for`, some as in kubectl."""


@verb("wait")
@options.name_argument("names", "subjects", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--for",
    "goal",
    type=click.Choice(list(_GOALS)),
    default=_READY,
    show_default=True,
    help="The awaited state. The last two values are other words for the first two.",
)
@options.timeout("3m")
@options.backend_options
def command(names: tuple[str, ...], goal: str, timeout: float, context: str | None, namespace: str | None) -> int:
    """Wait until sandboxes are ready, or gone. NAME is a sandbox, routegroup/NAME or pool/NAME.

    The command changes nothing. It fails as soon as one of them cannot become ready.
    """
    host = hosts.find(context, namespace)
    deadline = time.monotonic() + timeout
    for name in names:
        subject.check(name)
    for name in names:
        left = max(deadline - time.monotonic(), 0)
        if _GOALS[goal] == _READY:
            _until_ready(host, name, left)
        else:
            _until_gone(host, name, left)
        end = "is ready" if _GOALS[goal] == _READY else "is gone"
        show.print_message(f"{show.capitalize(subject.title(name))} {end}.")
    return Exit.OK


def _until_ready(host: Backend, name: str, seconds: float) -> None:
    """Wait until a run is ready.

    Raises:
        DayflyError: it failed, is being deleted, or is not ready in time.
    """
    if isinstance(host, hosts.ServerBackend):
        from dayfly.cli import watch
        from dayfly.cli.backends import lookup

        lookup.fetch(host.client, name)  # reports an unknown name
        watch.until_ready(host.client, name, seconds)
        return
    from dayfly.spec.report import FAILED

    deadline = time.monotonic() + seconds
    with progress.begin(name) as shown:
        while not (report := host.sandbox(name).report).get("ready"):
            shown.show(report)
            problem = f"{name}: {report['reason']}: {report['message']}"
            if report["reason"] in FAILED:
                raise DayflyError(Exit.FAILED, problem, f"read: dayfly logs {name}{host.flags}")
            if report.get("closed"):
                raise DayflyError(Exit.FAILED, f"{name} is being deleted", f"see: dayfly why {name}{host.flags}")
            if time.monotonic() > deadline:
                message = f"{name} is not ready after {seconds:g} s: {report['reason']}: {report['message']}"
                raise DayflyError(Exit.TIMED_OUT, message, f"see: dayfly why {name}{host.flags}")
            host.pause(_POLL_INTERVAL_S)


def _until_gone(host: Backend, name: str, seconds: float) -> None:
    """Wait until a run is gone; a run that does not exist is.

    Raises:
        DayflyError: it still exists after that time.
    """
    deadline = time.monotonic() + seconds
    with progress.begin(name) as shown:
        while True:
            try:
                report = host.sandbox(name).report
            except DayflyError as fault:
                if fault.code != Exit.NOT_FOUND:
                    raise
                return
            if report["phase"] in ("cleaned", "abandoned"):
                return
            if report["phase"] != "open":
                shown.show(report)
            if time.monotonic() > deadline:
                message = f"{name} still exists after {seconds:g} s: {report['reason']}: {report['message']}"
                raise DayflyError(Exit.TIMED_OUT, message, f"see: dayfly why {name}{host.flags}")
            host.pause(_POLL_INTERVAL_S)
