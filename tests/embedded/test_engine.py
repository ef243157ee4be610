"""The wheel, each rule alone: who looks again when, what is written together, what a disk that refuses undoes, the end."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dayfly.embedded import engine as wheel
from dayfly.embedded.clock import Gap
from dayfly.embedded.engine import DEFECT_AGAIN_S, LEASE_GRACE_MS, LEDGER_AGAIN_S
from dayfly.embedded.ledger import LedgerError
from dayfly.embedded.route_executors import KeptExecutor
from dayfly.plan.actions import Claim, Decision, Dissolve, Launch, Record, Void, Wait
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Kind
from dayfly.spec.run import OutputRecord, Result, State, UnitRecord
from dayfly.spec.wire import RunDamagedError
from embedded.machine import until
from embedded.wheel import KEY, NOW, Bench

SLOT = Wait(unit="db/make", reason=Reason.WAITING_FOR_SLOT, message="m")
PATH = Wait(unit="db/make", reason=Reason.PATH_BUSY, message="m")
CLAIM = Claim(unit="db/make", attempt=1, kind="exec", ref="p", at=1)


@pytest.fixture
async def bench(monkeypatch):
    found = Bench(monkeypatch)
    yield found
    found.engine._alarms.stop()


def fails(monkeypatch, fault: Exception | None, decision: Decision | None = None) -> None:
    async def turn(_uid, _host):
        if fault:
            raise fault
        return decision

    monkeypatch.setattr(wheel, "turn", turn)


class TestTurns:
    @pytest.mark.parametrize(
        ("fault", "seconds"),
        [
            (LedgerError("full"), LEDGER_AGAIN_S),
            (RunDamagedError("its row"), DEFECT_AGAIN_S),
            (ValueError("a defect"), DEFECT_AGAIN_S),
        ],
    )
    async def test_one_that_failed_is_taken_again_with_what_the_ledger_has(self, bench, monkeypatch, fault, seconds):
        fails(monkeypatch, fault)
        bench.engine._deletes["u"] = bench.engine._creates["u"] = None
        await bench.engine._take_turn("u")
        assert bench.done == [("drop", "u")]
        assert (bench.engine._deletes, bench.engine._creates) == ({}, {})
        assert bench.alarm() == NOW + int(seconds * 1000)

    @pytest.mark.parametrize("fault", [LedgerError("full"), RunDamagedError("of u: its row"), ValueError("a defect")])
    async def test_why_one_fails_is_said_once_until_it_is_another_or_over(self, bench, monkeypatch, caplog, fault):
        """It fails for as long as a disk is full or a row damaged, each second, and the server's log only grows."""

        async def failing(fault: Exception | None, times: int) -> int:
            caplog.clear()
            fails(monkeypatch, fault)
            for _ in range(times):
                await bench.engine._take_turn("u")
            return len(caplog.records)

        assert await failing(fault, 3) == 1
        assert "u" in caplog.text
        assert str(fault) in caplog.text
        assert ("Traceback" in caplog.text) is isinstance(fault, ValueError)
        assert await failing(LedgerError("another"), 2) == 1
        assert await failing(fault, 2) == 1
        assert await failing(None, 1) == 0
        assert await failing(fault, 2) == 1

    @pytest.mark.parametrize("in_memory", [False, True])
    async def test_one_whose_run_is_gone_leaves_nothing(self, bench, monkeypatch, in_memory):
        fails(monkeypatch, None)
        if in_memory:
            bench.live()
        bench.engine._deletes["u"] = bench.engine._creates["u"] = None
        bench.engine._blocked.add("u")
        bench.engine._alarms.set("u", NOW)
        await bench.engine._take_turn("u")
        assert bench.done == [("changed", "u"), ("drop", "u")]
        assert (bench.engine._deletes, bench.engine._creates, bench.engine._blocked) == ({}, {}, set())
        assert bench.alarm() == 0

    @pytest.mark.parametrize(("uid", "dropped"), [("u", True), ("works", False)])
    async def test_what_rests_is_read_again_when_there_is_news(self, bench, uid, dropped):
        """One that has something at work is kept: its end is news."""
        bench.live(uid)
        bench.engine._creates[uid] = None
        bench.engine._rest(uid, Decision(waits=(Wait(unit="", reason="r", message="m", until=NOW + 9),)), 0)
        assert (("drop", uid) in bench.done) is dropped
        assert bench.engine._creates == {}
        assert bench.alarm(uid) == NOW + 9

    async def test_who_waits_for_a_place_stands_in_the_line_of_those_that_do_the_like(self, bench):
        bench.live("makes")
        bench.live("cleans", closed=True)
        bench.engine._creates["cleans"] = None
        bench.engine._deletes["makes"] = None
        for uid in ("makes", "cleans", "makes"):
            bench.engine._rest(uid, Decision(waits=(SLOT,)), 0)
        assert (list(bench.engine._creates), list(bench.engine._deletes)) == (["makes"], ["cleans"])
        assert ("drop", "makes") not in bench.done

    async def test_one_that_is_gone_after_its_turn_waits_for_nothing(self, bench):
        bench.engine._creates["gone"] = None
        bench.engine._rest("gone", Decision(waits=(SLOT,)), 0)
        assert bench.engine._creates == {}
        assert bench.done[-1] == ("drop", "gone")

    async def test_who_waits_again_keeps_its_turn_to_create(self, bench):
        for uid in ("one", "two", "one"):
            bench.live(uid)
            bench.engine._rest(uid, Decision(waits=(SLOT,)), 0)
        assert list(bench.engine._creates) == ["one", "two"]

    async def test_who_was_objected_to_looks_again_when_that_may_have_changed(self, bench):
        bench.live()
        bench.engine._rest("u", Decision(waits=(PATH,)), bench.engine._freed)
        assert bench.woken == []
        bench.engine.unblock()
        assert bench.woken == ["u"]
        bench.engine.unblock()
        assert bench.woken == ["u"], "once"

    async def test_and_at_once_where_it_changed_during_the_turn(self, bench):
        bench.live()
        before = bench.engine._freed
        bench.engine.unblock()
        bench.engine._rest("u", Decision(waits=(PATH,)), before)
        assert bench.woken == ["u"]
        assert bench.engine._blocked == set()

    async def test_an_objection_that_is_over_is_forgotten(self, bench):
        bench.live()
        bench.engine._rest("u", Decision(waits=(PATH,)), 0)
        bench.engine._rest("u", Decision(), 0)
        bench.engine.unblock()
        assert bench.woken == []


class TestPlaces:
    async def test_as_many_look_as_there_are_places_and_deletes_first(self, bench):
        bench.engine._creates |= dict.fromkeys(("a", "b", "c"))
        bench.engine._deletes["d"] = None
        bench.engine._feed()
        assert bench.woken == ["d", "a"]

    async def test_one_that_takes_its_turn_looks_already(self, bench):
        bench.engine._creates |= dict.fromkeys(("a", "b", "c"))
        bench.engine._queue.is_working_on = lambda uid: uid == "a"
        bench.engine._feed()
        assert bench.woken == ["b"]

    @pytest.mark.parametrize(
        ("closed", "waiting", "slots"), [(False, 0, 2), (False, 1, 1), (False, 3, 0), (True, 3, 2)]
    )
    async def test_what_waits_to_delete_comes_before_what_creates(self, bench, closed, waiting, slots):
        live = bench.live(closed=closed)
        bench.engine._deletes |= dict.fromkeys(map(str, range(waiting)))
        assert await bench.engine.observe("u") == ("u", slots)
        assert bench.engine.look("u") == ("u", slots)
        assert bench.done == ["observed"], live

    async def test_of_a_run_that_is_not_there_nothing_is_seen_or_done(self, bench):
        assert await bench.engine.observe("u") is None
        assert bench.engine.look("u") is None
        bench.live()
        scene = bench.scene()
        bench.known.clear()
        await bench.engine.perform(scene, Dissolve())
        assert bench.done == []


class TestWriting:
    async def test_what_is_claimed_has_its_place_before_it_is_written(self, bench):
        live = bench.live()
        bench.after = msgspec.structs.replace(live.run, seq=1)
        fork = Claim(unit="fork:shop/web", attempt=1, kind="fork", ref="p", at=1)
        job = asyncio.create_task(bench.engine.commit(bench.scene(), (CLAIM, fork)))
        await asyncio.sleep(0)
        assert bench.engine.attempts.busy == {KEY}, "a fork takes none"
        assert await job
        assert bench.engine.attempts.busy == {KEY}
        assert live.stored.run.seq == 1
        assert bench.done == [("commit", 2, {}, 7)]

    @pytest.mark.parametrize(
        "end",
        [
            Record(unit="db/make", attempt=1, result=Result(outcome="succeeded")),
            Void(unit="db/make", attempt=1, reason="r", message="m", at=1),
        ],
    )
    async def test_what_has_ended_gives_its_place_back_once_that_is_written(self, bench, end):
        bench.after = bench.live().run
        bench.engine.attempts.busy |= {KEY, KEY._replace(attempt=2)}
        assert await bench.engine.commit(bench.scene(), (end,))
        assert bench.engine.attempts.busy == {KEY._replace(attempt=2)}
        assert bench.woken == []

    async def test_who_waits_for_a_place_that_is_left_does_not_wait_for_the_disk(self, bench):
        bench.live()
        bench.engine.scenes.free = lambda: 1 - len(bench.engine.attempts.busy)
        bench.engine._creates |= dict.fromkeys(("waits", "waits too"))
        end = Record(unit="db/make", attempt=1, result=Result(outcome="succeeded"))
        taken = asyncio.create_task(bench.engine.commit(bench.scene(), (end, CLAIM)))
        await asyncio.sleep(0)
        assert bench.woken == [], "the run has taken it itself"
        bench.engine.attempts.busy.clear()
        left = asyncio.create_task(bench.engine.commit(bench.scene(), (end,)))
        await asyncio.sleep(0)
        assert not left.done()
        assert bench.woken == ["waits"]
        await asyncio.gather(taken, left)

    @pytest.mark.parametrize("fault", [None, LedgerError("full")])
    async def test_what_was_not_written_takes_no_place_and_who_waited_for_it_looks_again(self, bench, fault):
        bench.live()
        bench.fault = fault
        bench.engine._blocked.add("waits")
        if fault:
            with pytest.raises(LedgerError):
                await bench.engine.commit(bench.scene(), (CLAIM,))
        else:
            assert not await bench.engine.commit(bench.scene(), (CLAIM,))
            assert ("drop", "u") in bench.done
        assert bench.engine.attempts.busy == set()
        assert bench.woken == ["waits"]

    async def test_where_nothing_was_claimed_nobody_looks_again(self, bench):
        bench.live()
        bench.engine._blocked.add("waits")
        end = Record(unit="db/make", attempt=1, result=Result(outcome="succeeded"))
        assert not await bench.engine.commit(bench.scene(), (end,))
        assert bench.woken == []

    async def test_a_run_that_was_dropped_meanwhile_is_read_again(self, bench):
        bench.after = bench.live().run
        scene = bench.scene()
        bench.known.clear()
        assert not await bench.engine.commit(scene, (CLAIM,))
        assert bench.engine.attempts.busy == set()

    async def test_with_a_result_its_values_are_written_and_no_others(self, bench):
        bench.after = bench.live().run
        bench.told = {("db/make", 1): {"url": b"1"}, ("db/make", 2): {"url": b"2"}, ("db/seed", 1): {"user": b"3"}}
        outputs = {"url": OutputRecord(digest="sha256:0", size=1)}
        told = Record(unit="db/make", attempt=1, result=Result(outcome="succeeded", outputs=outputs))
        silent = Record(unit="db/seed", attempt=1, result=Result(outcome="succeeded"))
        await bench.engine.commit(bench.scene(), (told, silent, CLAIM))
        assert bench.done == [("commit", 3, {("db/make", "url"): b"1"}, 7)]

    async def test_an_effect_is_its_kinds_and_the_end_is_the_ledgers(self, bench):
        bench.live(make=UnitRecord(attempt=1, kind="webhook"))
        await bench.engine.perform(bench.scene(), Launch(unit="db/make", attempt=1))
        assert bench.done == [("performed", "webhook", "db/make")]
        bench.done.clear()
        await bench.engine.perform(bench.scene(), Dissolve())
        assert bench.done == ["cleared", ("dissolved", "u", "box"), ("drop", "u"), ("over", "u")]


class TestBeginning:
    async def test_what_is_in_flight_is_adopted_and_what_was_recorded_removed(self, bench, monkeypatch):
        bench.live(
            runs=UnitRecord(attempt=2, state=State.CLAIMED, kind="exec"),
            ended=UnitRecord(attempt=1, state=State.DONE, kind="exec"),
            other=UnitRecord(attempt=1, state=State.UNKNOWN, kind="object"),
        )
        names = ("db/runs", 1), ("db/runs", 2), ("db/ended", 1), ("db/other", 1)
        found = [*(("u", *name) for name in names), ("gone", "db/a", 1)]
        monkeypatch.setattr(wheel, "folders", lambda _place: found)
        bench.engine._take_over({"u"})
        assert bench.steps.adopted == ["db/runs"]
        tidied = [key for word, key in bench.done if word == "tidy"]
        assert tidied == [("u", "db/runs", 1), ("u", "db/ended", 1), ("gone", "db/a", 1)]
        assert bench.done[-1] == ("ports", {"u"})

    async def test_what_is_no_process_is_taken_over_of_all_runs(self, bench):
        class Kept(KeptExecutor):
            wished = None

            def take_over(self, live):
                bench.done.append(("taken over", live.run.uid))

        bench.live()
        kept = Kept(None, None)
        bench.engine.executors.find = lambda kind: kept if kind == Kind.ROUTE else None
        bench.engine.take_over_kept()
        assert bench.done == [("taken over", "u")]

    async def test_a_disk_that_keeps_no_note_of_a_port_keeps_no_server_from_its_beginning(self, bench, caplog):
        class Full(KeptExecutor):
            wished = None

            def take_over(self, live):
                bench.done.append(("asked", live.run.uid))
                raise OSError(28, "No space left on device")

        for uid in ("u", "v"):
            bench.live(uid)
        full = Full(None, None)
        bench.engine.executors.find = lambda kind: full if kind == Kind.PREVIEW else None
        bench.engine.take_over_kept()
        assert bench.done == [("asked", "u"), ("asked", "v")]
        assert "each preview of run u is taken over later: [Errno 28]" in caplog.text

    async def test_one_that_cannot_be_looked_at_now_keeps_nobody_waiting(self, bench, monkeypatch):
        alive = UnitRecord(attempt=1, state=State.CLAIMED, kind="exec")
        bench.live(a=alive, b=alive)
        bench.steps.fault = OSError("no")
        monkeypatch.setattr(wheel, "folders", lambda _place: [("u", "db/a", 1), ("u", "db/b", 1)])
        bench.engine._take_over({"u"})
        assert bench.steps.adopted == ["db/a", "db/b"]

    async def test_every_run_that_has_not_ended_takes_a_turn(self, bench, monkeypatch):
        monkeypatch.setattr(wheel, "folders", lambda _place: [])
        bench.live("u")
        bench.live("v")
        bench.engine.start()
        assert bench.woken == ["u", "v"]
        await bench.engine.stop()


class TestEnd:
    async def test_before_it_has_begun_it_ends_as_well(self, bench):
        await bench.engine.stop()
        assert bench.done == ["no more", "none held", "closed"]

    async def test_whoever_looks_at_the_clock_has_ended_with_it(self, bench):
        """It may be at the ledger, which is closed then."""
        ended = []

        async def look():
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(3):
                    await asyncio.sleep(0)
                ended.append(True)

        bench.engine._lookers = [asyncio.create_task(look())]
        await asyncio.sleep(0)
        await bench.engine.stop()
        assert ended == [True]

    async def test_turns_that_are_under_way_are_finished_and_alarms_ring_no_more(self, bench, monkeypatch):
        """What they start is watched until the last has ended."""
        begun, go = asyncio.Event(), asyncio.Event()

        async def turn(_uid, _host):
            begun.set()
            await go.wait()
            bench.done.append("turned")

        monkeypatch.setattr(wheel, "turn", turn)
        monkeypatch.setattr(wheel, "folders", lambda _place: [])
        del bench.engine._queue.add  # it is to be the queue's own
        bench.engine.start()
        bench.engine.wake("u")
        await begun.wait()
        bench.done.clear()
        bench.engine._alarms.set("v", NOW + 3_600_000)
        [timer] = [alarm.timer for alarm in bench.engine._alarms._set.values()]
        ending = asyncio.create_task(bench.engine.stop())
        await asyncio.sleep(0)
        go.set()
        await asyncio.wait_for(ending, 30)
        assert bench.done[0] == "turned"
        assert bench.done[-3:] == ["no more", "none held", "closed"]
        assert timer.cancelled()
        assert bench.engine._lookers, "somebody looks at the clock"
        assert all(task.done() for task in (*bench.engine._workers, *bench.engine._lookers))

    async def test_a_start_that_hangs_is_not_waited_for_for_ever(self, bench, monkeypatch):
        hung, begun = asyncio.Event(), asyncio.Event()

        async def turn(_uid, _host):
            begun.set()
            await hung.wait()

        monkeypatch.setattr(wheel, "START_S", 0.01)
        monkeypatch.setattr(wheel, "turn", turn)
        monkeypatch.setattr(wheel, "folders", lambda _place: [])
        bench.engine.attempts.start_no_more = hung.set  # it comes to nothing then
        del bench.engine._queue.add  # it is to be the queue's own
        bench.engine.start()
        bench.engine.wake("u")
        await begun.wait()
        await asyncio.wait_for(bench.engine.stop(), 30)
        assert hung.is_set()

    async def test_forks_are_all_asked_to_end_and_waited_for(self, bench):
        await bench.engine.stop_forks()
        assert bench.done == [("cancel", "u"), ("cancel", "v"), "no forks"]


class TestClock:
    @pytest.mark.parametrize(
        ("ms", "lapsing", "done"),
        [
            (5, True, [("extended", NOW + LEASE_GRACE_MS), "refresh all", ("heeded", 5)]),
            (5, False, [("heeded", 5)]),
            (-5, True, [("heeded", -5)]),
        ],
    )
    async def test_after_a_gap_leases_begin_anew_once_where_one_would_lapse(self, bench, ms, lapsing, done):
        bench.gap, bench.lapsing = Gap(ms, 0, 0), lapsing
        anew = []
        bench.engine._alarms.set_anew = lambda: anew.append(1)
        await asyncio.gather(bench.engine._heed_clock(), bench.engine._heed_clock())
        assert bench.done == done
        assert anew == [1]

    async def test_what_the_disk_refuses_is_still_to_be_heeded(self, bench):
        bench.gap, bench.fault = Gap(5, 0, 0), LedgerError("full")
        with pytest.raises(LedgerError):
            await bench.engine._heed_clock()
        assert bench.gap is not None
        assert bench.done == []

    async def test_what_the_disk_refused_as_the_server_began_is_done_before_a_turn(self, bench):
        bench.engine.owes_leases, bench.fault = True, LedgerError("full")
        with pytest.raises(LedgerError):
            await bench.engine._heed_clock()
        bench.fault = None
        await bench.engine._heed_clock()
        await bench.engine._heed_clock()
        assert bench.done == [("extended", NOW + LEASE_GRACE_MS), "refresh all"]

    async def test_before_each_turn_it_is_looked_at(self, bench, monkeypatch):
        fails(monkeypatch, None)
        bench.gap = Gap(5, 0, 0)
        await bench.engine._take_turn("u")
        assert ("heeded", 5) in bench.done

    @pytest.mark.parametrize("fault", [LedgerError("full"), ValueError("a defect")])
    async def test_whoever_looks_at_it_goes_on_whatever_happens(self, bench, monkeypatch, fault):
        monkeypatch.setattr(wheel, "CLOCK_LOOK_S", 0.001)
        looks = []

        async def look():
            looks.append(1)
            raise fault

        bench.engine._heed_clock = look
        looking = asyncio.create_task(bench.engine._look_at_clock())
        await until(lambda: len(looks) > 2)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_news_of_an_attempt_wakes_its_run_and_who_waits_for_what_it_held(bench):
    bench.engine._blocked.add("waits")
    bench.engine.news("u")
    assert bench.woken == ["u", "waits"]


async def test_a_row_that_was_changed_is_read_again_before_its_turn(bench):
    bench.engine.reload("u")
    assert (bench.done, bench.woken) == ([("refresh", "u")], ["u"])
