"""Letting go of what has ended, once the server has noted it: several at once, and each of them once.

Each server notes an end, and each that begins hears of it anew. After a day away that is hundreds of ends several times
over: whoever let go of them again each time, and asked the API server whether they are there, would keep it busy with
nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.agent import objects
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, SERVED_FINALIZER, SandboxObject
from dayfly.spec.host_errors import DocumentsRefusedError

AT_ONCE = 8

log = logging.getLogger(__name__)


class ReleaseQueue:
    """Of one server's Sandboxes."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._going: set[str] = set()

    async def noted(self, uids: list[str], ended: Callable[[str], Awaitable[SandboxObject | None]]) -> None:
        """The server has noted the ends of these; `ended` finds one of them, if it has indeed ended.

        Raises:
            errors.ApiError: some are still there, for the API server cannot be asked.
        """
        mine = [uid for uid in uids if uid not in self._going]
        self._going.update(mine)
        left = iter(mine)
        try:
            workers = (self._each(left, ended) for _ in range(min(AT_ONCE, len(mine))))
            faults = await asyncio.gather(*workers, return_exceptions=True)
        finally:
            self._going.difference_update(mine)
        for fault in faults:
            if fault is not None:
                raise fault

    async def one(self, seen: SandboxObject) -> None:
        """Nobody is to note its end any more."""
        try:
            await objects.remove(self._cluster.client, seen)
            meta, shows = seen.metadata, objects.end_shown(seen)
            await self._cluster.drop_finalizer(SANDBOXES, meta, SERVED_FINALIZER, if_so=shows)
        except errors.ApiError as fault:
            log.warning("sandbox %s is not let go: %s", Key.of(seen), fault)

    async def _each(self, left: Iterator[str], ended: Callable[[str], Awaitable[SandboxObject | None]]) -> None:
        for uid in left:
            try:
                seen = await ended(uid)
            except DocumentsRefusedError as fault:
                # Of this one alone, as where somebody else has a Sandbox of its name: the others are let go.
                log.warning("sandbox %s is not let go: %s", uid, fault)
                continue
            if seen is not None:
                await self.one(seen)
