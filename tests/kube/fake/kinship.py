"""Owners and dependents, updated with each write, so that the collector only processes affected objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.kube.fake.kinds import Kind

from dayfly.kube.objects import Key

Place = tuple[Kind, Key]


class Kinship:
    """The fate of an object depends on its owners and dependents, so a write of one of them makes it due."""

    def __init__(self) -> None:
        self.unseen: set[Place] = set()
        """Return the objects that may be due since the collector last had nothing to do for them."""
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, set[Place]] = {}

    def note(self, place: Place, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        """Record a write; None for an object that does not exist."""
        uids = {item["metadata"]["uid"] for item in (old, new) if item is not None}
        owners = {uid for item in (old, new) if item is not None for uid in owners_of(item)}
        for uid in owners:
            self._dependents.get(uid, set()).discard(place)
        for uid in uids:
            self._places.pop(uid, None)
        if new is not None:
            self._places[new["metadata"]["uid"]] = place
            for uid in owners_of(new):
                self._dependents.setdefault(uid, set()).add(place)
        self.unseen.add(place)
        self.unseen.update(*(self.dependents(uid) for uid in uids))
        self.unseen.update(found for uid in owners if (found := self._places.get(uid)))

    def place(self, uid: str) -> Place | None:
        return self._places.get(uid)

    def dependents(self, uid: str) -> Iterable[Place]:
        return self._dependents.get(uid, ())


def owners_of(item: dict[str, Any]) -> list[str]:
    """Return the UIDs of the owners."""
    return [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]
