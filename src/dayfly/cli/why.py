"""`dayfly why`: from a sandbox down to the root of what holds it up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import hosts, options, show
from dayfly.plan.words import span

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command("why")
@options.named("sandbox", "subjects")
@options.cluster
@options.output
def command(sandbox: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Explain what a sandbox is waiting for, down to the root cause, since when, and what to do.

    This also explains a delete that does not finish.
    """
    host = hosts.find(context, namespace)
    blocker = host.why(sandbox)
    if output:
        show.emit(blocker, output)
    elif blocker:
        now = int(time.time() * 1000)
        for line in _tree(blocker, now, "", ""):
            show.line(line)
    elif closed := host.report(sandbox).get("closed"):
        show.line(f"{sandbox} has ended: {closed['message'] or closed['reason']}")
    else:
        show.line(f"{sandbox} is not waiting for anything")


def _tree(blocker: Any, now: int, first: str, rest: str) -> Iterator[str]:
    """The blocker, then those beneath it; `first` stands before its own line, `rest` before all others."""
    since = blocker.get("since", 0)
    how_long = f" (for {span(now - since)})" if since else ""
    yield f"{first}{blocker['subject']}: {blocker['reason']}: {blocker['message']}{how_long}"
    deeper = blocker.get("because", [])
    if advice := blocker.get("next", ""):
        yield f"{rest}{'|  ' if deeper else '   '}to do: {advice}"
    for number, each in enumerate(deeper, 1):
        last = number == len(deeper)
        yield from _tree(each, now, rest + ("`- " if last else "|- "), rest + ("   " if last else "|  "))
