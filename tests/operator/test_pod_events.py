"""How often the kubelets' Events are asked for."""

import asyncio

import msgspec

from dayfly.kube.objects import Pod
from dayfly.operator.pods.pod_events import PodEvents, Silence
from dayfly.plan.world import Waiting

STARTED = 1_000_000


class _Server:
    """One that has no Events; it counts how often it was asked."""

    asked = 0
    items = ()

    async def page(self, *_args, **_options):
        self.asked += 1
        return self


def test_many_pods_that_hang_are_no_burden_to_the_server():
    """A registry is down: whatever their number, a hundred questions are asked in a second at most."""

    async def story(number: int) -> tuple[int, float]:
        now = STARTED
        server = _Server()
        events = PodEvents(server, lambda: now)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(number)]
        silences = [Silence() for _ in pods]
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        for _ in range(90):
            now += 1000
            for pod, silence in zip(pods, silences, strict=True):
                assert await events.explain(pod, fact, silence) == fact
        return server.asked, max(events.again_in(silence) for silence in silences)

    asked, longest = asyncio.run(story(3000))
    assert 6_000 < asked <= 90 * 100
    assert 3 < longest < 31
    asked, longest = asyncio.run(story(200))
    assert asked == 90 // 3 * 200
    assert longest < 4


def test_a_kubelet_that_is_busy_with_many_pods_is_given_more_time_for_its_first_status():
    """In bulk that is what keeps them waiting; a pod alone is asked about as soon as any."""

    def first(others: int, reason: str) -> float:
        events = PodEvents(_Server(), lambda: STARTED)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(others + 1)]
        silences = [Silence() for _ in pods]
        for pod, silence in zip(pods, silences, strict=True):
            asyncio.run(events.explain(pod, Waiting(since=STARTED, reason=reason), silence))
        return round(events.again_in(silences[-1]), 1)

    assert first(0, "Starting") == first(0, "ContainerCreating") == 3
    assert first(200, "Starting") == 6
    assert first(200, "ContainerCreating") == 3


def test_pods_whose_runs_are_forgotten_are_waited_for_no_more():
    """They count among those that keep kubelets busy only as long as something is remembered of them."""
    events = PodEvents(_Server(), lambda: STARTED)
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u"}}, Pod)
    fact = Waiting(since=STARTED, reason="Starting")
    silences = [Silence() for _ in range(200)]
    for silence in silences:
        asyncio.run(events.explain(pod, fact, silence))
    del silence, silences
    alone = Silence()
    asyncio.run(events.explain(pod, fact, alone))
    assert round(events.again_in(alone), 1) == 3
