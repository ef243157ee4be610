r"""Patterns of label values, as Go's `filepath.Match` reads them, which existing route groups rely on.

*      any characters except /
?      one character except /
[a-z]  one character of a class, which may include /; [^a-z] one character outside it
\c     the character c itself

Python's `fnmatch` reads other patterns. The algorithm is Go's own, over bytes, with its quirks: the text after a star
is matched at the first possible place without backtracking, except for the last part. So a match takes at most length
times length steps.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from dayfly.spec.errors import Path, SpecError, quote

MAX_PATTERN_LENGTH, MAX_WILDCARDS = 256, 16
MAX_VALUE_LENGTH, MAX_NON_ASCII_LENGTH = 256, 63
"""Limits the cost of matching: only patterns without wildcards match longer values."""

_SLASH = 0x2F
_UNREADABLE = 0xFFFD


class _Class(NamedTuple):
    negated: bool
    ranges: tuple[tuple[int, int], ...]


# A sequence of bytes, any character (None), or one of a class.
_Token: TypeAlias = bytes | _Class | None


class _Chunk(NamedTuple):
    """The tokens between two stars; `star` states whether one precedes them."""

    star: bool
    tokens: tuple[_Token, ...]


class Glob:
    """A pattern. Patterns of the same text are equal."""

    __slots__ = ("_chunks", "_plainly", "literal", "prefix", "text")

    def __init__(self, text: str, keys: Path = ()) -> None:
        """Parse the pattern.

        Raises:
            SpecError: It is malformed, too long or has too many wildcards. The message has the position.
        """
        if len(text) > MAX_PATTERN_LENGTH:
            raise SpecError(f"a pattern has at most {MAX_PATTERN_LENGTH} characters, this one {len(text)}", keys)
        self.text = text
        self._chunks = _parse(text, keys)
        if (count := sum(map(_wildcards, self._chunks))) > MAX_WILDCARDS:
            raise SpecError(f"a pattern has at most {MAX_WILDCARDS} of * ? and classes, this one {count}", keys)
        first = self._chunks[0].tokens[:1] if self._chunks and not self._chunks[0].star else ()
        self.prefix = first[0].decode() if first and isinstance(first[0], bytes) else ""
        """The constant start of each value that it matches."""
        plain = len(self._chunks) == 1 and not self._chunks[0].star and len(self._chunks[0].tokens) == 1
        self.literal = not text or (plain and bool(self.prefix))
        """Whether it matches only one value, its prefix."""
        self._plainly = re.compile(_expression(self._chunks))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, value: str) -> bool:
        """Return whether the pattern matches the whole value."""
        if self.literal:
            return value == self.prefix
        if not value.startswith(self.prefix):
            return False
        if value.isascii():
            return len(value) <= MAX_VALUE_LENGTH and self._plainly.match(value) is not None
        if len(value) > MAX_NON_ASCII_LENGTH:
            return False
        name, at = value.encode("utf-8", "surrogatepass"), 0
        last = len(self._chunks) - 1
        for number, chunk in enumerate(self._chunks):
            if chunk.star and not chunk.tokens:
                return _SLASH not in name[at:]
            end = _find(chunk, name, at, is_last=number == last)
            if end < 0:
                return False
            at = end
        return at == len(name)


def _expression(chunks: tuple[_Chunk, ...]) -> str:
    """Return an equivalent regular expression for ASCII values. An atomic group prevents backtracking."""
    found = []
    for number, chunk in enumerate(chunks):
        written = "".join(map(_written, chunk.tokens))
        is_last = number == len(chunks) - 1
        if not chunk.star:
            found.append(written)
        elif is_last:
            found.append(f"[^/]*?{written}" if written else "[^/]*")
        else:
            found.append(f"(?>[^/]*?{written})")
    return "".join((*found, r"\Z"))


def _written(token: _Token) -> str:
    if isinstance(token, bytes):
        return re.escape(token.decode("utf-8", "surrogatepass"))
    if token is None:
        return "[^/]"
    ranges = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in token.ranges if low <= high)
    if not ranges:
        return r"[\s\S]" if token.negated else "(?!)"
    return f"[{'^' if token.negated else ''}{ranges}]"


def _wildcards(chunk: _Chunk) -> int:
    """Return the number of wildcards, each of which costs a step for each character of a value."""
    return chunk.star + sum(not isinstance(token, bytes) for token in chunk.tokens)


def _find(chunk: _Chunk, name: bytes, at: int, *, is_last: bool) -> int:
    """Return the end of the chunk's match at `at`, or later if a star allows that; -1 if it does not match."""
    while True:
        end = _fits(chunk.tokens, name, at)
        if end >= 0 and (end == len(name) or not is_last):
            return end
        if not chunk.star or at >= len(name) or name[at] == _SLASH:
            return -1
        at += 1


def _fits(tokens: tuple[_Token, ...], name: bytes, at: int) -> int:
    for token in tokens:
        if isinstance(token, bytes):
            if not name.startswith(token, at):
                return -1
            at += len(token)
            continue
        if at >= len(name):
            return -1
        rune, size = _rune(name, at)
        at += size
        if token is None:
            if rune == _SLASH:
                return -1
        elif any(low <= rune <= high for low, high in token.ranges) == token.negated:
            return -1
    return at


def _rune(name: bytes, at: int) -> tuple[int, int]:
    """Return the character that begins there, and its length in bytes. An invalid byte counts as one character."""
    lead = name[at]
    if lead < 0x80:
        return lead, 1
    for size in (2, 3, 4):
        try:
            return ord(name[at : at + size].decode()), size
        except UnicodeDecodeError:
            continue
    return _UNREADABLE, 1


def _parse(text: str, keys: Path) -> tuple[_Chunk, ...]:
    chunks, at = [], 0
    while at < len(text):
        star = text[at] == "*"
        while at < len(text) and text[at] == "*":
            at += 1
        end = _chunk_end(text, at)
        chunks.append(_Chunk(star, _tokens(text, at, end, keys)))
        at = end
    return tuple(chunks)


def _chunk_end(text: str, at: int) -> int:
    """Return the position of the next star outside a class."""
    in_class = False
    while at < len(text):
        match text[at]:
            case "\\":
                at += 1
            case "[":
                in_class = True
            case "]":
                in_class = False
            case "*" if not in_class:
                return at
        at += 1
    return len(text)


def _tokens(text: str, at: int, end: int, keys: Path) -> tuple[_Token, ...]:
    found: list[_Token] = []
    while at < end:
        char = text[at]
        if char == "[":
            made, at = _class(text, at, end, keys)
            found.append(made)
            continue
        if char == "?":
            found.append(None)
        else:
            if char == "\\":
                at += 1
                if at >= end:
                    raise _bad(text, at - 1, "ends with a backslash; write two for a backslash itself", keys)
            here = text[at].encode("utf-8", "surrogatepass")
            if found and isinstance(found[-1], bytes):
                found[-1] += here
            else:
                found.append(here)
        at += 1
    return tuple(found)


def _class(text: str, begin: int, end: int, keys: Path) -> tuple[_Class, int]:
    at = begin + 1
    ranges: list[tuple[int, int]] = []
    negated = at < end and text[at] == "^"
    at += negated
    while not (at < end and text[at] == "]" and ranges):
        low, at = _member(text, begin, at, end, keys)
        high = low
        if text[at] == "-":
            high, at = _member(text, begin, at + 1, end, keys)
        ranges.append((low, high))
    return _Class(negated, tuple(ranges)), at + 1


def _member(text: str, begin: int, at: int, end: int, keys: Path) -> tuple[int, int]:
    """Return one character of a class and its end; the class must continue after it."""
    if at < end and text[at] in "-]":
        raise _bad(text, at, f"{quote(text[at])} is not allowed in a class; write \\{text[at]}", keys)
    if at < end and text[at] == "\\":
        at += 1
    if at + 1 >= end:
        raise _bad(text, begin, "the class that begins here has no end; write ] or, for the character, \\[", keys)
    if "\ud800" <= text[at] <= "\udfff":
        raise _bad(text, at, "a character is missing", keys)
    return ord(text[at]), at + 1


def _bad(text: str, at: int, problem: str, keys: Path) -> SpecError:
    return SpecError(f"{quote(text)} is not a pattern: at character {at + 1}, {problem}", keys)
