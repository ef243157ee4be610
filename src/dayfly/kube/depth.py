"""JSON that is nested deeper than anybody means it.

Whoever may write an object whose schema keeps what it does not know may nest ten thousand lists there, which the API
server takes and no decoder in Python does: one such object would spoil every list and end every watch. So what is
nested too deeply is cut, and whoever means to act by an object asks `is_cut` first.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

MOST = 100
"""So deep an answer may be nested before it is cut, counted from its outermost brace."""
CUT = "... (nested too deeply to be read)"
"""What stands in the place of what was cut."""
_WRITTEN = json.dumps(CUT).encode()
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def cut(body: bytes) -> bytes:
    """The same JSON, which is well-formed, with `CUT` for whatever is nested too deeply."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == MOST + 1:
                    kept += (body[begin : token.start()], _WRITTEN)
            case b"]" | b"}":
                if depth == MOST + 1:
                    begin = token.end()
                depth -= 1
    return b"".join((*kept, body[begin:]))


def is_cut(found: Any) -> bool:
    """Whether something of it was cut."""
    return _WRITTEN in msgspec.json.encode(found)
