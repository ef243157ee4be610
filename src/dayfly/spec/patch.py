"""What a patch may be, before anybody knows what it is laid over: bounds for every kind, and JSON Patch's operations.

A patch costs whoever carries it out no more than these bounds say. What it makes of a workload is judged where that is
known (`execute/fork`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.parsing import text

LONGEST = 65_536
MOST_OPERATIONS = 256

_SHAPES: dict[str, type] = {"strategic": dict, "merge": dict, "json": list}
_WITH_VALUE = ("add", "replace", "test")
_WITH_FROM = ("move", "copy")
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")

Pointer = tuple[str, ...]


class PatchOperation(NamedTuple):
    """One operation of RFC 6902; `source` is where `move` and `copy` take from."""

    op: str
    path: Pointer
    value: Any = None
    source: Pointer = ()


def read(kind: str, value: str, keys: Path = ()) -> Any:
    """A patch's text as data, held to every rule that needs no workload.

    Raises:
        SpecError: too large, no YAML or JSON, or no patch of that kind; with the line in the patch where there is one.
    """
    if len(value.encode()) > LONGEST:
        raise SpecError(f"the patch has {len(value.encode())} bytes; at most {LONGEST} are allowed", keys)
    try:
        documents = text.parse(value, file="")
    except SpecError as fault:
        raise _placed(fault, keys) from None
    found = documents[0] if len(documents) == 1 else text.ParsedDocument(data=None, marks={}, spelled={})
    try:
        check(kind, found.data)
    except SpecError as fault:
        raise _placed(found.error(fault.problem, fault.keys), keys) from None
    return found.data


def _placed(fault: SpecError, keys: Path) -> SpecError:
    """A fault in the patch as one of whoever holds it."""
    return SpecError((f"line {fault.line} of the patch: " if fault.line else "") + fault.problem, keys)


def check(kind: str, data: Any) -> None:
    """Refuse data that is no patch of that kind; a kind that nobody carries out here may be anything.

    Raises:
        SpecError: its keys lead into the data.
    """
    wanted = _SHAPES.get(kind)
    if wanted is not None and not isinstance(data, wanted):
        shape = "a list of operations" if wanted is list else "a mapping"
        raise SpecError(f"a {kind} patch is {shape}, as YAML or JSON text")
    text.check_bounds(data)
    if kind == "json":
        operations(data)


def operations(data: Any) -> list[PatchOperation]:
    """The operations of a JSON Patch.

    Raises:
        SpecError: one of them is none, or they are too many; its keys lead to it.
    """
    if not isinstance(data, list):
        raise SpecError("a json patch is a list of operations")
    if len(data) > MOST_OPERATIONS:
        raise SpecError(f"has {len(data)} operations; a patch has at most {MOST_OPERATIONS}", (MOST_OPERATIONS,))
    return [_operation(item, index) for index, item in enumerate(data)]


def _operation(item: Any, index: int) -> PatchOperation:
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
        return PatchOperation(op, path, item.get("value"))
    source = _pointer(item, "from", here, index)
    if op == "move" and path[: len(source)] == source and path != source:
        raise SpecError(f"{here} moves a value into itself: path lies below from", (index, "path"))
    return PatchOperation(op, path, source=source)


def _pointer(item: dict[str, Any], field: str, here: str, index: int) -> Pointer:
    """A JSON Pointer (RFC 6901) to a place within a document, as its parts."""
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
        raise SpecError(f"{here}: {field} {quote(pointer)} has a ~ alone; write ~0 for ~ and ~1 for /", keys)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
