"""A request waits only shortly for a host with an agent; its order continues, and is not sent twice."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from tests.server import specs, stored_records
from tests.server.client import KEY, ORG
from tests.server.lossy_link import call

from dayfly.link import server_end as link
from dayfly.link import wire
from dayfly.link.server_end import Link, Links
from dayfly.link.wire import Verdict
from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.sync import host_sync

HOURS = 3600.0


class SlowHost:
    """A host that answers all messages at once, except offers."""

    def __init__(self) -> None:
        self.offers: list[wire.Offer] = []
        self.asked: list[wire.StatusQuery] = []

    def attach(self, hear) -> None:
        self.hear = hear

    def send(self, message: wire.AnyToHost) -> None:
        match message:
            case wire.Hello():
                self.hear(wire.Inventory(session=1))
            case wire.Offer():
                self.offers.append(message)
            case wire.StatusQuery():
                self.asked.append(message)
                self.hear(wire.RunStatuses(**message.address, runs=()))

    def take(self) -> None:
        [offer] = self.offers
        self.hear(wire.Reply(**offer.address, verdict=Verdict.TAKEN, seq=1))


@pytest.fixture
async def store(blank, tmp_path):
    found = Store.open(shutil.copy(blank, tmp_path))
    yield found
    found.close()


async def test_caller_does_not_wait_for_slow_host(store, monkeypatch):
    monkeypatch.setattr(link, "ANSWER_TIMEOUT_S", HOURS)
    monkeypatch.setattr(host_sync, "CALLER_WAIT_S", 0)
    app = create_app(store, {}, keys=callers.single_key(KEY), version="1")
    await call(app, KEY, "PUT", f"{ORG}/clusters/far")
    await call(app, KEY, "PUT", f"{ORG}/sandboxes/shop", specs.empty(cluster="far"))
    record = await stored_records.read(store, "local", "shop")
    host, links = SlowHost(), Links()
    links.add_link("far", Link(host, "local", shared=True))
    sync = host_sync.HostSync(store, links)

    await sync.send_order_soon(record)
    assert sync.awaits_first_answer(record)
    sweep = asyncio.create_task(sync.sweep())
    while not host.offers:
        await call(app, KEY, "GET", f"{ORG}/clusters")
    host.take()
    await sweep
    assert not sync.awaits_first_answer(record)
    assert len(host.offers) == 1
