"""The addresses of the routing rules; what they are says `spec.routing.rules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.server.access import callers
from dayfly.server.catalog import baselines
from dayfly.server.http import forms
from dayfly.server.http.handler import serve, serve_as
from dayfly.server.records.run_records import SANDBOXES, read_all
from dayfly.spec.lifecycle import fork_id
from dayfly.spec.routing.rules import Forked, Query, RoutedDestination, RoutedPort, rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.link.server_end import Links
    from dayfly.link.wire import Standing
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.sandbox import SandboxSpec

    Groups = Mapping[str, Sequence[str]]
    Ports = Mapping[tuple[str, str], int]

OLD = "/api/v1"


def forked(record: RunRecord[SandboxSpec], standing: Standing | None, routed: Groups, ports: Ports) -> Forked:
    """A sandbox as rules see it; one of which nothing is known forks nothing yet.

    Args:
        record: Of the store.
        standing: What its host tells of it.
        routed: By baseline, the keys of route groups that lead to its forks.
        ports: Of baselines, by namespace and name, where that is known.
    """
    name, key = record.name, record.routing_key
    if standing is None or standing.report is None:
        return Forked(name, key, (), {}, {}, {})
    forks = [fork.fork_of.baseline for fork in record.spec.forks]
    where = {endpoint.unit: endpoint for endpoint in standing.endpoints}
    mappings = {}
    for of in forks:
        if (at := where.get(fork := fork_id(of))) is not None:
            port = ports.get((of.namespace, of.name), at.port)
            answers = RoutedDestination(host=at.host, port=at.port)
            mappings[fork] = (RoutedPort(workload_port=port, destinations=(answers,)),)
    states = {unit.id: unit.state for unit in standing.report.units}
    return Forked(name, key, forks, routed, states, mappings)


class RoutingRulesApi:
    """The address of the rules, in the old place where clients look for it and beside all others."""

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        self._store = store
        self._links = links
        self._sync = sync

    def routes(self) -> list[Route]:
        """Both."""
        path = "/workloads/routing-rules"
        return [serve(path, GET=self.get), serve_as(path, OLD + path, GET=self.get)]

    async def get(self, request: Request) -> Any:
        who, query = callers.caller(request), Query.of(request.query_params)
        org = who.org

        def read(rows: Any) -> Any:
            # A rule that is left out sends requests to the baseline: whoever asks keeps what it has instead.
            found = read_all(rows, SANDBOXES)
            ports = {place: each.port for place, each in baselines.readable(rows).items() if each.port}
            ours = [each for each in found if callers.seen(who, each)]
            return [each for each in ours if each.stop is None and query.sandbox in ("", each.name)], ports

        found, ports = await self._store.of(org).read(read)
        by_cluster: dict[str, list[RunRecord[SandboxSpec]]] = {}
        for record in found:
            if record.spec.forks:
                by_cluster.setdefault(record.cluster, []).append(record)
        told = []
        for cluster, ours in by_cluster.items():
            link = self._links.of(org, cluster)
            standings, _ = await link.look([record.uid for record in ours]) if link is not None else ({}, "")
            told += [
                forked(record, standings.get(record.uid), self._sync.routed(org, record.uid), ports) for record in ours
            ]
        return forms.RoutingRules(
            routing_rules=[rule for sandbox in told for rule in rules(sandbox) if query.matches(rule)]
        )
