"""A run's progress on stderr while somebody waits: a picture that redraws itself, or one line for each change."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

from dayfly.cli.output.frame import Report, frame, lasted, ordered
from dayfly.cli.output.show import hush, plain, talk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self


class ProgressView(Protocol):
    """What is told how a run is doing. `pause` is the longest time in seconds it likes to be left without news."""

    pause: float

    def show(self, report: Report) -> None:
        """Take in a report, which may be the one before with a later clock."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def begin(name: str) -> ProgressView:
    """A picture if somebody looks at a terminal that can move its cursor, else lines."""
    looked_at = sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    return Picture(name) if looked_at else Lines(name)


class Lines:
    """One line whenever a unit changes; nothing else, so that logs of build servers stay short."""

    pause = 10.0

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: dict[str, tuple[str, int]] = {}

    def show(self, report: Report) -> None:
        for unit in ordered(report):
            state = (unit["state"], unit.get("attempt", 0))
            if self.seen.get(unit["id"], ("waiting", 0)) == state:
                continue
            self.seen[unit["id"]] = state
            talk(f"{self.name}: {unit['id']}: {self._words(unit)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @staticmethod
    def _words(unit: dict[str, object]) -> str:
        state = str(unit["state"])
        words = (unit.get("reason"), unit.get("message")) if state == "failed" else (unit.get("message"),)
        message = ": ".join(str(word) for word in words if word)
        if state == "succeeded":
            took = lasted(unit, 0)
            return f"{state} after {took}" if took else state
        return f"{state}: {message}" if message and state in ("failed", "unknown", "retrying") else state


class Picture:
    """All units at once, redrawn in place; its last state stays on the terminal."""

    pause = 1.0  # a clock that is shown must go

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.name = plain(name)
        self.styled = not os.environ.get("NO_COLOR")  # rich leaves bold and dim
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.unicode = "utf" in self.console.encoding
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(self, report: Report) -> None:
        from rich.text import Text

        size = self.console.size
        # The cursor stands in the line below the picture; the last column would wrap on some terminals.
        lines = frame(
            self.name,
            report,
            int(time.time() * 1000),
            width=max(size.width - 1, 20),
            height=max(size.height - 1, 3),
            unicode=self.unicode,
        )
        text = Text("\n", no_wrap=True, overflow="crop").join(
            Text(line.text, line.style if self.styled else "") for line in lines
        )
        with _whoever_looks():
            self.live.update(text, refresh=True)

    def __enter__(self) -> Self:
        with _whoever_looks():
            self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _whoever_looks():
            self.live.__exit__(kind, fault, trace)


@contextlib.contextmanager
def _whoever_looks() -> Iterator[None]:
    """A terminal that is gone is drawn on no more, and what was to be shown goes on."""
    try:
        yield
    except OSError:
        hush(sys.stderr)
