"""How often the kubelets' Events are asked for."""

import asyncio

import msgspec

from dayfly.kube.objects import Pod
from dayfly.operator.hints import Hints
from dayfly.plan.world import Waiting

STARTED = 1_000_000


class _Server:
    """One that has no Events; it counts how often it was asked."""

    asked = 0
    items = ()

    async def page(self, *_args, **_options):
        self.asked += 1
        return self


def test_many_pods_that_hang_do_not_take_the_requests_that_others_need():
    """A registry is down: after the first question about each, five hundred are asked in a second at most."""

    async def story(number: int) -> tuple[int, float]:
        now = STARTED
        server = _Server()
        hints = Hints(server, lambda: now)
        pods = [msgspec.convert({"metadata": {"name": f"p{n}", "uid": f"u{n}"}}, Pod) for n in range(number)]
        fact = Waiting(since=STARTED, reason="ContainerCreating")
        for _ in range(60):
            now += 1000
            for pod in pods:
                assert await hints.explain(pod, fact) == fact
        return server.asked, max(hints.again_in(pod) for pod in pods)

    asked, longest = asyncio.run(story(4000))
    assert 20_000 < asked <= 4000 + 57 * 500
    assert longest < 9
    asked, longest = asyncio.run(story(100))
    assert asked == 60 // 3 * 100
    assert longest < 4
