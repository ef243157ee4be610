"""Slots for streams: limited in all, and for each organisation and key by the slots that the others leave."""

from __future__ import annotations

import asyncio
import contextlib
import http.client

from starlette.requests import Request
from tests.server import specs
from tests.server.client import ORG, Client, wait_for
from tests.server.test_changes import listening, soon  # noqa: F401 # a fixture for all here

from dayfly.server.access.callers import Caller, Role
from dayfly.server.api import changes
from dayfly.server.http.errors import RequestError
from dayfly.server.http.shared_slots import SharedSlots


def fill(listeners, org, key):
    """Take slots until none is left."""
    found = []
    while (place := listeners.acquire(org, key)) is not None:
        found.append(place)
    return found


def test_streams_leave_half_to_other_keys_and_organisations():
    listeners = SharedSlots(200)
    taken = fill(listeners, "a", "one")
    assert len(taken) == 50
    taken += fill(listeners, "a", "two")
    assert len(taken) == 75
    for key in range(20):
        taken += fill(listeners, "a", str(key))
    found = fill(listeners, "b", "one")
    assert len(found) == 25, "the first organisation leaves 100 places to others"
    taken += found
    for org in range(20):
        for key in range(20):
            taken += fill(listeners, str(org), str(key))
    assert len(taken) <= 200


def test_released_slot_is_free_once():
    listeners = SharedSlots(4)
    first, *others = fill(listeners, "a", "one")
    assert others == []
    first.release()
    first.release()
    assert len(fill(listeners, "a", "one")) == 1


class Slow:
    """A stream whose first poll ends at a time that the test chooses."""

    def __init__(self):
        self.goes_on = asyncio.Event()

    async def poll(self):
        await self.goes_on.wait()


async def test_streams_that_are_being_opened_count(monkeypatch):
    stream = Slow()
    monkeypatch.setattr(changes, "MAX_STREAMS", 16)
    monkeypatch.setattr(changes, "OrganisationStream", lambda *_: stream)
    store = type("NoStore", (), {"notifier": None})()
    found = changes.Changes(store, None, None, None, None, None, asyncio.Event())
    who = Caller("acme", Role.VIEWER, "k", "k")

    def ask():
        return found.stream_all(Request({"type": "http", "method": "GET", "headers": [], "caller": who}))

    asked = [asyncio.ensure_future(ask()) for _ in range(10)]
    await asyncio.sleep(0)
    gone = asked.pop(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    asked.append(asyncio.ensure_future(ask()))
    await asyncio.sleep(0)
    stream.goes_on.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, RequestError)]
    assert (len(answers) - len(refused), {each.status for each in refused}) == (4, {503})


def is_refused(client, key):
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=40)
    connection.request("HEAD", f"{ORG}/changes", headers={"signadot-api-key": key})
    status = connection.getresponse().status
    connection.close()
    return status == 503


def test_key_at_its_stream_limit_blocks_no_other_key(client):
    client.put("sandboxes/sb1", specs.empty())
    made = client.call("POST", "keys", {"name": "v", "role": "viewer"}).json["key"]
    viewer = Client(client.port, client.store, made)
    with contextlib.ExitStack() as open_:
        for _ in range(changes.MAX_STREAMS // 4):
            open_.enter_context(listening(client, key=made)).next()
        refused = viewer.call("GET", "changes")
        assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        assert open_.enter_context(listening(client)).next()
    wait_for(lambda: not is_refused(client, made))
