"""Retries, with a virtual clock and scripted faults."""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest
from tests.client.relay import relayed
from tests.server import specs
from tests.server.client import KEY

from dayfly.client import ConflictError, NotFoundError, RetryPolicy, UnreachableError
from dayfly.client.address import Address
from dayfly.client.connection import run
from dayfly.client.errors import RefusedError, refusal
from dayfly.client.json_client import JsonClient
from dayfly.client.retry import parse_retry_after

UNSENT = UnreachableError("refused")
LOST = UnreachableError("no answer", sent=True)


def put_off(status, seconds=None):
    fault = refusal(status, "later")
    fault.retry_after_s = seconds
    return fault


@pytest.mark.parametrize(
    ("fault", "idempotent", "otherwise"),
    [
        (UNSENT, 0.05, 0.05),
        (LOST, 0.05, None),
        (put_off(429, 3.0), 3.0, 3.0),
        (put_off(429), 0.05, 0.05),
        (put_off(429, 0.0), 0.05, 0.05),
        (put_off(503, 0.0), 0.05, None),
        (put_off(503, 7.0), 7.0, None),
        (put_off(503), None, None),
        (put_off(500), None, None),
        (put_off(409, 1.0), None, None),
        (put_off(404), None, None),
    ],
)
def test_pause_depends_on_fault_and_idempotence(fault, idempotent, otherwise):
    retry = RetryPolicy()
    assert retry.pause(fault, idempotent=True, before=0, chance=0) == idempotent
    assert retry.pause(fault, idempotent=False, before=0, chance=0) == otherwise


def test_pauses_grow_to_a_bound_and_differ_by_chance():
    pauses = [RetryPolicy().pause(UNSENT, idempotent=True, before=n, chance=1) for n in range(7)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert RetryPolicy().pause(UNSENT, idempotent=True, before=10_000, chance=0) == 1.0


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), (None, None), ("", None), ("soon", None), ("-1", None), ("9" * 400, None)]
)
def test_retry_after_header_is_parsed(header, seconds):
    assert parse_retry_after(header) == seconds


class World:
    """An `Io` with scripted responses: a fault, or status and headers. Only pauses advance its clock."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.pauses = []
        self.sent = []

    async def connect(self, to, timeout):  # noqa: ASYNC109 # as an Io has it
        if self.answers[0] == "refused":
            self.answers.pop(0)
            raise ConnectionRefusedError(111, "Connection refused")
        return self

    async def send(self, data, timeout):  # noqa: ASYNC109 # as above
        self.sent.append(data)

    async def receive(self, timeout):  # noqa: ASYNC109 # as above
        answer = self.answers.pop(0)
        if answer == "lost":
            return b""
        if answer == "late":
            raise TimeoutError
        status, *headers = answer
        body = json.dumps({"error": "later"} if status >= 400 else {}).encode()
        return "\r\n".join((f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers, "", "")).encode() + body

    def is_quiet(self):
        return True

    def close(self):
        pass

    async def pause(self, seconds):
        self.pauses.append(seconds)

    def now(self):
        return sum(self.pauses)


def asked(world, method="GET", **options):
    json_client = JsonClient(lambda: Address("http://a:1", "k"), world, timeout=30, retries=RetryPolicy(patience=20))
    return run(json_client.request_as(dict, method, "/x", **options))


def test_reads_come_again_after_every_fault_of_the_way():
    world = World("refused", "lost", "late", (429, "retry-after: 3"), (503, "retry-after: 7"), (200,))
    assert asked(world) == {}
    assert len(world.sent) == 5
    assert [each for each in world.pauses if each >= 3] == [3.0, 7.0]


def test_unrepeatable_request_is_retried_only_if_unsent():
    world = World("refused", (429,), (200,))
    assert asked(world, "POST", body={}) == {}
    for fault in ("lost", "late", (503, "retry-after: 1")):
        world = World(fault, (200,))
        with pytest.raises((UnreachableError, RefusedError)) as refused:
            asked(world, "POST", body={})
        assert (len(world.sent), world.pauses) == (1, [])
        assert getattr(refused.value, "sent", True), "it is unknown whether the request was executed"
    world = World("lost", (200,))
    with pytest.raises(UnreachableError):
        asked(world, "DELETE", idempotent=False)


@pytest.mark.parametrize(("method", "repeated"), [("GET", True), ("PUT", True), ("DELETE", True), ("POST", False)])
def test_closed_idle_connection_repeats_all_but_post(method, repeated):
    """With no patience, like the command line. The server may have executed a POST before it closed."""
    world = World((200,), "lost", (200,))
    client = JsonClient(lambda: Address("http://a:1", "k"), world, timeout=30, retries=RetryPolicy(patience=0))
    assert run(client.request("GET", "/x")) == {}
    if repeated:
        assert run(client.request(method, "/x")) == {}
    else:
        with pytest.raises(UnreachableError, match="closed the connection without an answer"):
            run(client.request(method, "/x"))
    assert (len(world.sent), world.pauses) == (3 if repeated else 2, [])


def test_missing_object_on_repeated_delete_counts_as_deleted():
    assert asked(World("lost", (404,)), "DELETE") == {}
    for world in (World((404,)), World("refused", (404,))):
        with pytest.raises(NotFoundError):
            asked(world, "DELETE")
    with pytest.raises(NotFoundError):
        asked(World("lost", (404,)), "PUT", body={})


def test_patience_has_an_end():
    world = World(*["refused"] * 100)
    with pytest.raises(UnreachableError, match=r"no server answers at http://a:1 \(connection refused\)"):
        asked(world)
    assert 15 < world.now() <= 20
    with pytest.raises(RefusedError, match="later") as refused:
        asked(World((429, "retry-after: 60")))
    assert refused.value.retry_after_s == 60
    world = World("refused", (200,))
    with pytest.raises(UnreachableError):
        asked(world, patience=0)
    world = World(*[(429, "retry-after: 0")] * 100)
    with pytest.raises(RefusedError, match="later"):
        asked(world)
    assert 15 < world.now() <= 20, "a Retry-After of 0 causes no busy loop"
    with pytest.raises(RefusedError):
        asked(World((429, "retry-after: 0"), (200,)), patience=0)


def test_waiter_does_not_retry_after_its_time():
    """The silence of the server uses up the patience before the first failure is known."""

    class Silent(World):
        waited = 0.0

        async def receive(self, timeout):  # noqa: ASYNC109 # as an Io has it
            self.waited += timeout
            raise TimeoutError

        def now(self):
            return super().now() + self.waited

    for patience, times in ((5, 1), (40, 2), (None, 2)):
        world = Silent(*[()] * 9)
        with pytest.raises(UnreachableError, match="has not answered within 30 s"):
            asked(world, patience=patience)
        assert len(world.sent) == times, patience


def test_request_with_a_lost_answer_is_applied_once(server, connect):
    with relayed(server.port) as relay:
        dayfly = connect(f"http://127.0.0.1:{relay.port}", KEY, retries=RetryPolicy(first=0.01))
        relay.lost = 1
        assert dayfly.sandboxes.apply({"name": "sb1", **specs.empty()}).name == "sb1"
        relay.lost = 1
        assert dayfly.plugins.apply(specs.plugin("db@1.0.0")).version == "1.0.0", "a repeated publication succeeds"
        dayfly.plugins.apply(specs.plugin("db@1.1.0"))
        relay.lost = 2
        dayfly.plugins.delete("db")
        assert dayfly.plugins.get("db").version == "1.0.0", "a repeated delete removes no other version"
        relay.lost = 1
        with pytest.raises(UnreachableError) as unknown:
            dayfly.sandboxes.abandon("sb1", "enough")
        assert unknown.value.sent


def test_idle_connections_that_have_ended_are_not_used(server, connect):
    with relayed(server.port) as relay:
        dayfly = connect(f"http://127.0.0.1:{relay.port}", KEY, retries=RetryPolicy(patience=0))
        dayfly.sandboxes.list()
        relay.cut()
        time.sleep(0.05)  # the end of the connection arrives without an event
        dayfly.sandboxes.apply({"name": "sb1", **specs.empty()})
        with pytest.raises(ConflictError, match="nothing in it is waiting"):
            dayfly.sandboxes.retry("sb1")
        assert relay.made == 2


def test_a_process_and_its_copy_have_connections_of_their_own(monkeypatch):
    class Counted(World):
        made = 0

        async def connect(self, to, timeout):  # noqa: ASYNC109 # as an Io has it
            self.made += 1
            return await super().connect(to, timeout)

    world = Counted(*[(200,)] * 4)
    json_client = JsonClient(lambda: Address("http://a:1", "k"), world, timeout=30, retries=RetryPolicy())
    made = []
    for process in (None, None, 1, 1):
        with monkeypatch.context() as forked:
            if process:
                forked.setattr(os, "getpid", lambda: 1)
            run(json_client.request_as(dict, "GET", "/x"))
        made.append(world.made)
    assert made == [1, 1, 2, 2]


def test_many_at_once(server):
    from dayfly.client import AsyncClient

    async def all_at_once():
        async with AsyncClient(f"http://127.0.0.1:{server.port}", KEY) as dayfly:
            made = [dayfly.sandboxes.apply({"name": f"sb{n}", **specs.empty()}) for n in range(20)]
            names = [each.name for each in await asyncio.gather(*made)]
            slow = asyncio.create_task(dayfly.sandboxes.report("sb1", after=99, wait=20))
            await asyncio.sleep(0.05)
            slow.cancel()
            return names, [each.name for each in await dayfly.sandboxes.list()]

    names, listed = asyncio.run(all_at_once())
    assert sorted(names) == sorted(listed)
    assert len(listed) == 20
