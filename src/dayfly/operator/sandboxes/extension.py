"""The optional part of the operator for Sandboxes and plugins that are applied with kubectl or by GitOps.

Without it, existing runs continue. It is the only part of the operator that knows plugins.
"""

import asyncio

from dayfly.kube.controller import Controller
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import WORKERS, ClusterWatches
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.sandboxes.in_use_labels import InUseLabels
from dayfly.operator.sandboxes.plugin_controller import PluginController
from dayfly.operator.sandboxes.sandbox_controller import SandboxController
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxStatusWriter, reconcile_and_report


class SandboxesExtension:
    """Reconciles Sandboxes and plugins, and keeps the in-use labels up to date."""

    def __init__(self, cluster: ClusterWatches, status: SandboxStatusWriter) -> None:
        self._cluster = cluster
        self._status = status
        self._in_use = InUseLabels(cluster)
        self._sandboxes = SandboxController(cluster, self._in_use, status.warn)
        self._plugins = PluginController(cluster)

    def applied_spec(self, seen: SandboxObject) -> AppliedSpec:
        """Return which generation of a Sandbox its run uses, and why a newer one is refused."""
        return self._sandboxes.applied_spec(seen)

    def on_run_end(self) -> None:
        """Check the labels soon, because a run has ended."""
        self._in_use.schedule_sweep()

    def reset(self) -> None:
        """Forget what only the active replica keeps up to date."""
        self._in_use.reset()
        self._plugins.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        sandboxes = Controller("sandbox", self._reconcile, self._cluster.sandbox_queue, workers=WORKERS)
        published = Controller("plugin", self._plugins.reconcile, self._cluster.published, workers=1)
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(self._in_use.run())
            await asyncio.wait([tasks.create_task(sandboxes.run()), tasks.create_task(published.run())])
            sweeping.cancel()

    async def _reconcile(self, key: Key) -> None:
        await reconcile_and_report(self._cluster.sandbox_queue, key, self._sandboxes.reconcile, self._status.report)
