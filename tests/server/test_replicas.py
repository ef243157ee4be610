"""Several servers with one database give the same answers and do not undo each other's writes."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.server import specs
from tests.server.client import KEY, ORG
from tests.server.lossy_link import call

from dayfly.server.access import callers
from dayfly.server.admin import audit
from dayfly.server.app import create_app
from dayfly.server.db import store
from dayfly.server.db.store import OPTIMISTIC_ATTEMPTS, Store
from dayfly.server.db.tables import audit_heads

HOURS = 3600.0


@pytest.fixture
async def replicas(place):
    stores = [Store.open(place) for _ in range(2)]
    yield [create_app(each, {}, keys=callers.single_key(KEY), version="1") for each in stores]
    for each in stores:
        each.close()


@pytest.mark.slow
async def test_key_works_at_every_replica_until_it_is_revoked(replicas):
    first, second = replicas
    _, made = await call(first, KEY, "POST", f"{ORG}/keys", {"name": "a", "role": "member"})
    assert (await call(second, made["key"], "GET", f"{ORG}/sandboxes"))[0] == 200
    assert (await call(second, KEY, "DELETE", f"{ORG}/keys/{made['id']}"))[0] == 200
    assert (await call(first, made["key"], "GET", f"{ORG}/sandboxes"))[0] == 401


@pytest.mark.slow
async def test_concurrent_requests_for_one_sandbox_are_serialised(replicas):
    assert (await call(replicas[0], KEY, "PUT", f"{ORG}/clusters/far"))[0] == 200

    async def put(number):
        name, said = f"sb{number % 3}", specs.empty(cluster="far", labels={"n": str(number)})
        status, answer = await call(replicas[number % 2], KEY, "PUT", f"{ORG}/sandboxes/{name}", said)
        assert status == 200, answer
        return name, answer["routingKey"], answer["spec"]["labels"]

    said = await asyncio.gather(*(put(number) for number in range(24)))
    both = [(await call(app, KEY, "GET", f"{ORG}/sandboxes"))[1] for app in replicas]
    assert [each["spec"] for each in both[0]] == [each["spec"] for each in both[1]]
    assert len({(name, key) for name, key, _ in said}) == 3, "each was made once"
    for found in both[0]:
        assert (found["name"], found["routingKey"], found["spec"]["labels"]) in said
    ends = [call(app, KEY, "DELETE", f"{ORG}/sandboxes/sb{number}") for number in range(3) for app in replicas]
    assert {status for status, _ in await asyncio.gather(*ends)} == {200}
    assert (await call(replicas[1], KEY, "GET", f"{ORG}/sandboxes"))[1] == []


async def test_second_attempt_of_transaction_starts_at_once(postgres, monkeypatch):
    monkeypatch.setattr(store, "MAX_BACKOFF_S", HOURS)
    monkeypatch.setattr(store, "BACKOFF_S", HOURS)
    where, tries = postgres.fresh(), 0
    slow, quick = Store.open(where), Store.open(where)
    loop = asyncio.get_running_loop()

    def note(rows):
        audit.append(rows, audit.Actor("acme", "k", "ada"), "change", "sandboxes/shop")

    def overtaken_once(rows):
        nonlocal tries
        tries += 1
        rows.execute(rows.select(audit_heads)).all()
        if tries == 1:
            asyncio.run_coroutine_threadsafe(quick.for_org("acme").write(note), loop).result()
        note(rows)

    await quick.for_org("acme").write(note)
    await slow.for_org("acme").write(overtaken_once)
    assert tries == 2
    for each in (slow, quick):
        each.close()


async def test_repeatedly_overtaken_transaction_completes(postgres):
    where, loop, others = postgres.fresh(), asyncio.get_running_loop(), []
    slow, quick = Store.open(where), Store.open(where)

    def note(rows):
        audit.append(rows, audit.Actor("acme", "k", "ada"), "change", "sandboxes/shop")

    def overtaken(rows):
        rows.execute(rows.select(audit_heads)).all()
        other = asyncio.run_coroutine_threadsafe(quick.for_org("acme").write(note), loop)
        others.append(other)
        deadline = time.monotonic() + 60
        while not (other.done() or postgres.waits(where)):
            assert time.monotonic() < deadline, "the other transaction neither ends nor waits"
        note(rows)

    await quick.for_org("acme").write(note)
    await slow.for_org("acme").write(overtaken)
    assert len(others) == OPTIMISTIC_ATTEMPTS + 1
    await asyncio.gather(*map(asyncio.wrap_future, others))
    entries = await slow.for_org("acme").read(lambda rows: rows.execute(rows.select(audit_heads.c.number)).scalar())
    assert entries == len(others) + 2, "each transaction has written once"
    for each in (slow, quick):
        each.close()
