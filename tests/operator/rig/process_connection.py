"""The connection of an operator's process to the fake API server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

from tests.kube.fake import FakeTransport
from tests.operator.rig.kubelet import EPOCH_MS

from dayfly.kube.transport import Answer, KubeRequest

if TYPE_CHECKING:
    from tests.operator.rig.world import World


class ProcessConnection(FakeTransport):
    """A connection whose process may be paused before one of its changes while everything else continues.

    Answers contain the server's date, unless the world removes it.
    """

    def __init__(self, world: World, client: str) -> None:
        super().__init__(world.cluster, client)
        self.pause: Callable[[KubeRequest], float] = lambda _request: 0.0
        self._world = world

    async def send(self, request: KubeRequest) -> Answer:
        if seconds := self.pause(request):
            await asyncio.sleep(seconds)
        answer = await super().send(request)
        if not self._world.dated:
            return answer
        date = formatdate(int(EPOCH_MS / 1000 + self.cluster.time()), usegmt=True)
        return dataclasses.replace(answer, headers={**answer.headers, "date": date})
