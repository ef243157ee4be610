"""Slots for long polls: one key or organisation cannot occupy all connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from tests.server import specs
from tests.server.client import Client, wait_for
from tests.server.fake_host import uid_of
from tests.server.test_agents import replica, store  # noqa: F401 # fixtures

from dayfly.server.http import shared_slots
from dayfly.server.http.errors import RequestError
from dayfly.server.http.shared_slots import AGENTS_SHARE, CALLERS_SHARE, LongPollSlots

PLACES = 16


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(shared_slots, "max_connections", lambda: int(PLACES / CALLERS_SHARE))


def taken(found: LongPollSlots, org: str, key: str, held: contextlib.ExitStack) -> int:
    """Return the number of slots that a key gets."""
    places: list[None] = []
    with contextlib.suppress(RequestError):
        while len(places) < 1000:
            places.append(held.enter_context(found.acquire(org, key, 1.0)))
    return len(places)


def test_organisation_gets_half_of_long_poll_slots():
    found = LongPollSlots(CALLERS_SHARE)
    with contextlib.ExitStack() as held:
        assert taken(found, "acme", "one", held) == PLACES / 4
        assert sum(taken(found, "acme", str(key), held) for key in range(20)) == PLACES / 4
        assert taken(found, "other", "one", held) > 0
        with found.acquire("acme", "one", 0.0):
            pass
        with pytest.raises(RequestError) as refused:
            held.enter_context(found.acquire("acme", "one", 1.0))
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "10")
    with contextlib.ExitStack() as held:
        assert taken(found, "acme", "one", held) == PLACES / 4, "the slots are released"


def test_organisation_leaves_connections_to_others():
    assert CALLERS_SHARE / 2 + AGENTS_SHARE / 2 < 1 / 2


class Waiting:
    """Start long polls, each in a thread."""

    def __init__(self, client: Client, path: str, many: int) -> None:
        self.statuses: list[int] = []
        self._threads = [threading.Thread(target=self._ask, args=(client, path)) for _ in range(many)]
        for each in self._threads:
            each.start()

    def _ask(self, client: Client, path: str) -> None:
        self.statuses.append(client.call("GET", path).status)

    def end(self) -> list[int]:
        for each in self._threads:
            each.join()
        return self.statuses


@pytest.mark.parametrize("path", ["report?after={version}", "log?unit=mydb/provision"])
def test_key_with_too_many_long_polls_is_refused(client, host, path):
    client.put("sandboxes/sb1", specs.empty())
    uid = uid_of(host)
    host.log_data[uid, "mydb/provision", 1] = (b"", False)
    path = f"sandboxes/sb1/{path}".format(version=client.get("sandboxes/sb1/report")["version"])
    made = client.call("POST", "keys", {"name": "v", "role": "viewer"}).json["key"]
    viewer = Client(client.port, client.store, made)
    waiting = Waiting(viewer, f"{path}&wait=30", PLACES // 4 + 1)
    wait_for(lambda: waiting.statuses == [503])
    assert viewer.call("GET", path).status == 200
    others = Waiting(client, f"{path}&wait=30", 1)
    host.log_data[uid, "mydb/provision", 1] = (b"", True)
    host.say(uid, ready=True, reason="Ready", message="it is")
    assert others.end() == [200]
    assert waiting.end() == [503] + PLACES // 4 * [200]


async def test_hosts_leave_connections_to_other_organisations(replica):  # noqa: F811
    await replica.open()
    mine = int(int(PLACES / CALLERS_SHARE) * AGENTS_SHARE) // 4
    asked = [
        asyncio.create_task(replica.ask("east", "GET", "messages", session=1, after=0, wait=20))
        for _ in range(mine + 1)
    ]
    done, left = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert ([each.result()[0] for each in done], len(left)) == ([503], mine)
    replica.agents.close()
    assert {each[0] for each in await asyncio.gather(*left)} == {200}
