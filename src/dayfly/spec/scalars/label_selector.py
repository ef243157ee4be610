"""Label selectors, like `team=pay,!draft`, as in kubectl's `-l`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Term(NamedTuple):
    """One condition: the label has this value, or any value for None; or the negation of that."""

    label: str
    value: str | None
    is_not: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy it. A missing label has no value."""
        found = labels.get(self.label)
        return (found is not None if self.value is None else found == self.value) != self.is_not


def parse(texts: Iterable[str]) -> tuple[Term, ...]:
    """Return the conditions of `label=value`, `label!=value`, `label` and `!label`, separated by commas or given one by
    one.

    Raises:
        SpecError: A condition of another form.
    """
    return tuple(_term(part.strip()) for text in texts for part in text.split(","))


def matches(terms: Iterable[Term], labels: Mapping[str, str]) -> bool:
    """Return whether the labels satisfy all conditions."""
    return all(term.matches(labels) for term in terms)


def _term(part: str) -> Term:
    label, equals, value = part.partition("=")
    is_not = label.endswith("!") if equals else label.startswith("!")
    name = (label.removesuffix("!") if equals else label.removeprefix("!")).strip()
    if not name or set(name) & set("!= ()"):
        forms = "label=value, label!=value, label or !label, with commas between several"
        raise SpecError(f"{quote(part)} is not a label selector: write {forms}")
    return Term(name, value.removeprefix("=").strip() if equals else None, is_not)
