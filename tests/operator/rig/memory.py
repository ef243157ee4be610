"""A search through the memory of an operator."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec

from dayfly.kube.client import KubeClient
from dayfly.kube.events import Recorder

_CONTAINERS = (set, frozenset, list, tuple, collections.deque, weakref.WeakSet)
# Its connections, and what it has sent over them.
_OTHERS = (KubeClient, Recorder)


def remembered(operator: Any, *words: str) -> list[str]:
    """Return the places in its memory with one of these words, as paths of attributes and keys."""
    return sorted({path for path, text in _texts(operator, "operator", set()) if any(word in text for word in words)})


def _texts(item: Any, path: str, seen: set[int]) -> Iterator[tuple[str, str]]:
    if isinstance(item, str):
        yield path, item
        return
    if id(item) in seen or isinstance(item, _OTHERS):
        return
    seen.add(id(item))
    if isinstance(item, dict):
        for key, value in list(item.items()):
            yield from _texts(key, path, seen)
            yield from _texts(value, f"{path}[]", seen)
    elif isinstance(item, _CONTAINERS):
        for each in list(item):
            yield from _texts(each, f"{path}[]", seen)
    elif isinstance(item, msgspec.Struct):
        for name in item.__struct_fields__:
            yield from _texts(getattr(item, name), f"{path}.{name}", seen)
    elif type(item).__module__.startswith("dayfly."):
        members = getattr(item, "__dict__", {}) | {
            name: getattr(item, name) for name in getattr(item, "__slots__", ()) if hasattr(item, name)
        }
        for name, value in members.items():
            yield from _texts(value, f"{path}.{name}", seen)
