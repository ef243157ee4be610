"""The front for kubectl and GitOps, as the operator's process has it. Optional: without it runs are taken further all
the same, whoever has sealed them; and the only part of the operator that knows what a plugin is.
"""

import asyncio

from dayfly.kube.controller import Controller
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import WORKERS, ClusterWatches
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.sandboxes.in_use_labels import InUse
from dayfly.operator.sandboxes.plugin_controller import PluginController
from dayfly.operator.sandboxes.sandbox_controller import SandboxController
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxStatusWriter, reconcile_and_report


class SandboxesExtension:
    """Sandboxes, plugins, and the label on what is in use."""

    def __init__(self, cluster: ClusterWatches, status: SandboxStatusWriter) -> None:
        self._cluster = cluster
        self._status = status
        self._in_use = InUse(cluster)
        self._sandboxes = SandboxController(cluster, self._in_use, status.warn)
        self._plugins = PluginController(cluster)

    def applied_spec(self, seen: SandboxObject) -> AppliedSpec:
        """Which of its owner's wishes the run of a Sandbox goes by."""
        return self._sandboxes.applied_spec(seen)

    def ended(self) -> None:
        """A run is over: what it used may be free."""
        self._in_use.freed()

    def reset(self) -> None:
        """Forget what only work keeps up to date: another process works from now on."""
        self._in_use.reset()
        self._plugins.reset()

    async def run(self) -> None:
        """Work until the cluster's queues are closed."""
        wishes = Controller("sandbox", self._reconcile, self._cluster.wishes, workers=WORKERS)
        published = Controller("plugin", self._plugins.reconcile, self._cluster.published, workers=1)
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(self._in_use.run())
            await asyncio.wait([tasks.create_task(wishes.run()), tasks.create_task(published.run())])
            sweeping.cancel()

    async def _reconcile(self, key: Key) -> None:
        await reconcile_and_report(self._cluster.wishes, key, self._sandboxes.reconcile, self._status.report)
