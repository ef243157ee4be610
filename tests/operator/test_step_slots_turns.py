"""Step slots after a turn, and after events of other runs: unused slots, the next run, and queued runs."""

from __future__ import annotations

import pytest
from tests.operator.rig.slot_bench import LACKS, WAITS, A, B, D, alive, run_story

from dayfly.kube.objects import Key
from dayfly.operator.pods.step_slots import LIMIT_CACHE_MS, MAX_IMAGE_WAITS
from dayfly.plan.actions import Decision, Prepare, Wait
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Running
from dayfly.spec.run import State


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
    def test_unused_held_slot_is_freed(self, decision, left):
        async def story(bench):
            bench.slots.reserve(bench.run("one"), A, is_cleanup=False)
            bench.slots.end_turn("one", decision)
            bench.slots.end_turn("one")
            return await bench.free_slots(bench.run("two")) if decision is not WAITS else 0

        assert run_story(story, limit=1) == left

    def test_slot_of_a_started_unit_is_not_freed(self):
        async def story(bench):
            bench.run("one", a=alive())
            bench.slots.end_turn("one", Decision())
            return await bench.free_slots(bench.run("two"))

        assert run_story(story, limit=1) == 0

    def test_the_first_that_waits_looks_again_for_all(self):
        async def story(bench):
            bench.run("one", a=alive())
            for name in ("two", "three"):
                bench.run(name)
                bench.slots.end_turn(name, WAITS)
            return bench.queue.later

        assert run_story(story, limit=1) == [("two", LIMIT_CACHE_MS / 1000)]

    def test_run_that_stops_waiting_gives_up_its_turn(self):
        async def story(bench):
            found = bench.run("one")
            bench.slots.reserve(found, A, is_cleanup=False)
            await bench.wait("two", "three")
            bench.slots.end_turn("two", Decision())
            bench.queue.taken()
            bench.slots.release(found, A)
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["three"]

    def test_a_run_that_closes_waits_among_those_that_clean_up(self):
        async def story(bench):
            bench.run("one", closed=1, d=alive(), a=alive(0))
            bench.slots.end_turn("one")
            bench.run("two", closed=1)
            bench.slots.end_turn("two", WAITS)
            bench.queue.taken()
            bench.run("three")
            bench.slots.end_turn("three", WAITS)
            bench.queue.taken()
            bench.caches.runs.drop(Key("", "one"))
            return bench.queue.taken()

        assert sorted(set(run_story(story, limit=1)) - {"one"}) == ["three", "two"]

    def test_deleted_run_frees_its_slots_and_its_turn(self):
        async def story(bench):
            bench.run("one", a=alive())
            bench.slots.end_turn("one")
            await bench.wait("two", "three")
            bench.caches.runs.drop(Key("", "two"))
            bench.queue.taken()
            bench.caches.runs.drop(Key("", "one"))
            woken = bench.queue.taken()
            bench.slots.end_turn("one")
            return "three" in woken, await bench.free_slots(bench.caches.ledger.get("three"))

        assert run_story(story, limit=1) == (True, 1)

    def test_slot_held_for_a_vanished_run_is_freed(self):
        async def story(bench):
            assert bench.slots.reserve(bench.made("one"), A, is_cleanup=False)
            other = bench.run("two")
            before = await bench.free_slots(other)
            bench.slots.end_turn("one")
            return before, await bench.free_slots(other)

        assert run_story(story, limit=1) == (0, 1)

    def test_waiting_run_is_woken_by_the_end_of_another(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two")
            found = bench.run("one", a=alive(state=State.DONE))
            bench.slots.end_turn("one", Decision())
            return found.metadata.name, bench.queue.taken()

        assert run_story(story, limit=1) == ("one", ["two"])

    def test_all_waiting_runs_are_woken_once_images_return(self):
        async def story(bench):
            every = [bench.run(f"r{number}", a=alive()) for number in range(MAX_IMAGE_WAITS)]
            for each in every:
                await bench.grant(each, {(A, 1): LACKS})
            bench.run("full", a=alive(), b=alive())
            bench.slots.end_turn("full")
            await bench.wait("one", "two")
            await bench.grant(every[0], {(A, 1): Running(since=1)})
            bench.slots.end_turn("r0")
            told = bench.queue.taken()
            bench.slots.end_turn("r0")
            return told, bench.queue.taken()

        told, again = run_story(story)
        assert told == ["one", "two"]
        assert again == []

    def test_own_recorded_end_counts_before_the_watch_event(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two")
            await bench.recorded("one", a=alive(state=State.DONE))
            bench.slots.end_turn("one", Decision())
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["two"]

    def test_own_close_frees_held_slots_despite_a_failed_turn(self):
        async def story(bench):
            bench.slots.reserve(bench.run("one"), A, is_cleanup=False)
            await bench.wait("two")
            await bench.recorded("one", closed=5)
            bench.slots.end_turn("one")
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["two"]

    def test_unused_held_cleanup_slot_is_freed(self):
        async def story(bench):
            bench.slots.reserve(bench.run("one", closed=1), D, is_cleanup=True)
            other = bench.run("two", closed=1)
            await bench.grant(other, is_cleanup=True)
            bench.slots.end_turn("two", WAITS)
            bench.queue.taken()
            bench.slots.end_turn("one", Decision())
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["two"]

    @pytest.mark.parametrize("closed", [0, 1])
    def test_create_and_cleanup_runs_do_not_wait_for_each_other(self, closed):
        async def story(bench):
            bench.run("waits", closed=closed)
            bench.slots.end_turn("waits", WAITS)
            is_cleanup = not closed
            return await bench.free_slots(bench.run("other", closed=int(is_cleanup)), is_cleanup=is_cleanup)

        assert run_story(story, limit=1) == 1

    def test_run_waiting_for_an_input_has_no_turn(self):
        async def story(bench):
            bench.run("one")
            bench.slots.end_turn("one", Decision(waits=(Wait(unit=A, reason=Reason.WAITING_FOR_INPUT, message="m"),)))
            return await bench.free_slots(bench.run("two")), bench.queue.later

        assert run_story(story, limit=1) == (1, [])

    def test_a_turn_that_failed_leaves_its_run_in_no_line(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two", "three")
            bench.slots.end_turn("two")
            bench.slots.end_turn("one", Decision())
            bench.run("one", a=alive(state=State.DONE))
            bench.slots.end_turn("one", Decision())
            return bench.queue.taken()

        assert run_story(story, limit=1) == ["three"]


class TestHearing:
    """Changes of runs from the watch, by any writer."""

    def test_close_from_the_watch_frees_held_slots(self):
        async def story(bench):
            bench.slots.reserve(bench.run("one"), A, is_cleanup=False)
            await bench.wait("two")
            return bench.heard("one", closed=5)

        assert run_story(story, limit=1) == ["two"]

    def test_units_started_by_a_peer_are_counted(self):
        async def story(bench):
            bench.heard("one", a=alive())
            bench.heard("two", closed=1, d=alive())
            other = bench.run("three")
            return await bench.free_slots(other), await bench.free_slots(other, is_cleanup=True)

        assert run_story(story, limit=1) == (0, 0)

    def test_idle_run_wakes_no_other(self):
        async def story(bench):
            await bench.wait("two")
            return bench.heard("one", a=alive(state=State.DONE))

        assert run_story(story, limit=1) == []

    def test_slot_moves_to_cleanup_when_the_close_arrives(self):
        """The step was claimed after a close that the operator observes only now."""

        async def story(bench):
            bench.run("one", a=alive(at=9))
            await bench.wait("two")
            woken = bench.heard("one", closed=5, a=alive(at=9))
            return woken, await bench.free_slots(bench.run("three", closed=1), is_cleanup=True)

        assert run_story(story, limit=1) == (["two"], 0)

    def test_waiting_cleanup_is_woken_by_a_deleted_run(self):
        async def story(bench):
            bench.run("one", closed=1, d=alive())
            other = bench.run("two", closed=1)
            await bench.grant(other, is_cleanup=True)
            bench.slots.end_turn("two", WAITS)
            bench.queue.taken()
            bench.caches.runs.drop(Key("", "one"))
            return set(bench.queue.taken()) - {"one"}

        assert run_story(story, limit=1) == {"two"}


class TestBounds:
    @pytest.mark.parametrize(
        ("said", "limit"), [("7", 7), ("0", 0), ("", 2), ("-1", 2), ("many", 2), ("\u0663", 2), ("9" * 5000, 2)]
    )
    def test_an_administrator_says_how_many(self, said, limit):
        async def story(bench):
            bench.annotate(said)
            return await bench.free_slots(bench.run("one"))

        assert run_story(story) == limit

    def test_limit_of_zero_still_allows_cleanups(self):
        async def story(bench):
            bench.annotate("0")
            return await bench.free_slots(bench.run("one", closed=3), is_cleanup=True)

        assert run_story(story) == 1

    @pytest.mark.parametrize(("later", "limit"), [(LIMIT_CACHE_MS - 1, 2), (LIMIT_CACHE_MS, 5)])
    def test_limit_is_cached_for_a_while(self, later, limit):
        async def story(bench):
            found = bench.run("one")
            await bench.free_slots(found)
            bench.annotate("5")
            bench.clock += later
            return await bench.free_slots(found)

        assert run_story(story) == limit

    def test_a_namespace_that_is_not_there_has_the_usual_one(self):
        async def story(bench):
            return await bench.free_slots(bench.run("one", "none")), await bench.free_slots(bench.run("two", ""))

        assert run_story(story) == (2, 2)
