"""Conversion of plain data to Dayfly's types. It reports all faults, each with its path and Dayfly's own message.

msgspec stops at the first fault. So `repair` reads kind and path of the fault from msgspec's message, replaces the
invalid value by a valid one, and repeats the conversion.
"""

from __future__ import annotations

import bisect
import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.parsing import text

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

# One part of a path in a message of msgspec: a field, an index, or an entry of a mapping.
_PATH_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")
# Fields whose values are numbers with units.
_DURATIONS = frozenset(
    {"answer", "connect", "duration", "every", "grace", "linger", "maxAge", "pull", "run", "schedule"}
)
# The path at the end of a message. The name of an unknown field, which comes before it, may contain any text.
_PATH_SUFFIX = re.compile(r" - at `\$((?:\.\w+|\[\d+\]|\[\.\.\.\])+)`\Z")
_MISSING, _UNKNOWN, _EXPECTS = "Object missing required field `", "Object contains unknown field `", "Expected `"
_MAX_FAULTS = 64
# Fields with nulls that have a meaning, by the field or type that contains them: data that Dayfly sends as written, and
# params that are fixed as not given.
_KEPT_FIELDS = (("webhook", "body"), ("ResourcePoolSpec", "params"))
# A valid value of each of msgspec's types.
_REPLACEMENTS: dict[str, Any] = {"str": "", "int": 0, "float": 0.0, "bool": False, "array": [], "object": {}}
_EXPECTED = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
}


def convert(data: Any, type_: type[T], keys: Path, spelled: Mapping[Path, str]) -> T:
    """Return the data as a value of `type_`.

    Args:
        data: Plain data, as parsed from YAML or JSON.
        type_: One of Dayfly's types.
        keys: The path to the data.
        spelled: By path, the YAML text of values that YAML did not read as strings.

    Raises:
        SpecError: The first fault, with all others in `others`.
    """
    made, faults, _ = repair(data, type_, keys, spelled)
    faults.settle()
    if made is None:
        raise AssertionError("the repaired data is still not valid, but there was no fault")
    return made


def repair(
    data: Any, type_: type[T], keys: Path, spelled: Mapping[Path, str]
) -> tuple[T | None, Faults, frozenset[Path]]:
    """Return the data as a value of `type_`, the faults, and their paths. Valid values replace the invalid ones.

    The value is None if the data cannot be repaired: it is not a mapping, or has too many faults.
    """
    # In a list of one item, because msgspec's message about a fault at the root has no path.
    data, types = [_without_nulls(data, type_.__name__)], list[type_]  # type: ignore[valid-type]  # built here, never an annotation
    faults = Faults()
    invented: set[Path] = set()
    for _ in range(_MAX_FAULTS):
        try:
            made: T = msgspec.convert(data, types)[0]
        except msgspec.ValidationError as fault:
            found = _explain(str(fault), data, types, keys, spelled)
            # A fault inside of a replacement is not one of the author. It is repaired, but not reported.
            if not any(found.path[: len(path)] == path for path in invented):
                faults.found.append(found.error)
            if not found.path:
                break
            invented.add(found.path)
            data = _repair_value(data, found)
        else:
            return made, faults, frozenset(keys + way for way in invented)
    return None, faults, frozenset()


def _without_nulls(value: Any, under: str = "") -> Any:
    """Return the value without nulls in mappings: a null field counts as absent, except within `_KEPT_FIELDS`."""
    if isinstance(value, dict):
        return {
            key: item if (under, key) in _KEPT_FIELDS else _without_nulls(item, key)
            for key, item in value.items()
            if item is not None
        }
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


class _ConversionFault(NamedTuple):
    """A fault that msgspec has reported.

    Attributes:
        error: The fault in Dayfly's words.
        path: The path to the invalid or missing value.
        replacement: A valid replacement; None if the value must be removed.
    """

    error: SpecError
    path: Path
    replacement: Any


def _repair_value(data: list[Any], fault: _ConversionFault) -> list[Any]:
    *before, last = (0, *fault.path)
    holder = _value_at(data, tuple(before))
    value: Any
    if fault.replacement is None:
        value = {key: item for key, item in holder.items() if key != last}
    elif isinstance(holder, dict):
        value = {**holder, last: fault.replacement}
    else:
        value = [fault.replacement if index == last else item for index, item in enumerate(holder)]
    repair: list[Any] = _replace_value(data, tuple(before), value)
    return repair


def _explain(message: str, data: list[Any], types: Any, keys: Path, spelled: Mapping[Path, str]) -> _ConversionFault:
    match = _PATH_SUFFIX.search(message)
    assert match is not None, message
    what = message[: match.start()]
    within = _path(match[1], message, data, types)[1:]
    if what.startswith(_MISSING):
        field = what[len(_MISSING) : -1]
        error = SpecError(f"missing required field {quote(field)}", keys + within)
        return _ConversionFault(error, (*within, field), "")
    if what.startswith(_UNKNOWN):
        field, known = what[len(_UNKNOWN) : -1], list(_fields_at(types, (0, *within)))
        close = difflib.get_close_matches(field, known, n=1, cutoff=0.7)
        hint = f"did you mean {close[0]}? " if close else ""
        problem = f"unknown field {quote(field)}; {hint}known here: {', '.join(known)}"
        error = SpecError(problem, (*keys, *within, field))
        return _ConversionFault(error, (*within, field), None)
    assert what.startswith(_EXPECTS), what
    expected = what[len(_EXPECTS) :].partition("`")[0]
    error = wrong_type(expected, _value_at(data[0], within), keys + within, spelled)
    replacement = next(value for kind, value in _REPLACEMENTS.items() if kind in expected.split(" | "))
    return _ConversionFault(error, within, replacement)


def wrong_type(expected: str, value: Any, keys: Path, spelled: Mapping[Path, str]) -> SpecError:
    wanted = [name for name in expected.split(" | ") if name in _EXPECTED]
    kind = text.kind_of(value)
    if "str" in wanted and keys in spelled:
        word = quote(spelled[keys])
        if keys and keys[-1] in _DURATIONS and spelled[keys].isdecimal():
            number = spelled[keys]
            return SpecError(f"{number} has no unit; write {number}s, {number}m or {number}h", keys)
        return SpecError(f"{word} is {kind} in YAML; write {word} in quotes", keys)
    return SpecError(
        f"must be {' or '.join(_EXPECTED[name] for name in wanted)}, not {kind}{_example(wanted, keys)}", keys
    )


def _example(wanted: list[str], keys: Path) -> str:
    """Return how to write a mapping or list in a field; empty for other types."""
    if not keys or not isinstance(keys[-1], str):
        return ""
    if wanted == ["object"]:
        return f": write {keys[-1]}: {{KEY: VALUE}}"
    return f': write {keys[-1]}: [ITEM], or each item in a line with "- " at its start' if wanted == ["array"] else ""


def _path(path: str, message: str, data: Any, types: Any) -> Path:
    """Return the path in a message of msgspec as keys.

    msgspec writes `[...]` for an entry of a mapping. A bisection finds its key: the fewest first entries of the mapping
    that still have the same fault end with the invalid entry.
    """
    keys: list[str | int] = []
    for match in _PATH_PART.finditer(path):
        if match[3] is None:
            keys.append(match[1] or int(match[2]))
            continue
        entries = list(_value_at(data, tuple(keys)).items())

        def fails(count: int, entries: list[Any] = entries, before: Path = tuple(keys)) -> bool:
            try:
                msgspec.convert(_replace_value(data, before, dict(entries[:count])), types)
            except msgspec.ValidationError as fault:
                return str(fault) == message
            return False

        count = bisect.bisect_left(range(1, len(entries)), x=True, key=fails)
        keys.append(entries[count][0])
    return tuple(keys)


def _replace_value(data: Any, keys: Path, value: Any) -> Any:
    if not keys:
        return value
    copy = data.copy()
    copy[keys[0]] = _replace_value(data[keys[0]], keys[1:], value)
    return copy


def _value_at(data: Any, keys: Path) -> Any:
    for key in keys:
        data = data[key]
    return data


def _fields_at(type_: Any, keys: Path) -> list[str]:
    """Return the fields of the struct at a path."""
    for key in keys:
        type_ = _type_below(type_, key)
    return [field.encode_name for field in msgspec.structs.fields(_struct_in(type_))]


def _type_below(type_: Any, key: str | int) -> Any:
    """Return the type of the value under a key; None for an unknown field. A plain mapping accepts any key."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return next((field.type for field in msgspec.structs.fields(type_) if field.encode_name == key), None)
    origin, parts = get_origin(type_), get_args(type_)
    if origin in (list, tuple, dict):
        return parts[1 if origin is dict else 0]
    return next((found for part in parts if (found := _type_below(part, key)) is not None), None)


def _struct_in(type_: Any) -> Any:
    """Return the struct in a field's type, directly or as an element or alternative; None if there is none."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_
    return next((found for part in get_args(type_) if (found := _struct_in(part))), None)
