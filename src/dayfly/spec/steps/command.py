"""The command of a step: a program in the image with its arguments."""

from __future__ import annotations

import re

from dayfly.spec.errors import Path, SpecError, quote

MAX_WORDS = 256
MAX_BYTES = 128 * 1024
MAX_WORD_BYTES = 16 * 1024
_LINE_END = re.compile(r"\r(?:\n|\Z)")


def check(command: tuple[str, ...], keys: Path) -> None:
    """Refuse a command that no runner can start.

    Raises:
        SpecError: The fault with its path.
    """
    if not command or not command[0]:
        raise SpecError("has no program; write [program, argument, ...]", keys)
    if "$(" in command[0]:
        problem = f"{quote(command[0])}: the program must be constant; use variables in its arguments"
        raise SpecError(problem, (*keys, 0))
    if len(command) > MAX_WORDS:
        raise SpecError(f"has {len(command)} words; a command has at most {MAX_WORDS}", keys)
    for index, word in enumerate(command):
        if _LINE_END.search(word):
            problem = (
                "has a line that ends in a carriage return, which a shell reads as text; use Unix line endings (LF)"
            )
            raise SpecError(problem, (*keys, index))
        if (size := len(word.encode())) > MAX_WORD_BYTES:
            raise SpecError(f"has {size} bytes; an argument has at most {MAX_WORD_BYTES}", (*keys, index))
    if (size := sum(len(word.encode()) + 1 for word in command)) > MAX_BYTES:
        raise SpecError(f"has {size} bytes; a command has at most {MAX_BYTES}: give long values as files", keys)
