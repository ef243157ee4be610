"""How the kinds of objects are served: asked of the API server, and believed for a while."""

from __future__ import annotations

from rig.world import KINDS

from dayfly.kube.client import Client
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.executors.object_executor import ObjectExecutor
from kube.fake import FakeCluster


async def test_how_a_kind_is_served_is_believed_for_a_minute():
    clock, server = [1_000_000], FakeCluster(seed=1, extra=KINDS)
    client = Client(server.transport("operator"), seed=1)
    executor = ObjectExecutor(Cluster(client, now=lambda: clock[0]), None)
    asked = []
    for now in (0, 59_999, 60_000):
        clock[0] = 1_000_000 + now
        server.calls.clear()
        await executor._objects.kind("db.example.org/v1", "Claim")
        asked.append(len(server.calls))
    assert asked == [1, 0, 1]
