"""How an operator's process reaches the fake API server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

from dayfly.kube.transport import Answer, Request
from kube.fake import FakeTransport
from rig.kubelet import EPOCH_MS

if TYPE_CHECKING:
    from rig.world import World


class Line(FakeTransport):
    """A connection whose process may stand still before one of its changes: everything goes on without it.

    Answers have the server's date, unless the world says that something on the way takes it off.
    """

    def __init__(self, world: World, client: str) -> None:
        super().__init__(world.cluster, client)
        self.pause: Callable[[Request], float] = lambda _request: 0.0
        self._world = world

    async def send(self, request: Request) -> Answer:
        if seconds := self.pause(request):
            await asyncio.sleep(seconds)
        answer = await super().send(request)
        if not self._world.dated:
            return answer
        date = formatdate(int(EPOCH_MS / 1000 + self.cluster.time()), usegmt=True)
        return dataclasses.replace(answer, headers={**answer.headers, "date": date})
