"""A reconciler without workers: its caches hold what a test puts there, and it takes the turns that a test requests."""

from __future__ import annotations

from typing import Any

from tests.operator.rig.world import RUNNER, World

from dayfly.kube.client import KubeClient
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES
from dayfly.operator.pods.images import FallbackImage, WebhookSenders
from dayfly.operator.reconciler import Reconciler
from dayfly.operator.targets.adapter import BaseAdapter
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.operator.targets.targets import Targets


def reconciler(cluster: ClusterWatches, targets: Any = None) -> Reconciler:
    """Return one over these caches."""
    return Reconciler(
        cluster,
        targets or Targets(cluster, SandboxTarget(cluster, BaseAdapter(SANDBOXES))),
        runner=RUNNER,
        fallback=FallbackImage(cluster.client),
        senders=WebhookSenders(FallbackImage(cluster.client)),
        ended=lambda: None,
        traced=False,
    )


def blind(world: World, name: str = "blind") -> ClusterWatches:
    """Return the caches of an operator that has not seen anything yet."""
    return ClusterWatches(KubeClient(world.cluster.transport(name), seed=7), now=world.now)
