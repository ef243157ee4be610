"""The label match of a route group: `label` (a key and a pattern of its value), or `any` or `all` of several."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.parsing import text
from dayfly.spec.scalars.glob import Glob

if TYPE_CHECKING:
    from collections.abc import Mapping

# The match of each group is evaluated after each change of a sandbox, so its size is limited.
MAX_LABELS, MAX_DEPTH = 64, 16
# The key of a Kubernetes label: a prefix of 253 characters, a slash and a name of 63.
MAX_KEY_LENGTH = 317

_FORMS = ("label", "any", "all")
_NOTHING: Mapping[Path, str] = MappingProxyType({})


class HasLabel(NamedTuple):
    """A match for sandboxes with this label, if its value matches the pattern."""

    key: str
    value: Glob

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels match."""
        found = labels.get(self.key)
        return found is not None and self.value.matches(found)


class AnyOf(NamedTuple):
    """A match for sandboxes that match at least one of the terms."""

    terms: tuple[Match, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels match."""
        return any(term.matches(labels) for term in self.terms)


class AllOf(NamedTuple):
    """A match for sandboxes that match all terms."""

    terms: tuple[Match, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels match."""
        return all(term.matches(labels) for term in self.terms)


Match: TypeAlias = HasLabel | AnyOf | AllOf


def parse(data: Any, keys: Path = (), spelled: Mapping[Path, str] = _NOTHING) -> Match:
    """Return the parsed match.

    Args:
        data: The match as plain data.
        keys: The path to it.
        spelled: By path, the YAML text of values that YAML did not read as strings.

    Raises:
        SpecError: The first fault, with all others in `others`.
    """
    if (count := _count(data, 1)) > MAX_LABELS:
        raise SpecError(f"names {count} labels; a route group has at most {MAX_LABELS}", keys)
    return _parse(data, keys, MAX_DEPTH, spelled)


def _count(data: Any, depth: int) -> int:
    """Return the number of labels in the match. Parts that are nested too deeply are not counted."""
    if not isinstance(data, dict) or depth > MAX_DEPTH:
        return 0
    lists = (data.get(form) for form in ("any", "all"))
    inner = sum(_count(each, depth + 1) for found in lists if isinstance(found, list) for each in found)
    return inner + (data.get("label") is not None)


def _parse(data: Any, keys: Path, left: int, spelled: Mapping[Path, str]) -> Match:
    if not left:
        raise SpecError(f"is nested more than {MAX_DEPTH} deep", keys)
    if not isinstance(data, dict):
        raise SpecError(f"must be a mapping with label, any or all, not {text.kind_of(data)}", keys)
    if unknown := sorted(map(str, data.keys() - set(_FORMS))):
        raise SpecError(f"unknown field {quote(unknown[0])}; known here: label, any, all", (*keys, unknown[0]))
    # Clients send empty values as null, missing, or an empty list.
    given = [form for form in _FORMS if data.get(form) not in (None, [])]
    if len(given) != 1:
        raise SpecError(f"needs exactly one of label, any and all; {len(given)} are given", keys)
    (form,) = given
    if form == "label":
        return _label(data[form], (*keys, form), spelled)
    return _terms(form, data[form], (*keys, form), left, spelled)


def _terms(form: str, found: Any, keys: Path, left: int, spelled: Mapping[Path, str]) -> Match:
    if not isinstance(found, list):
        raise SpecError(f"must be a list, not {text.kind_of(found)}", keys)
    faults, terms = Faults(), []
    for index, each in enumerate(found):
        with faults:
            terms.append(_parse(each, (*keys, index), left - 1, spelled))
    faults.settle()
    return AnyOf(tuple(terms)) if form == "any" else AllOf(tuple(terms))


def _label(found: Any, keys: Path, spelled: Mapping[Path, str]) -> HasLabel:
    if not isinstance(found, dict):
        raise SpecError(f"must be a mapping with key and value, not {text.kind_of(found)}", keys)
    if unknown := sorted(map(str, found.keys() - {"key", "value"})):
        raise SpecError(f"unknown field {quote(unknown[0])}; known here: key, value", (*keys, unknown[0]))
    faults = Faults()
    for field in ("key", "value"):
        with faults:
            if field not in found:
                raise SpecError(f"missing required field {quote(field)}", (*keys, field))
            if not isinstance(found[field], str):
                kind, word = text.kind_of(found[field]), spelled.get((*keys, field))
                advice = f"{quote(word)} is {kind} in YAML; write {quote(word)} in quotes" if word is not None else ""
                raise SpecError(advice or f"must be a string, not {kind}", (*keys, field))
    faults.settle()
    if not 0 < len(found["key"]) <= MAX_KEY_LENGTH:
        raise SpecError(f"a label's key has 1 to {MAX_KEY_LENGTH} characters", (*keys, "key"))
    return HasLabel(found["key"], Glob(found["value"], (*keys, "value")))
