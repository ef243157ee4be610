"""The in-use label if a sandbox is created at the moment in which the label is removed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.kube.fake import FakeCluster, Refusal, run
from tests.operator.rig.world import KINDS

from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES
from dayfly.operator.cluster.objects import PLUGINS
from dayfly.operator.sandboxes.in_use_labels import (
    IN_USE,
    NAMESPACE_CHECK_INTERVAL_S,
    SWEEP_DELAY_S,
    SWEEP_INTERVAL_S,
    InUseLabels,
)

NO_POOLS = SimpleNamespace(pools=[], members=[])


def sandbox() -> SimpleNamespace:
    return SimpleNamespace(metadata=SimpleNamespace(namespace="shop"), spec={"resources": []})


@pytest.mark.parametrize("moment", ["GET", "PATCH"])
def test_new_sandbox_keeps_a_label_that_is_being_removed(moment):
    """A new sandbox finds the label while namespaces are listed, or while the removal is under way."""

    async def main() -> None:
        cluster = FakeCluster()
        client = KubeClient(cluster.transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "shop", "labels": {IN_USE: "true"}}})
        known = SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=[], holds=NO_POOLS)
        labels = InUseLabels(known)
        await labels.sweep()

        def comes(call):
            if call.request.method == moment and not known.sandboxes:
                known.sandboxes.append(sandbox())

        cluster.faults = comes
        await labels.sweep()
        assert known.sandboxes
        assert (await client.get(NAMESPACES, "shop")).metadata.labels == {IN_USE: "true"}

    run(main())


def test_unused_namespace_loses_its_label_in_the_second_sweep():
    async def main() -> None:
        client = KubeClient(FakeCluster().transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "shop", "labels": {IN_USE: "true"}}})
        labels = InUseLabels(SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=[], holds=NO_POOLS))
        await labels.sweep()
        assert (await client.get(NAMESPACES, "shop")).metadata.labels == {IN_USE: "true"}
        await labels.sweep()
        assert not (await client.get(NAMESPACES, "shop")).metadata.labels

    run(main())


async def labelled(story) -> None:
    """Run a story with a namespace `shop`, a client, caches, the labeller and a function that reads the labels."""
    cluster = FakeCluster()
    client = KubeClient(cluster.transport("operator"), seed=1)
    await client.create(NAMESPACES, {"metadata": {"name": "shop"}})
    known = SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=[], holds=NO_POOLS)

    async def labels() -> dict[str, str]:
        return (await client.get(NAMESPACES, "shop")).metadata.labels or {}

    await story(cluster, known, InUseLabels(known), labels)


def test_next_sandbox_labels_a_namespace_freed_just_before():
    """Without that removal, the namespace would not be read again within the interval."""

    async def story(_cluster, _known, in_use, labels) -> None:
        await in_use.label_used(sandbox())
        assert await labels() == {IN_USE: "true"}
        await in_use.sweep()
        await in_use.sweep()
        assert await labels() == {}
        await in_use.label_used(sandbox())
        assert await labels() == {IN_USE: "true"}

    run(labelled(story))


def test_sandboxes_created_at_once_read_their_namespace_once():
    async def story(cluster, _known, in_use, _labels) -> None:
        before = len(cluster.calls)
        for _ in range(5):
            await in_use.label_used(sandbox())
        assert len(cluster.calls) == before + 2, "it is read, and labelled"
        await asyncio.sleep(NAMESPACE_CHECK_INTERVAL_S)
        await in_use.label_used(sandbox())
        assert len(cluster.calls) == before + 3

    run(labelled(story))


def test_that_labels_are_refused_is_said_once(caplog):
    async def story(cluster, _known, in_use, labels) -> None:
        def forbids(operation, kind, _old, _new):
            if (operation, kind.plural) == ("UPDATE", "namespaces"):
                raise Refusal(403, "not yours")

        cluster.admission.append(forbids)
        for _ in range(2):
            await in_use.label_used(sandbox())
            await asyncio.sleep(NAMESPACE_CHECK_INTERVAL_S)
        assert await labels() == {}

    run(labelled(story))
    assert [each.message.split(":")[0] for each in caplog.records] == ["cannot label what is in use"]


def test_stale_label_is_removed_soon_after_the_start():
    """An uninstall may have left it."""

    async def story(_cluster, _known, in_use, labels) -> None:
        await in_use.label_used(sandbox())
        sweeping = asyncio.create_task(in_use.run())
        await asyncio.sleep(SWEEP_DELAY_S - 1)
        assert await labels() == {IN_USE: "true"}, "a sandbox may be about to come"
        await asyncio.sleep(2)
        assert await labels() == {}
        sweeping.cancel()
        await asyncio.wait([sweeping])

    run(labelled(story))


def test_label_is_removed_if_the_first_sweep_still_finds_the_sandbox():
    """The end of a run is known before the cache has lost its sandbox."""

    async def story(_cluster, known, in_use, labels) -> None:
        known.sandboxes.append(sandbox())
        await in_use.label_used(sandbox())
        sweeping = asyncio.create_task(in_use.run())
        await asyncio.sleep(4 * SWEEP_DELAY_S + 1)
        assert await labels() == {IN_USE: "true"}
        in_use.schedule_sweep()
        await asyncio.sleep(SWEEP_DELAY_S + 1)
        known.sandboxes.clear()
        await asyncio.sleep(2 * SWEEP_DELAY_S)
        assert await labels() == {}
        sweeping.cancel()
        await asyncio.wait([sweeping])

    run(labelled(story))


def test_sweeps_each_minute():
    async def story(_cluster, _known, in_use, labels) -> None:
        sweeping = asyncio.create_task(in_use.run())
        await asyncio.sleep(3 * SWEEP_DELAY_S)
        await in_use.label_used(sandbox())
        await asyncio.sleep(2 * SWEEP_INTERVAL_S - 3 * SWEEP_DELAY_S - 1)
        assert await labels() == {IN_USE: "true"}, "seen once"
        await asyncio.sleep(2)
        assert await labels() == {}
        sweeping.cancel()
        await asyncio.wait([sweeping])

    run(labelled(story))


@pytest.mark.parametrize(
    ("resources", "labelled"),
    [
        ([{"plugin": "pg@2"}, {"plugin": "mq"}, {"name": "inline"}, "nonsense", {"plugin": 7}], {"pg.1", "pg.2", "mq"}),
        ([{"plugin": "child"}], {"child", "pg.1", "pg.2"}),
        ("nonsense", set()),
        (None, set()),
    ],
)
def test_every_version_of_a_plugin_and_its_parent_is_labelled(resources, labelled):
    """The spec of the Sandbox is validated elsewhere."""

    async def main() -> set[str]:
        client = KubeClient(FakeCluster(extra=KINDS).transport("operator"), seed=1)
        await client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        plugins = []
        for name in ("pg@1", "pg@2", "mq", "other", "child"):
            body = {"metadata": {"name": name.replace("@", ".")}, "spec": {"name": name}}
            body["spec"] |= {"parent": {"plugin": "pg@1"}} if name == "child" else {}
            plugins.append(await client.create(PLUGINS, body))
        found = sandbox()
        found.spec = {"resources": resources} if resources is not None else {}
        await InUseLabels(SimpleNamespace(client=client, sandboxes=[], pods=[], plugins=plugins)).label_used(found)
        return {each.metadata.name for each in (await client.list_all(PLUGINS, labels=IN_USE)).items}

    assert run(main()) == labelled


@pytest.mark.parametrize("by", ["sandbox", "pod", "member"])
def test_namespace_in_use_keeps_its_label(by):
    async def story(_cluster, known, in_use, labels) -> None:
        await in_use.label_used(sandbox())
        known.sandboxes += [sandbox()] if by == "sandbox" else []
        known.pods += [sandbox()] if by == "pod" else []
        known.holds = SimpleNamespace(pools=[], members=[sandbox()] if by == "member" else [])
        for _ in range(3):
            await in_use.sweep()
        assert await labels() == {IN_USE: "true"}

    run(labelled(story))


def test_namespace_that_was_used_in_between_is_idle_from_then_on():
    async def story(_cluster, known, in_use, labels) -> None:
        await in_use.label_used(sandbox())
        for used in (False, True, False):
            known.sandboxes[:] = [sandbox()] if used else []
            await in_use.sweep()
        assert await labels() == {IN_USE: "true"}
        await in_use.sweep()
        assert await labels() == {}

    run(labelled(story))
