"""The time of the server, derived from the dates of its responses only."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from tests.kube.fake import FakeCluster, run, serving
from tests.kube.test_client import Plain

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import NAMESPACES
from dayfly.kube.server_clock import ClockTransport, ServerClock, ticks_ms
from dayfly.kube.transport import Answer, HttpTransport, Stream
from dayfly.lib.clock import now_ms

AT = 1_767_225_600_000
DAY = 24 * 3600 * 1000


def date(ms: int) -> str:
    return formatdate(ms // 1000, usegmt=True)


class Watch:
    """Scripted clocks of a machine: the wall clock and the monotonic clock."""

    def __init__(self, own: int) -> None:
        self.own, self.ticks = own, 50_000
        self.clock = ServerClock(lambda: self.own, lambda: self.ticks)

    def passes(self, ms: int) -> None:
        self.own += ms
        self.ticks += ms


def test_clock_is_local_until_the_server_answers():
    before = time.time_ns() // 1_000_000
    assert before <= now_ms() <= ServerClock().now() <= time.time_ns() // 1_000_000 + 1
    assert 0 <= ticks_ms() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000 + 1 <= 1
    assert Watch(AT + DAY).clock.now() == AT + DAY


@pytest.mark.parametrize("off", [DAY, -DAY])
def test_clock_off_by_a_day_is_corrected_by_one_answer(off):
    watch = Watch(AT + off)
    asked = watch.ticks
    watch.passes(40)
    watch.clock.adjust(date(AT), asked)
    assert AT <= watch.clock.now() <= AT + 1040
    watch.passes(5000)
    assert AT + 5000 <= watch.clock.now() <= AT + 6040


def test_correct_clock_ignores_coarse_dates():
    """A date is coarse: a clock that agrees with it is more exact, and is not adjusted."""
    watch = Watch(AT + 700)
    for _ in range(100):
        asked = watch.ticks
        watch.passes(130)
        watch.clock.adjust(date(watch.own - 60), asked)
        assert watch.clock.now() == watch.own


def test_slow_answer_changes_the_clock_little():
    """The response may have been dated at any time during the request."""
    watch = Watch(AT)
    watch.clock.adjust(date(AT), watch.ticks)
    asked = watch.ticks
    watch.passes(20_000)
    watch.clock.adjust(date(AT), asked)
    assert watch.clock.now() == AT + 20_000
    watch.clock.adjust(date(AT + 20_000), asked)
    assert watch.clock.now() == AT + 20_000


def test_local_clock_change_does_not_move_the_server_clock():
    watch = Watch(AT)
    watch.clock.adjust(date(AT), watch.ticks)
    watch.own += DAY
    assert watch.clock.now() == AT
    watch.passes(1)
    watch.clock.adjust(date(AT), watch.ticks)
    assert watch.clock.now() == AT + 1


def test_server_clock_change_is_followed():
    watch = Watch(AT)
    watch.clock.adjust(date(AT), watch.ticks)
    watch.clock.adjust(date(AT + DAY), watch.ticks)
    assert watch.clock.now() == AT + DAY
    watch.clock.adjust(date(AT), watch.ticks)
    assert AT <= watch.clock.now() <= AT + 1000


@pytest.mark.parametrize(
    "said",
    ["", "yesterday", "Thu, 01 Jan 2026 00:00:00", "0", f"Thu, 01 Jan 2026 00:00:00 +{'9' * 30}"],
)
def test_invalid_date_is_ignored(said):
    watch = Watch(AT + DAY)
    watch.clock.adjust(said, watch.ticks)
    assert watch.clock.now() == AT + DAY


class Server:
    """A transport that answers with a status and a date."""

    def __init__(self, status: int, said: str) -> None:
        self.answer = Answer(status, b'{"metadata":{"name":"shop"},"items":[]}', {"date": said} if said else {})

    async def send(self, _request):
        return self.answer

    def stream(self, _request):
        return self

    async def __aenter__(self):
        return Stream(self.answer.status, self, self.answer.headers)

    async def __aexit__(self, *_exc):
        return None

    def __aiter__(self):
        return self

    async def __anext__(self):
        raise StopAsyncIteration

    async def renew_credentials(self):
        return False

    async def close(self):
        return None


async def log(client: KubeClient) -> None:
    async for _ in client.log("p", "shop", container="main"):
        pass


async def one(client: KubeClient) -> None:
    await client.get(NAMESPACES, "shop")


@pytest.mark.parametrize("ask", [one, log])
@pytest.mark.parametrize(("status", "heard"), [(200, True), (404, False), (503, False)])
def test_only_successful_answers_set_the_clock(ask, status, heard):
    """A proxy also answers if the server is down, with the date of the proxy's clock."""

    async def story() -> int:
        watch = Watch(AT + DAY)
        client = KubeClient(ClockTransport(Server(status, date(AT)), watch.clock), seed=1)
        try:
            await ask(client)
        except errors.ApiError:
            assert status != 200
        await client.close()
        return watch.clock.now()

    assert (run(story()) < AT + 2000) is heard


async def test_clock_is_set_over_http():
    clock = ServerClock(lambda: now_ms() + DAY)
    async with serving(FakeCluster()) as address:
        client = KubeClient(ClockTransport(HttpTransport(Plain(address)), clock))
        try:
            assert clock.now() > now_ms() + DAY - 1000
            await client.get(NAMESPACES, "default")
            assert abs(clock.now() - now_ms()) < 60_000
        finally:
            await client.close()
