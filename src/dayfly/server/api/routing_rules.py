"""The endpoint for routing rules, which `spec.routing.rules` defines."""

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
    from dayfly.link.wire import RunStatus
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.server.sync.host_sync import HostSync
    from dayfly.spec.sandbox import SandboxSpec

    Groups = Mapping[str, Sequence[str]]
    Ports = Mapping[tuple[str, str], int]

OLD_PREFIX = "/api/v1"


def describe_forks(record: RunRecord[SandboxSpec], state: RunStatus | None, keys: Groups, ports: Ports) -> Forked:
    """Return the forks of a sandbox as input for its rules. Without a report it has none.

    Args:
        record: As it is stored.
        state: The newest report of its host.
        keys: By baseline, the keys of route groups that route to its forks.
        ports: The known ports of baselines, by namespace and name.
    """
    name, key = record.name, record.routing_key
    if state is None or state.report is None:
        return Forked(name, key, (), {}, {}, {})
    forks = [fork.fork_of.baseline for fork in record.spec.forks]
    endpoints = {endpoint.unit: endpoint for endpoint in state.endpoints}
    mappings = {}
    for baseline in forks:
        if (endpoint := endpoints.get(fork := fork_id(baseline))) is not None:
            port = ports.get((baseline.namespace, baseline.name), endpoint.port)
            destination = RoutedDestination(host=endpoint.host, port=endpoint.port)
            mappings[fork] = (RoutedPort(workload_port=port, destinations=(destination,)),)
    states = {unit.id: unit.state for unit in state.report.units}
    return Forked(name, key, forks, keys, states, mappings)


class RoutingRulesApi:
    """The endpoint for routing rules, at its path of API version 1 for existing clients and at the current path."""

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        self._store = store
        self._links = links
        self._sync = sync

    def routes(self) -> list[Route]:
        """Return the HTTP routes."""
        path = "/workloads/routing-rules"
        return [serve(path, GET=self.get), serve_as(path, OLD_PREFIX + path, GET=self.get)]

    async def get(self, request: Request) -> Any:
        who, query = callers.get_caller(request), Query.from_parameters(request.query_params)
        org = who.org

        def read(rows: Any) -> Any:
            # A missing rule would route requests to the baseline. So this fails if a record cannot be read, and clients
            # keep the rules that they have.
            found = read_all(rows, SANDBOXES)
            ports = {key: each.port for key, each in baselines.read_readable(rows).items() if each.port}
            visible = [each for each in found if callers.keep_visible(who, each)]
            return [each for each in visible if each.stop is None and query.sandbox in ("", each.name)], ports

        found, ports = await self._store.for_org(org).read(read)
        by_cluster: dict[str, list[RunRecord[SandboxSpec]]] = {}
        for record in found:
            if record.spec.forks:
                by_cluster.setdefault(record.cluster, []).append(record)
        sandboxes = []
        for cluster, records in by_cluster.items():
            link = self._links.get(org, cluster)
            states, _ = await link.query_statuses([record.uid for record in records]) if link is not None else ({}, "")
            sandboxes += [
                describe_forks(record, states.get(record.uid), self._sync.routing_keys(org, record.uid), ports)
                for record in records
            ]
        return forms.RoutingRules(
            routing_rules=[rule for sandbox in sandboxes for rule in rules(sandbox) if query.matches(rule)]
        )
