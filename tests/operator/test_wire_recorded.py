"""What was said when protocol 1 began is understood today, and what a later Dayfly adds to it does no harm.

`rig/conversation-1.jsonl` is that conversation. Here its cluster's side is played to the server, and its server's side
to the operator, each as a later Dayfly says it: with unknown fields, and with kinds of messages that nobody knows.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import msgspec
import pytest
from rig import conversation
from rig.conversation import TO_CONTROL, TO_HOST, later, unknown
from rig.plane import ORG, PLUGIN, Plane, wish
from rig.served import left, lost_there, until
from rig.world import World

from dayfly.operator.agent.agent import Agent
from dayfly.operator.agent.way import Answer
from dayfly.spec.mailbox import Asked, Heard, Letters, Said, Sent, Session, chained

AS_IT_WAS, LATER = "as it was recorded", "as a later Dayfly says it"
BOTH = pytest.mark.parametrize("said", [AS_IT_WAS, LATER])
NOTHING_TO_ANSWER = ("Hello", "Acknowledge")


class Recorded:
    """A control plane that says what was recorded, each message once those before it are answered."""

    def __init__(self, world: World, *, is_later: bool) -> None:
        self._world = world
        messages = [message for who, message in conversation.read() if who == TO_HOST]
        if is_later:
            strange = [unknown(session=1) for _ in messages]
            messages = [each for pair in zip(map(later, messages), strange, strict=True) for each in pair]
        self._waiting = [{**message, "number": number} for number, message in enumerate(messages, 1)]
        self._digest = ""
        self._letters: list[Sent] = []
        self.said: list[dict[str, Any]] = []
        self.asked: dict[int, str] = {}

    @property
    def answers(self) -> dict[int, dict[str, Any]]:
        return {each["number"]: each for each in self.said if each.get("number")}

    def over(self) -> bool:
        return not self._waiting and not self._owed()

    def _owed(self) -> set[int]:
        return self.asked.keys() - self.answers.keys()

    def _next(self) -> None:
        """The next message, unless an answer is missing, or what it is about has not happened yet."""
        if not self._waiting or self._owed():
            return
        message = self._waiting[0]
        begun = bool(self._world.cloud.starts("db/seed")) and not self._world.pods("db/seed")
        if message["type"] in ("Lease", "Stop") and not begun:
            return
        if message["type"] == "Acknowledge" and not any(each["type"] == "Ended" for each in self.said):
            return
        del self._waiting[0]
        number, body = message["number"], json.dumps(message)
        if message["type"] not in NOTHING_TO_ANSWER:
            self.asked[number] = message["type"]
        self._digest = chained(self._digest, number, 5, body)
        self._letters.append(Sent(number=number, at=5, digest=self._digest, body=body))

    async def close(self) -> None:
        pass

    async def ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", *, seconds: float
    ) -> Answer:
        found: Any
        match method, path:
            case "POST", "session":
                session = Session(org=ORG, cluster="east", session=1, number=0, digest="")
                found = msgspec.structs.replace(session, check=session.checked())
            case "POST", "births":
                found = msgspec.json.decode(body, type=Asked)
            case "POST", "messages":
                told = msgspec.json.decode(body, type=Said)
                self.said += map(json.loads, told.messages)
                found = Heard(heard=told.first + len(told.messages) - 1)
            case _:
                await asyncio.sleep(1)
                self._next()
                found = Letters(messages=tuple(self._letters[int((query or {})["after"]) :]))
        answer = {**msgspec.to_builtins(found), conversation.LATER: [1]}
        return Answer(200, {}, json.dumps(answer).encode())


@BOTH
def test_the_operator_understands_what_the_server_said(story, said):
    async def tell(world: World, plane: Plane) -> None:
        way = Recorded(world, is_later=said == LATER)
        world.agent = lambda _process: (
            lambda cluster, admit: Agent(cluster, way, {ORG: "acme-sandboxes"}, "dayfly-system", admit, seed=1)
        )
        world.start()
        await world.until(way.over, f"all is answered; owed: {way._owed()}", 1200)
        await world.until(lambda: not left(world), "nothing is left")
        told = [message for who, message in conversation.read() if who == TO_CONTROL]
        for number, kind in way.asked.items():
            answer = way.answers[number]
            if kind == "Ponder":
                assert (answer["type"], answer["verdict"]) == ("Reply", "refused")
                assert "Ponder" in answer["message"]
            else:
                assert answer.get("verdict") in (None, "taken"), answer
        kinds = {each["type"] for each in told} - {"Pulse"}
        assert kinds <= {each["type"] for each in way.said}
        for unit in ("db/make", "db/seed", "db/drop"):
            assert world.cloud.starts(unit) == 1

    story(tell, dialling=False)


class Played:
    """An operator that says what was recorded, of the sandbox that the server speaks of now."""

    def __init__(self, plane: Plane, *, is_later: bool) -> None:
        self._plane = plane
        self._is_later = is_later
        self._after, self._digest = 0, ""
        self._said, self._count = itertools.count(1), itertools.count(1)
        record = conversation.read()
        self._answers: dict[str, list[dict[str, Any]]] = {}
        asked = {message["number"]: message["type"] for who, message in record if who == TO_HOST}
        self._news: list[dict[str, Any]] = []
        for who, message in record:
            if who == TO_CONTROL and message.get("number"):
                self._answers.setdefault(asked[message["number"]], []).append(message)
            elif who == TO_CONTROL and message["type"] in ("Stands", "Ended"):
                self._news.append(message)
        [self._offered] = {message["uid"] for who, message in record if who == TO_HOST and message["type"] == "Offer"}
        self.uid = ""
        self.met: set[str] = set()

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        status, _, found = await self._plane.reach("t-east", method, path, query, data)
        assert status == 200, found
        return json.loads(found)

    async def begin(self) -> None:
        opening = {"clusterUid": "u", "namespaces": {ORG: "acme-sandboxes"}, "version": "9.9.9"}
        assert (await self.ask("POST", "session", later(opening)))["session"] == 1
        await self.say({"type": "Adrift"})

    async def say(self, message: dict[str, Any]) -> None:
        """One message; a later Dayfly says one more, of which nobody here knows what it means."""
        text = json.dumps(message).replace(self._offered, self.uid or self._offered)
        message = {**json.loads(text), "session": 1}
        messages = [message]
        if message["type"] in ("Stands", "Ended"):
            message["count"] = next(self._count)
        if self._is_later:
            messages = [later(message), unknown(session=1, count=next(self._count))]
        for each in messages:
            body = {"session": 1, "first": next(self._said), "messages": [json.dumps(each)]}
            await self.ask("POST", "messages", later(body))

    async def turn(self) -> None:
        """Answer what is asked, as it was answered then."""
        query = {"session": "1", "after": str(self._after), "digest": self._digest, "wait": "1"}
        for sent in (await self.ask("GET", "messages", **query))["messages"]:
            self._after, self._digest = sent["number"], sent["digest"]
            await self._answer(json.loads(sent["body"]))

    async def _answer(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        self.met.add(kind)
        if kind == "Offer":
            self.uid = message["uid"]
        recorded = self._answers.get(kind)
        if not recorded:
            return
        answer = {**(recorded.pop(0) if len(recorded) > 1 else recorded[0]), "number": message["number"]}
        if kind == "Hello":
            answer |= {"process": message["process"], "count": next(self._count) - 1}
            self._count = itertools.count(answer["count"] + 1)
        elif kind == "AskStanding":
            answer |= {"runs": [self._ready()] if self.uid else []}
        await self.say(answer)

    def _ready(self) -> dict[str, Any]:
        known = [run for each in self._answers["AskStanding"] for run in each.get("runs", ())]
        return next((run for run in known if run["report"]["ready"]), known[-1])

    async def tell(self, kind: str, count: int) -> None:
        """The next of its news of that kind."""
        for _ in range(count):
            await self.say(next(each for each in self._news if each["type"] == kind))


@BOTH
def test_the_server_understands_what_the_operator_said(story, said):
    async def tell(world: World, plane: Plane) -> None:
        operator = Played(plane, is_later=said == LATER)
        await plane.must("PUT", "resource-plugins/pg", PLUGIN)
        await plane.must("PUT", "sandboxes/shop", wish())
        await operator.begin()

        async def at_work() -> None:
            while True:
                await operator.turn()

        working = asyncio.create_task(at_work())
        try:
            await until(world, lambda: offered(operator), "it is offered")
            await operator.tell("Stands", 1)

            async def ready() -> bool:
                return (await plane.must("GET", "sandboxes/shop"))["status"]["ready"]

            await until(world, ready, "it is ready")
            await plane.must("GET", "sandboxes/shop/outputs")
            await plane.must("GET", "sandboxes/shop/log?unit=db/make&timestamps=true")
            await plane.must("DELETE", "sandboxes/shop")
            await operator.tell("Ended", 1)
            await until(world, lambda: lost_there(plane, "shop"), "its end is noted")

            async def acknowledged() -> bool:
                return "Acknowledge" in operator.met

            await until(world, acknowledged, "its end is acknowledged")
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    story(tell, dialling=False)


async def offered(operator: Played) -> bool:
    return bool(operator.uid)
