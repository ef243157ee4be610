"""JSON Patch (RFC 6902), and limits of patches of any kind.

The cost of a patch is limited. With JSON Patch a small patch could do much: forty `copy` operations that double a
document are 1.3 KB. So the bytes that operations add and the values that they read are counted, and the first operation
beyond the limit ends the patch. `execute/fork` checks the patched workload.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.parsing import text

MAX_PATCH_BYTES = 65_536
MAX_OPERATIONS = 256
MAX_ADDED_BYTES = 131_072
MAX_VALUES_READ = 20_000

_SHAPES: dict[str, type] = {"strategic": dict, "merge": dict, "json": list}
_WITH_VALUE = ("add", "replace", "test")
_WITH_FROM = ("move", "copy")
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")

Pointer = tuple[str, ...]


class PatchError(Exception):
    """An operation does not fit the document."""


class Operation(NamedTuple):
    """One operation of RFC 6902. `source` is the path from which `move` and `copy` take the value."""

    op: str
    path: Pointer
    value: Any = None
    source: Pointer = ()


def read(kind: str, value: str, keys: Path = ()) -> Any:
    """Return the data of a patch, checked by every rule that needs no workload.

    Raises:
        SpecError: It is too large, not YAML or JSON, or not a patch of that kind; with the line in the patch if known.
    """
    if len(value.encode()) > MAX_PATCH_BYTES:
        raise SpecError(f"the patch has {len(value.encode())} bytes; at most {MAX_PATCH_BYTES} are allowed", keys)
    try:
        documents = text.parse(value, file="")
    except SpecError as fault:
        raise _with_field_path(fault, keys) from None
    found = documents[0] if len(documents) == 1 else text.ParsedDocument(data=None, marks={}, spelled={})
    try:
        check(kind, found.data)
    except SpecError as fault:
        raise _with_field_path(found.error(fault.problem, fault.keys), keys) from None
    return found.data


def _with_field_path(fault: SpecError, keys: Path) -> SpecError:
    """Return a fault in the patch as one of the field with the patch."""
    return SpecError((f"line {fault.line} of the patch: " if fault.line else "") + fault.problem, keys)


def check(kind: str, data: Any) -> None:
    """Refuse data that is not a patch of that kind. An unknown kind has no rules.

    Raises:
        SpecError: The fault, with its path in the data.
    """
    wanted = _SHAPES.get(kind)
    if wanted is not None and not isinstance(data, wanted):
        shape = "a list of operations" if wanted is list else "a mapping"
        raise SpecError(f"a {kind} patch is {shape}, as YAML or JSON text")
    text.check_bounds(data)
    if kind == "json":
        operations(data)


def operations(data: Any) -> list[Operation]:
    """Return the operations of a JSON Patch.

    Raises:
        SpecError: An operation is malformed, or there are too many; with its path.
    """
    if not isinstance(data, list):
        raise SpecError("a json patch is a list of operations")
    if len(data) > MAX_OPERATIONS:
        raise SpecError(f"has {len(data)} operations; a patch has at most {MAX_OPERATIONS}", (MAX_OPERATIONS,))
    return [_operation(item, index) for index, item in enumerate(data)]


def _operation(item: Any, index: int) -> Operation:
    here = f"operation {index + 1}"
    if not isinstance(item, dict):
        raise SpecError(f"{here} is {text.kind_of(item)}; write a mapping with op and path", (index,))
    op = item.get("op")
    if op not in _OPERATIONS:
        said = "missing" if op is None else quote(op) if isinstance(op, str) else text.kind_of(op)
        raise SpecError(f"{here}: op is {said}; write one of {', '.join(_OPERATIONS)}", (index, "op"))
    here = f"{here} ({op})"
    path = _pointer(item, "path", here, index)
    if op in _WITH_VALUE and "value" not in item:
        raise SpecError(f"{here} needs a value", (index,))
    if op not in _WITH_FROM:
        return Operation(op, path, item.get("value"))
    source = _pointer(item, "from", here, index)
    if op == "move" and path[: len(source)] == source and path != source:
        raise SpecError(f"{here} moves a value into itself: path is below from", (index, "path"))
    return Operation(op, path, source=source)


def _pointer(item: dict[str, Any], field: str, here: str, index: int) -> Pointer:
    """Return the parts of a JSON Pointer (RFC 6901) to a place within a document."""
    keys: Path = (index, field) if field in item else (index,)
    pointer = item.get(field)
    if not isinstance(pointer, str):
        said = "is missing" if field not in item else f"is {text.kind_of(pointer)}"
        raise SpecError(f"{here}: {field} {said}; write a path like /spec/replicas", keys)
    if not pointer.startswith("/"):
        problem = "is empty, which is the whole workload" if not pointer else f"is {quote(pointer)}"
        raise SpecError(f"{here}: {field} {problem}; write a path like /spec/replicas", keys)
    parts = pointer[1:].split("/")
    if len(parts) > text.MAX_DEPTH:
        raise SpecError(f"{here}: {field} has {len(parts)} parts; at most {text.MAX_DEPTH} are read", keys)
    if any("~" in part.replace("~0", "").replace("~1", "") for part in parts):
        raise SpecError(f"{here}: {field} {quote(pointer)} has a single ~; write ~0 for ~ and ~1 for /", keys)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def apply(document: Any, operations: list[Operation]) -> Any:
    """Return a new document: a copy of `document` with the operations applied.

    Raises:
        PatchError: an operation does not fit the document, or the patch is too expensive.
    """
    return _PatchedDocument(copy.deepcopy(document)).apply(operations)


class _PatchedDocument:
    """One document while operations are applied to it."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._added = 0
        self._values_read = 0

    def apply(self, operations: list[Operation]) -> Any:
        """Return the document after all operations."""
        for number, each in enumerate(operations, 1):
            try:
                self._apply(each)
            except PatchError as fault:
                raise PatchError(f"operation {number} ({each.op}): {fault}") from None
        return self._document

    def _apply(self, each: Operation) -> None:
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
                if not equal(found, each.value):
                    raise PatchError(f"{_quote_pointer(each.path)} does not have the value it is tested for")

    def _get(self, path: Pointer) -> Any:
        holder = self._holder(path)
        return holder[_existing_key(holder, path)]

    def _remove(self, path: Pointer) -> Any:
        holder = self._holder(path)
        return holder.pop(_existing_key(holder, path))

    def _replace(self, path: Pointer, value: Any) -> None:
        holder = self._holder(path)
        place = _existing_key(holder, path)
        holder[place] = self._copy_added(value, path, count=True)

    def _add(self, path: Pointer, value: Any, *, count: bool) -> None:
        holder = self._holder(path)
        if isinstance(holder, list):
            place = len(holder) if path[-1] == "-" else _index(path, len(holder) + 1)
            holder.insert(place, self._copy_added(value, path, count=count))
        else:
            holder[path[-1]] = self._copy_added(value, path, count=count)

    def _holder(self, path: Pointer) -> Any:
        """Return the mapping or list that holds the last part of a path."""
        found: Any = self._document
        for depth in range(1, len(path)):
            found = found[_existing_key(found, path[:depth])]
        if not isinstance(found, dict | list):
            raise PatchError(f"{_quote_pointer(path[:-1])} is neither a mapping nor a list")
        return found

    def _copy_added(self, value: Any, path: Pointer, *, count: bool) -> Any:
        """Return a copy of a value for its new place. With `count` the document grows by it."""
        size = self._measure(value, len(path))
        if not count:
            return value
        self._added += size
        if self._added > MAX_ADDED_BYTES:
            raise PatchError(f"the patch adds more than {MAX_ADDED_BYTES} bytes to the baseline")
        return copy.deepcopy(value)

    def _measure(self, value: Any, depth: int) -> int:
        """Return the approximate size of a value as text. Stop at the bound."""
        size = 0
        waiting = [(value, depth)]
        while waiting:
            item, deep = waiting.pop()
            self._values_read += 1
            size += len(item) + 2 if isinstance(item, str) else 2
            if size > MAX_ADDED_BYTES or self._values_read > MAX_VALUES_READ:
                most = f"{MAX_ADDED_BYTES} bytes, or {MAX_VALUES_READ} values in all its operations together"
                raise PatchError(f"the patch handles more than {most}")
            if deep > text.MAX_DEPTH:
                raise PatchError(f"values would be nested more than {text.MAX_DEPTH} deep")
            if isinstance(item, dict):
                size += sum(map(len, item))
                waiting += [(inner, deep + 1) for inner in item.values()]
            elif isinstance(item, list):
                waiting += [(inner, deep + 1) for inner in item]
        return size


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def _existing_key(holder: Any, path: Pointer) -> Any:
    """Return the key or index of the existing value at the end of a path."""
    if isinstance(holder, dict):
        if path[-1] not in holder:
            raise PatchError(f"there is no {_quote_pointer(path)}")
        return path[-1]
    if isinstance(holder, list):
        return _index(path, len(holder))
    raise PatchError(f"{_quote_pointer(path[:-1])} is neither a mapping nor a list")


def _index(path: Pointer, end: int) -> int:
    part = path[-1]
    if not (part.isascii() and part.isdigit()) or (part[0] == "0" and part != "0"):
        raise PatchError(f"{quote(part)} is not an index of the list {_quote_pointer(path[:-1])}")
    if len(part) > 9 or int(part) >= end:
        raise PatchError(f"the list {_quote_pointer(path[:-1])} has no item {part[:9]}")
    return int(part)


def _quote_pointer(path: Pointer) -> str:
    """Return a path for a message."""
    return quote("/" + "/".join(path), limit=120)
