"""Which key leads from which baseline to whose fork: what route servers tell those who ask for themselves.

A consumer of a queue asks whether a message with a key is meant for it. So a rule is there while its fork answers and,
where something routes requests, while that leads them there: no message is taken by a fork that is not yet, or no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.control import auth, baselines, records
from dayfly.control.exchange import serve, serve_as
from dayfly.spec.lifecycle import Baseline, fork_id, route_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.control.host_sync import HostSync
    from dayfly.control.link import Links
    from dayfly.control.store import Store
    from dayfly.spec.wire import Standing

OLD = "/api/v1"


class Sandbox(NamedTuple):
    """A sandbox, as far as rules are concerned: what it forks, and by baseline the keys of groups that lead there."""

    name: str
    key: str
    forks: Sequence[Baseline]
    groups: Mapping[str, Sequence[str]]
    standing: Standing | None


def rules(sandboxes: Iterable[Sandbox], ports: Mapping[tuple[str, str], int]) -> Iterator[dict[str, Any]]:
    """All rules. `ports` has the port of a baseline, by namespace and name, where that is known."""
    for sandbox in sandboxes:
        standing = sandbox.standing
        if standing is None or standing.report is None:
            continue
        states = {unit.id: unit.state for unit in standing.report.units}
        where = {endpoint.unit: endpoint for endpoint in standing.endpoints}
        for of in sandbox.forks:
            fork = fork_id(of)
            if states.get(fork) != "running" or states.get(route_id(of), "running") != "running":
                continue
            mappings = []
            if (at := where.get(fork)) is not None:
                port = ports.get((of.namespace, of.name), at.port)
                mappings.append({"workloadPort": port, "destinations": [{"host": at.host, "port": at.port}]})
            baseline = {"kind": of.kind, "namespace": of.namespace, "name": of.name}
            for key in (sandbox.key, *sandbox.groups.get(f"{of.namespace}/{of.name}", ())):
                yield {
                    "routingKey": key,
                    "baseline": baseline,
                    "destinationSandbox": {"name": sandbox.name},
                    "mappings": mappings,
                }


def asked(rule: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Whether a rule is among those that a query asks for; what it does not name may be anything."""
    baseline = rule["baseline"]
    has = {
        "baselineKind": baseline["kind"],
        "baselineNamespace": baseline["namespace"],
        "baselineName": baseline["name"],
        "routingKey": rule["routingKey"],
        "destinationSandboxName": rule["destinationSandbox"]["name"],
    }
    return all(not query.get(name) or query[name] == value for name, value in has.items())


class RoutingRules:
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
        org, query = auth.caller(request).org, request.query_params
        name = query.get("destinationSandboxName", "")

        def read(rows: Any) -> Any:
            found = records.living(rows)
            ports = {place: each.port for place, each in baselines.known(rows).items() if each.port}
            return [each for each in found if each.stop is None and name in ("", each.name)], ports

        found, ports = await self._store.of(org).read(read)
        by_cluster: dict[str, list[records.Record]] = {}
        for record in found:
            if record.spec.forks:
                by_cluster.setdefault(record.cluster, []).append(record)
        told = []
        for cluster, ours in by_cluster.items():
            link = self._links.of(org, cluster)
            standings, _ = await link.look([record.uid for record in ours]) if link is not None else ({}, "")
            told += [
                Sandbox(
                    record.name,
                    record.routing_key,
                    [fork.fork_of.baseline for fork in record.spec.forks],
                    self._sync.routed(org, record.uid),
                    standings.get(record.uid),
                )
                for record in ours
            ]
        return {"routingRules": [rule for rule in rules(told, ports) if asked(rule, query)]}
