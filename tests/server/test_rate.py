"""The rate limit of a key: requests above it wait, and are refused after a maximum."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server import specs
from tests.server.client import KEY, ORG
from tests.server.fake_host import FakeHost
from tests.server.lossy_link import call

from dayfly.server.access import callers
from dayfly.server.app import create_app
from dayfly.server.db.store import Store
from dayfly.server.http import rate_limit
from dayfly.server.http.rate_limit import MAX_WAIT_S, RateLimit


class Clock:
    """A virtual clock that advances only while all tasks wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._alarms: list[tuple[float, int, asyncio.Event]] = []

    def time(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        alarm = asyncio.Event()
        heapq.heappush(self._alarms, (self.now + seconds, next(self._numbers), alarm))
        await alarm.wait()

    async def run(self, work):
        """Return the result of `work`, in virtual time."""
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if self._alarms and not task.done():
                self.now, _, alarm = heapq.heappop(self._alarms)
                alarm.set()
        return task.result()


async def admit(bucket: RateLimit, org: str, key: str) -> int:
    """Wait as the server does for each request."""
    return await bucket.queue(org, key) if bucket.reserve(org, key) else 0


def limited(clock: Clock, per_second: float) -> RateLimit:
    return RateLimit(per_second, clock.time, clock.pause)


@given(st.floats(0.5, 1000), st.lists(st.floats(0, 2), min_size=1, max_size=200))
def test_requests_at_once_never_exceed_rate_and_burst(per_second, pauses):
    clock, taken = Clock(), 0
    bucket = limited(clock, per_second)
    for pause in pauses:
        clock.now += pause
        taken += bucket.reserve("o", "k") == 0
    assert taken <= max(1, 2 * per_second) + per_second * clock.now + 1e-6


def test_retry_after_is_sufficient():
    clock = Clock()
    bucket = limited(clock, 0.5)
    assert bucket.reserve("o", "k") == 0
    assert bucket.reserve("o", "k") == 2
    assert bucket.reserve("o", "other") == 0
    assert bucket.reserve("other", "k") == 0
    clock.now = 1.5
    assert bucket.reserve("o", "k") == 0.5
    clock.now = 2.0
    assert bucket.reserve("o", "k") == 0


def test_unused_buckets_are_dropped(monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_BUCKETS", 10)
    clock = Clock()
    bucket = limited(clock, 1)
    for number in range(60):
        clock.now = number
        assert bucket.reserve("o", str(number)) == 0
        assert bucket.reserve("o", str(number), MAX_WAIT_S) <= 1
    assert bucket.reserve("o", "0") == 0


async def test_sequential_requests_are_slowed_never_refused():
    clock = Clock()
    bucket = limited(clock, 50)

    async def client() -> list[int]:
        return [await admit(bucket, "o", "k") for _ in range(2000)]

    assert set(await clock.run(client())) == {0}
    assert clock.now == pytest.approx(1900 / 50)


async def test_waiting_requests_of_a_key_are_bounded():
    clock = Clock()
    bucket = limited(clock, 50)
    answers = await clock.run(asyncio.gather(*(admit(bucket, "o", "k") for _ in range(1000))))
    assert 100 < answers.count(0) < 200
    assert all(1 <= wait <= MAX_WAIT_S for wait in answers if wait)
    assert clock.now <= MAX_WAIT_S


async def test_request_that_would_wait_too_long_is_refused():
    clock = Clock()
    bucket = limited(clock, 0.05)
    assert await admit(bucket, "o", "k") == 0
    assert await admit(bucket, "o", "k") == 20
    clock.now = 20.0
    assert await admit(bucket, "o", "k") == 0


async def test_waiting_requests_do_not_slow_another_key():
    clock = Clock()
    bucket = limited(clock, 50)
    ended: dict[str, float] = {}

    async def client(org: str, key: str, many: int) -> None:
        for _ in range(many):
            assert await admit(bucket, org, key) == 0
        ended[org, key] = clock.now

    crowd = [asyncio.ensure_future(admit(bucket, "crowd", "k")) for _ in range(1000)]
    await clock.run(asyncio.gather(client("o", "one", 100), client("o", "two", 150), *crowd))
    assert ended == {("o", "one"): 0.0, ("o", "two"): pytest.approx(1.0)}


@pytest.fixture
def store(blank, tmp_path):
    found = Store.open(shutil.copy(blank, tmp_path))
    yield found
    found.close()


async def test_route_group_list_works_for_500_sandboxes(store):
    """Signadot's command line sends one GET for each, one after the other, without retries."""
    clock = Clock()
    app = create_app(
        store, {"local": FakeHost().end}, keys=callers.single_key(KEY), version="1", rate=limited(clock, 50)
    )
    assert (await call(app, KEY, "PUT", f"{ORG}/sandboxes/sb", specs.empty()))[0] == 200

    async def client() -> set[int]:
        found = {(await call(app, KEY, "GET", f"{ORG}/routegroups"))[0]}
        for _ in range(500):
            found.add((await call(app, KEY, "GET", f"{ORG}/sandboxes/sb"))[0])
        return found

    assert await clock.run(client()) == {200}
    assert clock.now < 30


async def test_waiting_request_fails_once_its_key_is_revoked(store):
    clock = Clock()
    app = create_app(store, {}, keys=callers.single_key(KEY), version="1", rate=limited(clock, 1))
    key = (await call(app, KEY, "POST", f"{ORG}/keys", {"name": "k", "role": "viewer"}))[1]["key"]
    for _ in range(2):
        assert (await call(app, key, "GET", f"{ORG}/sandboxes"))[0] == 200
    waiting = asyncio.ensure_future(call(app, key, "GET", f"{ORG}/sandboxes"))
    assert (await call(app, KEY, "DELETE", f"{ORG}/keys/{key.split('_')[1]}"))[0] == 200
    assert not waiting.done()
    assert (await clock.run(waiting))[0] == 401


async def test_too_many_requests_are_refused_with_retry_after(store):
    app = create_app(store, {}, keys=callers.single_key(KEY), version="1", rate=0.01)
    assert (await call(app, KEY, "GET", f"{ORG}/sandboxes"))[0] == 200
    status, answer = await call(app, KEY, "GET", f"{ORG}/sandboxes")
    assert status == 429
    assert "retry in" in answer["error"]
    assert (await call(app, "wrong", "GET", f"{ORG}/sandboxes"))[0] == 401
