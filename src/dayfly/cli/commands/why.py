"""`dayfly why`: explain what a sandbox waits for, down to the root cause."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dayfly.cli import options
from dayfly.cli.backends import hosts
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client import subject
from dayfly.plan.messages import format_duration
from dayfly.spec.report import with_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.backends.protocol import Backend


@verb("why")
@options.name_argument("sandbox", "subjects")
@options.backend_options
@options.output
def command(sandbox: str, context: str | None, namespace: str | None, output: str | None) -> None:
    """Explain what a sandbox is waiting for, down to the root cause, since when, and what to do.

    This also explains a delete that does not finish. SANDBOX is a name, or routegroup/NAME, pool/NAME, parent/NAME,
    lifecyclehook/NAME or resourceplugin/NAME.
    """
    host = hosts.find(context, namespace)
    obstacle = _why_parent(host, sandbox) if _is_parent(sandbox) else host.why(sandbox)
    if output:
        show.emit(obstacle or _ready(host, sandbox), output)
    elif obstacle:
        for line, look in _tree(obstacle, int(time.time() * 1000), "", ""):
            show.print_line(line, look)
    else:
        show.print_line(f"{sandbox} is not waiting for anything", "green")


def _is_parent(sandbox: str) -> bool:
    return sandbox.startswith(("parent/", "parents/"))


def _why_parent(host: Backend, sandbox: str) -> Any:
    import msgspec

    from dayfly.cli.shared_parents import explain_parent

    obstacle = explain_parent(host, sandbox.partition("/")[2])
    return msgspec.to_builtins(obstacle) if obstacle is not None else {}


def _ready(host: Backend, sandbox: str) -> dict[str, Any]:
    """Return the JSON for an object that waits for nothing."""
    from dayfly.plan import why
    from dayfly.plan.reasons import Reason

    if subject.parse_published(sandbox):
        reason = Reason.ACCEPTED
    else:
        reason = Reason.READY if _is_parent(sandbox) else host.report(sandbox)["reason"]
    return {
        "subject": why.obstacle_subject(sandbox),
        "reason": reason,
        "message": "it is not waiting for anything",
    }


def _tree(obstacle: Any, now: int, first: str, rest: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of the obstacle and its causes, each with a style. The root cause is red.

    `first` is the prefix of the first line, `rest` that of the others.
    """
    since = obstacle.get("since", 0)
    duration = f" (for {format_duration(now - since)})" if since else ""
    explanation = with_reason(obstacle["reason"], obstacle["message"])
    deeper = obstacle.get("because", [])
    yield f"{first}{obstacle['subject']}: {explanation}{duration}", "" if deeper else "red"
    if advice := obstacle.get("next", ""):
        yield f"{rest}{'|  ' if deeper else '   '}to do: {advice}", "bold"
    for number, each in enumerate(deeper, 1):
        last = number == len(deeper)
        yield from _tree(each, now, rest + ("`- " if last else "|- "), rest + ("   " if last else "|  "))
