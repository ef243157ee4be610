"""Both ends of the link: lost, late, duplicated and foreign messages."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.server.fake_host import Encoded, FakeHost

from dayfly.lib.tasks import ChangeNotifier
from dayfly.link import server_end as control
from dayfly.link import wire
from dayfly.link.host_state import NO_REPORT_VERSION, HostState
from dayfly.link.server_end import HostFailedError, Link, Links
from dayfly.link.wire import Verdict
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import DocumentsRefusedError, HostSilentError, HostUnavailableError
from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakReport
from dayfly.spec.lifecycle import Baseline, Exec, ForkUnit, Lifecycle, Target, Unit
from dayfly.spec.report import UnitReport
from dayfly.spec.resource_token import ResourceToken
from dayfly.spec.run import EndRequest
from dayfly.spec.run_data import HistoryEntry, LogInfo, RunEndpoint, Value

TARGET = Target(kind="Sandbox", name="box", uid="u")
STEP = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n"))
DOCUMENT = Lifecycle(target=TARGET, resource="db", pre_start=(STEP,))
FORK = Unit(
    name="app", kind="fork", fork=ForkUnit(baseline=Baseline(kind="Deployment", namespace="default", name="app"))
)
ASKED = EndRequest(at=1, reason="Deleted", message="asked", by="ann")


def offer(uid="u", generation=1, **more):
    return wire.Offer(uid=uid, name="box", target=TARGET, documents=(DOCUMENT,), generation=generation, **more)


class FilteringTransport:
    """A transport. `lost` are the types of messages that it drops, and `sent` is all that was sent."""

    def __init__(self, host: FakeHost) -> None:
        self.lost: tuple[type, ...] = ()
        self.sent: list[object] = []
        self.transport = Encoded(host.end)

    def attach(self, hear) -> None:
        def reach(message):
            self.sent.append(message)
            if not isinstance(message, self.lost):
                hear(message)

        self.transport.attach(reach)

    def send(self, message) -> None:
        self.sent.append(message)
        if not isinstance(message, self.lost):
            self.transport.send(message)

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.sent)


async def deliver_messages():
    """Return the messages of the host in this turn of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture
def transport(host):
    return FilteringTransport(host)


# --- encoding -------------------------------------------------------------------------------------------------------

RUN = wire.RunStatus(uid="u", seq=3, endpoints=(RunEndpoint(unit="fork:default/app", host="127.0.0.1", port=80),))
TO_HOST = (
    wire.Hello(number=1, id="p.1"),
    offer(forks=(FORK,), session=2, number=2, birth=False, expires_at=5, lease_until=6),
    wire.Stop(uid="u", request=ASKED, known=True),
    wire.Abandon(uid="u", request=ASKED),
    wire.Retry(uid="u", attempts={"db/make": 2}, by="ann"),
    wire.Lease(uid="u", until=7),
    wire.Reset(uid="u", resource="db", member="p-1", by="me"),
    wire.ControlPool(uid="u", action=wire.PoolAction.DRAIN, by="me"),
    wire.PutLeakCheck(
        uid="leakcheck/c",
        name="c",
        spec=LeakCheckSpec(plugin="p"),
        plugin="p@1.0.0",
        inventory=DOCUMENT,
        deletes={"p@1.0.0": DOCUMENT},
    ),
    wire.DropLeakCheck(uid="leakcheck/c", name="c"),
    wire.SweepLeaks(uid="leakcheck/c", name="c", plan="w"),
    wire.LeaksQuery(names=("c",), brief=True, after=3),
    wire.ResourcesQuery(tokens=(ResourceToken("0" * 26, "home.0"),)),
    wire.Acknowledge(uids=("u", "v")),
    wire.AdmissionQuery(documents=(DOCUMENT,), forks=(FORK,)),
    wire.StatusQuery(uids=("u",)),
    wire.ValuesQuery(uid="u"),
    wire.HistoryQuery(uid="u"),
    wire.LogsQuery(uid="u"),
    wire.LogQuery(uid="u", unit="db/make", attempt=1, offset=2, limit=3),
)
LOG = LogInfo(unit="db/make", attempt=1, size=2, sealed=True)
TO_CONTROL = (
    wire.ResourceStates(id="1.1", states={"0" * 26: "open"}),
    wire.Inventory(session=1, count=2, runs=(RUN,), ended=(RUN,)),
    wire.RunChanged(session=1, count=2, run=RUN),
    wire.RunEnded(session=1, count=2, run=RUN, number=3, id="p.3"),
    wire.Heartbeat(session=1, count=2),
    wire.Reply(session=1, number=3, id="p.3", verdict=Verdict.UNKNOWN, message="m", seq=4),
    wire.RunStatuses(number=3, runs=(RUN,)),
    wire.Values(number=3, values=(Value(unit="db/make", output="o", value=b"\xff\x00", sensitive=True),)),
    wire.History(
        number=3,
        entries=(HistoryEntry(seq=1, at=2, unit="u", attempt=3, move="Claim", reason="r", message="m"),),
    ),
    wire.Logs(number=3, logs=(LOG,)),
    wire.Leaks(number=3, reports=(LeakReport(name="c", spec=LeakCheckSpec(plugin="p"), plugin="p@1.0.0"),)),
    wire.LogBytes(number=3, info=LOG, data=b"\xff", logs=(LOG,)),
)


@pytest.mark.parametrize("message", TO_HOST, ids=lambda message: type(message).__name__)
def test_message_to_host_survives_encoding(message):
    assert wire.decode_to_host(wire.encode(message)) == message
    later = msgspec.json.encode(msgspec.json.decode(wire.encode(message)) | {"later": {"a": [1]}})
    assert wire.decode_to_host(later) == message


@pytest.mark.parametrize("message", TO_CONTROL, ids=lambda message: type(message).__name__)
def test_message_from_host_survives_encoding(message):
    assert wire.decode_to_server(wire.encode(message)) == message
    later = msgspec.json.encode(msgspec.json.decode(wire.encode(message)) | {"later": 1})
    assert wire.decode_to_server(later) == message


def test_every_message_type_is_tested():
    assert {type(message) for message in TO_HOST} == set(wire.AnyToHost.__args__)
    assert {type(message) for message in TO_CONTROL} == set(wire.AnyToServer.__args__)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"type": "Paint"}, "Paint"),
        ({"documents": [{"target": {"kind": "S", "name": "n", "uid": "u"}, "new": 1}]}, "new"),
    ],
)
async def test_host_refuses_unknown_message(host, change, says):
    """A newer server sends it: nothing starts, and the server gets an error."""
    heard = []
    host.end.attach(heard.append)
    data = msgspec.json.decode(wire.encode(offer(session=1, number=7))) | change
    host.end.send(wire.decode_to_host(msgspec.json.encode(data)))
    reply = heard[-1]
    assert (reply.number, reply.verdict) == (7, Verdict.REFUSED)
    assert says in reply.message
    assert host.offers == {}


# --- sessions -------------------------------------------------------------------------------------------------------


async def test_orders_of_earlier_process_are_ignored(host, transport):
    first = Link(transport)
    late = msgspec.structs.replace(offer(), session=first.session, number=50)
    now = FilteringTransport(host)
    second = Link(now)
    assert second.session > first.session
    transport.send(late)
    await host.carried_out()
    assert host.offers == {}
    assert now.count(wire.Heartbeat) == 1, "the answer to the message of another session"
    # Nor are orders that had arrived before the next session started.
    host.end.send(offer(session=second.session, number=50))
    Link(Encoded(host.end))
    await host.carried_out()
    assert host.offers == {}


async def test_restarted_host_is_met_again(transport):
    """A caller that waits for an answer is not kept waiting."""
    link = Link(transport)
    old = link.session
    transport.lost = (wire.Reply, wire.RunStatuses)
    asked = asyncio.ensure_future(link.query_statuses(["u"]))
    await asyncio.sleep(0)
    begun = FakeHost()
    begun.sessions = 7
    begun.offers["v"] = offer("v")
    transport.transport = Encoded(begun.end)
    begun.end.attach(link.receive)
    assert link.session == 8 > old
    assert await asked == ({}, "it has begun another session")
    assert link.state.version("v") == 1


async def test_lost_inventory_of_new_session_is_requested(host, transport):
    link = Link(transport)
    transport.lost = (wire.Inventory,)
    transport.attach(link.receive)
    transport.lost = ()
    assert link.session == 1
    host.end.send_heartbeat()
    assert link.session == 2


# --- lost messages --------------------------------------------------------------------------------------------------


async def test_unanswered_order_is_sent_again(host, transport, monkeypatch):
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.01)
    link = Link(transport)
    transport.lost = (wire.Reply,)
    with pytest.raises(HostSilentError, match="does not answer"):
        await link.order(offer())
    assert set(host.offers) == {"u"}
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 60)
    with pytest.raises(HostSilentError):
        await link.order(offer())  # at once, because the host did not answer the last time
    transport.lost = ()
    host.end.resend()
    assert (await link.order(offer())).verdict is Verdict.TAKEN


async def test_lost_change_is_requested_again(host, transport):
    link = Link(transport)
    await link.order(offer())
    transport.lost = (wire.RunChanged,)
    host.say("u", ready=True, reason=Reason.READY, message="now")
    await deliver_messages()
    assert link.state.version("u") == 1
    link.resync()
    assert transport.count(wire.Hello) == 0, "the loss cannot be known yet"
    host.end.resend()
    link.resync()
    assert transport.count(wire.Hello) == 1
    assert link.state.version("u") == 2
    link.resync()
    assert transport.count(wire.Hello) == 1, "all messages have arrived"


async def test_gap_is_noticed_by_the_next_message(host, transport):
    link = Link(transport)
    for uid in ("u", "v"):
        await link.order(offer(uid))
    transport.lost = (wire.RunChanged,)
    host.say("u", ready=True, reason=Reason.READY, message="now")
    await deliver_messages()
    transport.lost = ()
    host.say("v", ready=True, reason=Reason.READY, message="now")
    await deliver_messages()
    assert (link.state.version("u"), link.state.version("v")) == (1, 2)
    link.resync()
    assert link.state.version("u") == 2


async def test_end_is_repeated_until_acknowledged(host, transport):
    link = Link(transport)
    await link.order(offer())
    transport.lost = (wire.RunEnded,)
    host.finish("u")
    await deliver_messages()
    assert link.state.ended_uids == set()
    transport.lost = (wire.Acknowledge,)
    host.end.resend()
    assert link.state.ended_uids == {"u"}
    link.acknowledge({"u"})
    host.end.resend()
    assert link.state.ended_uids == {"u"}
    transport.lost = ()
    link.acknowledge({"u"})
    await host.carried_out()
    ends = transport.count(wire.RunEnded)
    host.end.resend()
    assert transport.count(wire.RunEnded) == ends
    assert (link.state.ended_uids, host.acknowledged) == (set(), {"u"})


async def test_late_report_changes_nothing(host, transport):
    link = Link(transport)
    await link.order(offer())
    for seq, uid in ((5, "u"), (5, "u"), (3, "u")):
        link.receive(wire.RunChanged(session=link.session, count=seq, run=wire.RunStatus(uid=uid, seq=seq)))
    assert link.state.version("u") == 5
    link.receive(wire.RunEnded(session=link.session, count=6, run=wire.RunStatus(uid="u", seq=6)))
    link.receive(wire.RunChanged(session=link.session, count=7, run=wire.RunStatus(uid="u", seq=7)))
    assert link.state.has_ended("u")


# --- reordered messages ---------------------------------------------------------------------------------------------


async def test_earlier_order_does_not_replace_a_later_one(host):
    host.end.attach(lambda _: None)
    host.end.send(offer(session=1, number=1))
    for number, value in ((5, 50), (5, 50), (3, 30)):
        host.end.send(wire.Lease(session=1, number=number, uid="u", until=value))
        await host.carried_out()
    assert host.leases == {"u": 50}


async def test_birth_sent_before_forgetting_an_end_is_refused(host, transport):
    """The birth may belong to the ended run. If the sandbox still exists, the server sends it again."""
    link = Link(transport)
    host.end.send(offer(session=link.session, number=98))
    host.end.send(offer("another", session=link.session, number=100))
    await host.carried_out()
    host.finish("u")
    host.end.reject_older_births()
    host.offers.clear()
    host.over.clear()
    host.end.send(offer(session=link.session, number=99))
    await host.carried_out()
    assert host.offers == {}
    host.end.send(offer(session=link.session, number=101))
    await host.carried_out()
    assert set(host.offers) == {"u"}


# --- costs and reports ----------------------------------------------------------------------------------------------


async def test_reports_are_rendered_only_on_request(host, transport, monkeypatch):
    """Several changes in one turn of the loop cause one report."""
    drawn = []
    standing = FakeHost.run_status
    monkeypatch.setattr(FakeHost, "run_status", lambda self, uid: drawn.append(uid) or standing(self, uid))
    link = Link(transport)
    await link.order(offer())
    for _ in range(9):
        host.versions["u"] = host.version("u") + 1
        host.end.report_change("u")
    await deliver_messages()
    assert (drawn, transport.count(wire.RunChanged), link.state.version("u")) == ([], 1, 10)
    found, stale = await link.query_statuses(["u"])
    assert (drawn, found["u"].report.ready, stale) == (["u"], True, "")


async def test_pushed_report_is_not_requested_and_its_clock_runs(host, transport, monkeypatch):
    link = Link(transport)
    await link.order(offer())
    unit = UnitReport(
        id="db/make",
        name="make",
        event="preStart",
        kind="exec",
        state="running",
        template="has run {since}",
        since=1_000_000,
    )
    host.say("u", ready=False, reason=Reason.RESOURCES_PENDING, message="has run for 1 s", units=(unit,))
    report = msgspec.structs.replace(host.report("u"), about="db/make", message="db/make: has run for 1 s")
    link.receive(wire.RunChanged(session=link.session, run=wire.RunStatus(uid="u", seq=9, report=report)))
    monkeypatch.setattr(control.time, "time_ns", lambda: 1_061_000 * 1_000_000)
    found, stale = await link.query_statuses(["u"])
    assert (found["u"].report.message, stale) == ("db/make: has run for 1 min 1 s", "")
    assert transport.count(wire.StatusQuery) == 0
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.01)
    transport.lost = (wire.RunStatuses,)
    link.receive(wire.RunChanged(session=link.session, run=wire.RunStatus(uid="u", seq=10)))
    found, stale = await link.query_statuses(["u"])
    assert found["u"].seq == 9
    assert stale == "it does not answer"


async def test_many_runs_are_requested_in_batches(host, transport):
    """One answer for all would exceed the limit of an agent's message."""
    link, uids = Link(transport), [f"u{number:03}" for number in range(250)]
    for uid in uids:
        await link.order(offer(uid))
    found, why = await link.query_statuses(uids)
    assert (sorted(found), why) == (uids, "")
    assert [len(each.uids) for each in transport.sent if isinstance(each, wire.StatusQuery)] == [100, 100, 50]
    assert max(len(each.runs) for each in transport.sent if isinstance(each, wire.RunStatuses)) == 100
    standing = host.run_status

    def short(uid):
        if uid == "u150":
            raise DocumentsRefusedError("its answer is too long")
        return standing(uid)

    host.run_status = short
    found, why = await link.query_statuses(uids)
    assert (len(found), why) == (150, "its answer is too long")


@pytest.mark.parametrize(
    ("fault", "said"),
    [(ValueError("a defect"), "see the log of the host"), (DocumentsRefusedError("what?"), "what?")],
)
async def test_failing_host_hides_no_other_clusters(host, transport, monkeypatch, fault, said):
    """A list of all sandboxes queries all clusters at once."""
    links, other = Links(), FakeHost()
    links.add("org", {"good": Encoded(other.end), "bad": transport})
    for cluster, uid in (("good", "v"), ("bad", "u")):
        await links.get("org", cluster).order(offer(uid))

    def standing(self, uid):
        raise fault

    for answer in ("run_status", "version"):
        monkeypatch.setattr(host, answer, standing.__get__(host))
    looked = await links.query_statuses({("org", "good"): ["v"], ("org", "bad"): ["u"]})
    assert looked["org", "good"][0]["v"].report.ready
    assert looked["org", "good"][1] == ""
    assert looked["org", "bad"] == ({}, said)


async def test_refusal_differs_from_temporary_failure(host, transport, monkeypatch):
    link = Link(transport)
    host.refuse = "no such kind"
    with pytest.raises(DocumentsRefusedError, match="no such kind"):
        await link.admit((DOCUMENT,), ())
    with pytest.raises(DocumentsRefusedError, match="no such kind"):
        await link.order(offer())
    assert (await link.order(offer(birth=False))).verdict is Verdict.UNKNOWN
    host.refuse, host.down = "", True
    with pytest.raises(HostUnavailableError, match="No space left"):
        await link.order(offer())
    monkeypatch.setattr(FakeHost, "offer", None)
    with pytest.raises(HostFailedError):
        await link.order(offer())


async def test_silent_host_admits_and_may_refuse_later(transport, monkeypatch):
    """A spec is stored even if its cluster is offline."""
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.01)
    transport.lost = (wire.AdmissionQuery,)
    await Link(transport).admit((DOCUMENT,), ())


async def test_host_report_notifies_when_it_is_visible():
    notifier = ChangeNotifier()
    links = control.Links(notifier)
    links.add("local", {"local": FakeHost().end, "other": FakeHost().end})
    for name in ("local", "other"):
        picture = links.get("local", name).state
        for say in (picture.record_status, picture.record_end):
            before = notifier.changes
            say(wire.RunStatus(uid="u", seq=picture.version("u") + 1))
            assert notifier.changes == before + 1


async def test_waiter_misses_no_change_since_its_last_one():
    notifier, closing = ChangeNotifier(), asyncio.get_running_loop().create_future()
    before = notifier.changes
    notifier.notify()
    late = asyncio.ensure_future(notifier.wait(before, 3600, closing))
    await asyncio.sleep(0)
    assert late.done()
    waiting = [asyncio.ensure_future(notifier.wait(notifier.changes, 3600, closing)) for _ in range(2)]
    await asyncio.sleep(0)
    notifier.notify()
    await asyncio.gather(*waiting)
    closing.set_result(None)
    await notifier.wait(notifier.changes, 3600, closing)


def test_host_state_lists_runs_changed_since_a_moment():
    def inventory(session, *uids):
        runs = tuple(wire.RunStatus(uid=uid, seq=1) for uid in uids)
        return wire.Inventory(session=session, count=0, runs=runs, ended=())

    told = HostState()
    told.apply_inventory(inventory(1, "u", "v"))
    assert told.changed_since(0) == ["v", "u"]
    seen = told.changes
    told.record_status(wire.RunStatus(uid="u", seq=1))
    assert told.changed_since(seen) == []
    told.record_status(wire.RunStatus(uid="u", seq=2))
    told.record_end(wire.RunStatus(uid="w", seq=3))
    assert told.changed_since(seen) == ["w", "u"]
    assert told.changed_since(told.changes) == []
    told.forget_ends(["w"])
    assert told.changed_since(seen) == ["u"]
    # After a restart of the host all known runs count as changed, and ended runs are not kept forever.
    seen = told.changes
    told.apply_inventory(inventory(2, "v"))
    assert sorted(told.changed_since(seen)) == ["u", "v"]
    told.apply_inventory(inventory(3))
    told.apply_inventory(inventory(4))
    assert told.changed_since(0) == []


def test_host_state_drops_given_runs_except_ends():
    told, host = HostState(), FakeHost()
    for uid in ("u", "v", "w"):
        host.offers[uid] = offer(uid)
        told.record_status(wire.RunStatus(uid=uid, seq=2, report=host.report(uid)))
    told.record_end(wire.RunStatus(uid="w", seq=3))
    assert told.known_uids == {"u", "v", "w"}
    told.forget_runs(["u", "w", "x"])
    assert (told.known_uids, told.ended_uids) == ({"v", "w"}, {"w"})
    assert (told.last_report("u"), told.version("u"), told.changed_since(0)) == (None, NO_REPORT_VERSION, ["w", "v"])
    assert told.last_report("v") is not None
    told.record_status(wire.RunStatus(uid="u", seq=1))
    assert told.version("u") == 1


def test_report_that_overtakes_another_counts_as_gap():
    told = HostState()
    for count in (2, 1):
        told.record_count(count)
    assert told.has_gap
    told.apply_inventory(wire.Inventory(session=1, count=2, runs=(), ended=()))
    assert not told.has_gap
