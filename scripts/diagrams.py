#!/usr/bin/env python3
"""Draw the ledger's moves and the default clocks into docs/explanation/guarantees.md, from the code that has them.

With --check the script writes nothing, and fails if the page is not current.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dayfly import compile as compiler  # noqa: E402 - found beside this script, installed or not
from dayfly.plan import retry, transitions  # noqa: E402 - as above
from dayfly.plan.actions import Finish, Move  # noqa: E402 - as above
from dayfly.plan.messages import format_duration  # noqa: E402 - as above
from dayfly.plan.sealed import SealedStep, seal  # noqa: E402 - as above
from dayfly.spec import documents  # noqa: E402 - as above
from dayfly.spec.lifecycle import LifecycleEvent, Target  # noqa: E402 - as above
from dayfly.spec.parsing import text  # noqa: E402 - as above
from dayfly.spec.run import EndRequest, Phase, Run, State  # noqa: E402 - as above
from dayfly.spec.sandbox import Sandbox  # noqa: E402 - as above

PAGE = ROOT / "docs" / "explanation/guarantees.md"
LANE = 12
_END = "<!-- end -->"

# A sandbox with a step in each event without clocks or tries of its own, and a step that may be repeated.
_BARE = """
name: bare
spec:
  cluster: local
  resources:
  - name: thing
    spec:
      create:
      - {name: once, script: "#!/bin/sh\\n"}
      - {name: idempotent, script: "#!/bin/sh\\n", retry: {idempotent: true}}
      delete:
      - {name: remove, script: "#!/bin/sh\\n"}
  hooks:
    postStart:
    - {name: after-start, script: "#!/bin/sh\\n"}
    preStop:
    - {name: before-stop, script: "#!/bin/sh\\n"}
"""

Row = tuple[str, StrEnum, StrEnum, str]
"""A move's name, its state before and after, and its meaning."""


def unit_moves() -> str:
    """Return the states of a unit, with every move of the table."""
    rows = [(kind.__name__, before, after, _meaning(kind)) for (before, kind), after in transitions.UNIT_MOVES.items()]
    return _lanes(State, rows)


def run_moves() -> str:
    """Return the phases of a run. The result of a move after a request to abandon comes from `apply` itself."""
    rows: list[Row] = []
    for (before, kind), after in transitions.RUN_MOVES.items():
        rows.append((kind.__name__, before, after, _meaning(kind)))
        if kind is Finish:
            given_up = Run(uid="", target=Target(kind="", name="", uid=""), plan="", phase=before, abandon=_ASKED)
            then = transitions.apply(given_up, [Finish(at=0)], lambda _: True)
            rows.append((f"{kind.__name__}, given up", before, then.phase, ""))
    return _lanes(Phase, rows)


def clocks() -> str:
    """Return a table of the default attempts, back-off and timeouts of a step of each event."""
    plan = _bare_plan()
    lines = [
        "| step | attempts | back-off | scheduling | image pull | run | grace period |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, step in plan.items():
        limits = step.unit.timeouts
        cells = (
            name,
            _tries(step),
            _between(step),
            format_duration(limits.schedule_ms),
            format_duration(limits.pull_ms),
            format_duration(limits.run_ms),
            format_duration(limits.grace_ms),
        )
        lines.append(f"| {' | '.join(cells)} |")
    first, most = format_duration(retry.FORK_BACKOFF_MS), format_duration(retry.FORK_BACKOFF_MAX_MS)
    lines.append(f"| a fork | unlimited | {first}, doubled up to {most} | | | |")
    asked = f"{format_duration(retry.RECALL_TIMEOUT_MS)} to prove that it never began"
    lines.append(f"| a `create` step that is recalled (in a cluster) | 1 | | | {asked} | | |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {"units": unit_moves, "runs": run_moves, "clocks": clocks}


def updated_page(page: str) -> str:
    """Return the page with new content for each marked part.

    Raises:
        ValueError: a part does not have its marks exactly once.
    """
    for name, draw in PARTS.items():
        mark = f"<!-- drawn: {name} -->\n"
        if page.count(mark) != 1:
            raise ValueError(f"{page.count(mark)} places are marked `drawn: {name}`, exactly one is required")
        before, _, rest = page.partition(mark)
        _, end, after = rest.partition(_END)
        if not end:
            raise ValueError(f"the part `drawn: {name}` has no end")
        page = f"{before}{mark}{draw()}\n{end}{after}"
    return page


_ASKED = EndRequest(at=0, reason="", message="")


def _meaning(kind: type[Move]) -> str:
    return " ".join((kind.__doc__ or "").split()).rstrip(".")


def _lanes(states: type[StrEnum], rows: Sequence[Row]) -> str:
    """Return one lane for each state and an arrow for each move, from `o` to its head; `@` stays in its state."""
    order = list(states)
    width = max(len(name) for name, *_ in rows) + 2
    lines = [" " * width + "".join(state.value.ljust(LANE) for state in order).rstrip()]
    meant: dict[str, str] = {}
    for name, before, after, meaning in rows:
        lines.append(name.ljust(width) + _arrow(order.index(before), order.index(after), len(order)))
        if meaning:
            meant[name] = meaning
    explained = (f"- `{name}`: {meaning}." for name, meaning in meant.items())
    return "\n".join(["```text", *lines, "```", "", *explained])


def _arrow(start: int, end: int, lanes: int) -> str:
    line = list(("|" + " " * (LANE - 1)) * (lanes - 1) + "|")
    low, high = sorted((start * LANE, end * LANE))
    line[low : high + 1] = "-" * (high - low + 1)
    line[start * LANE] = "o" if start != end else "@"
    if start < end:
        line[end * LANE] = ">"
    elif end < start:
        line[end * LANE] = "<"
    return "".join(line)


def _bare_plan() -> dict[str, SealedStep]:
    """Return a step of each kind, by its name in the table."""
    sandbox = documents.load(text.parse_one(_BARE, file="bare"))
    assert isinstance(sandbox, Sandbox), "the text above is a Sandbox"
    plan = seal(compiler.compile(sandbox, {}, uid="u", routing_key="k").documents)
    found = {(step.unit.name, step.event): step for step in plan.steps.values()}
    return {
        "`create`": found["once", LifecycleEvent.PRE_START],
        "`create`, `idempotent: true`": found["idempotent", LifecycleEvent.PRE_START],
        "hook `postStart`": found["after-start", LifecycleEvent.POST_START],
        "hook `preStop`": found["before-stop", LifecycleEvent.PRE_STOP],
        "`delete`": found["remove", LifecycleEvent.POST_STOP],
    }


def _tries(step: SealedStep) -> str:
    most = retry.attempt_limit(step)
    return "unlimited" if most == float("inf") else f"{most:.0f}"


def _between(step: SealedStep) -> str:
    if retry.attempt_limit(step) == 1:
        return ""
    waits: Iterable[int] = (retry.backoff(step.unit.retry.backoff_ms, n, retry.BACKOFF_MAX_MS) for n in (1, 2, 3))
    return f"{', '.join(map(format_duration, waits))} ... up to {format_duration(retry.BACKOFF_MAX_MS)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not current")
    check = parser.parse_args().check
    before = PAGE.read_text()
    after = updated_page(before)
    if check and after != before:
        sys.exit(f"not current, run .venv/bin/python scripts/diagrams.py: {PAGE.relative_to(ROOT)}")
    if not check:
        PAGE.write_text(after)


if __name__ == "__main__":
    main()
