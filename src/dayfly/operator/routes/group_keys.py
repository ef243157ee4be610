"""An index of routing keys: the forks that each key leads to, and the runs whose addresses use the key.

The address of a route group is a unit of the group's run, and the forks that it leads to belong to other runs.
"""

from collections.abc import Iterator

from dayfly.execute.gateway import preview
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.run import HTTP_ROUTES
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.cache import ObjectChange
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RunObject
from dayfly.spec.lifecycle import Baseline, route_id
from dayfly.spec.run import ALIVE


class GroupKeyIndex:
    """The index of all runs. A run contains a key of a route group only if the group's controller has put it there."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._leading: dict[str, dict[str, tuple[Baseline, ...]]] = {}
        """The baselines whose requests with a key go to a run's forks, by key and run."""
        self._addresses: dict[str, set[str]] = {}
        """The runs with addresses for a key."""
        cluster.runs.listen(self._on_run_change)
        cluster.gateway.routes[HTTP_ROUTES.plural].listen(self._on_route_change)

    def find_forks(self, key: str, namespace: str) -> list[tuple[RunObject, Baseline]]:
        """Return the forks that a key leads to, oldest run first. A group has only sandboxes of its own namespace."""
        known = ((self._cluster.ledger.get(run), found) for run, found in self._leading.get(key, {}).items())
        runs = [(run, found) for run, found in known if run is not None and run.ledger.target.namespace == namespace]
        runs.sort(key=lambda pair: (pair[0].ledger.born_at, pair[0].metadata.name))
        return [(run, baseline) for run, found in runs for baseline in found]

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        before = dict(_baselines_by_key(change.old)) if change.old is not None else {}
        now = dict(_baselines_by_key(change.new)) if change.new is not None else {}
        name = change.key.name
        for key in before.keys() | now.keys():
            if key in now:
                self._leading.setdefault(key, {})[name] = now[key]
            elif runs := self._leading.get(key):
                runs.pop(name, None)
                if not runs:
                    del self._leading[key]
        for key in _address_keys(change.old) - _address_keys(change.new):
            self._addresses[key].discard(name)
            if not self._addresses[key]:
                del self._addresses[key]
        for key in _address_keys(change.new):
            self._addresses.setdefault(key, set()).add(name)
        for key in (key for key in before.keys() | now.keys() if before.get(key) != now.get(key)):
            for run in self._addresses.get(key, set()) - {name}:
                self._cluster.queue.add(run)

    def _on_route_change(self, change: ObjectChange[RouteObject]) -> None:
        """Queue the runs of forks to which an address no longer leads: their end may have waited for that."""
        if change.old is None or preview.PREVIEW_LABEL not in (change.old.metadata.labels or {}):
            return
        now = preview.backends(change.new) if change.new is not None else set()
        for name in sorted(preview.backends(change.old) - now):
            service = self._cluster.services.get(name, change.key.namespace)
            if service is not None and (run := (service.metadata.labels or {}).get(RUN_LABEL)):
                self._cluster.queue.add(run)


def _baselines_by_key(run: RunObject) -> Iterator[tuple[str, tuple[Baseline, ...]]]:
    """Yield the baselines with a live route to a fork of the run, by routing key."""
    found: dict[str, tuple[Baseline, ...]] = {}
    for route in (unit.route for unit in run.spec.forks if unit.route is not None):
        if run.ledger.closed is None and run.ledger.unit(route_id(route.baseline)).state in ALIVE:
            for key in route.keys:
                found[key] = (*found.get(key, ()), route.baseline)
    return iter(found.items())


def _address_keys(run: RunObject | None) -> set[str]:
    return {unit.preview.key for unit in run.spec.forks if unit.preview is not None} if run is not None else set()
