"""The host's end of the link: its answer to each message."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.server.fake_host import FakeHost

from dayfly.link import host_end, wire
from dayfly.link.wire import PoolAction, Verdict
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest

TARGET = Target(kind="Sandbox", name="box", uid="u")
DOCUMENT = Lifecycle(target=TARGET, pre_start=(Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n")),))
ASKED = EndRequest(at=1, reason="Deleted", message="asked", by="ann")


class GreetedEnd:
    """A greeted end, and the messages that it has sent."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.sent: list[wire.AnyToServer] = []
        self.begin_session()

    def begin_session(self) -> None:
        self.host.end.attach(self.sent.append)

    def greet(self) -> None:
        self.host.end.send(wire.Hello(number=1))

    async def deliver(self, message: wire.AnyToHost) -> list[wire.AnyToServer]:
        """Deliver a message; return the answers."""
        self.sent.clear()
        self.host.end.send(message)
        await self.host.carried_out()
        return list(self.sent)


@pytest.fixture
async def greeted() -> GreetedEnd:
    return GreetedEnd()


def offer(number: int, **more) -> wire.Offer:
    return wire.Offer(session=1, number=number, uid="u", name="box", target=TARGET, documents=(DOCUMENT,), **more)


def stop(number: int, session: int = 1, *, known: bool = False) -> wire.Stop:
    return wire.Stop(session=session, number=number, uid="u", request=ASKED, known=known)


async def test_host_sends_nothing_before_its_first_session() -> None:
    host = FakeHost()
    host.end.send(wire.StatusQuery(session=0, number=1, uids=()))
    host.end.resend()
    host.end.report_change("u")
    said: list[wire.AnyToServer] = []
    host.end.attach(said.append)
    assert said == [wire.Inventory(session=1)]


async def test_message_of_another_session_is_answered_by_a_pulse(greeted: GreetedEnd) -> None:
    greeted.begin_session()
    assert await greeted.deliver(offer(2)) == [wire.Heartbeat(session=2, count=0, routes=False)]
    assert greeted.host.offers == {}


async def test_greeting_is_answered_with_inventory(greeted: GreetedEnd) -> None:
    assert greeted.sent == [wire.Inventory(session=1)]
    await greeted.deliver(offer(2))
    greeted.sent.clear()
    greeted.greet()
    [inventory] = greeted.sent
    assert (inventory.session, inventory.runs, inventory.ended) == (1, (wire.RunStatus(uid="u", seq=1),), ())
    greeted.host.finish("u")
    greeted.greet()
    assert greeted.sent[-1].ended == (wire.RunStatus(uid="u", seq=2),), "its end has not been acknowledged"
    greeted.begin_session()
    assert (greeted.sent[-1].session, greeted.sent[-1].count) == (2, 0)


async def test_order_is_answered_with_the_state_of_the_run(greeted: GreetedEnd) -> None:
    greeted.host.versions["u"] = 5
    assert await greeted.deliver(offer(2)) == [wire.Reply(session=1, number=2, verdict=Verdict.TAKEN, seq=5)]
    assert await greeted.deliver(wire.Lease(session=1, number=3, uid="v", until=9)) == [
        wire.Reply(session=1, number=3, verdict=Verdict.UNKNOWN, seq=1)
    ]


async def test_end_caused_by_order_has_its_number(greeted: GreetedEnd) -> None:
    [ended] = await greeted.deliver(stop(2))
    assert (ended.session, ended.count, ended.number, ended.run.uid) == (1, 1, 2, "u")
    greeted.sent.clear()
    greeted.host.end.resend()
    again, pulse = greeted.sent
    assert (again.number, again.count, pulse) == (0, 2, wire.Heartbeat(session=1, count=2, routes=False))
    await greeted.deliver(wire.Acknowledge(session=1, number=3, uids=("u",)))
    assert greeted.host.acknowledged == {"u"}


async def test_end_in_later_session_has_no_order_number(greeted: GreetedEnd, monkeypatch) -> None:
    released = asyncio.Event()

    async def slow(self, uid, request, *, known):
        await released.wait()
        self._over(uid, "cleaned")
        return Verdict.OVER

    monkeypatch.setattr(FakeHost, "stop", slow)
    greeted.host.end.send(stop(7))
    await asyncio.sleep(0)
    greeted.begin_session()
    greeted.sent.clear()
    released.set()
    await greeted.host.carried_out()
    [ended] = greeted.sent
    assert (ended.session, ended.number) == (2, 0)


async def test_log_of_attempt_zero_is_the_latest(greeted: GreetedEnd) -> None:
    greeted.host.log_data = {
        ("u", "db/make", 1): (b"first", True),
        ("u", "db/make", 2): (b"second", False),
        ("u", "db/seed", 3): (b"other", True),
    }

    async def log(unit: str, attempt: int, **part: int) -> wire.LogBytes:
        question = wire.LogQuery(
            session=1, number=9, uid="u", unit=unit, attempt=attempt, **{"offset": 0, "limit": 99} | part
        )
        [found] = await greeted.deliver(question)
        return found

    first = await log("db/make", 1)
    assert (first.data, first.info.attempt, first.info.size, first.info.sealed) == (b"first", 1, 5, True)
    assert (await log("db/make", 0)).data == b"second"
    assert (await log("db/make", 2, offset=2, limit=3)).data == b"con"
    missing = await log("db/make", 3)
    assert (missing.info, len(missing.logs)) == (None, 3)


async def test_newest_lease_wins_unless_it_failed(greeted: GreetedEnd) -> None:
    await greeted.deliver(offer(2))
    lease = wire.Lease(session=1, number=9, uid="u", until=90)
    await greeted.deliver(lease)
    [late] = await greeted.deliver(msgspec.structs.replace(lease, number=8, until=80))
    assert (late.verdict, greeted.host.leases["u"]) == (Verdict.TAKEN, 90)
    greeted.host.down = True
    [failed] = await greeted.deliver(msgspec.structs.replace(lease, number=12, until=120))
    assert failed.verdict is Verdict.UNAVAILABLE
    greeted.host.down = False
    await greeted.deliver(msgspec.structs.replace(lease, number=11, until=110))
    assert greeted.host.leases["u"] == 110, "a failed lease replaces no other"


async def test_newest_action_on_a_pool_wins(greeted: GreetedEnd) -> None:
    await greeted.deliver(offer(2, pool=ResourcePoolSpec(plugin="db")))
    resume = wire.ControlPool(session=1, number=9, uid="u", action=PoolAction.RESUME, by="ann")
    await greeted.deliver(resume)
    [late] = await greeted.deliver(msgspec.structs.replace(resume, number=8, action=PoolAction.DRAIN))
    assert (late.verdict, greeted.host.actions) == (Verdict.TAKEN, [("u", "resume", "ann")])
    [unknown] = await greeted.deliver(msgspec.structs.replace(resume, number=10, uid="v"))
    assert unknown.verdict is Verdict.UNKNOWN
    await greeted.deliver(stop(11))
    [closed] = await greeted.deliver(msgspec.structs.replace(resume, number=12))
    assert closed.verdict is Verdict.CLOSED


async def test_host_with_pools_announces_them() -> None:
    host, said = FakeHost(), []
    host.pools = True
    host.end.attach(said.append)
    assert said == [wire.Inventory(session=1, pools=True)]


async def test_birth_before_forgetting_must_be_offered_again(greeted: GreetedEnd) -> None:
    await greeted.deliver(wire.StatusQuery(session=1, number=9, uids=()))
    greeted.host.end.reject_older_births()
    [late] = await greeted.deliver(offer(9))
    assert (late.number, late.verdict, greeted.host.offers) == (9, Verdict.UNAVAILABLE, {})
    [known] = await greeted.deliver(offer(9, birth=False))
    assert known.verdict is Verdict.UNKNOWN, "the order is not a birth"
    [fresh] = await greeted.deliver(offer(10))
    assert fresh.verdict is Verdict.TAKEN


async def test_order_numbers_restart_with_each_session(greeted: GreetedEnd) -> None:
    await greeted.deliver(offer(2))
    await greeted.deliver(wire.Lease(session=1, number=9, uid="u", until=90))
    greeted.begin_session()
    await greeted.deliver(wire.Lease(session=2, number=2, uid="u", until=120))
    assert greeted.host.leases["u"] == 120


async def test_late_order_for_ended_run_is_answered_by_its_end(greeted: GreetedEnd) -> None:
    """Even if an order with a higher number was carried out before."""
    await greeted.deliver(offer(2))
    lease = wire.Lease(session=1, number=9, uid="u", until=90)
    await greeted.deliver(lease)
    greeted.host.finish("u")
    await asyncio.sleep(0)
    [late] = await greeted.deliver(msgspec.structs.replace(lease, number=8, until=80))
    assert isinstance(late, wire.RunEnded)


async def test_failing_order_is_logged_once_until_its_run_ends(greeted: GreetedEnd, monkeypatch, caplog) -> None:
    def fails(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(greeted.host, "admit", fails)
    for number in (2, 3):
        assert (await greeted.deliver(offer(number, birth=True)))[0].verdict is Verdict.FAILED
    assert caplog.text.count("Offer u failed") == 1
    await greeted.deliver(stop(4))
    await greeted.deliver(offer(5, birth=True))
    assert caplog.text.count("Offer u failed") == 2


async def test_closed_host_sends_no_replies(greeted: GreetedEnd) -> None:
    await greeted.host.end.close()
    assert await greeted.deliver(offer(2)) == []
    assert set(greeted.host.offers) == {"u"}


async def test_close_finishes_orders_although_another_fails(greeted: GreetedEnd, monkeypatch) -> None:
    async def fail(self, uids):
        raise OSError("no such file")

    monkeypatch.setattr(FakeHost, "acknowledge", fail)
    greeted.host.end.send(wire.Acknowledge(session=1, number=2, uids=("v",)))
    greeted.host.end.send(offer(3))
    await greeted.host.end.close()
    assert set(greeted.host.offers) == {"u"}


async def test_failing_change_report_blocks_no_others(greeted: GreetedEnd, monkeypatch, caplog) -> None:
    """Later changes are reported, too, and a query for the state is answered with an error."""

    def fails(uid: str) -> wire.RunStatus:
        if uid == "bad":
            raise ValueError("a defect")
        return wire.RunStatus(uid=uid, seq=greeted.host.version(uid))

    monkeypatch.setattr(greeted.host.end, "_changed_status", fails)
    greeted.sent.clear()
    for uids in (("u", "bad", "v"), ("w", "bad")):
        for uid in uids:
            greeted.host.end.report_change(uid)
        await asyncio.sleep(0)
        assert sorted(each.run.uid for each in greeted.sent) == sorted(uids)
        greeted.sent.clear()
    greeted.host.end.send_heartbeat()
    assert greeted.sent == [wire.Heartbeat(session=1, count=5, routes=False)]
    assert "cannot report the state of run bad" in caplog.text


async def test_unreadable_run_blocks_no_other_answers(greeted: GreetedEnd, monkeypatch, caplog) -> None:
    await greeted.deliver(offer(2, birth=True))
    standing = greeted.host.run_status

    def spoiled(uid: str) -> wire.RunStatus | None:
        if uid == "bad":
            raise msgspec.ValidationError("a spoiled row")
        return standing(uid)

    monkeypatch.setattr(greeted.host, "run_status", spoiled)
    (answer,) = await greeted.deliver(wire.StatusQuery(session=1, number=9, uids=("bad", "u", "unknown")))
    bad, good = answer.runs
    assert (bad.uid, bad.report.ready, bad.report.reason) == ("bad", False, "Blocked")
    assert "see the log of the host" in bad.report.message
    assert (good.uid, good.report.uid) == ("u", "u")
    assert "a spoiled row" in caplog.text


async def test_unreadable_end_blocks_no_other_reminders(greeted: GreetedEnd, monkeypatch, caplog) -> None:
    def spoiled(uid: str) -> wire.RunStatus:
        if uid == "bad":
            raise msgspec.ValidationError("a spoiled row")
        return wire.RunStatus(uid=uid, seq=1)

    monkeypatch.setattr(greeted.host, "unacknowledged_ends", lambda: ["bad", "u"])
    monkeypatch.setattr(greeted.host, "run_status", spoiled)
    greeted.sent.clear()
    greeted.host.end.resend()
    ended, pulse = greeted.sent
    assert ended.run.uid == "u"
    assert isinstance(pulse, wire.Heartbeat)
    assert "a spoiled row" in caplog.text


@pytest.mark.parametrize(
    ("fault", "verdict", "message"),
    [
        (HostUnavailableError("the disk is full"), Verdict.UNAVAILABLE, "the disk is full"),
        (DocumentsRefusedError("not here"), Verdict.REFUSED, "not here"),
        (ValueError("a defect"), Verdict.FAILED, "see the log of the host"),
    ],
)
async def test_failed_question_is_answered_with_its_reason(
    greeted: GreetedEnd, monkeypatch, fault, verdict, message
) -> None:
    """Otherwise the server would wait for an answer that never comes."""

    def fails(*_):
        raise fault

    for what in ("admit", "values"):
        monkeypatch.setattr(greeted.host, what, fails)
    for question in (
        wire.AdmissionQuery(session=1, number=8, documents=(DOCUMENT,)),
        wire.ValuesQuery(session=1, number=9, uid="u"),
    ):
        reply = wire.Reply(session=1, number=question.number, verdict=verdict, message=message)
        assert await greeted.deliver(question) == [reply]


async def test_host_continues_reminders_after_a_failure(greeted: GreetedEnd, monkeypatch, caplog) -> None:
    """The ledger may be unreadable for a moment. Reminders reveal lost messages."""
    monkeypatch.setattr(host_end, "RESEND_INTERVAL_S", 0)
    faults = [OSError("disk I/O error")]

    def unacknowledged():
        if faults:
            raise faults.pop()
        return []

    monkeypatch.setattr(greeted.host, "unacknowledged_ends", unacknowledged)
    greeted.sent.clear()
    running = asyncio.create_task(greeted.host.end.run())
    async with asyncio.timeout(20):
        while len(greeted.sent) < 2:  # noqa: ASYNC110 - it reminds by itself
            await asyncio.sleep(0)
    running.cancel()
    assert {type(each) for each in greeted.sent} == {wire.Heartbeat}
    assert "cannot resend messages" in caplog.text
