"""The label of what is in use, where a sandbox comes in the very moment in which it is taken off."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dayfly.kube.client import Client
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.front.in_use import AGAIN_S, EVERY_S, IN_USE, InUse, _plugins
from kube.fake import FakeCluster, Refusal, run


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


async def labelled(story) -> None:
    """A namespace `shop`, a client, what is known, and whose labels are kept."""
    cluster = FakeCluster()
    client = Client(cluster.transport("operator"), seed=1)
    await client.create(NAMESPACES, {"metadata": {"name": "shop"}})
    known = SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=[])

    async def labels() -> dict[str, str]:
        return (await client.get(NAMESPACES, "shop")).metadata.labels or {}

    await story(cluster, known, InUse(known), labels)


def test_a_sandbox_that_comes_just_after_its_namespace_was_freed_labels_it_again():
    """Whoever has marked it a moment ago need not look again, but for that."""

    async def story(_cluster, _known, in_use, labels) -> None:
        await in_use.mark(sandbox())
        assert await labels() == {IN_USE: "true"}
        await in_use.sweep()
        await in_use.sweep()
        assert await labels() == {}
        await in_use.mark(sandbox())
        assert await labels() == {IN_USE: "true"}

    run(labelled(story))


def test_of_many_that_come_at_once_one_looks_at_the_namespace():
    async def story(cluster, _known, in_use, _labels) -> None:
        before = len(cluster.calls)
        for _ in range(5):
            await in_use.mark(sandbox())
        assert len(cluster.calls) == before + 2, "it is read, and labelled"
        await asyncio.sleep(AGAIN_S)
        await in_use.mark(sandbox())
        assert len(cluster.calls) == before + 3

    run(labelled(story))


def test_that_labels_are_refused_is_said_once(caplog):
    async def story(cluster, _known, in_use, labels) -> None:
        def forbids(operation, kind, _old, _new):
            if (operation, kind.plural) == ("UPDATE", "namespaces"):
                raise Refusal(403, "not yours")

        cluster.admission.append(forbids)
        for _ in range(2):
            await in_use.mark(sandbox())
            await asyncio.sleep(AGAIN_S)
        assert await labels() == {}

    run(labelled(story))
    assert [each.message.split(":")[0] for each in caplog.records] == ["cannot label what is in use"]


def test_it_sweeps_at_its_start_and_each_minute():
    async def story(_cluster, _known, in_use, labels) -> None:
        await in_use.mark(sandbox())
        sweeping = asyncio.create_task(in_use.run())
        await asyncio.sleep(EVERY_S - 1)
        assert await labels() == {IN_USE: "true"}, "seen once, at the start"
        await asyncio.sleep(2)
        assert await labels() == {}
        sweeping.cancel()
        await asyncio.wait([sweeping])

    run(labelled(story))


def test_plugins_are_named_with_or_without_versions_and_what_is_no_wish_is_passed_over():
    wishes = [{"plugin": "a@1"}, {"plugin": "b"}, {"name": "inline"}, "nonsense"]
    assert _plugins(SimpleNamespace(spec={"resources": wishes})) == {"a", "b", ""}
    assert _plugins(SimpleNamespace(spec={"resources": "nonsense"})) == set()
    assert _plugins(SimpleNamespace(spec={})) == set()
