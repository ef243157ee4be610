"""Messages that were recorded when protocol 2 began are still understood, and unknown additions are ignored.

`rig/conversation-2.jsonl` is that recording. The cluster's side is played to the server, and the server's side to the
operator. Each is played as recorded, and with unknown fields and unknown kinds of messages.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from tests.operator.rig import conversation
from tests.operator.rig.control_plane import ORG, PLUGIN, ControlPlane, wish
from tests.operator.rig.conversation import TO_CONTROL, TO_HOST, later, unknown
from tests.operator.rig.replay import ReplayedAgent
from tests.operator.rig.server_stories import left, lost_there, until
from tests.operator.rig.world import World

from dayfly.link.envelope import (
    NumberedMessage,
    ReceivedCount,
    SentMessages,
    Session,
    StartRequest,
    UnreadMessages,
    chain_digest,
)
from dayfly.link.http import HttpResponse
from dayfly.operator.agent.agent import Agent

AS_IT_WAS, LATER = "as it was recorded", "as a later Dayfly says it"
BOTH = pytest.mark.parametrize("said", [AS_IT_WAS, LATER])
NOTHING_TO_ANSWER = ("Hello", "Acknowledge")


class Recorded:
    """A server that sends the recorded messages, each once the ones before it are answered."""

    def __init__(self, world: World, *, is_later: bool) -> None:
        self._world = world
        messages = [message for who, message in conversation.read() if who == TO_HOST]
        if is_later:
            strange = [unknown(session=1) for _ in messages]
            messages = [each for pair in zip(map(later, messages), strange, strict=True) for each in pair]
        self._waiting = [{**message, "number": number} for number, message in enumerate(messages, 1)]
        self._digest = ""
        self._letters: list[NumberedMessage] = []
        self.said: list[dict[str, Any]] = []
        self.asked: dict[int, str] = {}

    @property
    def answers(self) -> dict[int, dict[str, Any]]:
        return {each["number"]: each for each in self.said if each.get("number")}

    def over(self) -> bool:
        return not self._waiting and not self.owed()

    def owed(self) -> set[int]:
        return self.asked.keys() - self.answers.keys()

    def _next(self) -> None:
        """Return the next message; None while an answer is missing or its subject does not exist yet."""
        if not self._waiting or self.owed():
            return
        message = self._waiting[0]
        begun = bool(self._world.cloud.starts("db/seed")) and not self._world.pods("db/seed")
        if message["type"] in ("Lease", "Stop") and not begun:
            return
        if message["type"] == "Acknowledge" and not any(each["type"] == "RunEnded" for each in self.said):
            return
        del self._waiting[0]
        number, body = message["number"], json.dumps(message)
        if message["type"] not in NOTHING_TO_ANSWER:
            self.asked[number] = message["type"]
        self._digest = chain_digest(self._digest, number, 5, body)
        self._letters.append(NumberedMessage(number=number, at=5, digest=self._digest, body=body))

    async def close(self) -> None:
        pass

    async def request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", *, seconds: float
    ) -> HttpResponse:
        found: Any
        match method, path:
            case "POST", "session":
                session = Session(org=ORG, cluster="east", session=1, number=0, digest="")
                found = msgspec.structs.replace(session, check=session.compute_check())
            case "POST", "births":
                found = msgspec.json.decode(body, type=StartRequest)
            case "POST", "messages":
                told = msgspec.json.decode(body, type=SentMessages)
                self.said += map(json.loads, told.messages)
                found = ReceivedCount(received=told.first + len(told.messages) - 1)
            case _:
                await asyncio.sleep(1)
                self._next()
                found = UnreadMessages(messages=tuple(self._letters[int((query or {})["after"]) :]))
        answer = {**msgspec.to_builtins(found), conversation.LATER: [1]}
        return HttpResponse(200, {}, json.dumps(answer).encode())


@BOTH
def test_operator_reads_recorded_messages_of_the_server(story, said):
    async def steps(world: World, plane: ControlPlane) -> None:
        way = Recorded(world, is_later=said == LATER)
        world.agent = lambda _process: (
            lambda cluster, admit: Agent(cluster, way, {ORG: "acme-sandboxes"}, "dayfly-system", admit, seed=1)
        )
        world.start()
        await world.until(way.over, f"all is answered except {way.owed()}", 1200)
        await world.until(lambda: not left(world), "nothing is left")
        told = [message for who, message in conversation.read() if who == TO_CONTROL]
        for number, kind in way.asked.items():
            answer = way.answers[number]
            if kind == "Ponder":
                assert (answer["type"], answer["verdict"]) == ("Reply", "refused")
                assert "Ponder" in answer["message"]
            else:
                assert answer.get("verdict") in (None, "taken"), answer
        kinds = {each["type"] for each in told} - {"Heartbeat"}
        assert kinds <= {each["type"] for each in way.said}
        for unit in ("db/make", "db/seed", "db/drop"):
            assert world.cloud.starts(unit) == 1

    story(steps, dialling=False)


@BOTH
def test_server_reads_recorded_messages_of_the_operator(story, said):
    async def steps(world: World, plane: ControlPlane) -> None:
        operator = ReplayedAgent(plane, is_later=said == LATER)
        await plane.must("PUT", "resource-plugins/pg", PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())
        async with operator.at_work():
            await until(world, lambda: offered(operator), "it is offered")
            await operator.tell_ready()

            async def ready() -> bool:
                return (await plane.must("GET", "sandboxes/shop"))["status"]["ready"]

            await until(world, ready, "it is ready")
            await plane.must("GET", "sandboxes/shop/outputs")
            await plane.must("GET", "sandboxes/shop/log?unit=db/make&timestamps=true")
            await plane.must("DELETE", "sandboxes/shop")
            await operator.tell_end()
            await until(world, lambda: lost_there(plane, "shop"), "its end is noted")

            async def acknowledged() -> bool:
                return "Acknowledge" in operator.met

            await until(world, acknowledged, "its end is acknowledged")

    story(steps, dialling=False)


async def offered(operator: ReplayedAgent) -> bool:
    return bool(operator.uid)
