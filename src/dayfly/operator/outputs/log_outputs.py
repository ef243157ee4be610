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


class LogOutputs:
    """Memory only: after a restart the patience begins anew."""

    def __init__(self, pods: Pods, now: Callable[[], int]) -> None:
        self._pods = pods
        self._now = now
        # By UID: since when the log cannot be read, when it is to be asked for again, and what was said last.
        self._waited: dict[str, tuple[int, int, str]] = {}

    async def read(self, pod: Pod, digest: str) -> dict[str, bytes] | Unread:
        """The outputs as far as the log has them."""
        uid, now = pod.metadata.uid, self._now()
        since, due, said = self._waited.get(uid, (now, now, ""))
        if now >= due or now < since:
            try:
                return await self._pods.contents(pod, digest) or {}
            except errors.ApiError as fault:
                since, said = min(since, now), fault.message
                due = now + min(max(now - since, FIRST_MS), MOST_MS)
                self._waited[uid] = since, due, said
        return {} if now >= since + HOPELESS_MS else Unread(since=since, message=said)

    def again_in(self, pod: Pod) -> float:
        """Seconds after which the log is to be asked for again."""
        due = self._waited.get(pod.metadata.uid, (0, 0, ""))[1]
        return max(due - self._now(), 0) / 1000 + 0.001

    def forget(self, uid: str) -> None:
        """Its result is recorded."""
        self._waited.pop(uid, None)
