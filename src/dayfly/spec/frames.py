"""Framed documents: the format of work orders and receipts, shared with the runner program (`runner/frame.c`).

A document is a sequence of records `KEY SP LENGTH LF BYTES LF`. The key of the first record is the kind, with the value
`1`. The last record is `end` with the lower-case hexadecimal SHA-256 of all bytes before it. Keys may repeat; values
are any bytes. Each content has exactly one encoding, and C reads it without copies.
"""

import functools
import hashlib
import re
from collections.abc import Iterable

VERSION = b"1"
END = "end"

_KEY = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_HEAD = re.compile(rb"([a-z][a-z0-9-]{0,31}) (0|[1-9][0-9]{0,9})")
_HEAD_LIMIT = 32 + 1 + 10 + 1

Record = tuple[str, bytes]


class FrameError(ValueError):
    """Bytes that are not a document of the expected kind. `offset` is the position, `problem` the fault there."""

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"byte {offset}: {problem}")
        self.offset = offset
        self.problem = problem


def encode(kind: str, records: Iterable[Record]) -> bytes:
    """Return the document of that kind with these records.

    Raises:
        FrameError: A key is not a lower-case word, or is `end`. The offset is where its record would begin.
    """
    parts = [_record(kind, VERSION, [])]
    for key, value in records:
        if key == END:
            raise FrameError(_length(parts), "the key `end` closes a document and names no record")
        parts.append(_record(key, value, parts))
    document = b"".join(parts)
    return document + _record(END, _digest(document), parts)


def decode(kind: str, data: bytes) -> list[Record]:
    """Return the records of a document of that kind, without the kind and the end.

    Raises:
        FrameError: The document is cut, altered, of another kind or version, or followed by more bytes.
    """
    key, value, at = _next(data, 0)
    if key != kind:
        raise FrameError(0, f"a document of kind {key!r}, not {kind!r}")
    if value != VERSION:
        raise FrameError(0, f"version {value[:20]!r}; only {VERSION.decode()} is known")
    records: list[Record] = []
    while True:
        begin = at
        key, value, at = _next(data, begin)
        if key == END:
            break
        records.append((key, value))
    if value != _digest(data[:begin]):
        raise FrameError(begin, "the digest does not match: the document was altered")
    if at != len(data):
        raise FrameError(at, "bytes follow the end record")
    return records


def _record(key: str, value: bytes, before: list[bytes]) -> bytes:
    if not _is_key(key):
        raise FrameError(
            _length(before), f"{key!r} is not a key: a lower-case word of at most 32 letters, digits and -"
        )
    return b"%s %d\n%s\n" % (key.encode(), len(value), value)


@functools.lru_cache(maxsize=64)
def _is_key(key: str) -> bool:
    """Return the encoded key. All work orders have the same few keys, so it is cached."""
    return _KEY.fullmatch(key) is not None


def _length(parts: list[bytes]) -> int:
    return sum(map(len, parts))


def _next(data: bytes, at: int) -> tuple[str, bytes, int]:
    """Return key, value and end of the record at this offset."""
    if at == len(data):
        raise FrameError(at, "it ends without an end record")
    line = data.find(b"\n", at, at + _HEAD_LIMIT)
    head = _head(data[at:line]) if line >= 0 else None
    if head is None:
        raise FrameError(at, "no record: a key, a space and a length are expected")
    key, length = head
    begin = line + 1
    end = begin + length
    if end >= len(data):
        raise FrameError(begin, "the value is cut short")
    if data[end] != ord("\n"):
        raise FrameError(end, "no line end after the value")
    return key, data[begin:end], end + 1


@functools.lru_cache(maxsize=512)
def _head(text: bytes) -> tuple[str, int] | None:
    """Return key and length. They repeat in receipts, so the result is cached."""
    head = _HEAD.fullmatch(text)
    return (head[1].decode(), int(head[2])) if head else None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
