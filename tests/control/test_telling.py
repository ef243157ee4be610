"""CloudEvents of a server: each at least once, under one id, by one of its servers; and nobody waits for another."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil

import msgspec
import pytest

from control import wishes
from control.client import KEY, ORG
from control.databases import sql
from control.fake_host import FakeHost
from control.lossy import call
from dayfly.control import auth, event_rows, records, telling
from dayfly.control.app import create_app
from dayfly.control.sandboxes import Sandboxes
from dayfly.control.store import Store
from dayfly.control.telling import Receiver, Telling
from dayfly.plan import cloud_events
from dayfly.plan.reasons import Reason
from dayfly.spec.report import Report
from dayfly.spec.run import Phase, Request
from dayfly.spec.wire import Standing
from dayfly.work import delivery
from dayfly.work.delivery import Answer

LATER, TAKEN, REFUSED = Answer("it answers 503", again=True), Answer(), Answer("it answers 410")


class World:
    """One server with a host of each of two organisations, a receiver that the test writes, and time that it moves."""

    def __init__(self, store, clock, host=None):
        self.store, self.clock = store, clock
        self.host, self.other = host or FakeHost(), FakeHost()
        self.app = create_app(store, {"local": self.host.end}, keys=auth.single(KEY), version="1")
        sync = self.app.state.sync
        self.links = sync._links
        self.links.add("other", {"far": self.other.end})
        self.heard, self.answers, self.pauses, self.hanging = [], {}, [], 0
        to = Receiver(self.post, "http://receiver")
        boxes = Sandboxes(store, self.links, sync, self.app.state.vaults)
        self.telling = Telling(store, self.links, sync, boxes, to, now=lambda: clock[0], pause=self.pause)

    async def post(self, body):
        event = json.loads(body)
        script = self.answers.get(event["subject"])
        answer = script.pop(0) if script else TAKEN
        if answer is None:
            self.hanging += 1
            await asyncio.Event().wait()
        self.heard.append((event["subject"], event["type"].rpartition(".")[2], answer is TAKEN, event["id"]))
        return answer

    async def pause(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def put(self, name, **spec):
        status, answer = await call(self.app, KEY, "PUT", f"{ORG}/sandboxes/{name}", wishes.empty(**spec))
        assert status == 200, answer

    async def put_other(self, name, cluster="far"):
        """In the other organisation, as its own API would."""
        spec = msgspec.convert({"cluster": cluster}, records.SandboxSpec)
        record = records.Record(
            org="other", uid=f"u-{name}", name=name, routing_key=name, spec=spec, created_at=1, updated_at=1
        )
        record = await self.store.of("other").write(lambda rows: records.save(rows, record))
        await self.app.state.sync.tell(record)

    async def arrived(self):
        """What hosts say has been heard."""
        for _ in range(4):
            await asyncio.sleep(0)

    async def told(self):
        """One round, and all that comes of it as long as nobody keeps us waiting."""
        await self.arrived()
        await self.telling.round()
        await self.telling.looked()
        async with asyncio.timeout(20):
            while len(tasks := self.telling._sending.tasks) > self.hanging:
                await asyncio.wait(tasks.values(), timeout=0.02)
        heard, self.heard = self.heard, []
        return heard

    def uid(self, name):
        (uid,) = [uid for uid, offer in self.host.offers.items() if offer.name == name]
        return uid

    def say(self, name, reason, *, ready=False):
        self.host.say(self.uid(name), ready=ready, reason=reason, message="m")


@pytest.fixture
async def world(tmp_path, blank):
    store = Store.open(shutil.copy(blank, tmp_path))
    found = World(store, [10**12])
    yield found
    await found.telling._leave()
    store.close()


def report(**changes):
    told = {"uid": "u", "phase": Phase.OPEN, "ready": False, "reason": Reason.RESOURCES_PENDING, "message": "m"}
    return Report(**{**told, "done": 0, "total": 1, "units": (), **changes})


CLOSED = Request(at=1, reason="Deleted")


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
def test_what_is_worth_an_event(changes, soon, kinds):
    assert cloud_events.kinds(report(**changes), expires_soon=soon) == kinds


def test_an_event_has_what_cloudevents_asks_for_and_an_id_that_stays():
    about = cloud_events.About("u", 7, "urn:x", "demo", "demo", "local", labels={"team": "pay"})
    event = cloud_events.cloud_event(about, "ready", report(ready=True))
    assert {"specversion", "id", "source", "type"} <= event.keys()
    assert (event["specversion"], event["type"]) == ("1.0", "dev.dayfly.sandbox.ready")
    assert event["data"]["labels"] == {"team": "pay"}
    assert event == cloud_events.cloud_event(about, "ready", report(ready=True))
    assert event["id"] != cloud_events.cloud_event(about._replace(form=8), "ready", report())["id"]


def test_what_answers_mean():
    assert [delivery.answered(status).again for status in (200, 204, 302, 400, 410)] == [False] * 5
    assert [bool(delivery.answered(status).problem) for status in (200, 302, 410)] == [False, True, True]
    assert all(delivery.answered(status).again for status in (408, 425, 429, 500, 503))


async def test_each_is_told_once_for_each_form_of_a_wish(world):
    await world.put("sb1")
    world.say("sb1", Reason.RESOURCES_PENDING)
    assert await world.told() == []
    world.say("sb1", Reason.READY, ready=True)
    ((name, kind, _, first),) = await world.told()
    assert (name, kind) == ("sb1", "ready")
    world.say("sb1", Reason.RESOURCES_PENDING)
    assert await world.told() == []
    world.say("sb1", Reason.READY, ready=True)
    assert await world.told() == [], "of this form it was told"
    await world.put("sb1", labels={"a": "b"})
    ((_, _, _, second),) = await world.told()
    assert second != first
    await call(world.app, KEY, "DELETE", f"{ORG}/sandboxes/sb1")
    world.say("sb1", Reason.CLEANUP_STUCK)
    assert [each[1] for each in await world.told()] == ["stuck"]
    world.host.finish(world.uid("sb1"))
    await world.app.state.sync.sweep()
    assert await world.told() == []
    assert sql(world.store, "SELECT * FROM cloud_events") == [], "of what is gone nothing is kept"


async def test_the_source_names_organisation_and_cluster_and_no_other_one(world, monkeypatch):
    await world.put("sb1")
    await world.put_other("sb1")
    bodies = []

    async def post(body):
        bodies.append(json.loads(body))
        return TAKEN

    monkeypatch.setattr(world.telling._sending, "_post", post)
    await world.told()
    assert {(each["source"], each["data"]["cluster"]) for each in bodies} == {
        ("urn:dayfly:organisation:local:cluster:local", "local"),
        ("urn:dayfly:organisation:other:cluster:far", "far"),
    }
    assert len({each["id"] for each in bodies}) == 2


async def test_it_warns_when_time_alone_brings_the_end_near(world):
    await world.put("sb1", ttl={"duration": "1h"})
    row = (await world.store.of("local").read(records.living))[0]
    world.clock[0] = row.created_at
    assert [each[1] for each in await world.told()] == ["ready"]
    world.clock[0] = row.expires_at - 360_001
    assert await world.told() == []
    world.clock[0] = row.expires_at - 360_000
    assert [each[1] for each in await world.told()] == ["expiring"]
    assert await world.told() == []


async def test_what_was_not_answered_is_sent_by_the_next_process_under_the_same_id(world):
    await world.put("sb1")
    await world.put("sb2")
    world.answers = {"sb1": [LATER, None], "sb2": [TAKEN]}
    heard = await world.told()
    assert [each[:3] for each in heard] == [("sb1", "ready", False)]
    await world.telling._leave()
    world.say("sb1", Reason.RESOURCES_PENDING)  # it is so no more, and is told all the same
    again = World(world.store, world.clock, world.host)
    found = await again.told()
    assert [each[:3] for each in found] == [("sb1", "ready", True), ("sb2", "ready", True)]
    assert found[0][3] == heard[0][3]
    assert await again.told() == []


async def test_an_event_that_nobody_takes_holds_up_its_own_organisation_alone(world, caplog):
    await world.put("sb1")
    await world.put_other("theirs")
    world.answers = {"theirs": [LATER] * 12 + [None]}
    with caplog.at_level(logging.WARNING):
        heard = await world.told()
    assert ("sb1", "ready", True) in [each[:3] for each in heard]
    assert world.pauses == sorted(world.pauses[:7]) + world.pauses[7:]
    assert max(world.pauses) <= 60
    assert [record.getMessage() for record in caplog.records] == [
        "events for http://receiver are sent again later: it answers 503"
    ]
    await world.put("sb2")
    assert [each[0] for each in await world.told()] == ["sb2"]


async def test_what_is_refused_for_good_is_said_and_not_sent_again(world, caplog):
    for name in ("sb1", "sb2", "sb3"):
        await world.put(name)
    world.answers = {"sb1": [REFUSED], "sb2": [REFUSED]}
    with caplog.at_level(logging.WARNING):
        assert len(await world.told()) == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert "http://receiver refuses the event" in said
    assert world.pauses == []
    assert await world.told() == []


async def test_no_more_wait_than_may_and_what_is_still_so_is_told_when_there_is_room(world, caplog, monkeypatch):
    monkeypatch.setattr(event_rows, "MOST_WAITING", 3)
    monkeypatch.setattr(telling, "PIECE", 1)
    gate = asyncio.Event()

    async def post(body):
        await gate.wait()
        return await world.post(body)

    monkeypatch.setattr(world.telling._sending, "_post", post)
    await world.put_other("theirs")
    for number in range(1, 7):
        await world.put(f"sb{number}")
    waiting = "SELECT org FROM cloud_events WHERE body != ''"
    for _ in range(3):
        await world.telling.round()
        await world.telling.looked()
        assert sorted(org for (org,) in sql(world.store, waiting)) == ["local"] * 3 + ["other"]
    said = "3 events of local wait for http://receiver: what is over before it takes them is not told"
    assert [record.getMessage() for record in caplog.records] == [said]
    gate.set()
    heard = [*await world.told(), *await world.told()]
    assert {each[0] for each in heard} == {"theirs", *(f"sb{number}" for number in range(1, 7))}
    assert len(heard) == 7


async def test_what_no_receiver_takes_is_given_up_in_the_end(world, caplog, monkeypatch):
    monkeypatch.setattr(delivery, "GIVE_UP_S", -1)
    await world.put("sb1")
    await world.put("sb2")
    world.answers = {"sb1": [LATER] * 5}
    heard = await world.told()
    assert [each[:3] for each in heard] == [("sb1", "ready", False)] * 2 + [("sb2", "ready", True)]
    assert "http://receiver has not taken the event" in caplog.text
    assert await world.told() == []


async def test_a_cluster_that_does_not_answer_holds_up_no_other(world, monkeypatch):
    await world.put("sb1")
    await world.put_other("theirs")
    monkeypatch.setattr(world.other.end, "send", lambda _message: None)
    world.links.of("other", "far").picture.stands(telling_of("u-theirs", 99))
    await world.telling.round()
    mine = world.telling._looks["local", "local"]
    await asyncio.wait_for(mine, 5)
    assert list(world.telling._looks) == [("other", "far")], "it is still being asked"
    await asyncio.wait_for(asyncio.gather(*world.telling._sending.tasks.values()), 5)
    assert [each[0] for each in world.heard] == ["sb1"]


async def test_what_changes_while_its_cluster_is_slow_to_answer_is_told_once_it_has(world, monkeypatch):
    """Nothing else happens after that, so nobody would look again."""
    for name in ("sb1", "sb2"):
        await world.put(name)
        world.say(name, Reason.RESOURCES_PENDING)
    assert await world.told() == []
    slow, real = asyncio.Event(), Sandboxes.told

    async def told(self, found):
        await slow.wait()
        return await real(self, found)

    monkeypatch.setattr(Sandboxes, "told", told)
    for name, ready in (("sb1", False), ("sb2", True)):
        world.say(name, Reason.READY if ready else Reason.RESOURCES_PENDING, ready=ready)
        await world.arrived()
        await world.telling.round()
    slow.set()
    await world.telling.looked()
    assert [each[:2] for each in await world.told()] == [("sb2", "ready")]


def telling_of(uid, seq):
    return Standing(uid=uid, seq=seq)


async def test_of_several_servers_one_sends_and_another_one_when_it_is_gone(postgres):
    where, clock = postgres.fresh(), [10**12]
    stores = [Store.open(where) for _ in range(2)]
    first, host = World(stores[0], clock), FakeHost()
    second = World(stores[1], clock, host)
    try:
        await first.put("sb1")
        first.answers = {"sb1": [LATER, None]}
        heard = await first.told()
        host.offers |= first.host.offers
        assert await second.told() == []
        clock[0] += telling.DUTY_MS - 1
        assert await second.told() == [], "it may only be slow"
        clock[0] += telling.DENIED_MS
        found = await second.told()
        assert [(each[0], each[3]) for each in found] == [("sb1", heard[0][3])]
        first.hanging = 0
        assert await first.told() == [], "the first one has heard that it is the other's now"
        assert first.telling._sending.tasks == {}
    finally:
        for world in (first, second):
            await world.telling._leave()
        for store in stores:
            store.close()
