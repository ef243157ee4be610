"""Release ended Sandboxes after the server has acknowledged their end: several at once, and each only once.

Every session acknowledges all ends again. After a day without a connection there can be hundreds of ends, several
times over, and releasing each one again would overload the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.agent import served_sandboxes
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, SERVED_FINALIZER, SandboxObject
from dayfly.spec.host_errors import DocumentsRefusedError

MAX_CONCURRENT_RELEASES = 8

log = logging.getLogger(__name__)


class ReleaseQueue:
    """Releases the Sandboxes of one server."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._releasing: set[str] = set()

    async def release_acknowledged(
        self, uids: list[str], find_ended: Callable[[str], Awaitable[SandboxObject | None]]
    ) -> None:
        """Release Sandboxes whose end the server has acknowledged.

        Args:
            uids: The UIDs at the server.
            find_ended: Returns the Sandbox of a UID, if it has really ended.

        Raises:
            errors.ApiError: some Sandboxes could not be read and still exist.
        """
        mine = [uid for uid in uids if uid not in self._releasing]
        self._releasing.update(mine)
        left = iter(mine)
        try:
            workers = (self._release_each(left, find_ended) for _ in range(min(MAX_CONCURRENT_RELEASES, len(mine))))
            faults = await asyncio.gather(*workers, return_exceptions=True)
        finally:
            self._releasing.difference_update(mine)
        for fault in faults:
            if fault is not None:
                raise fault

    async def release(self, seen: SandboxObject) -> None:
        """Delete an ended Sandbox and drop our finalizer. An error is logged only."""
        try:
            await served_sandboxes.delete(self._cluster.client, seen)
            meta, shows = seen.metadata, served_sandboxes.end_evidence(seen)
            await self._cluster.drop_finalizer(SANDBOXES, meta, SERVED_FINALIZER, if_so=shows)
        except errors.ApiError as fault:
            log.warning("sandbox %s is not released: %s", Key.from_object(seen), fault)

    async def _release_each(
        self, left: Iterator[str], find_ended: Callable[[str], Awaitable[SandboxObject | None]]
    ) -> None:
        for uid in left:
            try:
                seen = await find_ended(uid)
            except DocumentsRefusedError as fault:
                # Only this one, for example because another user's Sandbox has its name: the others are released.
                log.warning("sandbox %s is not released: %s", uid, fault)
                continue
            if seen is not None:
                await self.release(seen)
