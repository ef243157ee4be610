"""The host's end of the link, message by message: what it says to each one that comes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dayfly.link import host_end, wire
from dayfly.link.wire import Verdict
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.run import EndRequest
from server.fake_host import FakeHost

TARGET = Target(kind="Sandbox", name="box", uid="u")
DOCUMENT = Lifecycle(target=TARGET, pre_start=(Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n")),))
ASKED = EndRequest(at=1, reason="Deleted", message="asked", by="ann")


class Heard:
    """An end that has been greeted, and what it has said since."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.said: list[wire.AnyToControl] = []
        self.begin_session()

    def begin_session(self) -> None:
        self.host.end.attach(self.said.append)

    def greet(self) -> None:
        self.host.end.send(wire.Hello(number=1))

    async def told(self, message: wire.AnyToHost) -> list[wire.AnyToControl]:
        """What it says to this, once that is carried out."""
        self.said.clear()
        self.host.end.send(message)
        await self.host.carried_out()
        return list(self.said)


@pytest.fixture
async def heard() -> Heard:
    return Heard()


def offer(number: int, **more) -> wire.Offer:
    return wire.Offer(session=1, number=number, uid="u", name="box", target=TARGET, documents=(DOCUMENT,), **more)


def stop(number: int, session: int = 1, *, known: bool = False) -> wire.Stop:
    return wire.Stop(session=session, number=number, uid="u", request=ASKED, known=known)


async def test_host_says_nothing_before_its_first_session() -> None:
    host = FakeHost()
    host.end.send(wire.AskStanding(session=0, number=1, uids=()))
    host.end.remind()
    host.end.changed("u")
    said: list[wire.AnyToControl] = []
    host.end.attach(said.append)
    assert said == [wire.Inventory(session=1)]


async def test_message_of_another_session_is_answered_by_a_pulse(heard: Heard) -> None:
    heard.begin_session()
    assert await heard.told(offer(2)) == [wire.Pulse(session=2, count=0, routes=False)]
    assert heard.host.offers == {}


async def test_a_greeting_is_answered_with_all_there_is(heard: Heard) -> None:
    assert heard.said == [wire.Inventory(session=1)]
    await heard.told(offer(2))
    heard.said.clear()
    heard.greet()
    [inventory] = heard.said
    assert (inventory.session, inventory.runs, inventory.ended) == (1, (wire.Standing(uid="u", seq=1),), ())
    heard.host.finish("u")
    heard.greet()
    assert heard.said[-1].ended == (wire.Standing(uid="u", seq=2),), "nobody has acknowledged its end"
    heard.begin_session()
    assert (heard.said[-1].session, heard.said[-1].count) == (2, 0)


async def test_an_order_is_answered_with_where_the_run_stands(heard: Heard) -> None:
    heard.host.versions["u"] = 5
    assert await heard.told(offer(2)) == [wire.Reply(session=1, number=2, verdict=Verdict.TAKEN, seq=5)]
    assert await heard.told(wire.Lease(session=1, number=3, uid="v", until=9)) == [
        wire.Reply(session=1, number=3, verdict=Verdict.UNKNOWN, seq=1)
    ]


async def test_end_caused_by_order_has_its_number(heard: Heard) -> None:
    [ended] = await heard.told(stop(2))
    assert (ended.session, ended.count, ended.number, ended.run.uid) == (1, 1, 2, "u")
    heard.said.clear()
    heard.host.end.remind()
    again, pulse = heard.said
    assert (again.number, again.count, pulse) == (0, 2, wire.Pulse(session=1, count=2, routes=False))
    await heard.told(wire.Acknowledge(session=1, number=3, uids=("u",)))
    assert heard.host.acknowledged == {"u"}


async def test_end_in_later_session_has_no_order_number(heard: Heard, monkeypatch) -> None:
    released = asyncio.Event()

    async def slow(self, uid, request, *, known):
        await released.wait()
        self._over(uid, "cleaned")
        return Verdict.OVER

    monkeypatch.setattr(FakeHost, "stop", slow)
    heard.host.end.send(stop(7))
    await asyncio.sleep(0)
    heard.begin_session()
    heard.said.clear()
    released.set()
    await heard.host.carried_out()
    [ended] = heard.said
    assert (ended.session, ended.number) == (2, 0)


async def test_log_of_attempt_zero_is_the_latest(heard: Heard) -> None:
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


async def test_newest_lease_wins_unless_it_failed(heard: Heard) -> None:
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


async def test_birth_before_forgetting_must_be_offered_again(heard: Heard) -> None:
    await heard.told(wire.AskStanding(session=1, number=9, uids=()))
    heard.host.end.forgets()
    [late] = await heard.told(offer(9))
    assert (late.number, late.verdict, heard.host.offers) == (9, Verdict.UNAVAILABLE, {})
    [known] = await heard.told(offer(9, birth=False))
    assert known.verdict is Verdict.UNKNOWN, "that is no birth"
    [fresh] = await heard.told(offer(10))
    assert fresh.verdict is Verdict.TAKEN


async def test_order_numbers_restart_with_each_session(heard: Heard) -> None:
    await heard.told(offer(2))
    await heard.told(wire.Lease(session=1, number=9, uid="u", until=90))
    heard.begin_session()
    await heard.told(wire.Lease(session=2, number=2, uid="u", until=120))
    assert heard.host.leases["u"] == 120


async def test_late_order_for_ended_run_is_answered_by_its_end(heard: Heard) -> None:
    """Even if an order with a higher number was carried out before."""
    await heard.told(offer(2))
    lease = wire.Lease(session=1, number=9, uid="u", until=90)
    await heard.told(lease)
    heard.host.finish("u")
    await asyncio.sleep(0)
    [late] = await heard.told(msgspec.structs.replace(lease, number=8, until=80))
    assert isinstance(late, wire.Ended)


async def test_failing_order_is_logged_once_until_its_run_ends(heard: Heard, monkeypatch, caplog) -> None:
    def fails(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(heard.host, "admit", fails)
    for number in (2, 3):
        assert (await heard.told(offer(number, birth=True)))[0].verdict is Verdict.FAILED
    assert caplog.text.count("Offer u failed") == 1
    await heard.told(stop(4))
    await heard.told(offer(5, birth=True))
    assert caplog.text.count("Offer u failed") == 2


async def test_closed_host_sends_no_replies(heard: Heard) -> None:
    await heard.host.end.close()
    assert await heard.told(offer(2)) == []
    assert set(heard.host.offers) == {"u"}


async def test_close_finishes_orders_although_another_fails(heard: Heard, monkeypatch) -> None:
    async def fail(self, uids):
        raise OSError("no such file")

    monkeypatch.setattr(FakeHost, "acknowledge", fail)
    heard.host.end.send(wire.Acknowledge(session=1, number=2, uids=("v",)))
    heard.host.end.send(offer(3))
    await heard.host.end.close()
    assert set(heard.host.offers) == {"u"}


async def test_failing_change_report_blocks_no_others(heard: Heard, monkeypatch, caplog) -> None:
    """Nor any change after it: that it has changed is said, and whoever asks hears that it cannot be told."""

    def fails(uid: str) -> wire.Standing:
        if uid == "bad":
            raise ValueError("a defect")
        return wire.Standing(uid=uid, seq=heard.host.version(uid))

    monkeypatch.setattr(heard.host.end, "changed_status", fails)
    heard.said.clear()
    for uids in (("u", "bad", "v"), ("w", "bad")):
        for uid in uids:
            heard.host.end.changed(uid)
        await asyncio.sleep(0)
        assert sorted(each.run.uid for each in heard.said) == sorted(uids)
        heard.said.clear()
    heard.host.end.pulse()
    assert heard.said == [wire.Pulse(session=1, count=5, routes=False)]
    assert "cannot report the state of run bad" in caplog.text


async def test_unreadable_run_blocks_no_other_answers(heard: Heard, monkeypatch, caplog) -> None:
    await heard.told(offer(2, birth=True))
    standing = heard.host.standing

    def spoiled(uid: str) -> wire.Standing | None:
        if uid == "bad":
            raise msgspec.ValidationError("a spoiled row")
        return standing(uid)

    monkeypatch.setattr(heard.host, "standing", spoiled)
    (answer,) = await heard.told(wire.AskStanding(session=1, number=9, uids=("bad", "u", "unknown")))
    bad, good = answer.runs
    assert (bad.uid, bad.report.ready, bad.report.reason) == ("bad", False, "Blocked")
    assert "see the log of the host" in bad.report.message
    assert (good.uid, good.report.uid) == ("u", "u")
    assert "a spoiled row" in caplog.text


async def test_unreadable_end_blocks_no_other_reminders(heard: Heard, monkeypatch, caplog) -> None:
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


@pytest.mark.parametrize(
    ("fault", "verdict", "message"),
    [
        (HostUnavailableError("the disk is full"), Verdict.UNAVAILABLE, "the disk is full"),
        (DocumentsRefusedError("not here"), Verdict.REFUSED, "not here"),
        (ValueError("a defect"), Verdict.FAILED, "see the log of the host"),
    ],
)
async def test_failed_question_is_answered_with_its_reason(heard: Heard, monkeypatch, fault, verdict, message) -> None:
    """Else whoever asked would wait for an answer that never comes."""

    def fails(*_):
        raise fault

    for what in ("admit", "values"):
        monkeypatch.setattr(heard.host, what, fails)
    for question in (
        wire.AskAdmit(session=1, number=8, documents=(DOCUMENT,)),
        wire.AskValues(session=1, number=9, uid="u"),
    ):
        reply = wire.Reply(session=1, number=question.number, verdict=verdict, message=message)
        assert await heard.told(question) == [reply]


async def test_host_goes_on_reminding_after_a_failure(heard: Heard, monkeypatch, caplog) -> None:
    """The ledger may be unreadable for a moment. Without reminders a lost message is never missed."""
    monkeypatch.setattr(host_end, "REMIND_S", 0)
    faults = [OSError("disk I/O error")]

    def unacknowledged():
        if faults:
            raise faults.pop()
        return []

    monkeypatch.setattr(heard.host, "unacknowledged", unacknowledged)
    heard.said.clear()
    running = asyncio.create_task(heard.host.end.run())
    async with asyncio.timeout(20):
        while len(heard.said) < 2:  # noqa: ASYNC110 - it reminds by itself
            await asyncio.sleep(0)
    running.cancel()
    assert {type(each) for each in heard.said} == {wire.Pulse}
    assert "cannot resend messages" in caplog.text
