"""Strategic merge patches on dicts, as the API server applies them, with the list keys that the server declares.

For cases without a server: a pod template that does not exist yet, or a change to check before it is sent.
`merge_keys.json` is generated (`scripts/merge-keys.py`); tests compare the results with those of a real server.
"""

from __future__ import annotations

import collections
import functools
import importlib.resources
import json
from collections.abc import Iterable
from typing import Any

POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PRIMITIVE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_DIRECTIVES = (_DIRECTIVE, _RETAIN, _DELETE_PRIMITIVE, _ORDER)

_Map = dict[str, Any]


class MergeError(ValueError):
    """The patch is invalid; `path` is the place in it."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the patch'}: {problem}")
        self.path = path
        self.problem = problem


def type_of(api_version: str, kind: str) -> str:
    """Return the type for the lookup of list keys; empty for kinds without list keys (custom resources)."""
    found: str = _table()["kinds"].get(f"{api_version}/{kind}", "")
    return found


def merge(original: _Map, patch: _Map, type_name: str) -> _Map:
    """Return a new dict: the original with the patch applied.

    Null deletes a key. Maps are merged by key, lists with a merge key by item, and other lists are replaced. `$patch:
    delete`, `$patch: replace`, `$retainKeys` and `$deleteFromPrimitiveList` are supported; `$setElementOrder` is not.

    Args:
        original: The original object.
        patch: The patch.
        type_name: `POD_TEMPLATE`, or the result of `type_of`.

    Raises:
        MergeError: an item lacks its merge key, or a directive is unknown.
    """
    return _merge_map(_copied(original), _copied(patch), type_name, "")


def _copied(value: Any) -> Any:
    """Copy the maps and lists of JSON data. `copy.deepcopy` takes five times as long."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


@functools.cache
def _table() -> dict[str, Any]:
    text = importlib.resources.files("dayfly.kube").joinpath("merge_keys.json").read_text()
    table: dict[str, Any] = json.loads(text)
    return table


def _merge_map(original: _Map, patch: _Map, type_name: str, path: str) -> _Map:
    if _DIRECTIVE in patch:
        directive = patch.pop(_DIRECTIVE)
        if directive == "replace":
            return patch
        if directive == "delete":
            return {}
        raise MergeError(f"{path}.{_DIRECTIVE}".lstrip("."), f"must be replace or delete, not {directive!r}")
    _retain(original, patch, path)
    fields = _table()["types"].get(type_name, {})
    for key, value in patch.items():
        inner = f"{path}.{key}".lstrip(".")
        if key.startswith(_ORDER):
            raise MergeError(inner, "is not supported; omit it")
        if key.startswith(_DELETE_PRIMITIVE):
            _delete_primitives(original, key.removeprefix(_DELETE_PRIMITIVE), value, inner)
        elif value is None or (key not in original and _only_deletes(value)):
            original.pop(key, None)
        else:
            original[key] = _merge_value(original.get(key), value, fields.get(key, {}), inner)
    return original


def _merge_value(old: Any, new: Any, field: dict[str, str], path: str) -> Any:
    strategies = field.get("strategy", "").split(",")
    if isinstance(new, dict):
        if isinstance(old, dict) and "replace" not in strategies:
            return _merge_map(old, new, field.get("type", ""), path)
        return _plain(new)
    if isinstance(new, list):
        if not isinstance(old, list):
            return _plain(new)
        if "merge" in strategies:
            if "key" in field:
                return _merge_items(old, new, field, path)
            return _merge_primitives(old, new, path)
    return new


def _merge_items(old: list[_Map], new: list[_Map], field: dict[str, str], path: str) -> list[_Map]:
    """Merge a list of maps by item."""
    key = field["key"]
    for index, item in enumerate(new):
        if not isinstance(item, dict):
            raise MergeError(f"{path}[{index}]", "must be a mapping")
    directives = [item.get(_DIRECTIVE) for item in new]
    if "replace" in directives:
        return [item for item in new if _DIRECTIVE not in item]
    for index, item in enumerate(new):
        if key not in item:
            raise MergeError(f"{path}[{index}]", f"needs {key}, which identifies the items of this list")
        if isinstance(item[key], dict | list):
            raise MergeError(f"{path}[{index}].{key}", "must be a plain value, as it identifies the item")
    gone = {item[key] for item in new if item.get(_DIRECTIVE) == "delete"}
    merged = [item for item in old if item.get(key) not in gone]
    places = _first_places(item.get(key) for item in merged)
    laid_over = [item for item in new if item.get(_DIRECTIVE) != "delete"]
    for index, item in enumerate(laid_over):
        place = places.setdefault(item[key], len(merged))
        if place == len(merged):
            merged.append(_bare(item))
        else:
            merged[place] = _merge_map(merged[place], item, field.get("type", ""), f"{path}[{index}]")
    return _in_order(merged, [item[key] for item in laid_over], [item.get(key) for item in old], key)


def _in_order(merged: list[_Map], patched: list[Any], served: list[Any], key: str) -> list[_Map]:
    """Sort as the server does: patched items in the order of the patch, others before their original successors."""
    rank, before = _first_places(patched), _first_places(served)
    ours = sorted((item for item in merged if item.get(key) in rank), key=lambda item: rank[item[key]])
    others = collections.deque(item for item in merged if item.get(key) not in rank)
    result: list[_Map] = []
    for item in ours:
        until = before.get(item[key], 0)
        while others and before.get(others[0].get(key), until) < until:
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _first_places(values: Iterable[Any]) -> dict[Any, int]:
    """Return the first index of each value."""
    found: dict[Any, int] = {}
    for index, value in enumerate(values):
        found.setdefault(value, index)
    return found


def _merge_primitives(old: list[Any], new: list[Any], path: str) -> list[Any]:
    """Merge lists of plain values as sets (finalizers)."""
    for index, value in enumerate(new):
        if isinstance(value, dict | list):
            raise MergeError(f"{path}[{index}]", "must be a plain value")
    merged = list(dict.fromkeys([*old, *new]))
    ordered = _in_order([{"": value} for value in merged], list(dict.fromkeys(new)), old, "")
    return [item[""] for item in ordered]


def _delete_primitives(original: _Map, key: str, values: Any, path: str) -> None:
    if not isinstance(values, list):
        raise MergeError(path, "must be a list")
    if isinstance(original.get(key), list):
        original[key] = [value for value in original[key] if value not in values]


def _retain(original: _Map, patch: _Map, path: str) -> None:
    """Apply `$retainKeys`: keep only these keys of the original; every key that the patch sets must be listed."""
    if _RETAIN not in patch:
        return
    keys = patch.pop(_RETAIN)
    if not isinstance(keys, list):
        raise MergeError(f"{path}.{_RETAIN}".lstrip("."), "must be a list of keys")
    for key, value in patch.items():
        if value is not None and key not in keys and not key.startswith("$"):
            raise MergeError(f"{path}.{key}".lstrip("."), f"is set, but {_RETAIN} does not list it")
    for key in [key for key in original if key not in keys]:
        del original[key]


def _plain(value: Any) -> Any:
    """Return a patch value that is not merged with anything: without nulls and delete directives."""
    if isinstance(value, dict):
        return {
            key: _plain(inner)
            for key, inner in value.items()
            if inner is not None and not _only_deletes(inner) and not key.startswith(_DIRECTIVES)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, dict) and _DIRECTIVE in item)]
    return value


def _bare(value: Any) -> Any:
    """Return a new item of a keyed list. The server takes it literally and then drops unknown fields.

    So an inner list item with `$patch: delete` is created, not deleted.
    """
    if isinstance(value, dict):
        return {
            key: _bare(inner) for key, inner in value.items() if inner is not None and not key.startswith(_DIRECTIVES)
        }
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return value


def _only_deletes(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"
