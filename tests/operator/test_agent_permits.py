"""Whether an offered sandbox may start, and errors while the agent answers questions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.operator.rig.cluster_host_bench import BOXES, NAME, UID, Bench, delete_sandbox, with_bench
from tests.operator.rig.dialer_bench import session

from dayfly.link.http import HttpResponse
from dayfly.operator.agent.agent import WAITING_FOR_SERVER, Agent
from dayfly.operator.cluster.objects import RunObject, SandboxObject


def dialled(bench: Bench, way: Any = None) -> Agent:
    return Agent(bench.caches, way, {"acme": "acme-boxes"}, "dayfly-system", None)


async def permitted(bench: Bench, answer: HttpResponse) -> bool | None:
    """Return whether the offered run may start, if the server gives that answer."""

    async def request(method: str, path: str, *_: Any, **__: Any) -> HttpResponse:
        assert (method, path) == ("POST", "births")
        return answer

    agent = dialled(bench, SimpleNamespace(request=request))
    agent.dial.session = session(1)
    [made] = bench.server.objects("runs")
    return await agent.permits(msgspec.convert(made, RunObject))


def living(*uids: str) -> HttpResponse:
    """Answer with the sandboxes that are still wanted."""
    return HttpResponse(200, {}, msgspec.json.encode({"session": 1, "uids": uids}))


class TestBirths:
    @pytest.mark.parametrize(
        ("answer", "begins"), [(living(UID), True), (living(), False), (HttpResponse(503, {}, b"{}"), None)]
    )
    @with_bench
    async def test_unwanted_sandbox_is_deleted_before_it_begins(self, bench: Bench, answer, begins):
        await bench.offer_sandbox()
        assert await permitted(bench, answer) is begins
        assert ("deletionTimestamp" in bench.box["metadata"]) is (begins is False)

    @pytest.mark.parametrize("anew", [False, True])
    @with_bench
    async def test_recreated_object_is_not_deleted_as_unwanted(self, bench: Bench, anew):
        await bench.offer_sandbox()
        delete_sandbox(bench)
        if anew:
            bench.ask("POST", BOXES, {"metadata": {"name": NAME}, "spec": {"cluster": "east"}})
        assert await permitted(bench, living()) is False
        assert bool(bench.box) is anew


class TestConnecting:
    @with_bench
    async def test_waiting_sandbox_reports_the_missing_server(self, bench: Bench):
        await bench.offer_sandbox()
        agent, meta = dialled(bench), {"name": "own", "namespace": "acme-boxes", "uid": "own"}
        [served] = bench.caches.sandboxes
        assert agent.why_waiting(msgspec.convert({"metadata": meta}, SandboxObject)) is None
        assert str(agent.why_waiting(served)) == WAITING_FOR_SERVER.format(why="not connected yet")
        agent.dial.trouble = "no route"
        assert str(agent.why_waiting(served)) == WAITING_FOR_SERVER.format(why="no route")
        connected = agent.gauges()["server_connected"]
        assert connected() == 0
        agent.dial.session = session(1)
        assert str(agent.why_waiting(served)) == WAITING_FOR_SERVER.format(why="no route"), "nothing of it gets through"
        assert connected() == 0
        agent.dial.trouble = ""
        assert agent.why_waiting(served) is None
        assert connected() == 1
