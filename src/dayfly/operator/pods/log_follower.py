"""Follows the logs of running steps: a sealed receipt at the end is known milliseconds after the step, up to a second
before the kubelet's status. It moves data alone; what needs the proof of an end waits for the status.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from dayfly.execute.pod import read
from dayfly.execute.pod.logs import Printed, Splitter
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import Pod
from dayfly.lib.queue import Backoff
from dayfly.lib.tasks import cancel
from dayfly.operator.pods.node_access import Nodes

# Beyond that many at once, pod status serves.
MOST = 200
# A log can be had a moment after the container was made; until then the server refuses. So many asks a second may all
# that wait for their container make together.
ASKS_PER_S = 100.0
SOONEST_S, PATIENCE_S = 0.03, 5.0
# After that time it is refused for another reason, such as a missing right.
LATER = Backoff(first=1.0, most=60.0)
# The whole log of a pod that has ended is on its node's disk; it may be megabytes.
READING_S = 5.0


class Followers:
    """One task for each followed pod. `sealed(uid)` is what its log has told; `news(run)` is called when it has."""

    def __init__(self, client: Client, news: Callable[[str], None]) -> None:
        self._client = client
        self._news = news
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heard: dict[str, Splitter] = {}
        self.nodes = Nodes()

    def follow(self, pod: Pod, run: str) -> None:
        """Begin, unless it is followed already, too many are, or its node is known to be silent."""
        if not self.wants(pod):
            return
        uid = pod.metadata.uid
        splitter = self._heard[uid] = Splitter(timed=True)
        task = self._tasks[uid] = asyncio.create_task(self._follow(pod, run, splitter))
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    def wants(self, pod: Pod) -> bool:
        """Whether its log would be followed, and is not."""
        silent = self.nodes.pause(pod.spec.node_name)
        return pod.metadata.uid not in self._heard and len(self._tasks) < MOST and not silent

    def sealed(self, uid: str) -> Splitter | None:
        """The log of that very pod, if its receipt was seen whole and names it."""
        heard = self._heard.get(uid)
        return heard if heard is not None and heard.is_complete and heard.field("pod") == uid else None

    async def printed(self, pod: Pod) -> Printed | None:
        """The end of what the step in an ended pod printed.

        One that was not followed to its end, because too many were or because nobody was there, is asked for its log
        now. None if it cannot be had.
        """
        uid = pod.metadata.uid
        heard = self._heard.get(uid)
        if heard is None or not heard.is_complete:
            heard = await self._read(pod) or (heard if heard is not None and heard.tail else None)
        return heard.printed(read.log_bytes(pod)) if heard is not None else None

    async def _read(self, pod: Pod) -> Splitter | None:
        node = pod.spec.node_name
        if self.nodes.pause(node):
            return None
        splitter = Splitter(timed=True)
        self.nodes.asking(node)
        try:
            async with asyncio.timeout(READING_S):
                async for chunk in self._log(pod):
                    self.nodes.answered(node)
                    splitter.feed(chunk)
        except (errors.ApiError, TimeoutError) as fault:
            self._judge(node, fault)
            return None
        splitter.end()
        return splitter if splitter.field("pod") in ("", pod.metadata.uid) else None

    def forget(self, uid: str) -> None:
        """The pod's result is recorded."""
        self._heard.pop(uid, None)
        if task := self._tasks.pop(uid, None):
            task.cancel()

    async def close(self) -> None:
        """End all."""
        await cancel(*self._tasks.values())

    async def _follow(self, pod: Pod, run: str, splitter: Splitter) -> None:
        node, began, late = pod.spec.node_name, asyncio.get_running_loop().time(), 0
        while pod.metadata.uid in self._heard:
            if pause := self.nodes.pause(node):
                await asyncio.sleep(pause)
                continue
            self.nodes.asking(node)
            try:
                async with contextlib.aclosing(self._log(pod, follow=True)) as chunks:
                    async for chunk in chunks:
                        self.nodes.answered(node)
                        late = 0
                        splitter.feed(chunk)
                        if splitter.is_complete:
                            self._news(run)
                            return
                return  # the log ended without a receipt: pod status will tell
            except errors.NotFound:
                return
            except errors.ApiError as fault:
                self._judge(node, fault)
                # Not there yet, or cut: from the beginning, since logs have no position to resume from.
                splitter = self._heard[pod.metadata.uid] = Splitter(timed=True)
                waited = asyncio.get_running_loop().time() - began
                soon = max(SOONEST_S, len(self._tasks) / ASKS_PER_S)
                await asyncio.sleep(soon if waited < PATIENCE_S else LATER.longest(late))
                late += waited >= PATIENCE_S

    def _log(self, pod: Pod, *, follow: bool = False) -> AsyncGenerator[bytes, None]:
        meta = pod.metadata
        return self._client.log(meta.name, meta.namespace, container="main", follow=follow, timestamps=True)

    def _judge(self, node: str, fault: errors.ApiError | TimeoutError) -> None:
        """What a log that cannot be had tells of its node: nothing where the API server itself was not reached, nor
        where it knows no such pod.
        """
        if isinstance(fault, errors.Refused) and not isinstance(fault, errors.NotFound):
            self.nodes.answered(node)
        elif isinstance(fault, TimeoutError) or (isinstance(fault, errors.ServerTrouble) and fault.status):
            self.nodes.failed(node, fault)
