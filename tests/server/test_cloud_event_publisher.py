"""CloudEvents: each is sent at least once with one ID, by one server, and no organisation delays another."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil

import pytest
from tests.server import specs, stored_records
from tests.server.client import KEY, ORG
from tests.server.databases import sql
from tests.server.fake_host import FakeHost
from tests.server.lossy_link import call

from dayfly.lib import delivery
from dayfly.lib.delivery import DeliveryResult
from dayfly.link import server_end as link
from dayfly.link.wire import RunStatus
from dayfly.plan import cloud_events
from dayfly.plan.reasons import Reason
from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.events import cloud_event_publisher, event_rows
from dayfly.server.events.cloud_event_publisher import CloudEventPublisher, EventReceiver
from dayfly.server.runs.pool_strategy import PoolStrategy
from dayfly.server.runs.run_service import RunService
from dayfly.server.runs.sandbox_strategy import SandboxStrategy
from dayfly.server.sync.agents.agent_service import AgentService
from dayfly.spec.report import PoolReport, RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase

LATER, TAKEN, REFUSED = (
    DeliveryResult("it answers 503", may_retry=True),
    DeliveryResult(),
    DeliveryResult("it answers 410"),
)


class Joined(AgentService):
    """Records the links of the server's application."""

    def set_links(self, links):
        super().set_links(links)
        self.links = links


class World:
    """A server with one host for each of two organisations, a scripted event receiver and a clock."""

    def __init__(self, store, clock, host=None):
        self.store, self.clock = store, clock
        self.host, self.other = host or FakeHost(), FakeHost()
        agents = Joined(store)
        self.app = create_app(store, {"local": self.host.end}, keys=callers.single_key(KEY), version="1", agents=agents)
        sync, self.links = self.app.state.sync, agents.links
        self.links.add("other", {"far": self.other.end})
        # `hanging`: organisations whose event is being sent to a receiver that never answers.
        self.heard, self.answers, self.pauses, self.hanging = [], {}, [], set()
        self.receive = self.post
        to = EventReceiver(self.deliver, "http://receiver")
        strategy = SandboxStrategy(store, self.links, sync, self.app.state.secrets)
        boxes = RunService(store, self.links, sync, strategy)
        pools = RunService(store, self.links, sync, PoolStrategy(store, self.links, sync))
        self.publisher = CloudEventPublisher(
            store, self.links, sync, boxes, pools, to, now=lambda: clock[0], pause=self.pause
        )

    async def deliver(self, body):
        return await self.receive(body)

    async def post(self, body):
        event = json.loads(body)
        script = self.answers.get(event["subject"])
        answer = script.pop(0) if script else TAKEN
        if answer is None:
            org = event["source"].split(":")[3]
            self.hanging.add(org)
            try:
                await asyncio.Event().wait()
            finally:
                self.hanging.remove(org)
        self.heard.append((event["subject"], event["type"].rpartition(".")[2], answer is TAKEN, event["id"]))
        self.last = event
        return answer

    async def pause(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def put(self, name, **spec):
        status, answer = await call(self.app, KEY, "PUT", f"{ORG}/sandboxes/{name}", specs.empty(**spec))
        assert status == 200, answer

    async def put_pool(self, name):
        """Create a pool and its plugin."""
        await call(self.app, KEY, "PUT", f"{ORG}/resource-plugins/db", specs.plugin())
        spec = {"cluster": "local", "plugin": "db", "params": {"size": name}, "ready": 1}
        status, answer = await call(self.app, KEY, "PUT", f"{ORG}/resourcepools/{name}", {"spec": spec})
        assert status == 200, answer

    async def put_other(self, name, cluster="far"):
        """Create a sandbox in the other organisation."""
        record = await stored_records.write(
            self.store, stored_records.sandbox(f"u-{name}", org="other", name=name, cluster=cluster)
        )
        await self.app.state.sync.send_order(record)

    async def wait_for_reports(self):
        """Wait until the server has received the reports of hosts."""
        for _ in range(4):
            await asyncio.sleep(0)

    async def publish(self):
        """Run one round, wait for its deliveries and return them."""
        await self.wait_for_reports()
        await self.publisher.run_round()
        await self.publisher.wait_for_checks()
        await until(self.is_idle)
        heard, self.heard = self.heard, []
        return heard

    async def is_idle(self):
        """Return whether all events are sent, except to a receiver that does not answer."""
        return set(await self.store.all_orgs().read(event_rows.read_pending_orgs)) <= self.hanging

    async def leave(self):
        """Stop the publisher as a server does when it ends."""
        running = asyncio.create_task(self.publisher.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def uid(self, name):
        (uid,) = [uid for uid, offer in self.host.offers.items() if offer.name == name]
        return uid

    def say(self, name, reason, *, ready=False):
        self.host.say(self.uid(name), ready=ready, reason=reason, message="m")


async def until(condition):
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - in threads of the store
            await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path, blank):
    store = Store.open(shutil.copy(blank, tmp_path))
    found = World(store, [10**12])
    yield found
    await found.leave()
    store.close()


def report(**changes):
    told = {"uid": "u", "phase": Phase.OPEN, "ready": False, "reason": Reason.RESOURCES_PENDING, "message": "m"}
    return RunReport(**{**told, "done": 0, "total": 1, "units": (), **changes})


CLOSED = EndRequest(at=1, reason="Deleted")


@pytest.mark.parametrize(
    ("changes", "soon", "kinds"),
    [
        ({}, False, ()),
        ({"ready": True, "reason": Reason.READY}, False, ("ready",)),
        ({"reason": Reason.RESOURCE_FAILED}, False, ("failed",)),
        ({"reason": Reason.HOOK_FAILED}, False, ("failed",)),
        ({"reason": Reason.CLEANUP_STUCK, "phase": Phase.CLOSED}, False, ("stuck",)),
        ({"reason": Reason.DELETING, "phase": Phase.CLOSED}, True, ()),
        ({"closed": CLOSED}, True, ()),
        ({"ready": True, "reason": Reason.READY}, True, ("ready", "expiring")),
    ],
)
def test_report_determines_kinds_of_events(changes, soon, kinds):
    assert cloud_events.event_kinds(report(**changes), expires_soon=soon) == kinds


def test_cloud_event_has_required_fields_and_stable_id():
    about = cloud_events.EventSubject("u", 7, "urn:x", "demo", "demo", "local", labels={"team": "pay"})
    event = cloud_events.cloud_event(about, "ready", report(ready=True))
    assert {"specversion", "id", "source", "type"} <= event.keys()
    assert (event["specversion"], event["type"]) == ("1.0", "dev.dayfly.sandbox.ready")
    assert event["data"]["labels"] == {"team": "pay"}
    assert event == cloud_events.cloud_event(about, "ready", report(ready=True))
    assert event["id"] != cloud_events.cloud_event(about._replace(form=8), "ready", report())["id"]


def test_status_determines_whether_event_is_resent():
    assert [delivery.result_of_status(status).may_retry for status in (200, 204, 302, 400, 410)] == [False] * 5
    assert [bool(delivery.result_of_status(status).problem) for status in (200, 302, 410)] == [False, True, True]
    assert all(delivery.result_of_status(status).may_retry for status in (408, 425, 429, 500, 503))


async def test_event_is_sent_once_per_form_of_spec(world):
    await world.put("sb1")
    world.say("sb1", Reason.RESOURCES_PENDING)
    assert await world.publish() == []
    world.say("sb1", Reason.READY, ready=True)
    ((name, kind, _, first),) = await world.publish()
    assert (name, kind) == ("sb1", "ready")
    world.say("sb1", Reason.RESOURCES_PENDING)
    assert await world.publish() == []
    world.say("sb1", Reason.READY, ready=True)
    assert await world.publish() == [], "the event of this spec was sent before"
    await world.put("sb1", labels={"a": "b"})
    ((_, _, _, second),) = await world.publish()
    assert second != first
    await call(world.app, KEY, "DELETE", f"{ORG}/sandboxes/sb1")
    world.say("sb1", Reason.CLEANUP_STUCK)
    assert [each[1] for each in await world.publish()] == ["stuck"]
    world.host.finish(world.uid("sb1"))
    await world.app.state.sync.sweep()
    assert await world.publish() == []
    assert sql(world.store, "SELECT * FROM cloud_events") == [], "events of deleted sandboxes are deleted"


async def test_event_source_names_organisation_and_cluster(world):
    await world.put("sb1")
    await world.put_other("sb1")
    bodies = []

    async def post(body):
        bodies.append(json.loads(body))
        return TAKEN

    world.receive = post
    await world.publish()
    assert {(each["source"], each["data"]["cluster"]) for each in bodies} == {
        ("urn:dayfly:organisation:local:cluster:local", "local"),
        ("urn:dayfly:organisation:other:cluster:far", "far"),
    }
    assert len({each["id"] for each in bodies}) == 2


async def test_expiring_event_is_sent_when_its_time_comes(world):
    await world.put("sb1", ttl={"duration": "1h"})
    row = (await stored_records.read_all(world.store, "local"))[0]
    world.clock[0] = row.created_at
    assert [each[1] for each in await world.publish()] == ["ready"]
    world.clock[0] = row.expires_at - 360_001
    assert await world.publish() == []
    world.clock[0] = row.expires_at - 360_000
    assert [each[1] for each in await world.publish()] == ["expiring"]
    assert await world.publish() == []


async def test_next_process_resends_unanswered_event_with_same_id(world):
    await world.put("sb1")
    await world.put("sb2")
    world.answers = {"sb1": [LATER, None], "sb2": [TAKEN]}
    heard = await world.publish()
    assert [each[:3] for each in heard] == [("sb1", "ready", False)]
    await world.leave()
    world.say("sb1", Reason.RESOURCES_PENDING)  # the pending event is sent nevertheless
    again = World(world.store, world.clock, world.host)
    found = await again.publish()
    assert [each[:3] for each in found] == [("sb1", "ready", True), ("sb2", "ready", True)]
    assert found[0][3] == heard[0][3]
    assert await again.publish() == []


async def test_rejected_event_delays_only_its_organisation(world, caplog):
    await world.put("sb1")
    await world.put_other("theirs")
    world.answers = {"theirs": [LATER] * 12 + [None]}
    with caplog.at_level(logging.WARNING):
        heard = await world.publish()
    assert ("sb1", "ready", True) in [each[:3] for each in heard]
    assert world.pauses == sorted(world.pauses[:7]) + world.pauses[7:]
    assert max(world.pauses) <= 60
    assert [record.getMessage() for record in caplog.records] == [
        "events for http://receiver are retried: it answers 503"
    ]
    await world.put("sb2")
    assert [each[0] for each in await world.publish()] == ["sb2"]


async def test_refused_event_is_logged_and_not_resent(world, caplog):
    for name in ("sb1", "sb2", "sb3"):
        await world.put(name)
    world.answers = {"sb1": [REFUSED], "sb2": [REFUSED]}
    with caplog.at_level(logging.WARNING):
        assert len(await world.publish()) == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert "http://receiver refuses the event" in said
    assert world.pauses == []
    assert await world.publish() == []


async def test_pending_events_are_bounded_and_rest_follows(world, caplog, monkeypatch):
    monkeypatch.setattr(event_rows, "MAX_PENDING", 3)
    monkeypatch.setattr(cloud_event_publisher, "BATCH_SIZE", 1)
    gate = asyncio.Event()

    async def post(body):
        await gate.wait()
        return await world.post(body)

    world.receive = post
    await world.put_other("theirs")
    for number in range(1, 7):
        await world.put(f"sb{number}")
    waiting = "SELECT org FROM cloud_events WHERE body != ''"
    for _ in range(3):
        await world.publisher.run_round()
        await world.publisher.wait_for_checks()
        assert sorted(org for (org,) in sql(world.store, waiting)) == ["local"] * 3 + ["other"]
    said = "3 events of local are pending for http://receiver: states that end before it accepts them get no event"
    assert [record.getMessage() for record in caplog.records] == [said]
    gate.set()
    heard = [*await world.publish(), *await world.publish()]
    assert {each[0] for each in heard} == {"theirs", *(f"sb{number}" for number in range(1, 7))}
    assert len(heard) == 7


async def test_undeliverable_event_is_given_up(world, caplog, monkeypatch):
    monkeypatch.setattr(delivery, "DROP_AFTER_S", -1)
    await world.put("sb1")
    await world.put("sb2")
    world.answers = {"sb1": [LATER] * 5}
    heard = await world.publish()
    assert [each[:3] for each in heard] == [("sb1", "ready", False)] * 2 + [("sb2", "ready", True)]
    assert "http://receiver has not accepted the event" in caplog.text
    assert await world.publish() == []


async def test_slow_cluster_delays_no_other_clusters_events(world, monkeypatch):
    monkeypatch.setattr(link, "OPTIONAL_ANSWER_TIMEOUT_S", 3600)
    monkeypatch.setattr(link, "ANSWER_TIMEOUT_S", 3600)
    await world.put("sb1")
    await world.put_other("theirs")
    monkeypatch.setattr(world.other.end, "send", lambda _message: None)
    world.links.get("other", "far").state.record_status(RunStatus(uid="u-theirs", seq=99))
    async with asyncio.timeout(20):
        await world.publisher.run_round()

    async def has_arrived():
        return [each[0] for each in world.heard] == ["sb1"]

    await until(has_arrived)


async def test_change_during_slow_query_is_sent_afterwards(world, monkeypatch):
    """No later change would trigger another check."""
    for name in ("sb1", "sb2"):
        await world.put(name)
        world.say(name, Reason.RESOURCES_PENDING)
    assert await world.publish() == []
    slow, real = asyncio.Event(), SandboxStrategy.query_states

    async def slow_states(self, found, scope):
        await slow.wait()
        return await real(self, found, scope)

    monkeypatch.setattr(SandboxStrategy, "query_states", slow_states)
    for name, ready in (("sb1", False), ("sb2", True)):
        world.say(name, Reason.READY if ready else Reason.RESOURCES_PENDING, ready=ready)
        await world.wait_for_reports()
        await world.publisher.run_round()
    slow.set()
    await world.publisher.wait_for_checks()
    assert [each[:2] for each in await world.publish()] == [("sb2", "ready")]


async def test_one_server_sends_events_and_another_takes_over(postgres):
    where, clock = postgres.fresh(), [10**12]
    stores = [Store.open(where) for _ in range(2)]
    first, host = World(stores[0], clock), FakeHost()
    second = World(stores[1], clock, host)
    try:
        await first.put("sb1")
        first.answers = {"sb1": [LATER, None]}
        heard = await first.publish()
        host.offers |= first.host.offers
        holder = sql(first.store, "SELECT holder FROM leases")
        for passed in (0, cloud_event_publisher.LEASE_MS - 1):
            clock[0] += passed
            await second.publisher.run_round()
            await second.publisher.wait_for_checks()
            assert (sql(first.store, "SELECT holder FROM leases"), second.heard) == (holder, []), (
                "the first server may only be slow"
            )
        clock[0] += cloud_event_publisher.ACQUIRE_INTERVAL_MS
        found = await second.publish()
        assert [(each[0], each[3]) for each in found] == [("sb1", heard[0][3])]
        assert await first.publish() == [], "the first server knows that the second has the lease"
        assert first.hanging == set(), "the first server has cancelled its current delivery"
    finally:
        for world in (first, second):
            await world.leave()
        for store in stores:
            store.close()


class TestPools:
    """Events of pools: paused, resumed, and failed members."""

    @pytest.fixture
    async def pooled(self, tmp_path, blank):
        host = FakeHost()
        host.pools = True
        store = Store.open(shutil.copy(blank, tmp_path))
        found = World(store, [10**12], host)
        await found.put_pool("small")
        yield found
        await found.leave()
        store.close()

    def say(self, world, reason, *failed, name="small", paused_at=0):
        units = tuple(
            UnitReport(id=each, name=each, event="start", kind="member", state="failed", started_at=at,
                       reason="StepFailed", message="db/make: exit code 3")
            for each, at in failed
        )  # fmt: skip
        numbers = PoolReport(paused="m" if paused_at else "", paused_at=paused_at, generation=1 << 52)
        world.host.say(world.uid(name), ready=False, reason=reason, message="m", units=units, pool=numbers)

    async def kinds(self, world):
        return [(subject, kind) for subject, kind, *_ in await world.publish()]

    async def test_pause_and_resume_have_one_event_each(self, pooled):
        assert await self.kinds(pooled) == []
        self.say(pooled, "Paused", paused_at=5)
        assert await self.kinds(pooled) == [("small", "paused")]
        assert pooled.last["type"] == "dev.dayfly.pool.paused"
        assert pooled.last["data"] == {
            "name": "small", "namespace": "", "cluster": "local", "reason": "Paused", "message": "m", "member": "",
        }  # fmt: skip
        self.say(pooled, "Paused", paused_at=5)
        assert await self.kinds(pooled) == []
        for _ in range(2):
            self.say(pooled, "Filling")
        assert await self.kinds(pooled) == [("small", "resumed")]
        self.say(pooled, "PoolFull")
        assert await self.kinds(pooled) == []
        self.say(pooled, "Failing", paused_at=9)
        assert await self.kinds(pooled) == [("small", "paused")]

    async def test_each_failed_member_has_one_event(self, pooled):
        self.say(pooled, "Filling", ("small-1", 3), ("small-2", 3))
        assert await self.kinds(pooled) == [("small", "memberfailed")] * 2
        self.say(pooled, "Failing", ("small-2", 3), ("small-3", 7), paused_at=8)
        assert await self.kinds(pooled) == [("small", "memberfailed"), ("small", "paused")]
        self.say(pooled, "Failing", ("small-2", 3), ("small-3", 7), paused_at=8)
        assert await self.kinds(pooled) == []
        self.say(pooled, "Filling", ("small-4", 9))
        assert await self.kinds(pooled) == [("small", "memberfailed"), ("small", "resumed")]
        self.say(pooled, "Filling", ("small-4", 9))
        assert await self.kinds(pooled) == []

    async def test_events_of_a_pool_are_deleted_with_it(self, pooled):
        self.say(pooled, "Paused", paused_at=5)
        await pooled.publish()
        uid = pooled.uid("small")
        assert await pooled.store.all_orgs().read(lambda rows: event_rows.read_known_ids(rows, [uid]))
        status, _ = await call(pooled.app, KEY, "DELETE", f"{ORG}/resourcepools/small")
        assert status == 200
        pooled.host.finish(uid)
        await pooled.wait_for_reports()
        await pooled.app.state.sync.sweep()
        await pooled.publish()
        assert not await pooled.store.all_orgs().read(lambda rows: event_rows.read_known_ids(rows, [uid]))


async def test_stored_events_of_leak_checks_are_sent(world):
    await world.put("demo")
    await world.publish()
    body = json.dumps({"subject": "items", "type": "x.found", "id": "u/1/found"})
    event = event_rows.NewEvent("u/1/found", "u", 1, 1, body)
    await world.store.for_org("local").write(lambda rows: event_rows.save(rows, [event]))
    assert [subject for subject, *_ in await world.publish()] == ["items"]
