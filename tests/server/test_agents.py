"""Mailboxes of agents: their messages, sequence and sessions."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from tests.server import stored_records
from tests.server.databases import sql

from dayfly.link import wire
from dayfly.link.envelope import MAX_MESSAGES, SessionRequest, chain_digest
from dayfly.link.host_state import NO_REPORT_VERSION
from dayfly.link.server_end import Link
from dayfly.server.access import callers
from dayfly.server.admin.cluster_tokens import ClusterCaller
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.db.tables import clusters
from dayfly.server.records.run_records import save
from dayfly.server.sync.agents import mailbox_rows, sessions
from dayfly.server.sync.agents.agent_service import AgentService
from dayfly.server.sync.agents.mailbox_transport import MailboxTransport
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Exec, Lifecycle, Target, Unit
from dayfly.spec.route_group import GroupTtl
from dayfly.spec.sandbox import Ttl

ORG = "acme"
TOKENS = {name: ClusterCaller(ORG, name, name) for name in ("east", "west")}
SPOKEN = str(wire.PROTOCOL)
HELLO = wire.Hello()


async def whose(token: str, _address: str) -> ClusterCaller | None:
    return TOKENS.get(token)


class Replica:
    """A replica of the server."""

    def __init__(self, store: Store) -> None:
        self.now = 1_000
        self.agents = AgentService(store, identify=whose, now=lambda: self.now)
        self.app = create_app(store, {}, org=ORG, keys=callers.single_key("k", ORG), version="1", agents=self.agents)

    def link(self, cluster: str = "east") -> Link | None:
        """Return the link to a cluster, once the agents have read that the cluster exists."""
        return self.app.state.sync.link(SimpleNamespace(org=ORG, cluster=cluster))

    async def meet(self, cluster: str = "east") -> asyncio.Task[Any]:
        """Greet the operator of a cluster; the task ends when its inventory arrives."""
        meeting = asyncio.create_task(self.link(cluster).wait_for_session())
        await asyncio.sleep(0)
        return meeting

    async def ask(
        self, token: str, method: str, path: str, body: Any = None, protocol: str = SPOKEN, **query: Any
    ) -> tuple[int, Any, dict[str, str]]:
        headers = {"host": "localhost", "signadot-cluster-token": token, "dayfly-agent-protocol": protocol}
        raw = [(key.encode(), text.encode()) for key, text in headers.items()]
        scope = {"type": "http", "method": method, "path": f"/api/v2/agent/{path}", "headers": raw}
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            return {"type": "http.request", "body": data}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app({**scope, "query_string": urlencode(query).encode()}, receive, send)
        answered = {key.decode().lower(): text.decode() for key, text in sent[0]["headers"]}
        return sent[0]["status"], json.loads(b"".join(each.get("body", b"") for each in sent[1:])), answered

    async def open(self, token: str = "east", previous: int = 0, number: int = 0, digest: str = "") -> dict[str, Any]:
        asks = SessionRequest(cluster_uid=f"u-{token}", previous=previous, number=number, digest=digest)
        status, found, _ = await self.ask(token, "POST", "session", asks)
        assert status == 200, found
        return found


@pytest.fixture
async def store(tmp_path):
    found = Store.open(tmp_path / "control.db")
    added = [{"name": name, "created_at": 1, "agent": True} for name in ("east", "west")]
    await found.for_org(ORG).write(lambda rows: rows.insert(clusters, added))
    yield found
    found.close()


@pytest.fixture
async def replica(store):
    return Replica(store)


async def publish(store: Store, cluster: str, *messages: wire.AnyToHost) -> list[int]:
    return await store.for_org(ORG).write(lambda rows: mailbox_rows.publish(rows, cluster, messages, 5))


@pytest.mark.parametrize(
    ("token", "protocol", "status"), [("", SPOKEN, 401), ("wrong", SPOKEN, 401), ("east", "1", 400)]
)
@pytest.mark.parametrize(("method", "path"), [("POST", "session"), ("GET", "messages"), ("POST", "births")])
async def test_request_without_token_or_protocol_is_refused(replica, token, protocol, status, method, path):
    assert (await replica.ask(token, method, path, {}, protocol))[0] == status


async def test_cluster_token_is_no_api_key(replica):
    headers = [(b"host", b"localhost"), (b"signadot-cluster-token", b"east")]
    scope = {"type": "http", "method": "GET", "path": f"/api/v2/orgs/{ORG}/sandboxes", "headers": headers}
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await replica.app({**scope, "query_string": b""}, None, send)
    assert sent[0]["status"] == 401


async def test_cluster_receives_only_its_own_messages(replica, store):
    sessions = {name: (await replica.open(name))["session"] for name in ("east", "west")}
    await publish(store, "east", HELLO)
    for name, count in (("east", 1), ("west", 0)):
        _, found, _ = await replica.ask(name, "GET", "messages", session=sessions[name], after=0)
        assert len(found["messages"]) == count


async def test_idle_poll_updates_last_seen_time_at_intervals(replica, store):
    session = await replica.open()

    async def poll(after, digest, now):
        work = lambda rows: mailbox_rows.fetch(rows, "east", 1, after, digest, now)  # noqa: E731
        found = await store.for_org(ORG).write(work)
        return found, (
            await store.for_org(ORG).read(lambda rows: sessions.read_states(rows, [(ORG, "east"), (ORG, "x")]))
        )[0]

    assert (await poll(0, session["digest"], 1_000 + mailbox_rows.RECORD_POLL_INTERVAL_MS - 1))[1].seen_at == 1_000
    assert (await poll(0, session["digest"], 1_000 + mailbox_rows.RECORD_POLL_INTERVAL_MS))[1].seen_at == 11_000
    await publish(store, "east", HELLO)
    ((sent,), _) = await poll(0, session["digest"], 11_001)
    # A received message is recorded at once, so that it is not repeated.
    found, standing = await poll(1, sent.digest, 11_002)
    assert (found, standing.seen_at) == ([], 11_002)
    with pytest.raises(sessions.SessionEndedError, match="a later request"):
        await poll(0, session["digest"], 11_003)


async def test_messages_are_numbered_without_gaps_and_chained(replica, store):
    session = await replica.open()
    await publish(store, "east", HELLO, wire.HistoryQuery(uid="u", session=1))
    assert await publish(store, "east", wire.HistoryQuery(uid="old", session=77)) == [0]
    await publish(store, "east", HELLO)
    _, found, _ = await replica.ask("east", "GET", "messages", session=1, after=0)
    digest = session["digest"]
    for number, each in enumerate(found["messages"], 1):
        digest = chain_digest(digest, each["number"], each["at"], each["body"])
        assert (each["number"], each["digest"]) == (number, digest)
        assert json.loads(each["body"])["number"] == number
    assert len(found["messages"]) == 3


async def test_messages_are_resent_until_acknowledged(replica, store):
    await replica.open()
    await publish(store, "east", HELLO, HELLO, HELLO)
    _, found, _ = await replica.ask("east", "GET", "messages", session=1, after=0)
    second = found["messages"][1]
    for _ in range(2):
        _, rest, _ = await replica.ask("east", "GET", "messages", session=1, after=2, digest=second["digest"])
        assert [each["number"] for each in rest["messages"]] == [3]
    # A late or duplicated poll changes nothing.
    assert (await replica.ask("east", "GET", "messages", session=1, after=0))[0] == 409
    assert (await replica.ask("east", "GET", "messages", session=1, after=2, digest=second["digest"]))[0] == 200


async def test_unfetched_messages_are_bounded(replica, store, monkeypatch):
    monkeypatch.setattr(mailbox_rows, "MAX_UNSEEN", 3)
    await replica.open()

    async def ask(session: int, count: int) -> list[int]:
        return await publish(store, "east", *[wire.HistoryQuery(uid="u", session=session)] * count)

    assert [await ask(1, 2), await ask(1, 2), await publish(store, "east", HELLO)] == [[1, 2], [3, 0], [0]]
    _, found, _ = await replica.ask("east", "GET", "messages", session=1, after=0)
    assert [each["number"] for each in found["messages"]] == [1, 2, 3]
    # Received messages make room for others, without a gap in the numbers.
    await replica.ask("east", "GET", "messages", session=1, after=2, digest=found["messages"][1]["digest"])
    assert await ask(1, 3) == [4, 5, 0]
    # In the next session the messages of the previous one are void and take no room.
    await replica.open(previous=1, number=2, digest=found["messages"][1]["digest"])
    assert [await publish(store, "east", HELLO), await ask(2, 2)] == [[6], [7, 0]]


async def test_cluster_with_foreign_chain_is_frozen_until_thawed(replica, store):
    await replica.open()
    await publish(store, "east", HELLO)
    status, found, _ = await replica.ask("east", "GET", "messages", session=1, after=1, digest="of another database")
    assert status == 423
    assert "frozen: it has seen messages that this server does not know" in found["error"]
    assert await publish(store, "east", HELLO) == [0]
    assert not await store.for_org(ORG).write(lambda rows: sessions.thaw(rows, "east")), (
        "the host has not reported its runs"
    )
    opening = SessionRequest(cluster_uid="u-east", previous=1, number=1, digest="of another database")
    for path, body in (("births", {"session": 1, "uids": []}), ("session", opening)):
        assert (await replica.ask("east", "POST", path, body))[0] == 423
    assert await store.for_org(ORG).write(lambda rows: sessions.thaw(rows, "east"))
    again = await replica.open(previous=1, number=1, digest="of another database")
    assert again["session"] == 2


@pytest.mark.parametrize("asks", [{"number": 9, "digest": "x"}, {"previous": 9}, {"number": 1, "digest": "x"}])
async def test_a_host_that_knows_more_than_the_database_freezes(replica, store, asks):
    await replica.open()
    await publish(store, "east", HELLO)
    opening = SessionRequest(**{"cluster_uid": "u-east", "previous": 1, **asks})
    assert (await replica.ask("east", "POST", "session", opening))[0] == 423


async def test_second_of_two_concurrent_sessions_is_refused(replica):
    await replica.open()
    openings = [
        replica.ask("east", "POST", "session", SessionRequest(cluster_uid="u-east", previous=1)) for _ in range(2)
    ]
    answers = sorted(await asyncio.gather(*openings), key=lambda each: each[0])
    assert [status for status, _, _ in answers] == [200, 409]
    assert answers[1][2]["dayfly-agent-session"] == "2"


@pytest.mark.parametrize("more", [{"cluster_uid": "u" * 65}, {"version": "1\0"}, {"namespaces": {ORG: "a\0"}}])
async def test_malformed_session_request_is_refused(replica, more):
    """PostgreSQL would reject it, and the host would get the error that the store is unavailable."""
    opening = SessionRequest(**{"cluster_uid": "u-east", **more})
    status, answer, _ = await replica.ask("east", "POST", "session", opening)
    assert (status, "error" in answer) == (400, True)
    assert (await replica.open())["session"] == 1


@pytest.mark.parametrize("more", [{"runs": ("u" * 1_000_000,)}, {"digest": "d" * 1_000_000}])
async def test_frozen_opening_is_bounded_in_size(replica, store, more):
    """The opening is stored until an administrator has thawed the cluster, and read with each poll of the mailboxes."""
    await replica.open()
    frozen = SessionRequest(**{"cluster_uid": "u-east", "previous": 1, "number": 1, "digest": "of another", **more})
    status, _, _ = await replica.ask("east", "POST", "session", frozen)
    (kept,) = sql(store, "SELECT length(frozen) FROM agents")
    assert (status, kept) == (400, (0,))
    whole = msgspec.structs.replace(frozen, digest="d" * 64, runs=("u" * 64,))
    assert (await replica.ask("east", "POST", "session", whole))[0] == 423


async def test_no_message_or_uid_of_a_host_has_a_nul(replica):
    """Nor has its opening."""
    await replica.open()
    said = {"session": 1, "first": 1, "messages": ["a", "b\0"]}
    assert (await replica.ask("east", "POST", "messages", said))[0] == 400
    assert (await replica.ask("east", "POST", "births", {"session": 1, "uids": ["a", "b\0"]}))[0] == 400
    assert (await replica.ask("east", "POST", "messages", {**said, "messages": ["a"]}))[1] == {"received": 1}


async def test_session_is_reopened_after_a_lost_answer(replica, store):
    """Messages that were pending are void; the host continues with its numbers."""
    await replica.open()
    await publish(store, "east", HELLO)
    await replica.open(previous=1)
    third = await replica.open(previous=2)
    assert (third["session"], third["number"]) == (3, 1)
    _, found, _ = await replica.ask("east", "GET", "messages", session=3, after=1, digest=third["digest"])
    assert found == {"messages": []}


@pytest.mark.parametrize("thawed", [False, True])
async def test_new_session_with_pending_messages_is_not_frozen(replica, store, thawed):
    """Messages that were pending are void, and a new one is stored before the host polls for the first time."""
    await replica.open()
    await publish(store, "east", HELLO, HELLO)
    if thawed:
        stranger = SessionRequest(cluster_uid="u-east", previous=1, number=1, digest="of another database")
        assert (await replica.ask("east", "POST", "session", stranger))[0] == 423
        assert await store.for_org(ORG).write(lambda rows: sessions.thaw(rows, "east"))
        begun = await replica.open(previous=1, number=1, digest="of another database")
    else:
        begun = await replica.open(previous=1)
    assert (begun["session"], begun["number"]) == (2, 2)
    await publish(store, "east", HELLO)
    here = {"session": 2, "after": 2, "digest": begun["digest"]}
    status, found, _ = await replica.ask("east", "GET", "messages", **here)
    assert (status, [each["number"] for each in found["messages"]]) == (200, [3])
    await publish(store, "east", HELLO)
    again = await replica.open(previous=2, number=2, digest=begun["digest"])
    assert (again["session"], again["number"]) == (3, 4)


async def test_repeated_host_messages_are_stored_once(replica, store):
    await replica.open()

    async def say(first: int, *messages: str) -> int:
        said = {"session": 1, "first": first, "messages": messages}
        return (await replica.ask("east", "POST", "messages", said))[1]["received"]

    assert [await say(1, "a", "b"), await say(1, "a", "b", "c"), await say(2, "b"), await say(9, "z")] == [2, 3, 3, 3]
    found = await store.for_org(ORG).read(lambda rows: mailbox_rows.read_inbox(rows, "east", 0))
    assert [body for _, body in found] == ["a", "b", "c"]
    assert (await replica.ask("east", "POST", "messages", {"session": 7, "first": 4, "messages": ["x"]}))[0] == 409
    many = {"session": 1, "first": 4, "messages": ["x"] * (MAX_MESSAGES + 1)}
    assert (await replica.ask("east", "POST", "messages", many))[0] == 413
    assert (await replica.ask("east", "POST", "messages", b"{"))[0] == 400


@pytest.mark.parametrize(("born", "begins"), [(1_001, True), (1_000, False)])
async def test_expired_births_are_refused_by_server_clock(replica, store, born, begins):
    """The sandbox was offered while its host was offline, and the host's clock is slow."""
    replica.now = 3_601_000

    def wished(rows):
        hour = {"duration": "1h", "offset_from": "createdAt"}
        for uid, ttl in (("u-brief", Ttl(**hour)), ("u-lives", None)):
            save(rows, stored_records.sandbox(uid, org=ORG, cluster="east", at=born, ttl=ttl))
        for uid, ttl in (("g-brief", GroupTtl(**hour)), ("g-lives", None)):
            save(rows, stored_records.group(uid, org=ORG, cluster="east", at=born, ttl=ttl))

    await store.for_org(ORG).write(wished)
    await replica.open()
    uids = ["g-brief", "g-lives", "u-brief", "u-lives", "u-unknown"]
    _, found, _ = await replica.ask("east", "POST", "births", {"session": 1, "uids": uids})
    assert sorted(found["uids"]) == [each for each in uids[:4] if begins or "lives" in each]


async def test_waiting_poll_fails_once_token_is_revoked(replica, store, monkeypatch):
    await replica.open()
    await replica.agents.load_mailboxes()
    fetch, looked = mailbox_rows.fetch, []
    monkeypatch.setattr(mailbox_rows, "fetch", lambda *given: looked.append(1) or fetch(*given))
    waiting = asyncio.create_task(replica.ask("east", "GET", "messages", session=1, after=0, wait=20))
    while not looked:  # noqa: ASYNC110 - in a thread of the store
        await asyncio.sleep(0.01)
    monkeypatch.delitem(TOKENS, "east")
    await publish(store, "east", HELLO)
    await replica.agents.load_mailboxes()
    async with asyncio.timeout(10):
        assert (await waiting)[0] == 401


async def test_any_replica_serves_any_request(replica, store, monkeypatch):
    """A host polls one replica, and another replica sends it a message and receives its answer."""
    monkeypatch.setattr("dayfly.server.sync.agents.agent_service.POLL_INTERVAL_S", 0.02)
    other = Replica(store)
    await replica.open()
    running = [asyncio.create_task(each.agents.run()) for each in (replica, other)]
    try:
        waiting = asyncio.create_task(replica.ask("east", "GET", "messages", session=1, after=0, wait=20))
        while other.link() is None:  # noqa: ASYNC110 - it reads the clusters by itself
            await asyncio.sleep(0.01)
        meeting = await other.meet()
        async with asyncio.timeout(10):
            _, found, _ = await waiting
        asked = json.loads(found["messages"][0]["body"])
        assert (asked["type"], asked["number"]) == ("Hello", 1)
        inventory = wire.Inventory(session=1, runs=(wire.RunStatus(uid="u", seq=3),))
        said = {"session": 1, "first": 1, "messages": [wire.encode(inventory).decode()]}
        await replica.ask("east", "POST", "messages", said)
        async with asyncio.timeout(10):
            session, _ = await meeting
        assert (session, other.link().state.version("u")) == (1, 3)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_recreated_cluster_starts_with_empty_state(replica, store):
    """No replica has read the mailbox in between; messages and session of the first cluster are not used for the second."""
    for previous in range(2):
        await replica.open(previous=previous)
    inventory = wire.encode(wire.Inventory(session=2, runs=(wire.RunStatus(uid="u", seq=3),)))
    await replica.ask("east", "POST", "messages", {"session": 2, "first": 1, "messages": [inventory.decode()] * 3})
    await replica.agents.load_mailboxes()
    first = replica.link()

    def anew(rows: Any) -> None:
        rows.execute(rows.delete(clusters).where(clusters.c.name == "east"))
        rows.insert(clusters, {"name": "east", "created_at": 2, "agent": True})

    await store.for_org(ORG).write(anew)
    replica.now = 2_000
    await replica.open()
    await replica.agents.load_mailboxes()
    second = replica.link()
    assert second is not first
    meeting = await replica.meet()
    said = wire.Inventory(session=1, runs=(wire.RunStatus(uid="v", seq=4),))
    await replica.ask("east", "POST", "messages", {"session": 1, "first": 1, "messages": [wire.encode(said).decode()]})
    await replica.agents.load_mailboxes()
    session, _ = await meeting
    assert (session, second.state.version("v"), second.state.version("u")) == (1, 4, NO_REPORT_VERSION)


async def test_unread_host_messages_are_bounded(replica, store, monkeypatch):
    """A replica that is slower misses numbers, and requests the inventory."""
    monkeypatch.setattr(mailbox_rows, "MAX_INBOX", 4)
    await replica.open()
    await replica.agents.load_mailboxes()

    async def say(first: int, *messages: str) -> list[str]:
        said = {"session": 1, "first": first, "messages": messages}
        status, answer, _ = await replica.ask("east", "POST", "messages", said)
        assert (status, answer) == (200, {"received": first - 1 + len(messages)})
        return [
            body for _, body in await store.for_org(ORG).read(lambda rows: mailbox_rows.read_inbox(rows, "east", 0))
        ]

    assert await say(1, *"abcdef") == ["c", "d", "e", "f"]
    assert await say(7, "ä" * mailbox_rows.INBOX_UNIT_BYTES) == ["f", "ä" * mailbox_rows.INBOX_UNIT_BYTES]
    assert await say(8, "g") == ["ä" * mailbox_rows.INBOX_UNIT_BYTES, "g"]
    # A message that exceeds the limit by itself is received nevertheless.
    assert await say(9, "x" * 9 * mailbox_rows.INBOX_UNIT_BYTES) == ["x" * 9 * mailbox_rows.INBOX_UNIT_BYTES]


async def test_too_deeply_nested_message_blocks_no_later_ones(replica):
    """Neither later messages of the same operator nor messages of other clusters are blocked."""
    deep = f'{{"type":"Heartbeat","session":1,"count":1,"more":{"[" * 50_000}{"]" * 50_000}}}'
    inventory = wire.Inventory(session=1, runs=(wire.RunStatus(uid="u", seq=3),))
    for cluster in ("east", "west"):
        await replica.open(cluster)
    await replica.agents.load_mailboxes()
    meetings = [await replica.meet(cluster) for cluster in ("east", "west")]
    for cluster, said in (
        ("east", [deep, wire.encode(inventory).decode()]),
        ("west", [wire.encode(inventory).decode()]),
    ):
        await replica.ask(cluster, "POST", "messages", {"session": 1, "first": 1, "messages": said})
    await replica.agents.load_mailboxes()
    await asyncio.gather(*meetings)
    assert [replica.link(cluster).state.version("u") for cluster in ("east", "west")] == [3, 3]


@pytest.mark.parametrize("field", ["previous", "number"])
async def test_session_numbers_beyond_64_bits_are_refused(replica, store, field):
    await replica.open()
    opening = SessionRequest(**{"cluster_uid": "u-east", "previous": 1, field: 1 << 64, "digest": "d"})
    status, answer, _ = await replica.ask("east", "POST", "session", opening)
    assert (status, "error" in answer) == (400, True)
    assert (await replica.open(previous=1))["session"] == 2


async def test_documents_too_long_for_an_operator_are_refused(replica, store, monkeypatch):
    """The operator would fetch the answer with them forever, and receive no other message."""
    monkeypatch.setattr("dayfly.server.sync.agents.mailbox_transport.MAX_ANSWER_BYTES", 8_000)
    await replica.open()
    (standing,) = await store.for_org(ORG).read(lambda rows: sessions.read_states(rows, [(ORG, "east")]))
    host = MailboxTransport(standing, lambda: replica.now, lambda: None)
    target = Target(kind="Sandbox", name="box", uid="u")

    def of(length: int) -> tuple[Lifecycle, ...]:
        step = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n" + '"' * length))
        return (Lifecycle(target=target, resource="db", pre_start=(step,)),)

    fits = wire.Offer(uid="u", name="box", target=target, documents=of(1_000))
    host.send(fits)
    for long in (
        wire.Offer(uid="u", name="box", target=target, documents=of(2_000)),
        wire.AdmissionQuery(documents=of(2_000)),
    ):
        with pytest.raises(DocumentsRefusedError, match="more than an operator accepts"):
            host.send(long)
    assert host.pending == [fits]
