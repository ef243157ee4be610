"""Which sandboxes are meant by their labels: `team=pay,!draft`, as kubectl's `-l` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.spec.errors import SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Term(NamedTuple):
    """One condition: the label has this value, or any for None; or, turned round, has it not."""

    label: str
    value: str | None
    is_not: bool

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil it. What has no such label has not that value either."""
        found = labels.get(self.label)
        return (found is not None if self.value is None else found == self.value) != self.is_not


def selector(texts: Iterable[str]) -> tuple[Term, ...]:
    """The conditions in `label=value`, `label!=value`, `label` and `!label`, by commas or one after another.

    Raises:
        SpecError: a condition of another form.
    """
    return tuple(_term(part.strip()) for text in texts for part in text.split(","))


def takes(terms: Iterable[Term], labels: Mapping[str, str]) -> bool:
    """Whether labels fulfil all conditions."""
    return all(term.takes(labels) for term in terms)


def _term(part: str) -> Term:
    label, equals, value = part.partition("=")
    is_not = label.endswith("!") if equals else label.startswith("!")
    name = (label.removesuffix("!") if equals else label.removeprefix("!")).strip()
    if not name or set(name) & set("!= ()"):
        forms = "label=value, label!=value, label or !label, with commas between several"
        raise SpecError(f"{quote(part)} selects nothing by labels: write {forms}")
    return Term(name, value.removeprefix("=").strip() if equals else None, is_not)
