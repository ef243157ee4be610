"""A terminal to run commands in, and what its screen shows: as much of a VT100 as our progress uses, strictly."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Cli

_CONTROL = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Screen:
    """Lines of fixed width; anything it does not know is an error, so that we do not use more than we think."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines = [""]
        self.row = self.column = 0
        self.frames: list[str] = []
        self.styles: set[str] = set()

    def feed(self, text: str) -> None:
        """Take in what a program wrote."""
        at = 0
        while at < len(text):
            if match := _CONTROL.match(text, at):
                self._control(match[1], match[2])
                at = match.end()
                continue
            self._character(text[at])
            at += 1

    def _character(self, char: str) -> None:
        if char == "\n":
            self._note()
            self.row, self.column = self.row + 1, 0
            while len(self.lines) <= self.row:
                self.lines.append("")
        elif char == "\r":
            self._note()
            self.column = 0
        else:
            assert char.isprintable(), repr(char)
            if self.column == self.width:
                self._character("\n")
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
            self.column += 1

    def _control(self, given: str, letter: str) -> None:
        if letter == "m":
            self.styles.add(given)
        elif letter == "A":
            self._note()
            up = int(given or 1)
            assert up < self.height, "the picture is higher than the terminal"
            self.row -= up
            assert self.row >= 0
        elif letter == "K":
            assert given == "2"
            self.lines[self.row] = ""
        else:
            assert (given, letter) in {("?25", "l"), ("?25", "h")}, (given, letter)

    def _note(self) -> None:
        shown = self.text()
        if not self.frames or self.frames[-1] != shown:
            self.frames.append(shown)

    def text(self) -> str:
        """Return the content of the screen and of the scroll-back."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


def run(
    cli: Cli,
    *arguments: str,
    width: int = 80,
    height: int = 24,
    gate: tuple[str, Path] | None = None,
    **more: str,
) -> tuple[int, Screen, bytes]:
    """Run a command whose stderr and stdin are a terminal: its code, the screen, and its stdout.

    Once the words of `gate` are on the screen its file is made: a step that waits for that is seen at work.
    """
    from tests.cli.command import COMMAND

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    environment = cli.environment(**{"TERM": "xterm", "PYTHONIOENCODING": "utf-8", **more})
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=cli.folder, env=environment
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the terminal's other side is closed
        while new := os.read(ours, 65536):
            said += new
            if gate and gate[0] in _CONTROL.sub("", said.decode(errors="ignore")):
                gate[1].touch()
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    screen = Screen(width, height)
    screen.feed(said.decode())
    return process.returncode, screen, out
