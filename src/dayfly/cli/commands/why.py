"""`dayfly why`: from a sandbox down to the root of what holds it up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.plan.messages import span
from dayfly.spec.report import with_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.backends.protocol import Backend


@click.command("why")
@options.named("sandbox", "subjects")
@options.cluster
@options.output
def command(sandbox: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Explain what a sandbox is waiting for, down to the root cause, since when, and what to do.

    This also explains a delete that does not finish. SANDBOX is a name, or routegroup/NAME, lifecyclehook/NAME or
    resourceplugin/NAME.
    """
    host = hosts.find(context, namespace)
    blocker = host.why(sandbox)
    if output:
        show.emit(blocker or _ready(host, sandbox), output)
    elif blocker:
        for line in _tree(blocker, int(time.time() * 1000), "", ""):
            show.line(line)
    else:
        show.line(f"{sandbox} is not waiting for anything")


def _ready(host: Backend, sandbox: str) -> dict[str, Any]:
    """Return the answer for an object that waits for nothing, in the form of all others."""
    from dayfly.plan import why
    from dayfly.plan.reasons import Reason

    reason = Reason.ACCEPTED if subject.published(sandbox) else host.report(sandbox)["reason"]
    return {"subject": why.subject(sandbox), "reason": reason, "message": "it is not waiting for anything"}


def _tree(blocker: Any, now: int, first: str, rest: str) -> Iterator[str]:
    """The blocker, then those beneath it; `first` stands before its own line, `rest` before all others."""
    since = blocker.get("since", 0)
    how_long = f" (for {span(now - since)})" if since else ""
    said = with_reason(blocker["reason"], blocker["message"])
    yield f"{first}{blocker['subject']}: {said}{how_long}"
    deeper = blocker.get("because", [])
    if advice := blocker.get("next", ""):
        yield f"{rest}{'|  ' if deeper else '   '}to do: {advice}"
    for number, each in enumerate(deeper, 1):
        last = number == len(deeper)
        yield from _tree(each, now, rest + ("`- " if last else "|- "), rest + ("   " if last else "|  "))
