"""What of its organisation a key may touch where that is not all of it: what lives in some clusters, or under some
names, and which plugins it publishes.

A scope narrows what the key's role may; it never adds to it. What it leaves out is for such a key as if it were not
there. What is everybody's (which plugins, clusters and baselines there are) can be read with any; what concerns the
whole organisation (keys, tokens, the audit log) is closed to all but keys without a scope.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Protocol

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.scalars.glob import Glob

MOST_TERMS = 16
KINDS = ("cluster", "name", "plugin")
FORM = "write cluster:PATTERN, name:PATTERN or plugin:PATTERN, as name:ci-*"


class Reach(enum.Enum):
    """Whom of the keys with a scope an operation is open to."""

    COMMON = "common"
    """All: it tells of what is everybody's."""
    LIVING = "living"
    """Those whose scope has sandboxes and route groups, for these alone."""
    PLUGIN = "plugin"
    """Those whose scope has the plugin."""
    WHOLE = "whole"
    """None."""


class Living(Protocol):
    """A sandbox or a route group, living or ended, by its name and the cluster whose it is (empty: of all)."""

    @property
    def name(self) -> str: ...  # as in the records

    @property
    def where(self) -> str: ...  # as in the records


class Scope(NamedTuple):
    """Patterns, as of labels in a route group; without any it is all of the organisation."""

    clusters: tuple[Glob, ...] = ()
    names: tuple[Glob, ...] = ()
    plugins: tuple[Glob, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return not (self.clusters or self.names or self.plugins)

    @property
    def has_living(self) -> bool:
        """Whether sandboxes and route groups are in it: those of a key that only publishes are not."""
        return bool(self.clusters or self.names) or self.is_whole

    def takes_name(self, name: str) -> bool:
        """Whether what lives under that name may be in it."""
        return self.has_living and _any(self.names, name)

    def takes_cluster(self, cluster: str) -> bool:
        """Whether what lives there may be in it."""
        return _any(self.clusters, cluster)

    def takes(self, living: Living) -> bool:
        """Whether a sandbox or route group is in it."""
        return self.takes_name(living.name) and self.takes_cluster(living.where)

    def publishes(self, plugin: str) -> bool:
        """Whether versions of that plugin are published and removed with it."""
        return self.is_whole or any(each.matches(plugin) for each in self.plugins)

    @property
    def terms(self) -> list[str]:
        """As they are written."""
        found = zip(KINDS, (self.clusters, self.names, self.plugins), strict=True)
        return [f"{kind}:{each.text}" for kind, globs in found for each in globs]

    @property
    def words(self) -> str:
        """For sentences."""
        return ", ".join(self.terms)


WHOLE = Scope()


def _any(globs: tuple[Glob, ...], value: str) -> bool:
    return not globs or any(each.matches(value) for each in globs)


def read(terms: Any, keys: Path = ("scope",)) -> Scope:
    """A scope as it is written: a list of terms. An empty list is refused: a scope never means everything.

    Raises:
        SpecError: at each term that is none.
    """
    if not isinstance(terms, list) or not 0 < len(terms) <= MOST_TERMS:
        problem = f"must be a list of 1 to {MOST_TERMS} terms ({FORM}); leave the field out for a key without a scope"
        raise SpecError(problem, keys)
    faults = Faults()
    found: dict[str, list[Glob]] = {kind: [] for kind in KINDS}
    for index, term in enumerate(terms):
        with faults:
            kind, pattern = _split(term, (*keys, index))
            found[kind].append(Glob(pattern, (*keys, index)))
    faults.settle()
    return Scope(*(tuple(found[kind]) for kind in KINDS))


def _split(term: Any, keys: Path) -> tuple[str, str]:
    kind, colon, pattern = term.partition(":") if isinstance(term, str) else ("", "", "")
    if kind not in KINDS or not colon or not pattern or not pattern.isprintable():
        raise SpecError(f"{quote(str(term)[:60])} is no part of a scope; {FORM}", keys)
    return kind, pattern
