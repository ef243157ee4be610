"""Places after a turn, and with news of other runs: what is held in vain, whose turn it is, who is looked at then."""

from __future__ import annotations

import pytest
from rig.placing import LACKS, WAITS, A, B, D, alive, played

from dayfly.kube.objects import Key
from dayfly.operator.pods.step_slots import BELIEVED_MS, IMAGES
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

    def test_what_was_held_for_one_that_went_meanwhile_is_given_back(self):
        async def story(bench):
            assert bench.places.hold(bench.made("one"), A, cleaning=False)
            other = bench.run("two")
            before = await bench.slots(other)
            bench.places.settle("one")
            return before, await bench.slots(other)

        assert played(story, bound=1) == (0, 1)

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

    def test_an_end_that_we_have_recorded_ourselves_counts_before_the_watch_tells_of_it(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two")
            await bench.recorded("one", a=alive(state=State.DONE))
            bench.places.settle("one", Decision())
            return bench.queue.taken()

        assert played(story, bound=1) == ["two"]

    def test_a_close_that_we_have_written_frees_what_is_held_to_create_though_the_turn_failed_after_it(self):
        async def story(bench):
            bench.places.hold(bench.run("one"), A, cleaning=False)
            await bench.wait("two")
            await bench.recorded("one", closed=5)
            bench.places.settle("one")
            return bench.queue.taken()

        assert played(story, bound=1) == ["two"]

    def test_what_is_held_in_vain_by_what_cleans_up_goes_to_others_too(self):
        async def story(bench):
            bench.places.hold(bench.run("one", closed=1), D, cleaning=True)
            other = bench.run("two", closed=1)
            await bench.share(other, cleaning=True)
            bench.places.settle("two", WAITS)
            bench.queue.taken()
            bench.places.settle("one", Decision())
            return bench.queue.taken()

        assert played(story, bound=1) == ["two"]

    @pytest.mark.parametrize("closed", [0, 1])
    def test_who_waits_to_create_stands_before_nobody_who_cleans_up_nor_the_reverse(self, closed):
        async def story(bench):
            bench.run("waits", closed=closed)
            bench.places.settle("waits", WAITS)
            cleaning = not closed
            return await bench.slots(bench.run("other", closed=int(cleaning)), cleaning=cleaning)

        assert played(story, bound=1) == 1

    def test_who_waits_for_something_else_stands_before_nobody_and_looks_for_nobody(self):
        async def story(bench):
            bench.run("one")
            bench.places.settle("one", Decision(waits=(Wait(unit=A, reason=Reason.WAITING_FOR_INPUT, message="m"),)))
            return await bench.slots(bench.run("two")), bench.queue.later

        assert played(story, bound=1) == (1, [])

    def test_a_turn_that_failed_leaves_its_run_in_no_line(self):
        async def story(bench):
            bench.run("one", a=alive())
            await bench.wait("two", "three")
            bench.places.settle("two")
            bench.places.settle("one", Decision())
            bench.run("one", a=alive(state=State.DONE))
            bench.places.settle("one", Decision())
            return bench.queue.taken()

        assert played(story, bound=1) == ["three"]


class TestHearing:
    """What a watch tells of a run, whoever has written it."""

    def test_with_its_close_what_it_holds_to_create_goes_to_others(self):
        async def story(bench):
            bench.places.hold(bench.run("one"), A, cleaning=False)
            await bench.wait("two")
            return bench.heard("one", closed=5)

        assert played(story, bound=1) == ["two"]

    def test_what_a_peer_has_begun_is_counted(self):
        async def story(bench):
            bench.heard("one", a=alive())
            bench.heard("two", closed=1, d=alive())
            other = bench.run("three")
            return await bench.slots(other), await bench.slots(other, cleaning=True)

        assert played(story, bound=1) == (0, 0)

    def test_of_one_that_has_nothing_under_way_nobody_is_looked_at(self):
        async def story(bench):
            await bench.wait("two")
            return bench.heard("one", a=alive(state=State.DONE))

        assert played(story, bound=1) == []

    def test_what_moves_among_those_that_clean_up_leaves_its_place(self):
        """It was claimed after the close of which we hear only now."""

        async def story(bench):
            bench.run("one", a=alive(at=9))
            await bench.wait("two")
            woken = bench.heard("one", closed=5, a=alive(at=9))
            return woken, await bench.slots(bench.run("three", closed=1), cleaning=True)

        assert played(story, bound=1) == (["two"], 0)

    def test_who_waits_to_clean_up_hears_of_the_end_of_a_run(self):
        async def story(bench):
            bench.run("one", closed=1, d=alive())
            other = bench.run("two", closed=1)
            await bench.share(other, cleaning=True)
            bench.places.settle("two", WAITS)
            bench.queue.taken()
            bench.caches.runs.drop(Key("", "one"))
            return set(bench.queue.taken()) - {"one"}

        assert played(story, bound=1) == {"two"}


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
