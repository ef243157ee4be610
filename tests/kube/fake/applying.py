"""Server-side apply for custom kinds without list types: maps merge by field, lists are atomic.

Finalizers are a set, and owner references are merged by UID. Lists inside built-in kinds (containers) have merge keys
that this module does not know, so an assertion refuses them. There is one difference: if a manager drops a map into
which others have written, the real server sometimes reports a conflict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.store import Object, copied

Path = tuple[str, ...]
Manager = tuple[str, str]  # name, and Apply or Update

_MAP: Any = object()
_IDENTITY = {
    ("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"),
    ("metadata", "resourceVersion"), ("metadata", "generation"), ("metadata", "creationTimestamp"),
    ("metadata", "deletionTimestamp"), ("metadata", "deletionGracePeriodSeconds"), ("metadata", "generateName"),
}  # fmt: skip

_LISTS = (("metadata", "finalizers"), ("metadata", "ownerReferences"))  # lists whose items are separate fields


@dataclasses.dataclass
class Ownership:
    """The owners of each field of an object, by the object's UID."""

    fields: dict[str, dict[Manager, set[Path]]] = dataclasses.field(default_factory=dict)

    def wrote(self, manager: str, old: Object | None, new: Object) -> None:
        """Record a put or patch: the changed fields belong to the manager."""
        changed, gone = set[Path](), set[Path]()
        _compare(old or {}, new, (), changed, gone)
        changed -= _IDENTITY
        owned = self.fields.setdefault(new["metadata"]["uid"], {})
        for paths in owned.values():
            paths.difference_update(changed, gone)
        if changed:
            owned.setdefault((manager, "Update"), set()).update(changed)

    def applied(
        self, manager: str, kind: Kind, current: Object, wish: Object, *, force: bool
    ) -> tuple[Object, set[Path]]:
        """Return the object as the manager applies it, and the fields that it owns afterwards.

        Raises:
            Refusal: 409, other managers own some of the fields with other values.
        """
        wanted = {path: value for path, value in _fields(wish) if path not in _IDENTITY}
        assert kind.custom or not any(isinstance(value, list) for value in wanted.values()), (
            "not supported, see the module"
        )
        present = dict(_fields(current))
        owned = self.fields.get(current["metadata"].get("uid", ""), {})
        others = [paths for other, paths in owned.items() if other != (manager, "Apply")]
        given_up = {
            path
            for path in owned.get((manager, "Apply"), set()) - wanted.keys()
            if not any(path in paths or _shared(path, paths) for paths in others)
        }
        conflicts = {path for paths in others for path in paths & wanted.keys() if present.get(path) != wanted[path]}
        if conflicts and not force:
            fields = sorted(".".join(path) for path in conflicts)
            message = f"Apply failed with conflicts: {', '.join(fields)}"
            raise Refusal(409, message, causes=(("FieldManagerConflict", fields[0]),))
        result = copied(current)
        for path in given_up:
            _drop(result, path)
        for path, value in wanted.items():
            _set(result, path, value)
        return result, set(wanted)

    def claim(self, manager: str, uid: str, old: Object | None, new: Object, paths: set[Path]) -> None:
        """Record the owners of fields after an apply was stored."""
        before, after = dict(_fields(old or {})), dict(_fields(new))
        owned = self.fields.setdefault(uid, {})
        for other, theirs in owned.items():
            theirs.difference_update(before.keys() - after.keys())
            if other != (manager, "Apply"):
                theirs.difference_update({path for path in paths if before.get(path) != after.get(path)})
        owned[manager, "Apply"] = set(paths)


def _compare(old: Any, new: Any, at: Path, changed: set[Path], gone: set[Path]) -> None:
    """Return the fields that differ, without visiting equal parts."""
    if old == new:
        return
    if not (isinstance(old, dict) and isinstance(new, dict)) or at in _LISTS:
        before, after = dict(_fields(old, at)), dict(_fields(new, at))
        changed.update(path for path in after if path not in before or before[path] != after[path])
        gone.update(before.keys() - after.keys())
        return
    for key in old.keys() | new.keys():
        if key not in new:
            gone.update(path for path, _ in _fields(old[key], (*at, key)))
        elif key not in old:
            changed.update(path for path, _ in _fields(new[key], (*at, key)))
        else:
            _compare(old[key], new[key], (*at, key), changed, gone)


def _fields(item: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Return each map as a field, and each value in it."""
    if at == _LISTS[0]:
        yield from (((*at, name), True) for name in item)
    elif at == _LISTS[1]:
        yield from (((*at, owner["uid"]), owner) for owner in item)
    elif isinstance(item, dict):
        if at:
            yield at, _MAP
        for key, value in item.items():
            yield from _fields(value, (*at, key))
    else:
        yield at, item


def _shared(path: Path, others: set[Path]) -> bool:
    """Labels and annotations have a schema: a map with values of others is kept. A custom map is removed as a whole."""
    return path[0] == "metadata" and any(other[: len(path)] == path for other in others)


def _set(item: Object, path: Path, value: Any) -> None:
    *parents, last = path
    if parents == ["metadata", "finalizers"]:
        names = item["metadata"].setdefault("finalizers", [])
        if last not in names:
            names.append(last)
        return
    if parents == ["metadata", "ownerReferences"]:
        others = [owner for owner in item["metadata"].get("ownerReferences", []) if owner["uid"] != last]
        item["metadata"]["ownerReferences"] = [*others, value]
        return
    for key in parents:
        item = item[key]  # maps before their content
    if value is not _MAP:
        item[last] = value
    elif not isinstance(item.get(last), dict):
        item[last] = {}


def _drop(item: Object, path: Path) -> None:
    """Remove a field; a map with its content."""
    *parents, last = path
    outer = item
    for key in parents:
        inner = item.get(key)
        if isinstance(inner, list):
            item[key] = [each for each in inner if (each if isinstance(each, str) else each["uid"]) != last]
            return
        if inner is None:
            return  # removed with its map
        outer, item = item, inner
    item.pop(last, None)
    if not item and parents[0] != "metadata" and len(parents) > 1:
        outer[parents[-1]] = None  # the real server's result for an emptied map without a schema
