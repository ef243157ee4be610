"""The controllers of the cluster: garbage collection by owner, and the deletion of namespaces."""

from __future__ import annotations

from tests.kube.fake.kinds import NAMESPACES, Kind
from tests.kube.fake.kinship import owners_of
from tests.kube.fake.store import Object
from tests.kube.fake.writing import Writer

from dayfly.kube.objects import Key


class Controllers:
    """Each `step` does at most one write, so that other clients can act in between."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store

    def settle(self) -> None:
        """Do all pending work."""
        while self._store.stirred and self.step():
            pass
        self._store.stirred = False

    def step(self) -> bool:
        """Do one write; return whether there was one."""
        return self._end_namespace() or self._collect()

    def _end_namespace(self) -> bool:
        for key, namespace in self._store.items(NAMESPACES).items():
            if "deletionTimestamp" not in namespace["metadata"]:
                continue
            inside = [(kind, each, item) for kind, each, item in self._store.everything() if each.namespace == key.name]
            for kind, each, item in inside:
                if "deletionTimestamp" not in item["metadata"]:
                    self._writer.delete(kind, each, {})
                    return True
            if not inside and not namespace["metadata"].get("finalizers"):
                self._writer.remove(NAMESPACES, key)
                return True
        return False

    def _collect(self) -> bool:
        unseen = self._store.kinship.unseen
        for kind, key, item in self._store.in_order(unseen):
            if self._treat(kind, key, item):
                return True
            unseen.discard((kind, key))
        unseen.clear()  # the rest does not exist any longer
        return False

    def _treat(self, kind: Kind, key: Key, item: Object) -> bool:
        """Process one object; return whether there was a write."""
        metadata = item["metadata"]
        if "deletionTimestamp" in metadata:
            return self._release(kind, key, item)
        named = [self._living(uid) for uid in owners_of(item)]
        present = [owner for owner in named if _owns(owner, key)]
        if named and (not present or all(_in_foreground(owner[2]) for owner in present)):
            self._writer.delete(kind, key, {"preconditions": {"uid": metadata["uid"]}})
            return True
        return False

    def _living(self, uid: str) -> tuple[Kind, Key, Object] | None:
        place = self._store.kinship.place(uid)
        item = self._store.get(*place) if place else None
        return (*place, item) if place and item is not None else None

    def _release(self, kind: Kind, key: Key, item: Object) -> bool:
        """Remove the collector's own finalizers once they are satisfied."""
        finalizers = item["metadata"].get("finalizers", [])
        if "orphan" not in finalizers and "foregroundDeletion" not in finalizers:
            return False
        dependents = self._store.in_order(self._store.kinship.dependents(item["metadata"]["uid"]))
        if "orphan" in finalizers:
            for other_kind, other_key, other in dependents:
                owners = [o for o in other["metadata"]["ownerReferences"] if o["uid"] != item["metadata"]["uid"]]
                self._writer.rewrite(
                    other_kind, other_key, other | {"metadata": other["metadata"] | {"ownerReferences": owners}}
                )
                return True
            return self._drop(kind, key, item, "orphan")
        if "foregroundDeletion" in finalizers:
            blocking = [
                other
                for _, _, other in dependents
                for owner in other["metadata"]["ownerReferences"]
                if owner["uid"] == item["metadata"]["uid"] and owner.get("blockOwnerDeletion")
            ]
            return not blocking and self._drop(kind, key, item, "foregroundDeletion")
        return False

    def _drop(self, kind: Kind, key: Key, item: Object, finalizer: str) -> bool:
        left = [each for each in item["metadata"]["finalizers"] if each != finalizer]
        self._writer.rewrite(kind, key, item | {"metadata": item["metadata"] | {"finalizers": left}})
        return True


def _owns(owner: tuple[Kind, Key, Object] | None, dependent: Key) -> bool:
    """An owner in another namespace does not count."""
    return owner is not None and owner[1].namespace in ("", dependent.namespace)


def _in_foreground(owner: Object) -> bool:
    metadata = owner["metadata"]
    return "deletionTimestamp" in metadata and "foregroundDeletion" in metadata.get("finalizers", [])
