"""Confirmed offers are not sent again unless the cluster or the server was restored or replaced."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import msgspec
import pytest
from tests.operator.rig import routed_clusters
from tests.operator.rig.control_plane import ORG, ControlPlane, wish
from tests.operator.rig.kubelet import Script
from tests.operator.rig.server_stories import begin, box, gone, ready, true, until
from tests.operator.rig.world import World
from tests.server import stored_records

from dayfly.kube import errors
from dayfly.link.permits import BATCH_SIZE, StartPermits
from dayfly.link.server_end import Link
from dayfly.operator.agent.release import ReleaseQueue
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SERVED_END_ANNOTATION, SERVED_FINALIZER
from dayfly.server.sync.host_sync import HostSync

CURSOR = "PATCH /api/v1/namespaces/dayfly-system/secrets/dayfly-agent"
RUNS, SANDBOXES = "/apis/dayfly.dev/v1alpha1/runs", "/apis/dayfly.dev/v1alpha1/namespaces/acme-sandboxes/sandboxes"


def fetched(plane: ControlPlane) -> Counter[str]:
    """Count the messages that are fetched from now on, by type."""
    found: Counter[str] = Counter()
    reach = plane.reach

    async def count(token, method, path, query, body):
        status, headers, answer = await reach(token, method, path, query, body)
        if (status, method, path) == (200, "GET", "messages"):
            found.update(json.loads(each["body"])["type"] for each in json.loads(answer)["messages"])
        return status, headers, answer

    plane.reach = count
    return found


def noted(world: World) -> list[str]:
    """Record the requests of the operator to the API server from now on."""
    [process] = world.processes
    found: list[str] = []

    def note(request) -> float:
        found.append(f"{request.method} {request.path}")
        return 0.0

    process.transport.pause = note
    return found


async def loses(plane: ControlPlane, name: str = "shop") -> bool:
    message = (await plane.must("GET", f"sandboxes/{name}"))["status"]["message"]
    return "no longer knows this sandbox" in message


def put_back(world: World, *, run: bool = True, sandbox: bool = True) -> None:
    """Restore the cluster to the state before the server offered its sandbox, like a restore of etcd."""
    world.cloud.forgiven = True
    name = box(world)["metadata"]["name"]
    if run:
        [found] = world.cluster.objects("runs")
        world.take_away(f"{RUNS}/{found['metadata']['name']}")
    if sandbox:
        world.take_away(f"{SANDBOXES}/{name}")


def test_restarted_server_does_not_resend_confirmed_offers(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await begin(world, plane, "cart")
        await world.rest(40)
        told = fetched(plane)
        await plane.restart()
        await world.rest(120)
        assert (told["Hello"], told["Offer"]) == (1, 0)
        await plane.must("PUT", "sandboxes/cart", wish(labels={"a": "b"}))
        await world.rest(120)
        assert told["Offer"] == 1
        await ready(world, plane, "cart")

    story(steps)


def test_stored_but_unsent_orders_are_sent_after_restart(story, monkeypatch):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await world.rest(40)

        async def dies(_sync, _record, _meant=None):
            pass

        with monkeypatch.context() as dying:
            dying.setattr(HostSync, "send_order", dies)
            await plane.must("PUT", "sandboxes/shop", wish(ttl={"duration": "9h", "offsetFrom": "createdAt"}))
            await plane.kill()
        await plane.start()
        expires = lambda: world.cluster.objects("runs")[0]["spec"]["offered"].get("expiresAt")  # noqa: E731
        await until(world, lambda: true(expires()), "it is told")
        with monkeypatch.context() as dying:
            dying.setattr(HostSync, "send_order", dies)
            await plane.must("DELETE", "sandboxes/shop")
            await plane.kill()
        await plane.start()
        await gone(world, plane)

    story(steps)


def test_another_server_version_resends_each_offer_once(story, monkeypatch):
    """A newer server may compile the stored sandbox differently."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await world.rest(40)
        told = fetched(plane)
        monkeypatch.setattr("dayfly.server.records.confirmations.__version__", "99.0")
        for _ in range(2):
            await plane.restart()
            await world.rest(120)
        assert told["Offer"] == 1

    story(steps)


def test_changed_keys_of_the_same_spec_are_sent(story, monkeypatch):
    """No server was running when the sandbox left its group."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await plane.must("PUT", "sandboxes/shop", routed_clusters.forking(labels={"team": "a"}))
        await ready(world, plane)
        match = {"match": {"label": {"key": "team", "value": "a"}}}
        await plane.must("PUT", "routegroups/all", {"spec": {"cluster": "east", **match}})
        key = (await plane.must("GET", "routegroups/all"))["routingKey"]
        await until(world, lambda: true(world.gateways.leads(key) != "web"), "its key leads to the fork")
        await world.rest(60)

        async def dies(_sync, _record, _meant=None):
            pass

        with monkeypatch.context() as dying:
            dying.setattr(HostSync, "send_order", dies)
            await plane.must("DELETE", "routegroups/all?force=true")
            await world.rest(60)
            await plane.kill()
        await plane.start()
        await until(world, lambda: true(world.gateways.leads(key) == "web"), "its key no longer leads there")

    story(steps, born=routed_clusters.world)


@pytest.mark.long_story
@pytest.mark.parametrize("what", [{"run": False}, {"sandbox": False}, {}], ids=["sandbox", "run", "both"])
@pytest.mark.parametrize("replaced", [False, True], ids=["server goes on", "server begins anew"])
def test_restored_cluster_reports_loss_and_begins_nothing(story, what, replaced):
    """The cluster is restored while an operator runs, so earlier confirmations no longer hold."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await world.rest(40)
        put_back(world, **what)
        if replaced:
            await plane.restart()
        await until(world, lambda: loses(plane), "its loss is reported")
        await world.rest(600)
        assert await loses(plane)
        assert world.cloud.starts("db/make") == 1

    story(steps)


@pytest.mark.parametrize("what", ["generation", "stop"])
def test_cluster_restored_to_older_spec_is_sent_the_newest(story, what):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        path = f"{RUNS}/{world.cluster.objects('runs')[0]['metadata']['name']}"
        before = world.cluster.objects("runs")[0]["spec"]["offered"]
        if what == "stop":
            # Its delete step has not ended, so its run still exists.
            world.kubelet.scripts["db/drop"] = Script(runs=3600)
            await plane.must("DELETE", "sandboxes/shop")
        else:
            await plane.must("PUT", "sandboxes/shop", wish(ttl={"duration": "9h", "offsetFrom": "createdAt"}))
        offered = lambda: world.cluster.objects("runs")[0]["spec"]["offered"]  # noqa: E731
        await until(world, lambda: true(offered() != before), "it is told")
        newest = offered()
        await world.rest(60)
        world.ask("PATCH", path, {"spec": {"offered": {"stop": None, **before}}}, "application/merge-patch+json")
        if what == "generation":
            world.ask("PATCH", path, {"spec": {"offered": {"expiresAt": None}}}, "application/merge-patch+json")
        assert offered() != newest
        await until(world, lambda: true(offered() == newest), "it is sent again")

    story(steps)


def test_settled_offer_needs_no_api_request(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        await world.rest(60)
        [record] = await stored_records.read_all(plane.store, ORG)
        told = fetched(plane)
        await world.rest(60)
        asked = noted(world)
        await plane.app.state.sync.send_order(record)
        await world.rest(5)
        assert told["Offer"] == 1
        # Record the message and do not carry it out.
        assert {each for each in asked if "watch" not in each} == {CURSOR}

    story(steps)


class Asked:
    """A server that wants all sandboxes whose names begin with "l". It answers as often as the test allows."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, ...]] = []
        self.let = asyncio.Semaphore(0)
        self.silent = False

    async def ask(self, uids: tuple[str, ...]) -> frozenset[str] | None:
        self.questions.append(uids)
        await self.let.acquire()
        return None if self.silent else frozenset(uid for uid in uids if uid.startswith("l"))


async def test_births_are_requested_in_batches():
    asked = Asked()
    permits = StartPermits(asked.ask)
    first = asyncio.create_task(permits.may_start("l0"))
    await asyncio.sleep(0)
    many = [f"{'ld'[number % 2]}{number}" for number in range(1, BATCH_SIZE + 3)]
    others = [asyncio.create_task(permits.may_start(uid)) for uid in many]
    await asyncio.sleep(0)
    assert asked.questions == [("l0",)], "one question at a time"
    for _ in range(1 + len(many)):
        asked.let.release()
    assert await first is True
    assert await asyncio.gather(*others) == [uid.startswith("l") for uid in many]
    assert [len(each) for each in asked.questions] == [1, BATCH_SIZE, 2], "a server ignores the rest"
    assert set().union(*asked.questions) == {"l0", *many}


@pytest.mark.parametrize("how", ["silent", "cancelled"])
async def test_birth_without_answer_is_not_permitted(how):
    asked = Asked()
    permits = StartPermits(asked.ask)
    before, *both = (asyncio.create_task(permits.may_start(uid)) for uid in ("l0", "l1", "l2"))
    await asyncio.sleep(0)
    asked.let.release()
    assert await before is True
    while len(asked.questions) < 2:  # noqa: ASYNC110 - whose turn it is, is asked next
        await asyncio.sleep(0)
    assert asked.questions[1] == ("l1", "l2")
    if how == "silent":
        asked.silent = True
        asked.let.release()
        assert await asyncio.gather(*both) == [None, None]
        asked.silent = False
    else:
        both[0].cancel()
        assert await both[1] is None
    asked.let.release()
    assert await permits.may_start("l2") is True


def test_repeated_acknowledgement_needs_no_api_request(story):
    """Each server acknowledges the end, and each new session does so again."""

    async def steps(world: World, plane: ControlPlane) -> None:
        uid = await begin(world, plane)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        await world.rest(60)
        asked = noted(world)
        plane.link.acknowledge([uid])
        await world.rest(5)
        assert {each for each in asked if "watch" not in each} == {CURSOR}

    story(steps)


@pytest.mark.long_story
def test_concurrent_acknowledgements_release_once(story, monkeypatch):
    """After a day without a connection there are hundreds of ends. Reading each again overloaded an API server."""
    names = ["shop", *(f"shop-{number}" for number in range(5))]

    async def steps(world: World, plane: ControlPlane) -> None:
        uids = [await begin(world, plane, name) for name in names]
        link = plane.link
        with monkeypatch.context() as nobody:
            nobody.setattr(Link, "acknowledge", lambda _link, _uids: None)
            for name in names:
                await plane.must("DELETE", f"sandboxes/{name}")
            await until(world, lambda: true(all(map(link.state.has_ended, uids))), "all are over")
            await world.rest(60)
            asked = noted(world)
        for _ in range(3):
            link.acknowledge(uids)
        await world.rest(30)
        assert not world.cluster.objects("sandboxes")
        asked = [each for each in asked if SANDBOXES in each or f"{RUNS}/" in each]
        assert Counter(each.partition(" ")[0] for each in asked) == {"PATCH": len(names)}

    story(steps)


def test_failed_release_is_retried(story, monkeypatch):
    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        drop, tries = ClusterWatches.drop_finalizer, []

        async def fails_once(cluster, resource, meta, finalizer, **more):
            if finalizer == SERVED_FINALIZER:
                tries.append(meta.name)
                if len(tries) == 1:
                    raise errors.ServerError("PATCH sandboxes", "nobody answers")
            await drop(cluster, resource, meta, finalizer, **more)

        monkeypatch.setattr(ClusterWatches, "drop_finalizer", fails_once)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)
        assert len(tries) == 2

    story(steps)


def test_acknowledged_object_that_lives_is_not_released(story):
    async def steps(world: World, plane: ControlPlane) -> None:
        uid = await begin(world, plane)
        plane.link.acknowledge([uid])
        await world.rest(30)
        assert "deletionTimestamp" not in box(world)["metadata"]
        await ready(world, plane)
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    story(steps)


@pytest.mark.parametrize("shown", [{"annotations": {SERVED_END_ANNOTATION: "{}"}}, {}], ids=["it said so", "deleted"])
def test_object_restored_to_before_its_end_is_not_released(story, shown):
    """After a restore, the watch can deliver that after the server's order."""

    async def steps(world: World, plane: ControlPlane) -> None:
        await begin(world, plane)
        [process] = world.processes
        cluster = process.operator.cluster
        [seen] = list(cluster.sandboxes)
        meta = msgspec.structs.replace(seen.metadata, deletion_timestamp="2026-01-01T00:00:00Z", **shown)
        await ReleaseQueue(cluster).release(msgspec.structs.replace(seen, metadata=meta))
        assert SERVED_FINALIZER in box(world)["metadata"]["finalizers"]
        await plane.must("DELETE", "sandboxes/shop")
        await gone(world, plane)

    story(steps)
