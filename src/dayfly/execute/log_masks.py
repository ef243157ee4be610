"""What must not stand in a log, where it was printed before the runner could know of it. Pure.

The runner masks what it knows while a step prints (twin: `runner/mask.c`): the values that the step was given, and
those of its outputs as soon as their files are there. What was printed before that, the end of a log still holds.

Values and log are a step's own, and whoever masks has other runs to see to: the cost is bounded by a few passes over
the log for each form, of which there are no more than the runner has.
"""

import base64
import contextlib
import json
import re
import string
from collections.abc import Iterable, Iterator
from itertools import islice

LEAST = 4
LEAST_LINE = 8
MOST = 64 * 1024
MOST_FORMS = 1024
# So often it is looked whether a log begins with the end of a value; what might be one beyond that is taken for one.
_TRIES = 64


def overwritten(log: bytes, values: Iterable[bytes], *, cut: bool = False) -> bytes:
    """The log with stars for each value, in whatever form; as long as before.

    `cut` says that its beginning is missing, so that it may begin within a value.
    """
    masked = bytearray(log)
    every = dict.fromkeys(form for value in values for form in forms(value))
    for form in islice(every, MOST_FORMS):
        at = log.find(form)
        while at >= 0:
            masked[at : at + len(form)] = b"*" * len(form)
            at = log.find(form, at + len(form))
        if cut:
            begun = _begun(form, log)
            masked[:begun] = b"*" * begun
    return bytes(masked)


def _begun(form: bytes, log: bytes) -> int:
    """How much of the log's beginning is the end of a form, or may be."""
    head = log[:LEAST]
    at = form.find(head, 1) if len(head) == LEAST else -1
    for _ in range(_TRIES):
        if at < 0 or log.startswith(form[at:]):
            break
        at = form.find(head, at + 1)
    return min(len(form) - at, len(log)) if at >= 0 else 0


def forms(value: bytes) -> Iterator[bytes]:
    """The texts by which a value is known; none for one that is too short (it would mask half a log) or too long."""
    bare = value.rstrip(b"\r\n")
    if len(bare) < LEAST or len(value) > MOST:
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
        yield from (line for line in lines if len(line) >= LEAST_LINE)


def _in_json(bare: bytes) -> Iterator[bytes]:
    """As within a string: with what has to be escaped, with what Go escapes besides, with all that is not ASCII."""
    plain = json.dumps(bare.decode("latin-1"), ensure_ascii=False)[1:-1].encode("latin-1")
    yield plain
    yield re.sub(b"[<>&]", lambda match: b"\\u%04x" % match[0][0], plain)
    with contextlib.suppress(UnicodeDecodeError):
        yield json.dumps(bare.decode())[1:-1].encode()


def _percent(format_: bytes, safe: str) -> list[bytes]:
    """For each byte what stands for it in a URL, in which `safe` characters beside the plain ones stay as they are."""
    plain = (string.ascii_letters + string.digits + "-._~" + safe).encode()
    return [bytes([byte]) if byte in plain else format_ % byte for byte in range(256)]


_PERCENT = [_percent(format_, safe) for safe in ("", "/") for format_ in (b"%%%02X", b"%%%02x")]
