"""Follows the logs of running steps until their sealed receipt.

A receipt in the log arrives milliseconds after the end of the step, up to a second before the kubelet's status. It only
provides data. A decision that needs proof of the end waits for the status.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from dayfly.execute.pod import read
from dayfly.execute.pod.logs import LogSplitter, PrintedOutput
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import Pod
from dayfly.lib.queue import Backoff
from dayfly.lib.tasks import cancel_and_wait
from dayfly.operator.pods.node_access import NodeAccess

# Maximum number of followed logs. Beyond that, only the pod's status is used.
MAX_FOLLOWED = 200
# A log can be read a moment after its container was created; until then the API server refuses. All waiting followers
# together make at most this number of requests.
MAX_REQUESTS_PER_S = 100.0
# Retry interval of one follower, for the time that follows it.
RETRY_S, FAST_RETRIES_FOR_S = 0.03, 5.0
# After that time the request is refused for another reason, such as a missing permission.
SLOW_RETRY = Backoff(first=1.0, maximum=60.0)
# The whole log of an ended pod may have megabytes.
READ_TIMEOUT_S = 5.0
READ_WHOLE_TIMEOUT_S = 60.0


class LogFollowers:
    """One task for each followed pod; `on_receipt(run)` is called when a log contains its receipt."""

    def __init__(self, client: KubeClient, on_receipt: Callable[[str], None]) -> None:
        self._client = client
        self._on_receipt = on_receipt
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._logs: dict[str, LogSplitter] = {}
        self.nodes = NodeAccess()

    def follow(self, pod: Pod, run: str) -> None:
        """Follow the pod's log, unless it is followed already, too many are, or its node does not serve logs."""
        if not self.would_follow(pod):
            return
        uid = pod.metadata.uid
        splitter = self._logs[uid] = LogSplitter(timed=True)
        task = self._tasks[uid] = asyncio.create_task(self._follow(pod, run, splitter))
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    def would_follow(self, pod: Pod) -> bool:
        """Return whether the pod's log is not followed yet, but would be."""
        silent = self.nodes.pause(pod.spec.node_name)
        return pod.metadata.uid not in self._logs and len(self._tasks) < MAX_FOLLOWED and not silent

    def sealed_log(self, uid: str) -> LogSplitter | None:
        """Return the log of that pod if it contains the complete receipt and the receipt names the pod."""
        found = self._logs.get(uid)
        return found if found is not None and found.is_complete and found.field("pod") == uid else None

    async def read_tail(self, pod: Pod) -> PrintedOutput | None:
        """Return the tail of the log of an ended pod's step; None if the log cannot be read.

        If the log was not followed to its end, it is read now.
        """
        uid = pod.metadata.uid
        found = self._logs.get(uid)
        if found is None or not found.is_complete:
            found = await self._read(pod) or (found if found is not None and found.tail else None)
        return found.printed(read.log_bytes(pod)) if found is not None else None

    async def read_whole(self, pod: Pod, limit: int) -> bytes | None:
        """Return the whole output of an ended pod's step; None if it cannot be read, or a part may be lost.

        If it has more than `limit` bytes, the answer has at least one byte more than `limit`.
        """
        splitter = await self._read(pod, LogSplitter(limit=limit + 1))
        if splitter is None:
            return None
        is_whole = splitter.dropped > 0 or (splitter.is_complete and splitter.field("pod") == pod.metadata.uid)
        return bytes(splitter.tail) if is_whole else None

    async def _read(self, pod: Pod, splitter: LogSplitter | None = None) -> LogSplitter | None:
        """Read the log of a pod. A splitter for whole logs stops at its limit."""
        node, is_whole = pod.spec.node_name, splitter is not None
        if self.nodes.pause(node):
            return None
        splitter = splitter or LogSplitter(timed=True)
        self.nodes.begin_request(node)
        try:
            async with (
                asyncio.timeout(READ_WHOLE_TIMEOUT_S if is_whole else READ_TIMEOUT_S),
                contextlib.aclosing(self._log(pod, timestamps=not is_whole)) as chunks,
            ):
                async for chunk in chunks:
                    self.nodes.record_answer(node)
                    splitter.feed(chunk)
                    if is_whole and splitter.dropped:
                        return splitter
        except (errors.ApiError, TimeoutError) as fault:
            self._record_failure(node, fault)
            return None
        splitter.end()
        return splitter if splitter.field("pod") in ("", pod.metadata.uid) else None

    def forget(self, uid: str) -> None:
        """Stop following a pod whose result is recorded."""
        self._logs.pop(uid, None)
        if task := self._tasks.pop(uid, None):
            task.cancel()

    async def close(self) -> None:
        """Stop all followers."""
        await cancel_and_wait(*self._tasks.values())

    async def _follow(self, pod: Pod, run: str, splitter: LogSplitter) -> None:
        node, began, slow_retries = pod.spec.node_name, asyncio.get_running_loop().time(), 0
        while pod.metadata.uid in self._logs:
            if pause := self.nodes.pause(node):
                await asyncio.sleep(pause)
                continue
            self.nodes.begin_request(node)
            try:
                async with contextlib.aclosing(self._log(pod, follow=True)) as chunks:
                    async for chunk in chunks:
                        self.nodes.record_answer(node)
                        slow_retries = 0
                        splitter.feed(chunk)
                        if splitter.is_complete:
                            self._on_receipt(run)
                            return
                return  # the log has no receipt: the pod's status has the result
            except errors.NotFound:
                return
            except errors.ApiError as fault:
                self._record_failure(node, fault)
                # Not there yet, or interrupted: start again, since logs have no position to resume from.
                splitter = self._logs[pod.metadata.uid] = LogSplitter(timed=True)
                waited = asyncio.get_running_loop().time() - began
                delay = max(RETRY_S, len(self._tasks) / MAX_REQUESTS_PER_S)
                is_slow = waited >= FAST_RETRIES_FOR_S
                await asyncio.sleep(SLOW_RETRY.longest(slow_retries) if is_slow else delay)
                slow_retries += is_slow

    def _log(self, pod: Pod, *, follow: bool = False, timestamps: bool = True) -> AsyncGenerator[bytes, None]:
        meta = pod.metadata
        return self._client.log(meta.name, meta.namespace, container="main", follow=follow, timestamps=timestamps)

    def _record_failure(self, node: str, fault: errors.ApiError | TimeoutError) -> None:
        """Record whether a failed request shows that the node serves no logs.

        It does not if the API server was not reached, or does not know the pod.
        """
        if isinstance(fault, errors.Refused) and not isinstance(fault, errors.NotFound):
            self.nodes.record_answer(node)
        elif isinstance(fault, TimeoutError) or (isinstance(fault, errors.ServerError) and fault.status):
            self.nodes.record_failure(node, fault)
