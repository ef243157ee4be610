"""The optional part of the operator for LeakChecks. Without it, the objects stay as they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from dayfly.kube.controller import Controller, Resync
from dayfly.operator.catalog import Catalog
from dayfly.operator.cluster.objects import LEAK_CHECKS
from dayfly.operator.leaks.check_controller import LeakCheckController
from dayfly.operator.leaks.check_source import CheckSource
from dayfly.operator.leaks.check_status import CheckStatus
from dayfly.operator.leaks.check_store import CheckStore
from dayfly.operator.leaks.ledger_facts import FactReader
from dayfly.operator.leaks.served_checks import ServedChecks
from dayfly.operator.leaks.served_orders import ServedOrders
from dayfly.operator.leaks.served_reports import ServedReports
from dayfly.operator.leaks.state_check import StateCheck
from dayfly.operator.targets.leak_check import LeakCheckTarget
from dayfly.spec.leak_check import STATE_CHECK

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.kube.cache import ObjectChange
    from dayfly.kube.events import Recorder
    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.cluster.objects import LeakCheckObject, PluginObject, RunObject
    from dayfly.operator.leaks.ledger_facts import AskServer
    from dayfly.operator.records.registry import ResourceRegistry
    from dayfly.operator.targets.targets import Targets

RESYNC_INTERVAL_S: Final = 60.0


class LeaksExtension:
    """Sweeps for the leak checks of the cluster."""

    frozen_count = 0

    def __init__(self, registry: ResourceRegistry, cluster: ClusterWatches, targets: Targets, events: Recorder) -> None:
        self._cluster = cluster
        reports = ServedReports(cluster.leak_checks)
        self._status = CheckStatus(cluster, events, reports)
        store, self._facts = CheckStore(cluster.client, registry.namespace), FactReader(cluster, registry, targets)
        self._checks = LeakCheckController(
            cluster,
            CheckSource(Catalog(cluster)),
            store,
            self._facts,
            self._status,
            ServedOrders(cluster, reports),
            reports,
        )
        self._states = StateCheck(cluster, registry, store, self._facts, self._status)
        self.served = ServedChecks(cluster, store, reports, self._facts)
        targets.add(LeakCheckTarget(cluster, self._checks))
        cluster.leak_checks.listen(self._on_check_change)
        cluster.runs.listen(self._on_run_change)
        cluster.plugins.listen(self._on_plugin_change)

    @classmethod
    def using(cls, registry: ResourceRegistry) -> Callable[[ClusterWatches, Targets, Recorder], LeaksExtension]:
        """Return a factory for the extension with the tokens and records of `registry`."""
        return partial(cls, registry)

    def ask(self, server: AskServer) -> None:
        """Ask a server for the resources that other clusters of its organisation have made."""
        self._facts.ask_server = server

    def reset(self) -> None:
        """Forget what only the active replica keeps up to date."""
        self._status.reset()
        self._checks.reset()
        self._states.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        # Each check has a turn at least this often, because the wall clock may jump.
        every = Resync(
            RESYNC_INTERVAL_S, lambda: [STATE_CHECK, *(each.metadata.name for each in self._cluster.leak_checks)]
        )
        await Controller("leak check", self._reconcile, self._cluster.checked, resync=every).run()

    async def _reconcile(self, name: str) -> float | None:
        seen = self._cluster.leak_checks.get(name)
        if name == STATE_CHECK and (seen is None or seen.spec.get("plugin") == STATE_CHECK):
            return await self._states.reconcile(seen)
        return await self._checks.reconcile(name)

    def _on_check_change(self, change: ObjectChange[LeakCheckObject]) -> None:
        if (gone := change.deleted) is not None:
            self._status.forget(gone.metadata.uid)
            self._checks.forget(gone.metadata.uid)

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        target = change.latest.ledger.target
        if target.kind == LEAK_CHECKS.kind:
            if change.deleted is not None:
                self._checks.forget_run(change.deleted.ledger.uid)
            self._cluster.checked.add(target.name)

    def _on_plugin_change(self, _change: ObjectChange[PluginObject]) -> None:
        """Queue all checks: they follow the newest version, or the plugin may be what they lacked."""
        for seen in self._cluster.leak_checks:
            self._cluster.checked.add(seen.metadata.name)
