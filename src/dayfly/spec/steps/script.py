"""The script of a step: a program text with its interpreter."""

from __future__ import annotations

import posixpath
import re
import shlex

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.parsing.text import BYTE_ORDER_MARK

MAX_BYTES = 128 * 1024
# These read a carriage return as a line end or blank, also in strings of several lines. All others, such as shells,
# read it as a character: `rm -f "$FILE\r"` removes nothing and succeeds.
_READ_CARRIAGE_RETURNS = re.compile(r"(?:python|pypy|perl|tclsh)[0-9.]*|node|nodejs|deno|bun")
_SPLIT = re.compile(r"(?:-[iv]*S|--split-string=)(?P<text>.*)", re.DOTALL)
_TAKE_ANOTHER = frozenset({"-u", "--unset", "-C", "--chdir", "-a", "--argv0"})
"""Options of `env` whose value is the next argument."""
_UNIX = "save the script with Unix line endings (LF)"


def check(script: str, keys: Path) -> None:
    """Refuse a script that no runner can start, or that its interpreter reads differently than its author.

    Raises:
        SpecError: The fault with its path.
    """
    if script.startswith(BYTE_ORDER_MARK):
        raise SpecError("begins with a byte order mark (U+FEFF); save it as UTF-8 without one", keys)
    first = script.partition("\n")[0]
    if not first.startswith("#!"):
        raise SpecError('must begin with #!; add e.g. "#!/bin/sh" as its first line', keys)
    _check_line_ends(script, first, keys)
    if not first[2:].strip().startswith("/"):
        raise SpecError(f'{quote(first)} names no interpreter by its absolute path; write e.g. "#!/bin/sh"', keys)
    _check_env(first, keys)
    if (size := len(script.encode())) > MAX_BYTES:
        raise SpecError(f"has {size} bytes; a script has at most {MAX_BYTES}: put the rest into the image", keys)


def interpreter(first: str) -> str:
    """Return the name of the program that reads a script with this first line, with `env` and its options resolved.

    It is empty if the line has no program, or none that can be determined.
    """
    program, rest = _first_words(first)
    if program != "env":
        return program
    try:
        return posixpath.basename(_behind_env(shlex.split(rest)))
    except ValueError:
        return ""


def _first_words(first: str) -> tuple[str, str]:
    """Return the base name of the program in a first line, and its one argument."""
    words = first.removeprefix("#!").strip(" \t\r").replace("\t", " ").split(" ", 1)
    return posixpath.basename(words[0]), "".join(words[1:]).strip()


def _check_env(first: str, keys: Path) -> None:
    """Refuse a first line for which `env` fails, or starts the script itself forever."""
    program, rest = _first_words(first)
    if program != "env":
        return
    if " " in rest and not _SPLIT.fullmatch(rest):
        problem = (
            f"the kernel passes {quote(rest)} to env as one argument; write e.g. {quote(f'#!/usr/bin/env -S {rest}')}"
        )
        raise SpecError(problem, keys)
    if not interpreter(first) and _is_plain(rest):
        raise SpecError(f'{quote(first)} names no program; write e.g. "#!/usr/bin/env python3"', keys)


def _is_plain(rest: str) -> bool:
    """Return whether `shlex` reads it as `env` does."""
    return not any(character in rest for character in "\"'\\$#")


def _behind_env(words: list[str]) -> str:
    """Return the program that `env` starts with these arguments; empty if there is none."""
    words = list(words)
    while words:
        word = words.pop(0)
        if glued := _SPLIT.fullmatch(word):
            words[:0] = shlex.split(glued["text"])
        elif word in _TAKE_ANOTHER:
            del words[:1]
        elif not word.startswith("-") and "=" not in word:
            return word
    return ""


def _check_line_ends(script: str, first: str, keys: Path) -> None:
    if "\r" not in script:
        return
    program = interpreter(first)
    if "\r" not in first and _READ_CARRIAGE_RETURNS.fullmatch(program):
        return
    lines = script.split("\n")
    wrong = [number for number, line in enumerate(lines, 1) if "\r" in line]
    where = "ends in" if lines[wrong[0] - 1].index("\r") == len(lines[wrong[0] - 1]) - 1 else "contains"
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    takes = "" if "\r" in first else f", which {program or 'its interpreter'} reads as text"
    raise SpecError(f"line {wrong[0]}{more} {where} a carriage return{takes}; {_UNIX}", keys)
