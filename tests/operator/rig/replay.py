"""A replay of an operator's recorded messages, for a real server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.operator.rig import conversation
from tests.operator.rig.control_plane import ORG, ControlPlane
from tests.operator.rig.conversation import TO_CONTROL, TO_HOST, later, unknown


class ReplayedAgent:
    """Sends the recorded messages, for the sandbox that the server has now."""

    def __init__(self, plane: ControlPlane, *, is_later: bool = False, token: str = "t-east") -> None:
        self._plane, self._token = plane, token
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
            elif who == TO_CONTROL and message["type"] in ("RunChanged", "RunEnded"):
                self._news.append(message)
        [self._offered] = {message["uid"] for who, message in record if who == TO_HOST and message["type"] == "Offer"}
        self.uid = ""
        self.met: set[str] = set()

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        status, _, found = await self._plane.reach(self._token, method, path, query, data)
        assert status == 200, found
        return json.loads(found)

    async def begin(self) -> None:
        opening = {"clusterUid": self._token, "namespaces": {ORG: "acme-sandboxes"}, "version": "9.9.9"}
        assert (await self.ask("POST", "session", later(opening)))["session"] == 1
        await self.say({"type": "Inventory"})

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message; a later version sends another message, which this version does not know."""
        text = json.dumps(message).replace(self._offered, self.uid or self._offered)
        message = {**json.loads(text), "session": 1}
        messages = [message]
        if message["type"] in ("RunChanged", "RunEnded"):
            message["count"] = next(self._count)
        if self._is_later:
            messages = [later(message), unknown(session=1, count=next(self._count))]
        for each in messages:
            body = {"session": 1, "first": next(self._said), "messages": [json.dumps(each)]}
            await self.ask("POST", "messages", later(body))

    async def turn(self) -> None:
        """Answer requests as recorded."""
        query = {"session": "1", "after": str(self._after), "digest": self._digest, "wait": "10"}
        for sent in (await self.ask("GET", "messages", **query))["messages"]:
            self._after, self._digest = sent["number"], sent["digest"]
            await self._answer(json.loads(sent["body"]))

    async def _answer(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        self.met.add(kind)
        if kind == "Offer":
            self.uid = message["uid"]
        if kind == "Hello":
            count = next(self._count)
            self._count = itertools.count(count)
            await self.say({"type": "Inventory", "count": count - 1})
        recorded = self._answers.get(kind)
        if not recorded:
            return
        address = {"number": message["number"], "id": message["id"]}
        answer = {**(recorded.pop(0) if len(recorded) > 1 else recorded[0]), **address}
        if kind == "StatusQuery":
            answer |= {"runs": [self._ready()] if self.uid else []}
        await self.say(answer)

    def _ready(self) -> dict[str, Any]:
        known = [run for each in self._answers["StatusQuery"] for run in each.get("runs", ())]
        known += [each["run"] for each in self._news if each["type"] == "RunChanged"]
        return next(run for run in known if run.get("report", {}).get("ready"))

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Answer requests in the background."""
        await self.begin()

        async def work() -> None:
            while True:
                await self.turn()

        working = asyncio.create_task(work())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def tell_ready(self) -> None:
        """Send the messages that were recorded when the sandbox was ready."""
        stands = [each for each in self._news if each["type"] == "RunChanged"]
        await self.say(next(each for each in stands if each["run"]["report"]["ready"]))

    async def tell_end(self) -> None:
        """Send the messages that were recorded when the sandbox had ended."""
        await self.say(next(each for each in self._news if each["type"] == "RunEnded"))
