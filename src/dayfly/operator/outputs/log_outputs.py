"""Outputs that are too large for the pod status, read from the log.

The API server gets the log from the node's kubelet. A failed request (429, 5xx, a broken connection) does not mean that
the outputs are lost. A lost output fails a create step for good, so the request is retried for a while.
"""

from collections.abc import Callable

from dayfly.execute.pod.run import PodClient
from dayfly.kube import errors
from dayfly.kube.objects import Pod
from dayfly.plan.world import Unread

# First and longest retry interval, and the time without an answer after which the outputs count as lost.
FIRST_RETRY_MS, MAX_RETRY_MS, GIVE_UP_AFTER_MS = 1_000, 60_000, 600_000


class LogWait:
    """The retries for one log. They are not stored: after a restart they begin again."""

    def __init__(self) -> None:
        self.since = self.due = 0
        """Since when the log cannot be read (0: it was not tried), and when it is read next."""
        self.error = ""


class LogOutputs:
    """Reads the outputs of ended steps from their logs."""

    def __init__(self, pods: PodClient, now: Callable[[], int]) -> None:
        self._pods = pods
        self._now = now

    async def read(self, pod: Pod, digest: str, wait: LogWait) -> dict[str, bytes] | Unread:
        """Return the outputs that the log contains; `Unread` if it cannot be read now."""
        now = self._now()
        since = wait.since or now
        if now >= wait.due or now < since:
            try:
                return await self._pods.read_outputs(pod, digest) or {}
            except errors.ApiError as fault:
                since = wait.since = min(since, now)
                wait.due, wait.error = now + min(max(now - since, FIRST_RETRY_MS), MAX_RETRY_MS), fault.message
        return {} if now >= since + GIVE_UP_AFTER_MS else Unread(since=since, message=wait.error)

    def seconds_until_read(self, wait: LogWait) -> float:
        """Return the seconds until the log is read next."""
        return max(wait.due - self._now(), 0) / 1000 + 0.001
