"""Slots of namespaces: how steps are counted, which run is next, and how long a slot is reserved for a pod."""

from __future__ import annotations

import pytest
from tests.operator.rig.memory import remembered
from tests.operator.rig.slot_bench import LACKS, RESULT, WAITS, A, B, C, D, alive, claims, run_story

from dayfly.kube.objects import Key
from dayfly.operator.pods.step_slots import MAX_IMAGE_WAITS, SlotGrant
from dayfly.plan.actions import Record, Void
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, NeverRan, Prepared, Running, Sealed, Waiting
from dayfly.spec.run import State


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
    def test_live_unit_in_the_ledger_occupies_a_slot(self, records, left):
        async def story(bench):
            found = bench.run("one", **records)
            other = bench.run("two")
            assert await bench.free_slots(bench.run("three", "quiet")) == 3, "of another namespace"
            assert await bench.free_slots(other, is_cleanup=True) == 3, "of those that clean up"
            return await bench.free_slots(found), await bench.free_slots(other)

        assert run_story(story, limit=3) == (left, left)

    def test_unit_claimed_after_the_close_uses_a_cleanup_slot(self):
        async def story(bench):
            found = bench.run("one", closed=5, a=alive(4), d=alive(5))
            return await bench.free_slots(found), await bench.free_slots(found, is_cleanup=True)

        assert run_story(story, limit=3) == (2, 2)

    @pytest.mark.parametrize(
        ("fact", "left"),
        [
            (None, 0),
            (Running(since=1), 0),
            (LACKS, 1),
            (Waiting(since=1, reason="ErrImagePull"), 1),
            (Waiting(since=1, reason="r", recalled=1), 1),
            (Waiting(since=1, reason="r"), 0),
            (Waiting(since=1, reason="ErrImagePull", is_scheduled=False), 0),
            (Ended(result=RESULT), 1),
            (Sealed(result=RESULT), 1),
            (NeverRan(reason="r"), 1),
        ],
    )
    def test_unit_without_image_or_ended_frees_its_slot(self, fact, left):
        async def story(bench):
            found = bench.run("one", a=alive())
            await bench.grant(found, {(A, 1): fact} if fact else {})
            return await bench.free_slots(bench.run("two"))

        assert run_story(story, limit=1) == left

    def test_without_news_it_lacks_it_still(self):
        async def story(bench):
            found = bench.run("one", a=alive())
            await bench.grant(found, {(A, 1): LACKS})
            before = await bench.free_slots(bench.run("two"))
            await bench.grant(found)
            same = await bench.free_slots(bench.run("two"))
            await bench.grant(found, {(A, 1): Running(since=1)})
            return before, same, await bench.free_slots(bench.run("two"))

        assert run_story(story, limit=1) == (1, 1, 0)

    def test_idle_namespace_is_forgotten(self):
        """Namespaces come and go, and each end of a run searches all known ones."""

        async def story(bench):
            for number in range(3):
                bench.ask("POST", "", {"metadata": {"name": f"pr-{number}"}})
                found = bench.run(f"r{number}", f"pr-{number}", a=alive())
                await bench.grant(found)
                bench.caches.runs.drop(Key("", found.metadata.name))
                bench.slots.end_turn(found.metadata.name)
            found = bench.run("one", a=alive())
            await bench.grant(found)
            await bench.wait("two")
            bench.slots.end_turn("r0")
            return remembered(bench.slots, "pr-"), bool(remembered(bench.slots, "shop")), await bench.free_slots(found)

        assert run_story(story) == ([], True, 0)

    def test_too_many_that_lack_it_end_all_beginning(self):
        async def story(bench):
            for number in range(MAX_IMAGE_WAITS):
                found = bench.run(f"r{number}", a=alive())
                if number == MAX_IMAGE_WAITS - 1:
                    before = await bench.grant(bench.run("late"))
                await bench.grant(found, {(A, 1): LACKS})
            after = await bench.grant(bench.run("late"))
            said = after.objections[A]
            assert (said.reason, said.since) == (Reason.WAITING_FOR_SLOT, 1_000)
            assert f"{MAX_IMAGE_WAITS} steps of namespace shop are waiting for their images" in said.message
            return before.slots > 0, after.slots

        assert run_story(story) == (True, 0)

    def test_waiting_runs_are_woken_when_image_limit_is_crossed(self):
        """The runs are not queued for each additional step that waits for an image."""

        async def story(bench):
            runs = [bench.run(f"r{number}", a=alive()) for number in range(MAX_IMAGE_WAITS + 1)]
            looked_at = []
            await bench.wait("late", "later")
            for found in runs:
                await bench.grant(found, {(A, 1): LACKS})
                bench.slots.end_turn(found.metadata.name)
                looked_at.append(bench.queue.taken())
            for found in runs[:2]:
                await bench.grant(found, {(A, 1): Running(since=1)})
                bench.slots.end_turn(found.metadata.name)
                looked_at.append(bench.queue.taken())
            return {at: names for at, names in enumerate(looked_at, 1) if names}

        waiting = ["late", "later"]
        assert run_story(story, limit=1) == {MAX_IMAGE_WAITS: waiting, MAX_IMAGE_WAITS + 3: waiting}


class TestSharing:
    def test_waiting_units_are_objected_to_with_the_blocker(self):
        async def story(bench):
            bench.run("one", a=alive(), b=alive())
            bench.slots.end_turn("one")
            found = await bench.grant(bench.run("two"))
            assert found.slots == 0
            assert list(found.objections) == [A, B, C]
            assert "at most 2 steps at once" in found.objections[A].message
            is_cleanup = await bench.grant(bench.run("two"), is_cleanup=True)
            assert is_cleanup == SlotGrant(2, {})
            bench.run("three", closed=1, d=alive(), a=alive())
            bench.slots.end_turn("three")
            return list((await bench.grant(bench.run("two"), is_cleanup=True)).objections)

        assert run_story(story) == [D]

    def test_since_when_it_waits_is_remembered(self):
        async def story(bench):
            bench.run("one", a=alive(), b=alive())
            await bench.wait("two")
            bench.clock = 5_000
            return (await bench.grant(bench.caches.ledger.get("two"))).objections[A].since

        assert run_story(story) == 1_000

    def test_a_unit_that_holds_a_place_is_not_objected_to(self):
        async def story(bench):
            found = bench.run("one")
            assert bench.slots.reserve(found, A, is_cleanup=False)
            assert bench.slots.reserve(found, B, is_cleanup=False)
            return await bench.grant(found)

        found = run_story(story)
        assert found.slots == 2, "both are held and not begun"
        assert list(found.objections) == [C]

    def test_held_unit_may_start_beside_free_slots(self):
        async def story(bench):
            found = bench.run("one", b=alive())
            assert bench.slots.reserve(found, A, is_cleanup=False)
            return await bench.free_slots(found)

        assert run_story(story, limit=5) == 4, "one of five has begun"

    def test_first_waiting_run_gets_the_free_slot(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two", "three")
            slots = [await bench.free_slots(bench.caches.ledger.get(name)) for name in ("two", "three")]
            return slots, await bench.free_slots(bench.run("four"))

        assert run_story(story) == ([1, 0], 0)


class TestHolding:
    def test_one_place_is_held_once(self):
        async def story(bench):
            found = bench.run("one")
            assert bench.slots.reserve(found, A, is_cleanup=False)
            assert bench.slots.reserve(found, A, is_cleanup=False)
            assert bench.queue.taken() == []
            assert not bench.slots.reserve(found, B, is_cleanup=False)
            assert bench.queue.taken() == ["one"]
            assert bench.slots.reserve(found, D, is_cleanup=True)
            return True

        assert run_story(story, limit=1)

    def test_released_slot_wakes_the_first_waiting_run(self):
        async def story(bench):
            found = bench.run("one")
            bench.slots.reserve(found, A, is_cleanup=False)
            await bench.wait("two", "three")
            bench.slots.release(found, B)
            assert bench.queue.taken() == []
            bench.slots.release(found, A)
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["two"]

    def test_released_cleanup_slot_wakes_a_waiting_cleanup(self):
        async def story(bench):
            found = bench.run("one", closed=1)
            bench.slots.reserve(found, D, is_cleanup=True)
            other = bench.run("two", closed=1)
            await bench.grant(other, is_cleanup=True)
            bench.slots.end_turn("two", WAITS)
            bench.queue.taken()
            bench.slots.release(found, D)
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["two"]

    @pytest.mark.parametrize(
        ("facts", "blocked", "record", "left"),
        [
            ({}, (), None, 0),
            ({(A, 1): Prepared(ref="p")}, (), None, 0),
            ({(A, 1): NeverRan(reason="r")}, (), None, 1),
            ({}, (A,), None, 1),
            ({}, (), alive(state=State.VOID, attempt=1), 0),
            ({(A, 2): Running(since=1)}, (), alive(state=State.VOID, attempt=1), 1),
        ],
    )
    def test_slot_is_held_while_its_pod_may_still_appear(self, facts, blocked, record, left):
        async def story(bench):
            found = bench.run("one", **({"a": record} if record else {}))
            bench.slots.reserve(found, A, is_cleanup=False)
            await bench.grant(found, facts, blocked)
            return await bench.free_slots(bench.run("two"))

        assert run_story(story, limit=1) == left

    def test_close_releases_held_create_slots(self):
        async def story(bench):
            bench.slots.reserve(bench.run("one"), A, is_cleanup=False)
            closed = bench.run("one", closed=5)
            bench.slots.reserve(closed, D, is_cleanup=True)
            await bench.grant(closed, is_cleanup=True)
            other = bench.run("two")
            return await bench.free_slots(other), await bench.free_slots(other, is_cleanup=True)

        assert run_story(story, limit=1) == (1, 0)


class TestClaiming:
    def test_as_many_as_there_are_places(self):
        async def story(bench):
            found = bench.run("one")
            assert not bench.slots.claim(found, claims(A, B, C), is_cleanup=False)
            assert await bench.free_slots(found) == 2
            assert bench.slots.claim(found, claims(A, B), is_cleanup=False)
            assert bench.slots.claim(found, claims(A, B), is_cleanup=False), "they have them already"
            assert not bench.slots.claim(bench.run("two"), claims(A), is_cleanup=False)
            assert bench.slots.claim(bench.run("two"), claims(D), is_cleanup=True)
            return True

        assert run_story(story)

    def test_forks_and_attempts_that_are_passed_over_need_none(self):
        async def story(bench):
            found = bench.run("one")
            assert bench.slots.claim(found, claims(A, kind="fork"), is_cleanup=False)
            void = Void(unit=A, attempt=1, reason="r", message="m", at=1)
            return bench.slots.claim(found, (*claims(A), void), is_cleanup=False)

        assert run_story(story, limit=0)

    @pytest.mark.parametrize(
        "end", [Record(unit=A, attempt=1, result=RESULT), Void(unit=A, attempt=1, reason="r", message="m", at=1)]
    )
    def test_end_in_the_same_write_frees_its_slot_for_a_claim(self, end):
        async def story(bench):
            found = bench.run("one", a=alive())
            await bench.grant(found)
            assert not bench.slots.claim(found, claims(B), is_cleanup=False)
            other = Record(unit=C, attempt=1, result=RESULT)
            assert not bench.slots.claim(found, (other, *claims(B)), is_cleanup=False), "that one had none"
            return bench.slots.claim(found, (end, *claims(B)), is_cleanup=False)

        assert run_story(story, limit=1)
