"""The exit codes, and the error that carries one of them to the end of the program."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Exit(enum.IntEnum):
    """What the shell is told. `with` returns its command's own code; 128 + n means ended by signal n."""

    OK = 0
    FAILED = 1  # it was tried and did not succeed
    USAGE = 2  # the command line, or a file it names, is wrong; no sandbox was changed
    NOT_FOUND = 3
    TIMED_OUT = 4  # the wait is over, the work goes on
    DENIED = 5  # the server refuses the key, or the machine refuses access to the home
    NO_SERVER = 6


class CliError(Exception):
    """Why a command cannot go on, as one line.

    Attributes:
        code: What the shell is told.
        message: What is wrong.
        advice: What to do next; may be empty when the message says it.
    """

    def __init__(self, code: Exit, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


def not_there(message: str, name: str, known: Iterable[str], see: str) -> CliError:
    """That something is not there, with what may be meant."""
    import difflib

    plain = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
    meant = f'did you mean "{plain[close[0]]}"? ' if close else ""
    return CliError(Exit.NOT_FOUND, message, f"{meant}see: {see}")
