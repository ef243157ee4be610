"""The progress of a run on stderr: a display that is redrawn in place, or one line for each change."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

from dayfly.cli.output.frame import Report, duration, frame, ordered
from dayfly.cli.output.show import discard_output, escape_line, print_message
from dayfly.spec.report import with_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self


class ProgressView(Protocol):
    """Shows the reports of a run.

    Attributes:
        pause: The longest time in seconds between two calls of `show`.
        shows_logs: Whether it has room for the log of a running step.
    """

    pause: float
    shows_logs: bool

    def show(self, report: Report, log: Sequence[str] = ()) -> None:
        """Show a report, which may be the same as before, with the last lines of a running step."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def begin(name: str) -> ProgressView:
    """Return a display if stderr is a terminal that can move its cursor, otherwise lines."""
    is_interactive = sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    return LiveDisplay(name) if is_interactive else ChangeLog(name)


class ChangeLog:
    """Prints one line when a unit changes, so that logs of CI jobs stay short."""

    pause = 10.0
    shows_logs = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: dict[str, tuple[str, int]] = {}

    def show(self, report: Report, log: Sequence[str] = ()) -> None:  # noqa: ARG002 # logs of CI jobs stay short
        for unit in ordered(report):
            state = (unit["state"], unit.get("attempt", 0))
            if self.seen.get(unit["id"], ("waiting", 0)) == state:
                continue
            self.seen[unit["id"]] = state
            print_message(f"{self.name}: {unit['id']}: {self._describe(unit)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @staticmethod
    def _describe(unit: dict[str, object]) -> str:
        state = str(unit["state"])
        message = str(unit.get("message") or "")
        if state == "failed":
            message = with_reason(str(unit.get("reason") or ""), message)
        if state == "succeeded":
            took = duration(unit, 0)
            return f"{state} after {took}" if took else state
        return f"{state}: {message}" if message and state in ("failed", "unknown", "retrying") else state


class LiveDisplay:
    """Shows all units and redraws them in place. The last state stays on the terminal."""

    pause = 1.0  # the display shows elapsed seconds
    shows_logs = True

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.name = escape_line(name)
        self.styled = not os.environ.get("NO_COLOR")  # rich would still use bold and dim
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.unicode = "utf" in self.console.encoding
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(self, report: Report, log: Sequence[str] = ()) -> None:
        from rich.text import Text

        size = self.console.size
        # The cursor is in the line below the display. Some terminals wrap after the last column.
        lines = frame(
            self.name,
            report,
            int(time.time() * 1000),
            width=max(size.width - 1, 20),
            height=max(size.height - 1, 3),
            unicode=self.unicode,
            log=log,
        )
        text = Text("\n", no_wrap=True, overflow="crop").join(
            Text(line.text, line.style if self.styled else "") for line in lines
        )
        with _ignore_closed_terminal():
            self.live.update(text, refresh=True)

    def __enter__(self) -> Self:
        with _ignore_closed_terminal():
            self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _ignore_closed_terminal():
            self.live.__exit__(kind, fault, trace)


@contextlib.contextmanager
def _ignore_closed_terminal() -> Iterator[None]:
    """Continue without a display if the terminal is closed."""
    try:
        yield
    except OSError:
        discard_output(sys.stderr)
