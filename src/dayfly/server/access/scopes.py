"""Scopes restrict keys to the sandboxes and route groups of some clusters or names, and to publishing some plugins.

A scope restricts the key's role and never extends it. Excluded objects do not exist for the key. Keys with any scope
may read common objects: the lists of plugins, clusters and baselines. Only keys without a scope may use endpoints that
concern the whole organisation: keys, tokens and the audit log.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.scalars.glob import Glob

if TYPE_CHECKING:
    from dayfly.server.access.agent_limits import AgentLimits

MAX_TERMS = 16
KINDS = ("cluster", "name", "plugin")
FORM = "write cluster:PATTERN, name:PATTERN or plugin:PATTERN, as name:ci-*"


class Reach(enum.Enum):
    """The keys with a scope that may use an operation."""

    COMMON = "common"
    """All: it concerns common objects."""
    RUNS = "living"
    """Keys with sandboxes and route groups in their scope, for these objects."""
    PLUGIN = "plugin"
    """Keys with the plugin in their scope."""
    WHOLE = "whole"
    """None: it needs a key without a scope."""


class ScopedObject(Protocol):
    """A record or tombstone of a sandbox or route group. The cluster is empty for a group of all clusters."""

    @property
    def name(self) -> str: ...

    @property
    def scope_cluster(self) -> str: ...

    @property
    def creator_key(self) -> str: ...

    @property
    def session(self) -> str: ...


class AgentKey(NamedTuple):
    """A key for agents: its ID, the session of the request (empty without one), and its limits."""

    key: str
    session: str
    limits: AgentLimits


class Scope(NamedTuple):
    """Patterns for clusters, names and plugins. Without patterns it is the whole organisation.

    A key for agents also sees only sandboxes that it created, and in a session only those of the session.
    """

    clusters: tuple[Glob, ...] = ()
    names: tuple[Glob, ...] = ()
    plugins: tuple[Glob, ...] = ()
    agent: AgentKey | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole organisation."""
        return not (self.clusters or self.names or self.plugins or self.agent)

    @property
    def has_runs(self) -> bool:
        """Whether it can include sandboxes and route groups; a scope that only has plugins does not."""
        return bool(self.clusters or self.names) or self.is_whole

    def includes_name(self, name: str) -> bool:
        """Return whether it can include sandboxes and route groups with that name."""
        return self.has_runs and _any(self.names, name)

    def includes_cluster(self, cluster: str) -> bool:
        """Return whether it can include sandboxes and route groups of that cluster."""
        return _any(self.clusters, cluster)

    def includes(self, found: ScopedObject) -> bool:
        """Return whether it includes a sandbox or route group."""
        if self.agent is not None and (found.creator_key, found.session) != (self.agent.key, self.agent.session):
            return False
        return self.includes_name(found.name) and self.includes_cluster(found.scope_cluster)

    def allows_publishing(self, plugin: str) -> bool:
        """Return whether it allows publishing and deleting versions of that plugin."""
        return self.is_whole or any(each.matches(plugin) for each in self.plugins)

    @property
    def terms(self) -> list[str]:
        """Its terms, such as `name:ci-*`."""
        found = zip(KINDS, (self.clusters, self.names, self.plugins), strict=True)
        return [f"{kind}:{each.text}" for kind, globs in found for each in globs]

    @property
    def description(self) -> str:
        """Its terms for messages."""
        return ", ".join(self.terms)


WHOLE = Scope()


def agent_scope(id_: str, limits: AgentLimits, clusters: tuple[Glob, ...], session: str = "") -> Scope:
    """Return the scope of a key for agents.

    Names of its sandboxes begin with its session, or with a prefix of its ID. So a name that is already used reveals
    nothing about other sandboxes.
    """
    prefix = session or f"k{id_[:7]}"
    return Scope(clusters=clusters, names=(Glob(f"{prefix}-*"),), agent=AgentKey(id_, session, limits))


def _any(globs: tuple[Glob, ...], value: str) -> bool:
    return not globs or any(each.matches(value) for each in globs)


def parse(terms: Any, keys: Path = ("scope",)) -> Scope:
    """Parse a list of terms. An empty list is an error, so that it cannot mean the whole organisation by mistake.

    Raises:
        SpecError: for each invalid term.
    """
    if not isinstance(terms, list) or not 0 < len(terms) <= MAX_TERMS:
        problem = f"must be a list of 1 to {MAX_TERMS} terms ({FORM}); leave the field out for a key without a scope"
        raise SpecError(problem, keys)
    faults = Faults()
    found: dict[str, list[Glob]] = {kind: [] for kind in KINDS}
    for index, term in enumerate(terms):
        with faults:
            kind, pattern = _split(term, (*keys, index))
            found[kind].append(Glob(pattern, (*keys, index)))
    faults.settle()
    return Scope(clusters=tuple(found["cluster"]), names=tuple(found["name"]), plugins=tuple(found["plugin"]))


def _split(term: Any, keys: Path) -> tuple[str, str]:
    kind, colon, pattern = term.partition(":") if isinstance(term, str) else ("", "", "")
    if kind not in KINDS or not colon or not pattern or not pattern.isprintable():
        raise SpecError(f"{quote(str(term)[:60])} is not a term of a scope; {FORM}", keys)
    return kind, pattern
