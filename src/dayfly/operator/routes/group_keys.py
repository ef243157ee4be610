"""Whose forks the key of a route group leads to now, as the runs of its sandboxes say; and who is to hear of that.

An address of a group's endpoint is a unit of the group's run; the forks that it may lead to are of other runs.
"""

from collections.abc import Iterator

from dayfly.execute.gateway import preview
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.run import HTTP_ROUTES
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.cache import Change
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.spec.lifecycle import Baseline, route_id
from dayfly.spec.run import ALIVE


class LedKeys:
    """Kept up by what is heard of runs. A run has a key of others only if whoever may give it has put it there."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._leading: dict[str, dict[str, tuple[Baseline, ...]]] = {}
        """By key and run, the baselines whose requests with that key go to that run's forks."""
        self._addresses: dict[str, set[str]] = {}
        """By key the runs with addresses that give it."""
        cluster.runs.listen(self._heard)
        cluster.gateway.routes[HTTP_ROUTES.plural].listen(self._led_elsewhere)

    def of(self, key: str, namespace: str) -> list[tuple[RunObject, Baseline]]:
        """Where it leads by runs of that namespace, the oldest run first: a group has sandboxes of its own alone."""
        known = ((self._cluster.ledger.get(run), found) for run, found in self._leading.get(key, {}).items())
        runs = [(run, found) for run, found in known if run is not None and run.ledger.target.namespace == namespace]
        runs.sort(key=lambda pair: (pair[0].ledger.born_at, pair[0].metadata.name))
        return [(run, of) for run, found in runs for of in found]

    def _heard(self, change: Change[RunObject]) -> None:
        before = dict(_leads(change.old)) if change.old is not None else {}
        now = dict(_leads(change.new)) if change.new is not None else {}
        name = change.key.name
        for key in before.keys() | now.keys():
            if key in now:
                self._leading.setdefault(key, {})[name] = now[key]
            elif runs := self._leading.get(key):
                runs.pop(name, None)
                if not runs:
                    del self._leading[key]
        for key in _given(change.old) - _given(change.new):
            self._addresses[key].discard(name)
            if not self._addresses[key]:
                del self._addresses[key]
        for key in _given(change.new):
            self._addresses.setdefault(key, set()).add(name)
        for key in (key for key in before.keys() | now.keys() if before.get(key) != now.get(key)):
            for run in self._addresses.get(key, set()) - {name}:
                self._cluster.queue.add(run)

    def _led_elsewhere(self, change: Change[RouteObject]) -> None:
        """Whose fork an address leads to no more may have been waiting for just that."""
        if change.old is None or preview.PREVIEW_LABEL not in (change.old.metadata.labels or {}):
            return
        now = preview.backends(change.new) if change.new is not None else set()
        for name in sorted(preview.backends(change.old) - now):
            service = self._cluster.services.get(name, change.key.namespace)
            if service is not None and (run := (service.metadata.labels or {}).get(RUN_LABEL)):
                self._cluster.queue.add(run)


def _leads(run: RunObject) -> Iterator[tuple[str, tuple[Baseline, ...]]]:
    """By key the baselines whose route to a fork of that run is there."""
    found: dict[str, tuple[Baseline, ...]] = {}
    for route in (unit.route for unit in run.spec.forks if unit.route is not None):
        if run.ledger.closed is None and run.ledger.unit(route_id(route.baseline)).state in ALIVE:
            for key in route.keys:
                found[key] = (*found.get(key, ()), route.baseline)
    return iter(found.items())


def _given(run: RunObject | None) -> set[str]:
    return {unit.preview.key for unit in run.spec.forks if unit.preview is not None} if run is not None else set()
