"""The three types of patch without field ownership."""

from __future__ import annotations

from typing import Any

from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.store import Object, copied

from dayfly.kube import strategic

_MERGE = "application/merge-patch+json"
_JSON = "application/json-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_TYPES = (_MERGE, _JSON, _STRATEGIC)


def check_type(kind: Kind, content_type: str) -> None:
    """Return whether the kind accepts patches of that type."""
    if content_type not in _TYPES or (kind.custom and content_type == _STRATEGIC):
        raise Refusal(415, f"the body of the request was in an unknown format: {content_type}")


def patched(kind: Kind, current: Object, patch: Any, content_type: str) -> Object:
    """Return the patched object."""
    if content_type == _MERGE:
        return merged(current, _mapping(patch))
    if content_type == _JSON:
        return _operations(copied(current), patch)
    try:
        return strategic.merge(current, _mapping(patch), strategic.type_of(kind.api_version, kind.kind))
    except strategic.MergeError as fault:
        raise Refusal(422, str(fault)) from fault


def merged(old: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _mapping(patch: Any) -> dict[str, Any]:
    if not isinstance(patch, dict):
        raise Refusal(400, "the patch must be an object")
    return patch


def _operations(target: Any, operations: Any) -> Any:
    """Apply a JSON patch (RFC 6902)."""
    if not isinstance(operations, list):
        raise Refusal(400, "a JSON patch is a list of operations")
    try:
        for operation in operations:
            target = _operate(target, operation)
    except (KeyError, IndexError, ValueError, TypeError) as fault:
        raise Refusal(422, f"the server rejected our request due to an error in our request: {fault!r}") from fault
    return target


def _operate(target: Any, operation: dict[str, Any]) -> Any:
    path = _steps(operation["path"])
    match operation["op"]:
        case "add":
            _add(target, path, operation["value"])
        case "remove":
            _remove(target, path)
        case "replace":
            _remove(target, path)
            _add(target, path, operation["value"])
        case "test":
            if _find(target, path) != operation["value"]:
                raise ValueError(f"testing path {operation['path']} value failed")
        case "copy":
            _add(target, path, copied(_find(target, _steps(operation["from"]))))
        case "move":
            _add(target, path, _remove(target, _steps(operation["from"])))
        case other:
            raise ValueError(f"unexpected kind: {other}")
    return target


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _find(target: Any, path: list[str]) -> Any:
    for step in path:
        target = target[int(step)] if isinstance(target, list) else target[step]
    return target


def _add(target: Any, path: list[str], value: Any) -> None:
    parent, last = _find(target, path[:-1]), path[-1]
    if isinstance(parent, list):
        place = len(parent) if last == "-" else int(last)
        if place > len(parent):
            raise IndexError(place)
        parent.insert(place, value)
    else:
        parent[last] = value


def _remove(target: Any, path: list[str]) -> Any:
    parent, last = _find(target, path[:-1]), path[-1]
    return parent.pop(int(last) if isinstance(parent, list) else last)
