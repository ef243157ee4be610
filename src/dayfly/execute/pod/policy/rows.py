"""Building blocks for the shape of an allowed object: checks that yield a path and a message for each problem."""

import re
from collections.abc import Callable, Iterator
from typing import Any

Problem = tuple[str, str]
Row = Callable[[Any, str], Iterator[Problem]]

REASONS = {
    "nodeName": "would bypass the scheduler and the scheduling gate; use nodeSelector",
    "ephemeralContainers": "can be added only to running pods",
    "lifecycle": "would run commands outside of the script; move them into the script",
    "hostPath": "would access the node's files; use a claim, a ConfigMap, a Secret or an emptyDir",
    "hostPort": "would open a port of the node; remove it",
    "seLinuxOptions": "can be set only by the administrator",
    "windowsOptions": "has no effect, because steps run on Linux; remove it",
    "os": "is always Linux; remove it",
}
"""Specific reasons for refused fields."""


def record(rows: dict[str, Row], needs: tuple[str, ...] = ()) -> Row:
    """Return a check for a mapping with only these fields; null counts as absent."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield path, "must be a mapping"
            return
        for key, inner in value.items():
            here = f"{path}.{key}" if path else str(key)
            if key in rows:
                if inner is not None:
                    yield from rows[key](inner, here)
            else:
                yield here, REASONS.get(key, "is not an allowed field; remove it")
        for key in needs:
            if value.get(key) is None:
                yield (f"{path}.{key}" if path else key), "is set by Dayfly and must not be removed"

    return check


def each(row: Row, most: int) -> Row:
    """Return a check for a list with at most `most` items that pass `row`."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield path, "must be a list"
        elif len(value) > most:
            yield path, f"has {len(value)} items; at most {most} are allowed" if most else "must be empty"
        else:
            for index, item in enumerate(value):
                yield from row(item, f"{path}[{index}]")

    return check


def exactly(wanted: Any) -> Row:
    """Return a check for one value; true is not 1."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if value != wanted or type(value) is not type(wanted):
            yield path, f"must be {wanted!r}" if not isinstance(wanted, bool) else f"must be {str(wanted).lower()}"

    return check


def choice(*wanted: str) -> Row:
    """Return a check for one of these strings."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not (isinstance(value, str) and value in wanted):
            yield path, f"must be one of {', '.join(filter(None, wanted))}"

    return check


def flag() -> Row:
    """Return a check for a boolean."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, bool):
            yield path, "must be true or false"

    return check


def number(least: int, most: int) -> Row:
    """Return a check for an integer within bounds."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            yield path, f"must be a whole number from {least} to {most}"

    return check


def text(longest: int) -> Row:
    """Return a check for a string with at most `longest` characters."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, str) or len(value) > longest:
            yield path, f"must be a string of at most {longest} characters"

    return check


def strings(longest: int, most: int) -> Row:
    """Return a check for a mapping of strings."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, dict) or len(value) > most:
            yield path, f"must be a mapping of at most {most} entries"
            return
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str) or len(item) > longest:
                yield f"{path}[{key}]", f"must be a string of at most {longest} characters"

    return check


# Kubernetes API reference, Common Definitions, Quantity.
_QUANTITY = re.compile(r"\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")


def quantity() -> Row:
    """Return a check for a non-negative quantity: 500m, 2Gi, 1."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        is_amount = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        if not is_amount or not _QUANTITY.fullmatch(str(value)):
            yield path, "must be a non-negative quantity, such as 500m or 2Gi"

    return check


MIN_MEMORY_BYTES = 6 << 20
"""With less memory, runtimes cannot start a container, and the pod would wait forever."""
_SUFFIXES = {"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "Ki": 1 << 10}
_SUFFIXES |= {
    f"{letter}{i}": (1024 if i else 1000) ** power for power, letter in enumerate("MGTPE", 2) for i in ("", "i")
}
_PARTS = re.compile(r"(?P<number>[+0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<suffix>[A-Za-z]*)")


def amount(quantity: str) -> float:
    """Return the value of a quantity that `quantity()` accepts; infinity if it is too large for a number."""
    parts = _PARTS.fullmatch(quantity)
    assert parts is not None, "quantity() has accepted it"
    return float(parts["number"]) * _SUFFIXES[parts["suffix"]]


def limits(most: int) -> Row:
    """Return a check for a mapping of quantities, in which a memory limit has the minimum that a container needs."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        problems = list(quantities(most)(value, path))
        yield from problems
        if not problems and "memory" in value and amount(str(value["memory"])) < MIN_MEMORY_BYTES:
            yield f"{path}[memory]", "must be at least 6Mi: with less, no container starts"

    return check


def quantities(most: int) -> Row:
    """Return a check for a mapping of quantities."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, dict) or len(value) > most:
            yield path, f"must be a mapping of at most {most} entries"
            return
        for key, item in value.items():
            yield from quantity()(item, f"{path}[{key}]")

    return check


def free(what: str, *, depth: int, most: int = 256) -> Row:
    """Return a check for any value of bounded size. For fields that grant no rights and that the API server checks."""

    def count(value: Any, left: int) -> int:
        if isinstance(value, (dict, list)):
            if left == 0:
                return most + 1
            items = value.values() if isinstance(value, dict) else value
            return 1 + sum(count(item, left - 1) for item in items)
        return 1 if not isinstance(value, str) or len(value) <= 1024 else most + 1

    def check(value: Any, path: str) -> Iterator[Problem]:
        if count(value, depth) > most:
            yield path, f"is too large or too deep for {what}"

    return check
