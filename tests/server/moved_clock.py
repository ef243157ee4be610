"""Dayfly's command line with a clock that a test moves: `python -m server.moved_clock FILE COMMAND...`.

FILE holds by how many milliseconds the wall clock of these processes is ahead of the machine's. All of Dayfly reads
`time.time_ns`; waits use the monotonic clock, which is not changed.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path

_FORM = struct.Struct("<q")


class Clock:
    """The wall clock of some processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_FORM.pack(0))

    def command(self, *words: str) -> list[str]:
        """Return the command that runs Dayfly's command line with this clock."""
        return [sys.executable, "-m", "tests.server.moved_clock", str(self.path), *words]

    def now_ms(self) -> int:
        """Return its time in Unix milliseconds."""
        return time.time_ns() // 1_000_000 + _FORM.unpack(self.path.read_bytes())[0]

    def move_on(self, hours: float) -> None:
        """Move the clock of all processes forward."""
        [ahead] = _FORM.unpack(self.path.read_bytes())
        with self.path.open("r+b") as file:
            file.write(_FORM.pack(ahead + round(hours * 3_600_000)))


def _run(path: str, words: list[str]) -> None:
    with Path(path).open("rb") as file:
        ahead = mmap.mmap(file.fileno(), _FORM.size, access=mmap.ACCESS_READ)
    true = time.time_ns
    time.time_ns = lambda: true() + 1_000_000 * _FORM.unpack_from(ahead)[0]
    time.time = lambda: time.time_ns() / 1e9
    sys.argv = ["dayfly", *words]
    from dayfly.cli.main import main

    main()


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2:])
