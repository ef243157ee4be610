"""The label of what is in use, where a sandbox comes in the very moment in which it is taken off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.kube.client import Client
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.front.in_use import IN_USE, InUse
from kube.fake import FakeCluster, run


def sandbox() -> SimpleNamespace:
    return SimpleNamespace(metadata=SimpleNamespace(namespace="shop"), spec={"resources": []})


@pytest.mark.parametrize("moment", ["GET", "PATCH"])
def test_a_sandbox_that_finds_the_label_keeps_it(moment):
    """While namespaces are listed, or while the label is on its way off: whoever marks sees it there still."""

    async def main() -> None:
        cluster = FakeCluster()
        client = Client(cluster.transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "shop", "labels": {IN_USE: "true"}}})
        known = SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=[])
        labels = InUse(known)
        await labels.sweep()

        def comes(call):
            if call.request.method == moment and not known.sandboxes:
                known.sandboxes.append(sandbox())

        cluster.faults = comes
        await labels.sweep()
        assert known.sandboxes
        assert (await client.get(NAMESPACES, "shop")).metadata.labels == {IN_USE: "true"}

    run(main())


def test_what_nobody_uses_is_freed_at_the_second_look():
    async def main() -> None:
        client = Client(FakeCluster().transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "shop", "labels": {IN_USE: "true"}}})
        labels = InUse(SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=[]))
        await labels.sweep()
        assert (await client.get(NAMESPACES, "shop")).metadata.labels == {IN_USE: "true"}
        await labels.sweep()
        assert not (await client.get(NAMESPACES, "shop")).metadata.labels

    run(main())
