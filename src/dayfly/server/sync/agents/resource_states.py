"""The runs of resources in other clusters of an organisation, which leak checks of one cluster need.

Clusters that use the same account list each other's resources. The token of a resource names its host. The server
queries that host, and verifies the tokens of clusters that were removed, which have no runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dayfly.link import wire
from dayfly.link.server_end import NO_ANSWER
from dayfly.plan.leaks.verdict import ResourceRunState
from dayfly.server.db.tables import agents, clusters
from dayfly.server.records import organisation_keys, run_records
from dayfly.spec.resource_token import derive_identity, derive_key, verified_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.link.server_end import Link, Links
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.spec.resource_token import ResourceToken

ANSWER_TIMEOUT_S: Final = 10.0
# In doubt, a resource counts as used: an answer further to the left wins.
_RANKS: Final = (
    ResourceRunState.OPEN,
    ResourceRunState.CLOSED,
    ResourceRunState.UNANSWERED,
    ResourceRunState.NONE,
)


class _Cluster(NamedTuple):
    """A cluster of the organisation: its names in tokens, and the runs that it has had according to the database.

    A cluster that has never connected has no names.
    """

    name: str
    hosts: frozenset[str]
    sealed: frozenset[str]


class _Organisation(NamedTuple):
    """The clusters of an organisation and its key; None if no cluster has one."""

    key: bytes | None
    clusters: list[_Cluster]


class ResourceStates:
    """Answers clusters that ask for the runs of resources which they do not know."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, links: Links, org: str, asking: str, tokens: Sequence[ResourceToken]) -> dict[str, str]:
        """Return the state of the run of each resource that a host of the organisation has made, by resource ID.

        Args:
            links: The links to the hosts.
            org: The organisation.
            asking: The cluster with the request, which is not queried. The server may know that it has lost runs.
            tokens: Resource IDs with the tokens of their items.
        """
        found = await self._store.for_org(org).read(_read)
        if found.key is None:
            return {}
        hosts = {each.name: links.get(org, each.name) for each in found.clusters}
        question = _Question(found, found.key, asking, hosts, [each for each in links.each(org) if not each.shared])
        for token in tokens:
            if token.is_well_formed:
                question.add(token)
        served = {hosts[each.name]: each for each in found.clusters}
        asked = question.asked.items()
        answers = await asyncio.gather(*(_ask(link, each, served.get(link)) for link, each in asked))
        for id_, state in (pair for answer in answers for pair in answer):
            question.merge(id_, state)
        return {id_: state.value for id_, state in question.states.items()}


class _Question:
    """The states that one cluster requests: the known ones, and the queries for the named hosts.

    Args:
        org: The organisation, and `key` its key.
        asking: The cluster with the request.
        hosts: The links to the clusters by name; None for those without a link.
        local: The links to the hosts of this server. Their keys are their own, so every other token may be theirs.
    """

    def __init__(
        self, org: _Organisation, key: bytes, asking: str, hosts: Mapping[str, Link | None], local: Sequence[Link]
    ) -> None:
        self._org, self._key, self._asking, self._hosts, self._local = org, key, asking, hosts, local
        self.states: dict[str, ResourceRunState] = {}
        self.asked: dict[Link, list[tuple[ResourceToken, bool]]] = {}

    def merge(self, id_: str, state: ResourceRunState) -> None:
        """Add a state. In doubt, the resource counts as used."""
        self.states[id_] = min(self.states.get(id_, state), state, key=_RANKS.index)

    def add(self, token: ResourceToken) -> None:
        """Add a token to the question."""
        is_verified = verified_host(derive_key(self._key, token.host), token.token, token.id) == token.host
        named = [cluster for cluster in self._org.clusters if token.host in cluster.hosts]
        for cluster in named:
            self._add_named(token, cluster, is_verified=is_verified)
        if not named and is_verified:
            # It was removed, unless it was added again and has not connected yet.
            is_certain = all(cluster.hosts for cluster in self._org.clusters)
            self.merge(token.id, ResourceRunState.NONE if is_certain else ResourceRunState.UNANSWERED)
        elif not named:
            for link in self._local:
                self.asked.setdefault(link, []).append((token, False))

    def _add_named(self, token: ResourceToken, cluster: _Cluster, *, is_verified: bool) -> None:
        link = self._hosts[cluster.name]
        if cluster.name == self._asking:
            if _has_lost_runs(cluster, link):
                self.merge(token.id, ResourceRunState.UNANSWERED)
            elif is_verified:
                self.merge(token.id, ResourceRunState.NONE)
        elif link is not None:
            self.asked.setdefault(link, []).append((token, is_verified))
        elif is_verified:
            self.merge(token.id, ResourceRunState.UNANSWERED)


async def _ask(
    link: Link, asked: Sequence[tuple[ResourceToken, bool]], cluster: _Cluster | None
) -> list[tuple[str, ResourceRunState]]:
    """Return the states of resources at their host. Unrecognised tokens are left out, unless they are verified.

    Args:
        link: The link to the host.
        asked: Tokens that name it, and whether each is verified.
        cluster: Its cluster; None for a host of this server.
    """
    query = wire.ResourcesQuery(tokens=tuple(each for each, _ in asked))
    try:
        found: Mapping[str, str] = (await link.query(query, wire.ResourceStates, ANSWER_TIMEOUT_S)).states
    except NO_ANSWER:
        found = {} if not link.shared else {each.id: ResourceRunState.UNANSWERED for each, _ in asked}
    has_lost_runs = cluster is not None and _has_lost_runs(cluster, link)
    states = []
    for each, is_verified in asked:
        text = found.get(each.id)
        if text is None and not is_verified:
            continue
        state = next((known for known in ResourceRunState if known == text), ResourceRunState.UNANSWERED)
        is_doubtful = state is ResourceRunState.NONE and has_lost_runs
        states.append((each.id, ResourceRunState.UNANSWERED if is_doubtful else state))
    return states


def _has_lost_runs(cluster: _Cluster, link: Link | None) -> bool:
    """Return whether a cluster lacks runs that it has had, as after a restore, or has not listed its runs yet."""
    return link is None or not link.has_inventory or not cluster.sealed <= link.state.reported_uids


def _read(rows: Rows) -> _Organisation:
    key = organisation_keys.find(rows)
    connected = {row.cluster: row for row in rows.execute(rows.select(agents))}
    sealed: dict[str, set[str]] = {}
    for cluster, uid in run_records.read_sealed(rows):
        sealed.setdefault(cluster, set()).add(uid)
    found = []
    for name in rows.execute(rows.select(clusters.c.name).where(clusters.c.agent)).scalars():
        row = connected.get(name)
        hosts = _hosts(key, row.cluster_uid, row.token_hosts) if key is not None and row is not None else frozenset()
        found.append(_Cluster(name, hosts, frozenset(sealed.get(name, ()))))
    return _Organisation(key, found)


def _hosts(key: bytes, cluster_uid: str, announced: str) -> frozenset[str]:
    """Return the names of a cluster in tokens: that by the organisation's key, and those by its earlier keys."""
    if not cluster_uid:
        return frozenset()
    names: Iterable[str] = msgspec.json.decode(announced, type=tuple[str, ...]) if announced else ()
    return frozenset({derive_identity(key, cluster_uid).host, *names})
