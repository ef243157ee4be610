"""The agent, asked by others: whether a birth is still wanted, and what a run has, where the cluster may not tell."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from rig.dialling import session
from rig.serving import BOXES, NAME, UID, Bench, gone, played

from dayfly.kube import errors
from dayfly.operator.agent.agent import UNASKED, Agent
from dayfly.operator.agent.births import Births
from dayfly.operator.agent.end import ServedEnd
from dayfly.operator.cluster.objects import RunObject, SandboxObject
from dayfly.spec import wire
from dayfly.spec.wire import Verdict

QUESTION = wire.AskValues(session=1, number=7, uid=UID)


def dialled(bench: Bench) -> Agent:
    return Agent(bench.caches, None, {"acme": "acme-boxes"}, "dayfly-system", None)


async def permitted(bench: Bench, said: frozenset[str] | None) -> bool | None:
    """Whether the offered run may begin, where the control plane says that these are to live."""
    agent = dialled(bench)

    async def ask(_uids: tuple[str, ...]) -> frozenset[str] | None:
        return said

    agent._births = Births(ask)
    [made] = bench.server.objects("runs")
    return await agent.permits(msgspec.convert(made, RunObject))


class TestBirths:
    @pytest.mark.parametrize(("said", "begins"), [(frozenset({UID}), True), (frozenset(), False), (None, None)])
    def test_what_the_control_plane_does_not_want_any_more_goes_before_it_begins(self, said, begins):
        async def story(bench: Bench):
            await bench.begun()
            assert await permitted(bench, said) is begins
            assert ("deletionTimestamp" in bench.box["metadata"]) is (begins is False)

        played(story)

    @pytest.mark.parametrize("anew", [False, True])
    def test_one_that_has_gone_meanwhile_is_left_in_peace_under_its_name(self, anew):
        async def story(bench: Bench):
            await bench.begun()
            gone(bench)
            if anew:
                bench.ask("POST", BOXES, {"metadata": {"name": NAME}, "spec": {"cluster": "east"}})
            assert await permitted(bench, frozenset()) is False
            assert bool(bench.box) is anew

        played(story)


class TestConnecting:
    def test_what_waits_for_its_control_plane_says_so_until_that_is_there(self):
        async def story(bench: Bench):
            await bench.begun()
            agent, meta = dialled(bench), {"name": "own", "namespace": "acme-boxes", "uid": "own"}
            [served] = bench.caches.sandboxes
            assert agent.why_waiting(msgspec.convert({"metadata": meta}, SandboxObject)) is None
            assert str(agent.why_waiting(served)) == UNASKED.format(why="not connected yet")
            agent.dial.trouble = "no route"
            assert str(agent.why_waiting(served)) == UNASKED.format(why="no route")
            connected = agent.figures()["control_plane_connected"]
            assert connected() == 0
            agent.dial.session = session(1)
            assert str(agent.why_waiting(served)) == UNASKED.format(why="no route"), "nothing of it gets through"
            assert connected() == 0
            agent.dial.trouble = ""
            assert agent.why_waiting(served) is None
            assert connected() == 1

        played(story)


class TestAsking:
    @pytest.mark.parametrize(
        ("fault", "verdict", "said"),
        [
            (
                errors.ServerTrouble("GET documents", "slow", status=500),
                Verdict.UNAVAILABLE,
                "GET documents: 500: slow",
            ),
            (KeyError("x"), Verdict.FAILED, "the operator's log has the details"),
        ],
    )
    async def test_what_cannot_be_told_now_is_answered_with_why(self, fault, verdict, said):
        """Else whoever asked would wait for an answer that never comes."""

        def run(_uid: str) -> RunObject:
            raise fault

        heard: list[wire.AnyToControl] = []
        end = ServedEnd(SimpleNamespace(), None, run)
        end.attach(heard.append)
        end.look_up(QUESTION)
        await asyncio.gather(*end._tasks)
        assert heard[1:] == [wire.Reply(session=1, number=7, verdict=verdict, message=said)]
