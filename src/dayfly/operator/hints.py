"""Why a pod does not start, where its status is silent: kubelets speak of a missing Secret or volume in Events."""

from collections.abc import Callable

import msgspec

from dayfly.execute.pod.read import milliseconds
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import EVENTS, Event, Pod
from dayfly.plan.world import Waiting

# Most pods start within that; those that do not are asked about again and again.
PATIENCE_MS, AGAIN_MS = 3_000, 10_000


class Hints:
    """The latest warnings about waiting pods, asked for when one has waited in silence."""

    def __init__(self, client: Client, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._heard: dict[str, tuple[int, Waiting | None]] = {}

    async def explain(self, pod: Pod, fact: Waiting) -> Waiting:
        """The same fact, with the kubelet's own words where it has any. Not being allowed to ask is no trouble."""
        if fact.message:
            return fact
        uid, now = pod.metadata.uid, self._now()
        due, said = self._heard.get(uid, (fact.since + PATIENCE_MS, None))
        if now >= due:
            said = await self._ask(pod, fact)
            self._heard[uid] = now + AGAIN_MS, said
        return said or fact

    def again_in(self, pod: Pod, fact: Waiting) -> float:
        """Seconds after which a silent pod is to be asked about."""
        due = self._heard.get(pod.metadata.uid, (fact.since + PATIENCE_MS, None))[0]
        return max(due - self._now(), 0) / 1000 + 0.001

    def forget(self, uid: str) -> None:
        """The pod has started, or is gone."""
        self._heard.pop(uid, None)

    async def _ask(self, pod: Pod, fact: Waiting) -> Waiting | None:
        try:
            fields = f"regarding.uid={pod.metadata.uid},type=Warning"
            page = await self._client.page(EVENTS, pod.metadata.namespace, fields=fields, limit=50)
        except (errors.Refused, errors.Throttled, errors.ServerTrouble):
            return None
        if not page.items:
            return None
        latest = max(page.items, key=_when)
        return msgspec.structs.replace(fact, reason=latest.reason or fact.reason, message=latest.note)


def _when(event: Event) -> int:
    series = event.series.last_observed_time if event.series else None
    return milliseconds(series or event.deprecated_last_timestamp or event.event_time)
