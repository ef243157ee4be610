"""Masking of sensitive values that were printed before the runner knew them. Pure.

While a step prints, the runner masks the values of its inputs, and those of its outputs as soon as their files exist
(`runner/mask.c` has the same rules). Outputs that were printed before that are masked here, in the end of the log.

A step controls the values and the log, so the CPU time is limited to a few passes over the log for each form of a
value. The maximum number of forms is the same as in the runner.
"""

import base64
import contextlib
import json
import re
import string
from collections.abc import Iterable, Iterator
from itertools import islice

MIN_VALUE_BYTES = 4
MIN_LINE_BYTES = 8
MAX_VALUE_BYTES = 64 * 1024
MAX_FORMS = 1024
# Maximum number of positions at which a truncated value is compared. After that, a possible match counts as a match.
_MAX_TRIES = 64


def mask(log: bytes, values: Iterable[bytes], *, cut: bool = False) -> bytes:
    """Return the log with each value replaced by stars, in all encodings. The length does not change.

    With `cut`, the beginning of the log is missing, so it may start within a value.
    """
    masked = bytearray(log)
    every = dict.fromkeys(form for value in values for form in forms(value))
    for form in islice(every, MAX_FORMS):
        at = log.find(form)
        while at >= 0:
            masked[at : at + len(form)] = b"*" * len(form)
            at = log.find(form, at + len(form))
        if cut:
            length = _truncated_length(form, log)
            masked[:length] = b"*" * length
    return bytes(masked)


def _truncated_length(form: bytes, log: bytes) -> int:
    """Return the number of bytes at the log's beginning that are, or may be, the end of a value."""
    head = log[:MIN_VALUE_BYTES]
    at = form.find(head, 1) if len(head) == MIN_VALUE_BYTES else -1
    for _ in range(_MAX_TRIES):
        if at < 0 or log.startswith(form[at:]):
            break
        at = form.find(head, at + 1)
    return min(len(form) - at, len(log)) if at >= 0 else 0


def forms(value: bytes) -> Iterator[bytes]:
    """Yield the encodings of a value; none if it is too long, or too short: that would mask half a log."""
    bare = value.rstrip(b"\r\n")
    if len(bare) < MIN_VALUE_BYTES or len(value) > MAX_VALUE_BYTES:
        return
    yield bare
    for whole in (bare, value):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(whole).rstrip(b"=")
    for table in _PERCENT:
        yield b"".join([table[byte] for byte in bare])
    yield from _in_json(bare)
    if b"\n" in bare:
        lines = (line.strip(b" \t\r") for line in bare.split(b"\n"))
        yield from (line for line in lines if len(line) >= MIN_LINE_BYTES)


def _in_json(bare: bytes) -> Iterator[bytes]:
    """Yield the value as in a JSON string: escaped, escaped as in Go, and with all non-ASCII characters escaped."""
    plain = json.dumps(bare.decode("latin-1"), ensure_ascii=False)[1:-1].encode("latin-1")
    yield plain
    yield re.sub(b"[<>&]", lambda match: b"\\u%04x" % match[0][0], plain)
    with contextlib.suppress(UnicodeDecodeError):
        yield json.dumps(bare.decode())[1:-1].encode()


def _percent(format_: bytes, safe: str) -> list[bytes]:
    """Return the URL encoding of each byte. Unreserved characters and `safe` ones are not encoded."""
    plain = (string.ascii_letters + string.digits + "-._~" + safe).encode()
    return [bytes([byte]) if byte in plain else format_ % byte for byte in range(256)]


_PERCENT = [_percent(format_, safe) for safe in ("", "/") for format_ in (b"%%%02X", b"%%%02x")]
