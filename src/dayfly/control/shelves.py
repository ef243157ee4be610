"""What has a run of its own, sandboxes and route groups, as the sync sees them: one kind of record like the other.

Whoever holds a key (`key_of`) is alone with what it names: a sandbox's is its name, a route group's has a slash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dayfly.compile import Compiled, compile_group, group_previews
from dayfly.control import confirmed, group_records, records, wishes
from dayfly.control.group_records import GroupRecord
from dayfly.control.records import Record
from dayfly.control.unreadable import UnreadableError
from dayfly.spec.scalars import names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dayfly.control.records import Entry
    from dayfly.control.rows import Rows
    from dayfly.link.transport import Place

Kept: TypeAlias = Record | GroupRecord

GROUP = names.GROUP


class Meant(NamedTuple):
    """What a record comes to at a place, where those keys of route groups lead to its forks."""

    compiled: Compiled
    place: Place
    keys: Mapping[str, Sequence[str]]


def key_of(record: Kept) -> str:
    """What is locked while it is changed."""
    return f"{GROUP}{record.name}" if isinstance(record, GroupRecord) else record.name


def roll(rows: Rows) -> list[Entry]:
    """All that live, by their keys."""
    groups = [entry._replace(name=f"{GROUP}{entry.name}") for entry in group_records.roll(rows)]
    return [*records.roll(rows), *groups]


def find(rows: Rows, key: str) -> Kept | None:
    """What lives under that key."""
    if key.startswith(GROUP):
        return group_records.find(rows, key.removeprefix(GROUP))
    return records.find(rows, key)


def in_their_time(rows: Rows, uids: Sequence[str], now: int) -> list[str]:
    """Those of them, which all live, whose time to live is not over.

    Raises:
        UnreadableError: nobody here knows the form of one. It may well live on, and what is left out never begins.
    """
    found: list[Kept] = [*records.these(rows, uids), *group_records.these(rows, uids)]
    if len(found) < len(uids):
        raise UnreadableError("one of these sandboxes and route groups")
    return [each.uid for each in found if not 0 < each.expires_at <= now]


def mark_taken_over(rows: Rows, uids: list[str]) -> None:
    """Note that the host has sealed the runs of these."""
    records.mark_taken_over(rows, uids)
    group_records.mark_taken_over(rows, uids)


def archive(rows: Rows, record: Kept, now: int, *, given_up: bool | None = False) -> None:
    """Replace what has ended by its trace; `given_up`: whether its cleanup was; None if nobody knows."""
    confirmed.forget(rows, record.uid)
    if isinstance(record, GroupRecord):
        group_records.archive(rows, record, now, given_up=given_up)
    else:
        records.archive(rows, record, now, given_up=given_up)


def compiled(rows: Rows, record: Kept, place: Place, routed: Mapping[str, Sequence[str]]) -> Compiled:
    """The documents that it means to the host at `place`; `routed` as in `wishes.compiled`.

    Raises:
        SpecError: as the compiler does.
    """
    if isinstance(record, GroupRecord):
        previews = group_previews(record.group, record.routing_key, record.cluster) if place.routes else ()
        key, namespace = record.routing_key, place.namespace
        return Compiled((compile_group(record.group, uid=record.uid, routing_key=key, namespace=namespace),), previews)
    return wishes.compiled(rows, record, place, routed)
