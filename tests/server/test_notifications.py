"""Two servers with one PostgreSQL: a change of a mailbox reaches the other server without polling."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from tests.server.test_agents import ORG, Replica

from dayfly.link import wire
from dayfly.link.envelope import SentMessages
from dayfly.server.db import notifications
from dayfly.server.db.store import Store
from dayfly.server.db.tables import clusters
from dayfly.server.sync.agents import agent_service

HOURS = 3600.0


class Pair:
    """Two running replicas that receive notifications."""

    def __init__(self, postgres, where: str) -> None:
        self._postgres, self._where = postgres, where
        self._stores = [Store.open(where) for _ in range(2)]
        self.first, self.second = map(Replica, self._stores)

    async def listening(self, count: int = 2) -> list[int]:
        """Wait for this number of listening connections; return their backend processes."""
        while len(found := self._postgres.listening(self._where)) != count:  # noqa: ASYNC110 - a database changes it
            await asyncio.sleep(0)
        return found

    @contextlib.asynccontextmanager
    async def running(self):
        added = {"name": "east", "created_at": 1, "agent": True}
        await self._stores[0].for_org(ORG).write(lambda rows: rows.insert(clusters, added))
        works = []
        for each in (self.first, self.second):
            await each.agents.load_mailboxes()
            works.append(asyncio.create_task(each.agents.run()))
        try:
            await self.listening()
            yield
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            for store in self._stores:
                store.close()


@pytest.fixture
async def pair(postgres, monkeypatch):
    monkeypatch.setattr(agent_service, "POLL_INTERVAL_S", HOURS)
    monkeypatch.setattr(notifications, "RETRY_S", 0)
    found = Pair(postgres, postgres.fresh())
    async with found.running():
        yield found


async def exchange_hello(pair: Pair) -> None:
    """Have the first replica greet an operator that is connected to the second one, and receive its inventory."""
    session = (await pair.second.open())["session"]
    waiting = asyncio.create_task(
        pair.second.ask("east", "GET", "messages", session=session, after=0, digest="", wait=30)
    )
    while not pair.first.agents.mailbox_state(ORG, "east").session:  # noqa: ASYNC110 - a task beside changes it
        await asyncio.sleep(0)
    meeting = await pair.first.meet()
    _, found, _ = await waiting
    (hello,) = [wire.decode_to_host(each["body"].encode()) for each in found["messages"]]
    assert isinstance(hello, wire.Hello)
    inventory = wire.Inventory(session=session)
    said = SentMessages(session=session, first=1, messages=[msgspec.json.encode(inventory).decode()])
    assert (await pair.second.ask("east", "POST", "messages", said))[0] == 200
    assert (await meeting)[0] == session


async def test_message_reaches_other_replica_without_polling(pair):
    await exchange_hello(pair)


async def test_replica_listens_again_after_lost_connection(pair, postgres):
    before = set(await pair.listening())
    for pid in before:
        postgres.administrate(f"SELECT pg_terminate_backend({pid})")
    while not before.isdisjoint(await pair.listening()):
        pass
    await exchange_hello(pair)
