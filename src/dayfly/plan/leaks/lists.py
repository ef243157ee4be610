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
    """Return the newest list, the one to compare it with, and the one that later lists are compared with, if any.

    A list is compared with the last one, or with an earlier one if the last one began a moment ago. The third list is
    the first one after that. Without it, sweeps that follow each other quickly would be compared with the same old list
    forever. If the clock was set back, the times of all former lists are wrong, so none is kept.
    """
    is_set_back = any(each.began_at > began_at for each in known)
    former = [] if is_set_back else sorted(known, key=lambda each: each.began_at, reverse=True)
    seen = former[0].first_seen if former else {}
    newest = CompleteList(began_at, items, {item.name: seen.get(item.name, began_at) for item in items})
    distant = [each for each in former if began_at - each.began_at >= list_distance_ms(grace_ms)]
    compared = (distant or former[-1:])[:1]
    later = former[: former.index(compared[0])] if compared else []
    return (newest, *compared, *later[-1:])


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
