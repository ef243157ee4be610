"""The output of an inventory script: one JSON line for each item, and last a line that the list is complete.

An example: `{"id": "3f2a...", "name": "dayfly-3f2a...", "created": "2026-11-30T19:00:00Z"}`, and after it
`{"complete": true, "count": 1}`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

MAX_LISTING_BYTES: Final = 8 << 20
"""The maximum size of a list. A larger one is incomplete."""
_MAX_FIELD_LENGTH: Final = 1024
_SHOWN_LENGTH: Final = 120
_HEXADECIMAL: Final = frozenset("0123456789abcdef")


class InventoryItem(NamedTuple):
    """An external object that exists.

    Attributes:
        id: The resource ID in its name or tags; empty if it has none.
        name: Its name, unique in the list.
        created: When it was created, in Unix milliseconds; 0 if the list does not have it.
        token: The value of `DAYFLY_RESOURCE_TOKEN` that it carries; empty if it has none.
    """

    id: str
    name: str
    created: int = 0
    token: str = ""

    @property
    def is_named_by_id(self) -> bool:
        """Return whether the ID is a part of the name, with no further letter or digit beside it on the right.

        A copy, like a restored snapshot, has the tags of its original but another name.
        """
        if not self.id:
            return False
        before, found, after = self.name.rpartition(self.id)
        return bool(found) and not after[:1].isalnum() and before[-1:] not in _HEXADECIMAL


class ItemList(NamedTuple):
    """A list. With an `error` it proves nothing, neither that something exists nor that it is gone."""

    items: tuple[InventoryItem, ...]
    error: str = ""

    @property
    def is_complete(self) -> bool:
        return not self.error


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str | None = None
    name: str = ""
    created: datetime | int | None = None
    token: str | None = None


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    complete: bool
    count: int


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_end = msgspec.json.Decoder(_End).decode


def parse_log(log: bytes) -> ItemList:
    """Return the list in the log of an inventory script, which also has its warnings.

    Lines that do not begin with `{` are skipped. A line of the list that a warning has torn apart is invalid or not
    counted, so that the list is then incomplete.
    """
    if len(log) > MAX_LISTING_BYTES:
        return parse_listing(log)
    return parse_listing(b"\n".join(line for line in log.split(b"\n") if line.lstrip().startswith(b"{")))


def parse_listing(output: bytes) -> ItemList:
    """Return the list in the output of an inventory script, or why it is invalid or incomplete."""
    if len(output) > MAX_LISTING_BYTES:
        return ItemList((), f"it has more than {MAX_LISTING_BYTES >> 20} MiB")
    lines = [(number, line) for number, line in enumerate(output.split(b"\n"), 1) if line.strip()]
    if not lines:
        return ItemList((), 'it is empty; the last line must be {"complete": true, "count": N}')
    *rows, (last, end) = lines
    try:
        ending = _decode_end(end)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shown = _show(end)
        return ItemList((), f'it is incomplete: the last line must be {{"complete": true, "count": N}}, not {shown}')
    if not ending.complete:
        return ItemList((), f"it is incomplete: line {last} has complete: false")
    if ending.count != len(rows):
        return ItemList((), f"it is incomplete: line {last} has count {ending.count}, but there are {len(rows)} items")
    found: list[InventoryItem] = []
    for number, line in rows:
        item = _read(line)
        if isinstance(item, str):
            return ItemList((), f"line {number} is invalid: {item}: {_show(line)}")
        found.append(item)
    return ItemList(tuple(found))


def _read(line: bytes) -> InventoryItem | str:
    """Return the item of one line, or why the line is invalid."""
    try:
        row = _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        return str(fault)
    if not row.name:
        return "name is missing"
    texts = (row.id or "", row.name, row.token or "")
    if max(map(len, texts)) > _MAX_FIELD_LENGTH:
        return f"a field has more than {_MAX_FIELD_LENGTH} characters"
    created = _milliseconds(row.created)
    if created is None:
        return "created must be Unix seconds, or a time with a time zone, like 2026-11-30T19:00:00Z"
    return InventoryItem(texts[0], texts[1], created, texts[2])


def _milliseconds(created: datetime | int | None) -> int | None:
    """Return Unix milliseconds, 0 for no time; None for a time before 1970 or without a time zone."""
    if created is None:
        return 0
    if isinstance(created, datetime):
        created = int(created.timestamp()) if created.tzinfo is not None else -1
    return created * 1000 if 0 <= created < 1 << 40 else None


def _show(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
