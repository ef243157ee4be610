"""Where the key of a route group leads anywhere: as its clusters have said of themselves, and no further."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.spec.unsupported_fields import GroupReach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.control.group_records import GroupRecord
    from dayfly.link.server_end import Links
    from dayfly.plan.route_groups import Member


def leads(links: Links, record: GroupRecord, members: Iterable[Member]) -> GroupReach | None:
    """Of a group with these members; None where no cluster of theirs has said anything of itself yet."""
    own = links.of(record.org, record.cluster)
    places = {}
    for cluster in sorted({member.scope for member in members} or {record.cluster}):
        link = links.of(record.org, cluster)
        if link is not None and link.has_met:
            places[cluster] = link.place()
    if not places:
        return None
    has_addresses = own is not None and own.place().routes
    return GroupReach(
        anywhere=any(place.routes for place in places.values()),
        nowhere=tuple(cluster for cluster, place in places.items() if not place.routes),
        addresses=record.cluster if has_addresses else "",
    )
