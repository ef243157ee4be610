"""A patch laid over a manifest, at a cost that the patch cannot choose. Pure.

JSON Patch is the one kind that could make much of little: forty `copy` operations that double a document are 1.3 KB.
So what operations add, and how much they look at, is counted while they are carried out, and the first one past the
bound ends the patch.
"""

import copy
from typing import Any

from dayfly.execute.work_order import CannotRenderError
from dayfly.kube.strategic import MergeError, merge, type_of
from dayfly.plan.reasons import Reason
from dayfly.spec import patch as patches
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.parsing.text import MAX_DEPTH
from dayfly.spec.patch import PatchOperation, Pointer

# More than this many bytes are not added by operations of one patch, nor this many values looked at for them.
MOST_ADDED = 131_072
MOST_LOOKED_AT = 20_000

_Object = dict[str, Any]


class _MisfitError(Exception):
    """The operation does not fit the document."""


def apply(manifest: _Object, patch: _Object) -> _Object:
    """A new manifest: this one with a patch `{type, value}` laid over it. It is a Deployment's in its outlines.

    Raises:
        CannotRenderError: the patch is none, does not fit, or leaves no Deployment.
    """
    kind, value = str(patch.get("type")), patch.get("value")
    try:
        patches.check(kind, value)
        changed = _apply(manifest, kind, value)
    except SpecError as fault:
        raise _bad(fault.problem) from None
    except (MergeError, _MisfitError) as fault:
        raise _bad(f"does not fit the baseline: {fault}") from None
    _check_outlines(changed)
    return changed


def _apply(manifest: _Object, kind: str, value: Any) -> _Object:
    match kind:
        case "strategic":
            return merge(manifest, value, type_of(manifest["apiVersion"], manifest["kind"]))
        case "merge":
            merged: _Object = _merged(manifest, value)
            return merged
        case "json":
            return _Patching(copy.deepcopy(manifest)).through(patches.operations(value))
    raise SpecError(f"no patch of type {kind} is known")


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


class _Patching:
    """One document while operations are carried out on it."""

    def __init__(self, document: _Object) -> None:
        self._document = document
        self._added = 0
        self._looked_at = 0

    def through(self, operations: list[PatchOperation]) -> _Object:
        """The document after all of them."""
        for number, each in enumerate(operations, 1):
            try:
                self._carry_out(each)
            except _MisfitError as fault:
                raise _MisfitError(f"operation {number} ({each.op}): {fault}") from None
        return self._document

    def _carry_out(self, each: PatchOperation) -> None:
        match each.op:
            case "add":
                self._add(each.path, each.value, count=True)
            case "remove":
                self._remove(each.path)
            case "replace":
                self._replace(each.path, each.value)
            case "move":
                if each.path != each.source:
                    self._add(each.path, self._remove(each.source), count=False)
                else:
                    self._get(each.path)
            case "copy":
                self._add(each.path, self._get(each.source), count=True)
            case "test":
                found = self._get(each.path)
                self._measure(each.value, 0)
                if not same(found, each.value):
                    raise _MisfitError(f"{_written(each.path)} does not have the value it is tested for")

    def _get(self, path: Pointer) -> Any:
        holder = self._holder(path)
        return holder[_place(holder, path)]

    def _remove(self, path: Pointer) -> Any:
        holder = self._holder(path)
        return holder.pop(_place(holder, path))

    def _replace(self, path: Pointer, value: Any) -> None:
        holder = self._holder(path)
        place = _place(holder, path)
        holder[place] = self._taken(value, path, count=True)

    def _add(self, path: Pointer, value: Any, *, count: bool) -> None:
        holder = self._holder(path)
        if isinstance(holder, list):
            place = len(holder) if path[-1] == "-" else _index(path, len(holder) + 1)
            holder.insert(place, self._taken(value, path, count=count))
        else:
            holder[path[-1]] = self._taken(value, path, count=count)

    def _holder(self, path: Pointer) -> Any:
        """The mapping or list that holds the last part of a path."""
        found: Any = self._document
        for depth in range(1, len(path)):
            found = found[_place(found, path[:depth])]
        if not isinstance(found, dict | list):
            raise _MisfitError(f"{_written(path[:-1])} is neither a mapping nor a list")
        return found

    def _taken(self, value: Any, path: Pointer, *, count: bool) -> Any:
        """A copy of a value for its new place; `count` whether the document grows by it."""
        size = self._measure(value, len(path))
        if not count:
            return value
        self._added += size
        if self._added > MOST_ADDED:
            raise _MisfitError(f"the patch adds more than {MOST_ADDED} bytes to the baseline")
        return copy.deepcopy(value)

    def _measure(self, value: Any, depth: int) -> int:
        """How large a value is as text, about; no further than is allowed."""
        size = 0
        waiting = [(value, depth)]
        while waiting:
            item, deep = waiting.pop()
            self._looked_at += 1
            size += len(item) + 2 if isinstance(item, str) else 2
            if size > MOST_ADDED or self._looked_at > MOST_LOOKED_AT:
                most = f"{MOST_ADDED} bytes, or {MOST_LOOKED_AT} values in all its operations together"
                raise _MisfitError(f"the patch handles more than {most}")
            if deep > MAX_DEPTH:
                raise _MisfitError(f"values would be nested more than {MAX_DEPTH} deep")
            if isinstance(item, dict):
                size += sum(map(len, item))
                waiting += [(inner, deep + 1) for inner in item.values()]
            elif isinstance(item, list):
                waiting += [(inner, deep + 1) for inner in item]
        return size


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _place(holder: Any, path: Pointer) -> Any:
    """Key or index of what is there at the end of a path."""
    if isinstance(holder, dict):
        if path[-1] not in holder:
            raise _MisfitError(f"there is no {_written(path)}")
        return path[-1]
    if isinstance(holder, list):
        return _index(path, len(holder))
    raise _MisfitError(f"{_written(path[:-1])} is neither a mapping nor a list")


def _index(path: Pointer, end: int) -> int:
    part = path[-1]
    if not (part.isascii() and part.isdigit()) or (part[0] == "0" and part != "0"):
        raise _MisfitError(f"{quote(part)} is not an index of the list {_written(path[:-1])}")
    if len(part) > 9 or int(part) >= end:
        raise _MisfitError(f"the list {_written(path[:-1])} has no item {part[:9]}")
    return int(part)


def _written(path: Pointer) -> str:
    """A path as people read it."""
    return quote("/" + "/".join(path), limit=120)


def _check_outlines(changed: Any) -> None:
    """Everything that whoever reads on takes for granted."""
    meta, spec = _part(changed, "", "metadata"), _part(changed, "", "spec")
    template = _part(spec, "spec", "template")
    pod = _part(template, "spec.template", "spec")
    if not isinstance(pod.get("containers"), list):
        raise _no_deployment("spec.template.spec.containers must be a list")
    if template.get("metadata") is None:
        template["metadata"] = {}
    for owner, where in ((meta, "metadata"), (_part(template, "spec.template", "metadata"), "spec.template.metadata")):
        for field in ("labels", "annotations"):
            if owner.get(field) is not None:
                _part(owner, where, field)


def _part(holder: Any, where: str, field: str) -> _Object:
    found = holder.get(field) if isinstance(holder, dict) else None
    if not isinstance(found, dict):
        raise _no_deployment(f"{where}.{field} must be a mapping".lstrip("."))
    return found


def _no_deployment(problem: str) -> CannotRenderError:
    return _bad(f"what it makes of the baseline is not a Deployment: {problem}")


def _bad(problem: str) -> CannotRenderError:
    return CannotRenderError(Reason.BAD_PATCH, f"patch: {problem}")
