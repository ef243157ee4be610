"""The memory of a check: which complete lists are kept, so that two of them prove something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.plan.leaks.listing import parse_log
from dayfly.plan.leaks.verdict import CompleteList, list_distance_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.plan.leaks.listing import InventoryItem


def join_logs(logs: Iterable[bytes]) -> tuple[tuple[InventoryItem, ...], str]:
    """Return the complete list in the logs of all inventory steps, or why there is none."""
    items: list[InventoryItem] = []
    for each in logs:
        listing = parse_log(each)
        if not listing.is_complete:
            return (), f"the list cannot be used: {listing.error}"
        items += listing.items
    return tuple(items), ""


def add_list(
    known: Sequence[CompleteList], began_at: int, items: tuple[InventoryItem, ...], grace_ms: int
) -> tuple[CompleteList, ...]:
    """Return the newest list, and the one to compare it with if there is one.

    That is the last list, or the one before it if the last one began a moment ago. If the clock was set back, the times
    of all former lists are wrong, so none is kept.
    """
    former = [] if any(each.began_at > began_at for each in known) else list(known)
    seen = former[0].first_seen if former else {}
    newest = CompleteList(began_at, items, {item.name: seen.get(item.name, began_at) for item in items})
    distant = [each for each in former if began_at - each.began_at >= list_distance_ms(grace_ms)]
    return (newest, *(distant or former[-1:])[:1])


def without_jumps(
    known: Sequence[CompleteList], began_at: int, offsets: Mapping[int, int], grace_ms: int
) -> list[CompleteList]:
    """Return the known lists, except lists that are distant only because the clock was set forward.

    `offsets` are the offsets of the clock by the begin of a list. After a restart, those of former lists are not known.
    """
    distance, kept = list_distance_ms(grace_ms), []
    for each in known:
        passed = began_at - each.began_at
        jump = offsets[began_at] - offsets.get(each.began_at, offsets[began_at])
        if passed < distance or passed - jump >= distance:
            kept.append(each)
    return kept
