"""What must not stand in a log, where it was printed before the runner could know of it. Pure.

The runner masks what it knows while a step prints (twin: `runner/mask.c`): the values that the step was given, and
those of its outputs as soon as their files are there. What was printed before that, the end of a log still holds.
"""

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

LEAST = 4
LEAST_LINE = 8
MOST = 64 * 1024


def overwritten(log: bytes, values: Iterable[bytes], *, cut: bool = False) -> bytes:
    """The log with stars for each value, in whatever form; as long as before.

    `cut` says that its beginning is missing, so that it may begin within a value.
    """
    found = {form for value in values for form in forms(value)}
    if not found:
        return log
    longest_first = sorted(found, key=len, reverse=True)
    if cut:
        ends = (form[at:] for form in longest_first for at in range(1, len(form) - LEAST + 1))
        begins = max((len(end) for end in ends if log.startswith(end)), default=0)
        log = b"*" * begins + log[begins:]
    return re.sub(b"|".join(map(re.escape, longest_first)), lambda match: b"*" * len(match[0]), log)


def forms(value: bytes) -> set[bytes]:
    """The texts by which a value is known; none for one that is too short (it would mask half a log) or too long."""
    bare = value.rstrip(b"\r\n")
    if len(bare) < LEAST or len(value) > MOST:
        return set()
    found = {bare}
    for whole in (bare, value):
        found |= {encode(whole).rstrip(b"=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    for safe in ("", "/"):
        percent = quote(bare, safe=safe).encode()
        found |= {percent, re.sub(rb"%..", lambda match: match[0].lower(), percent)}
    found.add(json.dumps(bare.decode("latin-1"), ensure_ascii=False)[1:-1].encode("latin-1"))
    if b"\n" in bare:
        found |= {line.strip(b" \t\r") for line in bare.split(b"\n") if len(line.strip(b" \t\r")) >= LEAST_LINE}
    return found
