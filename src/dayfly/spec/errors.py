"""The error of this package: a fault of the document's author, with its place."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # Commands that only list things import this module, so it avoids `typing`.
    from types import TracebackType
    from typing import Self

_MAX_LINES = 20
_KEY = r"""([\w-]+)|\[([0-9]+)\]|\["([^"]*)"\]"""
_CONSONANT_SOUNDS = ("eu", "once", "one", "ubi", "unic", "unif", "unio", "uniq", "unit", "univ", "usa", "use", "util")
Path = tuple[str | int, ...]
"""The path from a document's root to one value: mapping keys and list indexes (from 0)."""


class SpecError(Exception):
    """A fault in a document. Nothing was changed because of it.

    Attributes:
        problem: The fault and its remedy, without the place.
        keys: The path to the value; empty for the document itself.
        file: Name of the file as given by the caller; empty for the body of a request.
        line: Line in that file, from 1; 0 if it is not known.
        column: Column in that line, from 1; 0 if it is not known.
        others: Further faults of the same document.
    """

    def __init__(self, problem: str, keys: Path = (), *, file: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.keys = keys
        self.file = file
        self.line = line
        self.column = column
        self.others: tuple[SpecError, ...] = ()

    @property
    def path(self) -> str:
        """The path to the value as people write it: `spec.create[0].script`."""
        return render_path(self.keys)

    def lines(self) -> list[str]:
        """Return this fault and the others, a line each, without repetitions, and a count of those beyond the limit."""
        said = list(dict.fromkeys(str(each) for each in (self, *self.others)))
        more = len(said) - _MAX_LINES
        return [*said[:_MAX_LINES], f"and {more} more like these"] if more > 0 else said

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}:{self.column}" if place else f"line {self.line}, column {self.column}"
        return ": ".join(part for part in (place, self.path, self.problem) if part)


class Faults:
    """A collection of faults, so that the author gets all of them at once.

    with faults:
        check(this)
    with faults:
        check(that)
    faults.settle()
    """

    def __init__(self) -> None:
        self.found: list[SpecError] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(fault, SpecError):
            return False
        self.found += [fault, *fault.others]
        fault.others = ()
        return True

    def settle(self) -> None:
        """Raise the first fault, with the others in it.

        Raises:
            SpecError: If there was a fault.
        """
        if self.found:
            first, *others = self.found
            first.others = tuple(others)
            raise first


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article: `an Endpoints`, `a Job`, `an HTTPRoute`, `a UserPool`."""
    if noun[:2].isupper():  # abbreviations are read letter by letter
        vowel = noun[0] in "AEFHILMNORSX"
    else:
        vowel = noun[:1].lower() in tuple("aeiou") and not noun.lower().startswith(_CONSONANT_SOUNDS)
    return f"{'an' if vowel else 'a'} {noun}"


def render_path(keys: Path) -> str:
    """Return a path in text form: dots for plain keys, brackets for indexes and other keys."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif key.replace("-", "").replace("_", "").isalnum():
            text += f".{key}" if text else key
        else:
            text += f"[{quote(key)}]"
    return text


def parse_path(text: str) -> Path:
    """Return the path in such text; empty for other text."""
    import re  # noqa: PLC0415 - commands that only list things do not need it

    keys: list[str | int] = []
    rest = text
    while match := re.match(_KEY, rest):
        name, index, quoted = match.groups()
        keys.append(int(index) if index else quoted if name is None else name)
        rest = rest[match.end() :].removeprefix(".")
    way = tuple(keys)
    return way if not rest and render_path(way) == text else ()


def quote(value: str, *, limit: int = 60) -> str:
    """Return a user's text in double quotes, on one line, cut after `limit` characters."""
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in value[:limit])
    return f'"{shown}..."' if len(value) > limit else f'"{shown}"'
