"""Outputs too large for a pod's status lie in its log alone: read there as soon as it can be read, or given up.

A log is had through the API server from the node's kubelet. That one of them does not answer for a moment (429, 5xx, a
connection that breaks) tells nothing of the outputs, and a create step whose outputs are lost has failed for good.
"""

from collections.abc import Callable

from dayfly.execute.pod.run import Pods
from dayfly.kube import errors
from dayfly.kube.objects import Pod
from dayfly.plan.world import Unread

# Asked for again sooner at first, then seldom; given up after so long without an answer.
FIRST_MS, MOST_MS, HOPELESS_MS = 1_000, 60_000, 600_000


class LogWait:
    """For one log. Memory only: after a restart the patience begins anew."""

    def __init__(self) -> None:
        self.since = self.due = 0
        """Since when it cannot be read, 0 if it was not tried, and when it is to be asked for again."""
        self.said = ""


class LogOutputs:
    """Reads the outputs of steps that have ended."""

    def __init__(self, pods: Pods, now: Callable[[], int]) -> None:
        self._pods = pods
        self._now = now

    async def read(self, pod: Pod, digest: str, wait: LogWait) -> dict[str, bytes] | Unread:
        """The outputs as far as the log has them."""
        now = self._now()
        since = wait.since or now
        if now >= wait.due or now < since:
            try:
                return await self._pods.read_outputs(pod, digest) or {}
            except errors.ApiError as fault:
                since = wait.since = min(since, now)
                wait.due, wait.said = now + min(max(now - since, FIRST_MS), MOST_MS), fault.message
        return {} if now >= since + HOPELESS_MS else Unread(since=since, message=wait.said)

    def again_in(self, wait: LogWait) -> float:
        """Seconds after which the log is to be asked for again."""
        return max(wait.due - self._now(), 0) / 1000 + 0.001
