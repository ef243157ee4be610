"""The real host with a link that loses, delays, duplicates and reorders messages: store and host agree in the end.

The test waits only for lost messages. Each schedule is one seed, and sandboxes share only the link.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from tests.embedded.conftest import machine, runner  # noqa: F401 - fixtures
from tests.selection import SELECTION
from tests.server import specs, stored_records
from tests.server.client import KEY
from tests.server.lossy_link import FATES, LossyLink, call

from dayfly.embedded.ledger import SqliteLedger
from dayfly.link import server_end as link
from dayfly.link.host_state import HostState
from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.db.tables import ended_sandboxes
from dayfly.server.records.run_records import RunRecord

ORG = "/api/v2/orgs/local"
NAMES = ("sb1", "sb2")
SEEDS = SELECTION.sample(range(64), 32, "lossy links")
OPS = 32
CREATE = {"name": "make", "script": '#!/bin/sh\necho "made $DAYFLY_SANDBOX_ROUTING_KEY" >> "$JOURNAL"\n'}


class Story:
    """One schedule with one host: its requests to the API, and the expected final state."""

    def __init__(self, on: Any, store: Store, seed: int) -> None:
        self.machine = on
        self.store = store
        self.ledger = SqliteLedger(on.home / "ledger.db")
        self.random = random.Random(seed)
        self.way = LossyLink(on.host.end, self.random)
        self.wished: dict[str, bool] = {}
        self.uids: set[str] = set()
        self.number = 0
        self.restart()

    def restart(self) -> None:
        """Start another process of the server with the same store."""
        self.app = create_app(self.store, {"local": self.way}, keys=callers.single_key(KEY), version="1")

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await call(self.app, KEY, method, f"{ORG}/{path}", body)

    async def play(self) -> None:
        """Send requests while messages are lost and delayed."""
        made = await self.ask("PUT", "resource-plugins/db", specs.plugin(create=[CREATE], delete=[]))
        assert made[0] == 200, made
        for _ in range(OPS):
            asked = asyncio.ensure_future(self.act())
            for _ in range(self.random.randrange(12)):
                await asyncio.sleep(0.001)
                self.way.step()
            while not asked.done():
                await asyncio.sleep(0.001)
                self.way.step()
            await asked

    async def act(self) -> None:
        name = self.random.choice(NAMES)
        match self.random.choices(["put", "delete", "sweep", "restart", "forget", "remind"], [8, 4, 7, 1, 3, 1])[0]:
            case "put":
                self.number += 1
                wish = specs.empty(
                    resources=[{"name": "mydb", "plugin": "db"}], ttl={"duration": f"{self.number + 60}m"}
                )
                status, answer = await self.ask("PUT", f"sandboxes/{name}", wish)
                assert status in (200, 409), answer
                self.wished[name] = self.wished.get(name, False) or status == 200
            case "delete":
                assert (await self.ask("DELETE", f"sandboxes/{name}"))[0] in (200, 404)
                self.wished[name] = False
            case "sweep":
                await self.app.state.sync.sweep()
            case "restart":
                self.restart()
            case "forget":
                await self.machine.host.forget_old()
            case "remind":
                self.machine.host.end.resend()
        self.uids |= {record.uid for record in await self.living()}

    async def living(self) -> list[RunRecord]:
        return await stored_records.read_all(self.store, "local")

    async def settle(self) -> list[RunRecord]:
        """Stop losing messages, and wait until no order is pending."""
        self.way.recover()
        for _ in range(400):
            self.machine.host.end.resend()
            await self.app.state.sync.sweep()
            found = await self.living()
            # A duplicated end may arrive again after it was acknowledged, and is acknowledged again.
            noted = not self.state.ended_uids and not list(self.machine.host.unacknowledged_ends())
            seen = all(self.state.version(each.uid) == self.machine.host.version(each.uid) for each in found)
            if noted and seen and all(self.is_settled(record) for record in found):
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(
            f"{found}; the host has {[self.machine.report(uid) for uid in self.machine.host.living_runs()]}"
        )

    @property
    def state(self) -> HostState:
        return self.app.state.sync.link(SimpleNamespace(org="local", cluster="local")).state

    def is_settled(self, record: RunRecord) -> bool:
        """Return whether the host has exactly the stored sandboxes, ready and with their newest specs."""
        stored, report = self.ledger.load(record.uid), self.machine.report(record.uid)
        if stored is None or record.stop is not None or not report.ready:
            return False
        return stored.generation == record.updated_at and stored.intent.expires_at == record.expires_at


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use short timeouts, and let hosts forget ends as soon as they are acknowledged."""
    monkeypatch.setattr(link, "ANSWER_TIMEOUT_S", 0.03)
    monkeypatch.setattr("dayfly.embedded.host.KEEP_ENDED_MS", -60_000)


async def test_store_and_host_agree_after_any_losses(machine, quick, blank, tmp_path):  # noqa: F811
    fates: set[str] = set()
    for seed in SEEDS:
        store = Store.open(shutil.copy(blank, tmp_path / f"{seed}.db"))
        story = Story(machine, store, seed)
        try:
            await story.play()
            found = await story.settle()
            _check(story, found, await store.read(_archived))
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {fault} ({SELECTION.variables()})") from fault
        finally:
            story.ledger.close()
            store.close()
        for record in found:
            await machine.finish(record.uid)
        await machine.host.acknowledge(tuple(record.uid for record in found))
        fates |= story.way.fates
    assert fates == set(FATES)


def _archived(connection: sa.Connection) -> set[str]:
    return set(connection.execute(sa.select(ended_sandboxes.c.uid)).scalars())


def _check(story: Story, found: list[RunRecord], archived: set[str]) -> None:
    host, living = story.machine.host, {record.uid for record in found}
    assert {record.name for record in found} == {name for name, wished in story.wished.items() if wished}
    assert set(host.living_runs()) == living, "a run without a sandbox, or a sandbox without a run"
    assert archived.isdisjoint(living)
    assert story.uids <= living | archived
    for line in story.machine.lines():
        assert story.machine.lines().count(line) == 1, "a step ran twice"
    made = set(story.machine.lines())
    assert all(f"made {record.routing_key}" in made for record in found)
