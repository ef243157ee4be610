"""How an allowed pod's shape is written down: small checks that give (path, sentence) for what does not fit."""

import re
from collections.abc import Callable, Iterator
from typing import Any

Problem = tuple[str, str]
Row = Callable[[Any, str], Iterator[Problem]]

REASONS = {
    "nodeName": "would pass by the scheduler and its gate; use nodeSelector",
    "ephemeralContainers": "are added to running pods only",
    "lifecycle": "would run something beside the script; put it into the script",
    "hostPath": "reaches into the node; use a claim, a ConfigMap, a Secret or an emptyDir",
    "hostPort": "opens a port of the node; leave it out",
    "seLinuxOptions": "is the administrator's to set",
    "windowsOptions": "is for Windows, where steps do not run",
    "os": "is Linux; leave it out",
}
"""Why a field is refused, where more can be said than that it is not on the list."""


def record(rows: dict[str, Row], needs: tuple[str, ...] = ()) -> Row:
    """A mapping that has no fields but these; null is absent."""

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
                yield here, REASONS.get(key, "is not among the fields that pods of ours may have; leave it out")
        for key in needs:
            if value.get(key) is None:
                yield (f"{path}.{key}" if path else key), "must be there: Dayfly sets it, and it may not be taken away"

    return check


def each(row: Row, most: int) -> Row:
    """A list with at most so many items of one shape."""

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
    """One value only; true is not 1."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if value != wanted or type(value) is not type(wanted):
            yield path, f"must be {wanted!r}" if not isinstance(wanted, bool) else f"must be {str(wanted).lower()}"

    return check


def choice(*wanted: str) -> Row:
    """One of these words."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not (isinstance(value, str) and value in wanted):
            yield path, f"must be one of {', '.join(filter(None, wanted))}"

    return check


def flag() -> Row:
    """True or false."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, bool):
            yield path, "must be true or false"

    return check


def number(least: int, most: int) -> Row:
    """A whole number within bounds."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            yield path, f"must be a whole number from {least} to {most}"

    return check


def text(longest: int) -> Row:
    """A string of bounded length."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, str) or len(value) > longest:
            yield path, f"must be a string of at most {longest} characters"

    return check


def strings(longest: int, most: int) -> Row:
    """A map of strings."""

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
    """An amount of a resource that is not negative: 500m, 2Gi, 1."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        is_amount = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        if not is_amount or not _QUANTITY.fullmatch(str(value)):
            yield path, "must be a quantity that is not negative, such as 500m or 2Gi"

    return check


LEAST_MEMORY = 6 << 20
"""Bytes of memory below which runtimes cannot start a container; the pod would wait forever."""
_SUFFIXES = {"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "Ki": 1 << 10}
_SUFFIXES |= {
    f"{letter}{i}": (1024 if i else 1000) ** power for power, letter in enumerate("MGTPE", 2) for i in ("", "i")
}
_PARTS = re.compile(r"(?P<number>[+0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<suffix>[A-Za-z]*)")


def amount(quantity: str) -> float:
    """Return the value of a quantity that `quantity()` accepts; infinity if it is too large for a number."""
    parts = _PARTS.fullmatch(quantity)
    assert parts is not None, "it was accepted"
    return float(parts["number"]) * _SUFFIXES[parts["suffix"]]


def limits(most: int) -> Row:
    """A map of quantities, with a memory limit that a container can start with."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        problems = list(quantities(most)(value, path))
        yield from problems
        if not problems and "memory" in value and amount(str(value["memory"])) < LEAST_MEMORY:
            yield f"{path}[memory]", "must be at least 6Mi: with less, no container starts"

    return check


def quantities(most: int) -> Row:
    """A map of quantities."""

    def check(value: Any, path: str) -> Iterator[Problem]:
        if not isinstance(value, dict) or len(value) > most:
            yield path, f"must be a mapping of at most {most} entries"
            return
        for key, item in value.items():
            yield from quantity()(item, f"{path}[{key}]")

    return check


def free(what: str, *, depth: int, most: int = 256) -> Row:
    """Anything the server itself will judge, of bounded size: it gives no rights."""

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
