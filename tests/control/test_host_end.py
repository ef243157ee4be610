"""The host's end of the link, message by message: what it says to each one that comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from control.fake_host import FakeHost
from dayfly.execute import host_end
from dayfly.spec import wire
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import Request
from dayfly.spec.wire import HostUnavailableError, RefusedError, Verdict
from dayfly.spec.workload import Workload

TARGET = Target(kind="Sandbox", name="box", uid="u")
DOCUMENT = Lifecycle(target=TARGET, pre_start=(Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n")),))
ASKED = Request(at=1, reason="Deleted", message="asked", by="ann")


class Heard:
    """An end that has been greeted, and what it has said since."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.said: list[wire.AnyToControl] = []
        self.host.end.attach(self.said.append)
        self.greet()

    def greet(self, process: str = "p") -> None:
        self.host.end.send(wire.Hello(number=1, process=process))

    async def told(self, message: wire.AnyToHost) -> list[wire.AnyToControl]:
        """What it says to this, once that is carried out."""
        self.said.clear()
        self.host.end.send(message)
        await asyncio.gather(*self.host.end._tasks)
        return list(self.said)


@pytest.fixture
async def heard() -> Heard:
    return Heard()


def offer(number: int, **more) -> wire.Offer:
    return wire.Offer(session=1, number=number, uid="u", name="box", target=TARGET, documents=(DOCUMENT,), **more)


def stop(number: int, session: int = 1, *, known: bool = False) -> wire.Stop:
    return wire.Stop(session=session, number=number, uid="u", request=ASKED, known=known)


async def test_before_it_is_greeted_it_is_adrift() -> None:
    host, said = FakeHost(), []
    host.end.attach(said.append)
    for session in (0, 1):
        host.end.send(wire.AskStanding(session=session, number=1, uids=()))
    host.end.remind()
    host.end.changed("u")
    assert said == [wire.Adrift(session=0)] * 3


async def test_a_greeting_is_answered_with_all_there_is(heard: Heard) -> None:
    assert heard.said == [
        wire.Adrift(session=0),
        wire.Inventory(session=1, count=0, number=1, process="p", runs=(), ended=(), baselines=True),
    ]
    await heard.told(offer(2))
    heard.said.clear()
    heard.greet()
    [inventory] = heard.said
    assert (inventory.session, inventory.runs, inventory.ended) == (1, (wire.Standing(uid="u", seq=1),), ())
    heard.host.finish("u")
    heard.greet()
    assert heard.said[-1].ended == (wire.Standing(uid="u", seq=2),), "nobody has acknowledged its end"
    heard.greet("another")
    assert (heard.said[-1].session, heard.said[-1].count) == (2, 0)


async def test_an_order_is_answered_with_where_the_run_stands(heard: Heard) -> None:
    heard.host.versions["u"] = 5
    assert await heard.told(offer(2)) == [wire.Reply(session=1, number=2, verdict=Verdict.TAKEN, seq=5)]
    assert await heard.told(wire.Lease(session=1, number=3, uid="v", until=9)) == [
        wire.Reply(session=1, number=3, verdict=Verdict.UNKNOWN, seq=1)
    ]


async def test_what_is_over_is_said_with_the_number_of_the_order(heard: Heard) -> None:
    [ended] = await heard.told(stop(2))
    assert (ended.session, ended.count, ended.number, ended.run.uid) == (1, 1, 2, "u")
    heard.said.clear()
    heard.host.end.remind()
    again, pulse = heard.said
    assert (again.number, again.count, pulse) == (0, 2, wire.Pulse(session=1, count=2, routes=False))
    await heard.told(wire.Acknowledge(session=1, number=3, uids=("u",)))
    assert heard.host.acknowledged == {"u"}


async def test_in_another_session_its_number_is_somebody_elses(heard: Heard, monkeypatch) -> None:
    released = asyncio.Event()

    async def slow(self, uid, request, *, known):
        await released.wait()
        self._over(uid, "cleaned")
        return Verdict.OVER

    monkeypatch.setattr(FakeHost, "stop", slow)
    heard.host.end.send(stop(7))
    await asyncio.sleep(0)
    heard.greet("another")
    heard.said.clear()
    released.set()
    await asyncio.gather(*heard.host.end._tasks)
    [ended] = heard.said
    assert (ended.session, ended.number) == (2, 0)


async def test_a_refusal_has_no_version_of_a_run(heard: Heard) -> None:
    heard.host.refuse = "no"
    question = wire.AskAdmit(session=1, number=4, documents=(DOCUMENT,), forks=())
    assert await heard.told(question) == [wire.Reply(session=1, number=4, verdict=Verdict.REFUSED, message="no", seq=0)]
    heard.host.refuse = ""
    assert await heard.told(question) == [wire.Reply(session=1, number=4, verdict=Verdict.TAKEN)]
    [odd] = await heard.told(wire.Unreadable(session=1, number=5, problem="of tomorrow"))
    assert (odd.verdict, odd.seq, odd.number) == (Verdict.REFUSED, 0, 5)


async def test_a_log_is_that_of_the_unit_and_the_attempt_or_of_its_latest(heard: Heard) -> None:
    heard.host.log_data = {
        ("u", "db/make", 1): (b"first", True),
        ("u", "db/make", 2): (b"second", False),
        ("u", "db/seed", 3): (b"other", True),
    }

    async def log(unit: str, attempt: int, **part: int) -> wire.LogBytes:
        question = wire.AskLog(
            session=1, number=9, uid="u", unit=unit, attempt=attempt, **{"offset": 0, "limit": 99} | part
        )
        [found] = await heard.told(question)
        return found

    first = await log("db/make", 1)
    assert (first.data, first.info.attempt, first.info.size, first.info.sealed) == (b"first", 1, 5, True)
    assert (await log("db/make", 0)).data == b"second"
    assert (await log("db/make", 2, offset=2, limit=3)).data == b"con"
    missing = await log("db/make", 3)
    assert (missing.info, len(missing.logs)) == (None, 3)


async def test_of_what_replaces_only_the_newest_counts_until_it_fails(heard: Heard) -> None:
    await heard.told(offer(2))
    lease = wire.Lease(session=1, number=9, uid="u", until=90)
    await heard.told(lease)
    [late] = await heard.told(msgspec.structs.replace(lease, number=8, until=80))
    assert (late.verdict, heard.host.leases["u"]) == (Verdict.TAKEN, 90)
    heard.host.down = True
    [failed] = await heard.told(msgspec.structs.replace(lease, number=12, until=120))
    assert failed.verdict is Verdict.UNAVAILABLE
    heard.host.down = False
    await heard.told(msgspec.structs.replace(lease, number=11, until=110))
    assert heard.host.leases["u"] == 110, "what was not carried out replaces nothing"


async def test_a_birth_that_may_be_of_a_run_that_was_forgotten_is_to_be_offered_again(heard: Heard) -> None:
    await heard.told(wire.AskStanding(session=1, number=9, uids=()))
    heard.host.end.forgets()
    [late] = await heard.told(offer(9))
    assert (late.number, late.verdict, heard.host.offers) == (9, Verdict.UNAVAILABLE, {})
    [known] = await heard.told(offer(9, birth=False))
    assert known.verdict is Verdict.UNKNOWN, "that is no birth"
    [fresh] = await heard.told(offer(10))
    assert fresh.verdict is Verdict.TAKEN


async def test_in_another_session_numbers_begin_anew(heard: Heard) -> None:
    await heard.told(offer(2))
    await heard.told(wire.Lease(session=1, number=9, uid="u", until=90))
    heard.greet("another")
    await heard.told(wire.Lease(session=2, number=2, uid="u", until=120))
    assert heard.host.leases["u"] == 120


async def test_of_an_order_that_is_carried_out_nothing_is_kept(heard: Heard) -> None:
    """A control plane sends them for as long as the host lives."""
    for number in (2, 3):
        await heard.told(offer(number))
    await asyncio.sleep(0)
    assert not heard.host.end._tasks


async def test_of_a_run_that_is_over_nothing_is_kept(heard: Heard) -> None:
    """A host that is never started anew sees any number of them."""
    await heard.told(offer(2))
    await heard.told(wire.Lease(session=1, number=3, uid="u", until=90))
    heard.host.end.ended("u")
    assert not heard.host.end._newest


async def test_of_a_run_that_is_over_no_failure_is_kept(heard: Heard, monkeypatch, caplog) -> None:
    """As of an offer that always failed: whoever deletes its sandbox ends it before it began."""

    def fails(*_):
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(heard.host, "admit", fails)
        for number in (2, 3):
            assert (await heard.told(offer(number, birth=True)))[0].verdict is Verdict.FAILED
    # It comes again and again, and is said once.
    assert caplog.text.count("Offer u failed") == 1
    assert heard.host.end._failing == {("Offer", "u")}
    (said,) = await heard.told(stop(4))
    assert heard.host.end._failing == set(), said


async def test_once_it_is_closed_nobody_hears_it(heard: Heard) -> None:
    await heard.host.end.close()
    assert await heard.told(offer(2)) == []
    assert set(heard.host.offers) == {"u"}


async def test_closing_finishes_what_was_begun_though_something_beside_it_fails(heard: Heard, monkeypatch) -> None:
    async def fail(self, uids):
        raise OSError("no such file")

    monkeypatch.setattr(FakeHost, "acknowledge", fail)
    heard.host.end.send(wire.Acknowledge(session=1, number=2, uids=("v",)))
    heard.host.end.send(offer(3))
    await heard.host.end.close()
    assert set(heard.host.offers) == {"u"}


async def test_each_order_is_carried_out_and_answered(heard: Heard) -> None:
    await heard.told(offer(2))
    of = {"session": 1, "uid": "u"}
    for order in (
        wire.Lease(**of, number=3, until=9),
        wire.Retry(**of, number=4, attempts={"make": 1}, by="ann"),
        wire.Baseline(session=1, number=5, workload=Workload(name="app", command=("app",))),
        wire.Baseline(session=1, number=6, workload=Workload(name="app", command=()), gone=True),
        stop(7),
    ):
        [reply] = await heard.told(order)
        assert (reply.number, reply.verdict) == (order.number, Verdict.TAKEN), order
    [ended] = await heard.told(wire.Abandon(**of, number=8, request=ASKED))
    assert (ended.number, ended.run.uid) == (8, "u")
    assert heard.host.baselines == {}


async def test_of_many_changes_of_a_run_at_once_one_is_told(heard: Heard) -> None:
    heard.said.clear()
    for uid in ("u", "v", "u"):
        heard.host.end.changed(uid)
    assert heard.said == []
    await asyncio.sleep(0)
    assert sorted((each.run.uid, each.run.seq) for each in heard.said) == [("u", 1), ("v", 1)]
    assert sorted(each.count for each in heard.said) == [1, 2]
    heard.host.end.changed("u")
    await asyncio.sleep(0)
    assert len(heard.said) == 3


async def test_one_of_which_nothing_can_be_said_keeps_no_other_from_being_told(
    heard: Heard, monkeypatch, caplog
) -> None:
    """Nor any change after it: that it has changed is said, and whoever asks hears that it cannot be told."""

    def fails(uid: str) -> wire.Standing:
        if uid == "bad":
            raise ValueError("a defect")
        return wire.Standing(uid=uid, seq=heard.host.version(uid))

    monkeypatch.setattr(heard.host.end, "news", fails)
    heard.said.clear()
    for uids in (("u", "bad", "v"), ("w", "bad")):
        for uid in uids:
            heard.host.end.changed(uid)
        await asyncio.sleep(0)
        assert sorted(each.run.uid for each in heard.said) == sorted(uids)
        heard.said.clear()
    assert heard.host.end._count == 5
    assert "how bad stands cannot be said" in caplog.text


async def test_one_that_cannot_be_read_keeps_nobody_from_hearing_of_the_others(
    heard: Heard, monkeypatch, caplog
) -> None:
    await heard.told(offer(2, birth=True))
    standing = heard.host.standing

    def spoiled(uid: str) -> wire.Standing | None:
        if uid == "bad":
            raise msgspec.ValidationError("a spoiled row")
        return standing(uid)

    monkeypatch.setattr(heard.host, "standing", spoiled)
    (answer,) = await heard.told(wire.AskStanding(session=1, number=9, uids=("bad", "u", "unknown")))
    bad, good = answer.runs
    assert (bad.uid, bad.report.ready, bad.report.reason) == ("bad", False, "Hindered")
    assert "the host's log has the details" in bad.report.message
    assert (good.uid, good.report.uid) == ("u", "u")
    assert "a spoiled row" in caplog.text


async def test_an_end_that_cannot_be_read_keeps_no_other_from_being_reminded_of(
    heard: Heard, monkeypatch, caplog
) -> None:
    def spoiled(uid: str) -> wire.Standing:
        if uid == "bad":
            raise msgspec.ValidationError("a spoiled row")
        return wire.Standing(uid=uid, seq=1)

    monkeypatch.setattr(heard.host, "unacknowledged", lambda: ["bad", "u"])
    monkeypatch.setattr(heard.host, "standing", spoiled)
    heard.said.clear()
    heard.host.end.remind()
    ended, pulse = heard.said
    assert ended.run.uid == "u"
    assert isinstance(pulse, wire.Pulse)
    assert "a spoiled row" in caplog.text


async def test_why_a_question_cannot_be_answered_is_said(heard: Heard) -> None:
    question = wire.AskStanding(session=1, number=9, uids=("u",))
    for fault, verdict, message in (
        (HostUnavailableError("the disk is full"), Verdict.UNAVAILABLE, "the disk is full"),
        (RefusedError("not here"), Verdict.REFUSED, "not here"),
        (ValueError("a defect"), Verdict.FAILED, "the host's log has the details"),
    ):

        def find(fault=fault):
            raise fault

        heard.said.clear()
        heard.host.end.tell(question, find)
        assert heard.said == [wire.Reply(session=1, number=9, verdict=verdict, message=message)]


async def test_it_reminds_now_and_then(heard: Heard, monkeypatch) -> None:
    reminded, pauses = [], []

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(heard.host.end, "remind", lambda: reminded.append(len(pauses)))
    monkeypatch.setattr(host_end, "asyncio", SimpleNamespace(sleep=pause))
    with pytest.raises(asyncio.CancelledError):
        await heard.host.end.run()
    assert (reminded, pauses) == ([1, 2], [host_end.REMIND_S] * 3)


async def test_it_goes_on_to_remind_though_it_failed_once(heard: Heard, monkeypatch, caplog) -> None:
    """As where a ledger cannot be read for a moment: without it a message that was lost is never missed."""
    reminded, pauses = [], []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    def remind() -> None:
        reminded.append(len(pauses))
        if len(reminded) == 1:
            raise OSError("disk I/O error")

    monkeypatch.setattr(host_end, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(heard.host.end, "remind", remind)
    with pytest.raises(asyncio.CancelledError):
        await heard.host.end.run()
    assert reminded == [1, 2]
    assert "nobody could be reminded" in caplog.text
