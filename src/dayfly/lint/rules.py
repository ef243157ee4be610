"""The rules as a table: each has a code, its texts and the function that finds its problem.

A code never changes its meaning. Its first digit is its group: 1 refusals, 2 names and cleanup, 3 secrets, 4 inputs and
outputs, 5 scripts, 6 settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dayfly.lint.plugin_view import PluginView
    from dayfly.spec.errors import Path


class Spot(NamedTuple):
    """A problem: the path to the value, the line within its script if it is one, and the text."""

    keys: Path
    problem: str
    line: int = 0


class Rule(NamedTuple):
    """A rule: its problem, the consequences, and the remedy."""

    code: str
    name: str
    wrong: str
    advice: str
    find: Callable[[PluginView], Iterator[Spot]] | None

    @property
    def group(self) -> str:
        """The heading of its group."""
        return GROUPS[self.code[2]]


class Finding(NamedTuple):
    """A finding with its place; `line` and `column` are 0 if they are not known."""

    code: str
    file: str
    line: int
    column: int
    path: str
    problem: str
    advice: str


GROUPS = {
    "1": "What is refused",
    "2": "Names and cleanup",
    "3": "Secrets",
    "4": "Inputs and outputs",
    "5": "Scripts",
    "6": "Settings",
}
RULES: dict[str, Rule] = {}


def rule(code: str, name: str, wrong: str, advice: str) -> Callable[[Callable[[PluginView], Iterator[Spot]]], object]:
    """Return a decorator that adds a function to the table."""

    def add(find: Callable[[PluginView], Iterator[Spot]]) -> Callable[[PluginView], Iterator[Spot]]:
        RULES[code] = Rule(code, name, wrong, advice, find)
        return find

    return add


REFUSED, SHELLCHECK = "DF101", "DF502"
RULES[REFUSED] = Rule(
    REFUSED,
    "refused",
    "The file is refused: `apply` ends with this message.",
    "Follow the advice in the message.",
    None,
)
RULES[SHELLCHECK] = Rule(
    SHELLCHECK,
    "shellcheck",
    "shellcheck has found a mistake in a script, such as a variable without quotes.",
    'Put the variable in double quotes: "$NAME". shellcheck\'s own pages explain its codes.',
    None,
)


def selected_codes(select: Iterable[str], ignore: Iterable[str]) -> frozenset[str]:
    """Return the selected codes: those of `select` (all if it is empty) without those of `ignore`.

    A prefix stands for all codes that begin with it.

    Raises:
        ValueError: A prefix matches no code.
    """
    wanted = [list(_split_codes(each)) for each in (select, ignore)]
    for prefix in (*wanted[0], *wanted[1]):
        if not any(code.startswith(prefix) for code in RULES):
            raise ValueError(f"no rule has a code that begins with {quote(prefix)}")
    begins, leaves = (tuple(each) for each in wanted)
    return frozenset(
        code for code in RULES if (not begins or code.startswith(begins)) and not (leaves and code.startswith(leaves))
    )


def _split_codes(words: Iterable[str]) -> Iterator[str]:
    return (part.strip().upper() for word in words for part in word.split(",") if part.strip())
