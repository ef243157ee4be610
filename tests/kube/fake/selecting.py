"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.kube.fake.refusals import Refusal
from tests.kube.fake.store import Object

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^)]*)\)$")
Predicate = Callable[[Object], bool]


def selector(labels: str, fields: str) -> Predicate:
    """Return whether both selectors match an object."""
    parts = [_label(each.strip()) for each in _split(labels)] + [_field(each.strip()) for each in _split(fields)]
    return lambda item: all(part(item) for part in parts)


def _split(text: str) -> list[str]:
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label(text: str) -> Predicate:
    def value(item: Object, key: str) -> str | None:
        return item["metadata"].get("labels", {}).get(key)

    if found := _SET.match(text):
        key, values = found["key"], {each.strip() for each in found["values"].split(",")}
        if found["how"] == "in":
            return lambda item: value(item, key) in values
        return lambda item: value(item, key) not in values
    if "!=" in text:
        key, wanted = (each.strip() for each in text.split("!=", 1))
        return lambda item: value(item, key) != wanted
    if "=" in text:
        key, wanted = (each.strip() for each in text.replace("==", "=").split("=", 1))
        return lambda item: value(item, key) == wanted
    if text.startswith("!"):
        return lambda item: value(item, text[1:]) is None
    return lambda item: value(item, text) is not None


_FIELDS: dict[str, Callable[[Object], str]] = {
    "metadata.name": lambda item: item["metadata"]["name"],
    "metadata.namespace": lambda item: item["metadata"].get("namespace", ""),
    "spec.nodeName": lambda item: item.get("spec", {}).get("nodeName", ""),
    "status.phase": lambda item: item.get("status", {}).get("phase", ""),
    "type": lambda item: item.get("type", ""),
    "regarding.uid": lambda item: item.get("regarding", {}).get("uid", ""),
}


def _field(text: str) -> Predicate:
    key, sign, wanted = (each.strip() for each in re.split(r"(!=|==|=)", text, maxsplit=1))
    if key not in _FIELDS:
        raise Refusal(400, f"field label not supported: {key}")
    read = _FIELDS[key]
    return lambda item: (read(item) == wanted) is (sign != "!=")
