"""Places, each rule alone: what is counted, whose turn it is, and who is looked at when a place is free."""

from __future__ import annotations

import json

import msgspec
import pytest
from rig.world import KINDS

from dayfly.kube.client import Client
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.kube.transport import Request as Call
from dayfly.operator.cluster.caches import Cluster
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods.places import BELIEVED_MS, IMAGES, Places, Share
from dayfly.plan.actions import Claim, Decision, Prepare, Record, Void, Wait
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Held, NeverRan, Running, Sealed, Waiting
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Request, Result, Run, State, UnitRecord
from kube.fake import FakeCluster, run

EVERY = ("a", "b", "c", "d")
UNITS = tuple(Unit(name=name, kind="exec", exec=Exec(script="#!/bin/sh")) for name in EVERY)
TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
PLAN = seal((Lifecycle(target=TARGET, resource="x", pre_start=UNITS[:3], post_stop=UNITS[3:]),))
A, B, C, D = (f"x/{name}" for name in EVERY)
RESULT = Result(outcome="succeeded")
WAITS = Decision(waits=(Wait(unit=A, reason=Reason.WAITING_FOR_SLOT, message="m"),))
LACKS = Waiting(since=1, reason="r", recallable=True)


class Queue:
    """Who is to be looked at."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.later: list[tuple[str, float]] = []

    def add(self, key, *, urgency=None, after=0.0):
        if after:
            self.later.append((key, after))
        else:
            self.keys.append(key)

    def taken(self) -> list[str]:
        keys, self.keys = self.keys, []
        return keys


class Bench:
    """Places of namespaces with a bound, and runs that are known."""

    def __init__(self, bound: int = 2) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.clock, self.version = 1_000, 0
        self.caches = Cluster(Client(self.server.transport("operator"), seed=1), now=lambda: self.clock)
        self.queue = self.caches.queue = Queue()
        self.places = Places(self.caches, bound)
        for namespace in ("shop", "quiet"):
            self.ask("POST", "", {"metadata": {"name": namespace}})

    def ask(self, method, name, body, kind="application/json"):
        path = f"/api/v1/namespaces/{name}".rstrip("/")
        assert self.server.answer(Call(method, path, {}, json.dumps(body).encode(), kind)).status < 300

    def annotate(self, steps):
        notes = {"metadata": {"annotations": {"dayfly.dev/steps": steps}}}
        self.ask("PATCH", "shop", notes, "application/merge-patch+json")

    def run(self, name, namespace="shop", closed=0, **units) -> RunObject:
        """A run that is known, with these records."""
        target = msgspec.structs.replace(TARGET, namespace=namespace)
        records = {f"x/{unit}": record for unit, record in units.items()}
        request = Request(at=closed, reason="Deleted") if closed else None
        ledger = Run(uid=name, target=target, plan="", units=records, closed=request)
        self.version += 1
        meta = AnnotatedMeta(name=name, uid=name, resource_version=str(self.version))
        found = RunObject(metadata=meta, ledger=ledger)
        self.caches.runs.put(found)
        self.queue.taken()
        return found

    async def share(self, of, facts=None, hindered=(), *, cleaning=False) -> Share:
        return await self.places.share(of, PLAN, facts or {}, dict.fromkeys(hindered), cleaning=cleaning)

    async def slots(self, of, **how) -> int:
        return (await self.share(of, **how)).slots

    async def wait(self, *names):
        """These are given none, in this order."""
        for name in names:
            found = self.run(name)
            await self.share(found)
            self.places.settle(name, WAITS)
        self.queue.taken()


def alive(at=5, state=State.CLAIMED, kind="exec", attempt=1):
    return UnitRecord(attempt=attempt, state=state, kind=kind, ref="p", claimed_at=at)


def claims(*units, kind="exec"):
    return tuple(Claim(unit=unit, attempt=1, kind=kind, ref="p", at=1) for unit in units)


def played(story, **how):
    async def main():
        return await story(Bench(**how))

    return run(main())


class TestCounting:
    @pytest.mark.parametrize(
        ("records", "left"),
        [
            ({}, 3),
            ({"a": alive()}, 2),
            ({"a": alive(state=State.UNKNOWN), "b": alive()}, 1),
            ({"a": alive(state=State.DONE), "b": alive(state=State.VOID)}, 3),
            ({"a": alive(kind="fork")}, 3),
        ],
    )
    def test_what_the_ledger_has_alive_has_a_place(self, records, left):
        async def story(bench):
            found = bench.run("one", **records)
            other = bench.run("two")
            assert await bench.slots(bench.run("three", "quiet")) == 3, "of another namespace"
            assert await bench.slots(other, cleaning=True) == 3, "of those that clean up"
            return await bench.slots(found), await bench.slots(other)

        assert played(story, bound=3) == (left, left)

    def test_what_was_claimed_after_the_close_cleans_up(self):
        async def story(bench):
            found = bench.run("one", closed=5, a=alive(4), d=alive(5))
            return await bench.slots(found), await bench.slots(found, cleaning=True)

        assert played(story, bound=3) == (2, 2)

    @pytest.mark.parametrize(
        ("fact", "left"),
        [
            (None, 0),
            (Running(since=1), 0),
            (LACKS, 1),
            (Waiting(since=1, reason="ErrImagePull"), 1),
            (Waiting(since=1, reason="r", recalled=5), 1),
            (Waiting(since=1, reason="r"), 0),
            (Waiting(since=1, reason="ErrImagePull", placed=False), 0),
            (Ended(result=RESULT), 1),
            (Sealed(result=RESULT), 1),
            (NeverRan(reason="r"), 1),
        ],
    )
    def test_one_that_lacks_its_image_or_has_ended_gives_its_place_back(self, fact, left):
        async def story(bench):
            found = bench.run("one", a=alive())
            await bench.share(found, {(A, 1): fact} if fact else {})
            return await bench.slots(bench.run("two"))

        assert played(story, bound=1) == left

    def test_without_news_it_lacks_it_still(self):
        async def story(bench):
            found = bench.run("one", a=alive())
            await bench.share(found, {(A, 1): LACKS})
            before = await bench.slots(bench.run("two"))
            await bench.share(found)
            same = await bench.slots(bench.run("two"))
            await bench.share(found, {(A, 1): Running(since=1)})
            return before, same, await bench.slots(bench.run("two"))

        assert played(story, bound=1) == (1, 1, 0)

    def test_too_many_that_lack_it_end_all_beginning(self):
        async def story(bench):
            for number in range(IMAGES):
                found = bench.run(f"r{number}", a=alive())
                if number == IMAGES - 1:
                    before = await bench.share(bench.run("late"))
                await bench.share(found, {(A, 1): LACKS})
            after = await bench.share(bench.run("late"))
            said = after.objections[A]
            assert (said.reason, said.since) == (Reason.WAITING_FOR_SLOT, 1_000)
            assert f"{IMAGES} steps of namespace shop are waiting for their images" in said.message
            return before.slots > 0, after.slots

        assert played(story) == (True, 0)


class TestSharing:
    def test_those_that_wait_say_for_what(self):
        async def story(bench):
            bench.run("one", a=alive(), b=alive())
            bench.places.settle("one")
            found = await bench.share(bench.run("two"))
            assert found.slots == 0
            assert list(found.objections) == [A, B, C]
            assert "at most 2 steps at once" in found.objections[A].message
            cleaning = await bench.share(bench.run("two"), cleaning=True)
            assert cleaning == Share(2, {})
            bench.run("three", closed=1, d=alive(), a=alive())
            bench.places.settle("three")
            return list((await bench.share(bench.run("two"), cleaning=True)).objections)

        assert played(story) == [D]

    def test_since_when_it_waits_is_remembered(self):
        async def story(bench):
            bench.run("one", a=alive(), b=alive())
            await bench.wait("two")
            bench.clock = 5_000
            return (await bench.share(bench.caches.ledger.get("two"))).objections[A].since

        assert played(story) == 1_000

    def test_a_unit_that_holds_a_place_is_not_objected_to(self):
        async def story(bench):
            found = bench.run("one")
            assert bench.places.hold(found, A, cleaning=False)
            assert bench.places.hold(found, B, cleaning=False)
            return await bench.share(found)

        found = played(story)
        assert found.slots == 2, "both are held and not begun"
        assert list(found.objections) == [C]

    def test_of_those_that_wait_the_first_is_next(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two", "three")
            slots = [await bench.slots(bench.caches.ledger.get(name)) for name in ("two", "three")]
            return slots, await bench.slots(bench.run("four"))

        assert played(story) == ([1, 0], 0)


class TestHolding:
    def test_one_place_is_held_once(self):
        async def story(bench):
            found = bench.run("one")
            assert bench.places.hold(found, A, cleaning=False)
            assert bench.places.hold(found, A, cleaning=False)
            assert bench.queue.taken() == []
            assert not bench.places.hold(found, B, cleaning=False)
            assert bench.queue.taken() == ["one"]
            assert bench.places.hold(found, D, cleaning=True)
            return True

        assert played(story, bound=1)

    def test_who_waits_is_looked_at_when_one_is_given_back(self):
        async def story(bench):
            found = bench.run("one")
            bench.places.hold(found, A, cleaning=False)
            await bench.wait("two", "three")
            bench.places.give_back(found, B)
            assert bench.queue.taken() == []
            bench.places.give_back(found, A)
            return bench.queue.taken()

        assert played(story, bound=1) == ["two"]

    def test_who_waits_to_clean_up_is_looked_at_as_well(self):
        async def story(bench):
            found = bench.run("one", closed=1)
            bench.places.hold(found, D, cleaning=True)
            other = bench.run("two", closed=1)
            await bench.share(other, cleaning=True)
            bench.places.settle("two", WAITS)
            bench.queue.taken()
            bench.places.give_back(found, D)
            return bench.queue.taken()

        assert played(story, bound=1) == ["two"]

    @pytest.mark.parametrize(
        ("facts", "hindered", "record", "left"),
        [
            ({}, (), None, 0),
            ({(A, 1): Held(ref="p")}, (), None, 0),
            ({(A, 1): NeverRan(reason="r")}, (), None, 1),
            ({}, (A,), None, 1),
            ({}, (), alive(state=State.VOID, attempt=1), 0),
            ({(A, 2): Running(since=1)}, (), alive(state=State.VOID, attempt=1), 1),
        ],
    )
    def test_it_is_held_as_long_as_its_pod_may_come(self, facts, hindered, record, left):
        async def story(bench):
            found = bench.run("one", **({"a": record} if record else {}))
            bench.places.hold(found, A, cleaning=False)
            await bench.share(found, facts, hindered)
            return await bench.slots(bench.run("two"))

        assert played(story, bound=1) == left

    def test_with_the_close_nothing_is_held_for_what_creates(self):
        async def story(bench):
            bench.places.hold(bench.run("one"), A, cleaning=False)
            closed = bench.run("one", closed=5)
            bench.places.hold(closed, D, cleaning=True)
            await bench.share(closed, cleaning=True)
            other = bench.run("two")
            return await bench.slots(other), await bench.slots(other, cleaning=True)

        assert played(story, bound=1) == (1, 0)


class TestClaiming:
    def test_as_many_as_there_are_places(self):
        async def story(bench):
            found = bench.run("one")
            assert not bench.places.claim(found, claims(A, B, C), cleaning=False)
            assert await bench.slots(found) == 2
            assert bench.places.claim(found, claims(A, B), cleaning=False)
            assert bench.places.claim(found, claims(A, B), cleaning=False), "they have them already"
            assert not bench.places.claim(bench.run("two"), claims(A), cleaning=False)
            assert bench.places.claim(bench.run("two"), claims(D), cleaning=True)
            return True

        assert played(story)

    def test_forks_and_attempts_that_are_passed_over_need_none(self):
        async def story(bench):
            found = bench.run("one")
            assert bench.places.claim(found, claims(A, kind="fork"), cleaning=False)
            void = Void(unit=A, attempt=1, reason="r", message="m", at=1)
            return bench.places.claim(found, (*claims(A), void), cleaning=False)

        assert played(story, bound=0)

    @pytest.mark.parametrize(
        "end", [Record(unit=A, attempt=1, result=RESULT), Void(unit=A, attempt=1, reason="r", message="m", at=1)]
    )
    def test_what_ends_in_the_same_write_gives_its_place(self, end):
        async def story(bench):
            found = bench.run("one", a=alive())
            await bench.share(found)
            assert not bench.places.claim(found, claims(B), cleaning=False)
            other = Record(unit=C, attempt=1, result=RESULT)
            assert not bench.places.claim(found, (other, *claims(B)), cleaning=False), "that one had none"
            return bench.places.claim(found, (end, *claims(B)), cleaning=False)

        assert played(story, bound=1)


class TestSettling:
    @pytest.mark.parametrize(
        ("decision", "left"),
        [
            (None, 0),
            (Decision(), 1),
            (Decision(waits=(Wait(unit=A, reason=Reason.STARTING, message="m"),)), 0),
            (Decision(waits=(Wait(unit=A, reason=Reason.WAITING_FOR_INPUT, message="m"),)), 1),
            (Decision(waits=(Wait(unit=B, reason=Reason.STARTING, message="m"),)), 1),
            (Decision(effects=(Prepare(unit=A, attempt=1),)), 0),
            (WAITS, 0),
        ],
    )
    def test_what_is_held_in_vain_goes_to_others(self, decision, left):
        async def story(bench):
            bench.places.hold(bench.run("one"), A, cleaning=False)
            bench.places.settle("one", decision)
            bench.places.settle("one")
            return await bench.slots(bench.run("two")) if decision is not WAITS else 0

        assert played(story, bound=1) == left

    def test_what_was_begun_is_not_released(self):
        async def story(bench):
            bench.run("one", a=alive())
            bench.places.settle("one", Decision())
            return await bench.slots(bench.run("two"))

        assert played(story, bound=1) == 0

    def test_the_first_that_waits_looks_again_for_all(self):
        async def story(bench):
            bench.run("one", a=alive())
            for name in ("two", "three"):
                bench.run(name)
                bench.places.settle(name, WAITS)
            return bench.queue.later

        assert played(story, bound=1) == [("two", BELIEVED_MS / 1000)]

    def test_who_waits_no_more_lets_the_next_one(self):
        async def story(bench):
            found = bench.run("one")
            bench.places.hold(found, A, cleaning=False)
            await bench.wait("two", "three")
            bench.places.settle("two", Decision())
            bench.queue.taken()
            bench.places.give_back(found, A)
            return bench.queue.taken()

        assert played(story, bound=1) == ["three"]

    def test_a_run_that_closes_waits_among_those_that_clean_up(self):
        async def story(bench):
            bench.run("one", closed=1, d=alive(), a=alive(0))
            bench.places.settle("one")
            bench.run("two", closed=1)
            bench.places.settle("two", WAITS)
            bench.queue.taken()
            bench.run("three")
            bench.places.settle("three", WAITS)
            bench.queue.taken()
            bench.caches.runs.drop(Key("", "one"))
            return bench.queue.taken()

        assert sorted(set(played(story, bound=1)) - {"one"}) == ["three", "two"]

    def test_one_that_is_gone_leaves_its_places_and_its_turn(self):
        async def story(bench):
            bench.run("one", a=alive())
            bench.places.settle("one")
            await bench.wait("two", "three")
            bench.caches.runs.drop(Key("", "two"))
            bench.queue.taken()
            bench.caches.runs.drop(Key("", "one"))
            woken = bench.queue.taken()
            bench.places.settle("one")
            return "three" in woken, await bench.slots(bench.caches.ledger.get("three"))

        assert played(story, bound=1) == (True, 1)

    def test_who_waits_hears_of_the_end_of_others(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two")
            found = bench.run("one", a=alive(state=State.DONE))
            bench.places.settle("one", Decision())
            return found.metadata.name, bench.queue.taken()

        assert played(story, bound=1) == ("one", ["two"])

    def test_all_that_wait_are_told_once_images_are_the_reason_and_once_they_are_not(self):
        async def story(bench):
            every = [bench.run(f"r{number}", a=alive()) for number in range(IMAGES)]
            for each in every:
                await bench.share(each, {(A, 1): LACKS})
            bench.run("full", a=alive(), b=alive())
            bench.places.settle("full")
            await bench.wait("one", "two")
            await bench.share(every[0], {(A, 1): Running(since=1)})
            bench.places.settle("r0")
            told = bench.queue.taken()
            bench.places.settle("r0")
            return told, bench.queue.taken()

        told, again = played(story)
        assert told == ["one", "two"]
        assert again == []


class TestBounds:
    @pytest.mark.parametrize(
        ("said", "bound"), [("7", 7), ("0", 0), ("", 2), ("-1", 2), ("many", 2), ("\u0663", 2), ("9" * 5000, 2)]
    )
    def test_an_administrator_says_how_many(self, said, bound):
        async def story(bench):
            bench.annotate(said)
            return await bench.slots(bench.run("one"))

        assert played(story) == bound

    def test_where_nothing_is_to_be_made_cleanups_go_on(self):
        async def story(bench):
            bench.annotate("0")
            return await bench.slots(bench.run("one", closed=3), cleaning=True)

        assert played(story) == 1

    @pytest.mark.parametrize(("later", "bound"), [(BELIEVED_MS - 1, 2), (BELIEVED_MS, 5)])
    def test_it_is_believed_for_a_while(self, later, bound):
        async def story(bench):
            found = bench.run("one")
            await bench.slots(found)
            bench.annotate("5")
            bench.clock += later
            return await bench.slots(found)

        assert played(story) == bound

    def test_a_namespace_that_is_not_there_has_the_usual_one(self):
        async def story(bench):
            return await bench.slots(bench.run("one", "none")), await bench.slots(bench.run("two", ""))

        assert played(story) == (2, 2)
