"""CloudEvents of the Sandboxes of this cluster, for a receiver that its administrator names.

Nothing is written down: whoever begins to lead tells what is so, under ids by which a receiver drops what it has heard.
So each event is told at least once, as long as what it tells of lasts. Of a server's sandboxes that one tells.
"""

import asyncio
import collections
import contextlib
import logging
from typing import NamedTuple

import msgspec

from dayfly.execute.pod.read import stamp
from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.objects import NAMESPACES
from dayfly.lib.delivery import Delivery, PendingDelivery, Post
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SandboxObject, is_served
from dayfly.operator.status.expiry import Expiry
from dayfly.operator.status.sandbox_status import SandboxStatusWriter
from dayfly.plan import cloud_events
from dayfly.plan.cloud_events import EventSubject
from dayfly.spec.report import RunReport

# Of all namespaces: twice as many as there are sandboxes in a large cluster. Whose wait most loses the oldest.
MOST_WAITING = 20_000

log = logging.getLogger(__name__)


class ClusterEventReceiver(NamedTuple):
    """Who is told: how, and how the log calls it."""

    post: Post
    name: str


class SandboxEvents:
    """What one operator has told, and what waits. Each namespace waits for itself alone."""

    def __init__(self, cluster: ClusterWatches, to: ClusterEventReceiver, status: SandboxStatusWriter) -> None:
        self._cluster, self._name = cluster, to.name
        self._source = "urn:dayfly:cluster"
        # By uid, of those that live: the ids of what was told.
        self._told: dict[str, set[str]] = {}
        self._waiting: dict[str, collections.deque[PendingDelivery]] = {}
        self._delivery = Delivery(self, to.post, to.name)
        self._full: set[str] = set()
        cluster.sandboxes.listen(self._heard)
        status.told = self._note

    async def begin(self) -> None:
        """Learn which cluster this is, by what names it everywhere: the UID of kube-system."""
        with contextlib.suppress(errors.ApiError):
            system = await self._cluster.client.get(NAMESPACES, "kube-system")
            self._source = f"urn:dayfly:cluster:{system.metadata.uid}"

    async def run(self) -> None:
        """Send what there is, until cancelled: then another one may be at it, and this one forgets what it knows."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._delivery.stop()
            for known in (self._told, self._waiting, self._full):
                known.clear()

    def _note(self, seen: SandboxObject, report: RunReport, generation: int, expiry: Expiry) -> None:
        """A Sandbox stands so, of that generation of its owner's wish."""
        meta = seen.metadata
        if is_served(meta):
            return
        told = self._told.setdefault(meta.uid, set())
        for kind in cloud_events.event_kinds(report, expires_soon=expiry.soon):
            id_ = cloud_events.event_id(meta.uid, generation, kind)
            # A DELETE raises the generation: what it was before is no news of another wish.
            if id_ in told or (meta.deletion_timestamp and kind != "stuck"):
                continue
            told.add(id_)
            event = cloud_events.cloud_event(self._about(seen, generation, expiry), kind, report)
            self._put(meta.namespace, PendingDelivery(id_, msgspec.json.encode(event)))

    def _about(self, seen: SandboxObject, generation: int, expiry: Expiry) -> EventSubject:
        meta, labels = seen.metadata, seen.spec.get("labels")
        return EventSubject(
            uid=meta.uid,
            form=generation,
            source=f"{self._source}:namespace:{meta.namespace}",
            subject=meta.name,
            name=meta.name,
            cluster=str(seen.spec.get("cluster", "")),
            namespace=meta.namespace,
            labels=labels if isinstance(labels, dict) else {},
            expires=stamp(expiry.at) or None,
        )

    def _put(self, namespace: str, event: PendingDelivery) -> None:
        if sum(map(len, self._waiting.values())) >= MOST_WAITING:
            most = max(self._waiting, key=lambda each: len(self._waiting[each]))
            self._waiting[most].popleft()
            if most not in self._full:
                self._full.add(most)
                log.warning("%d events wait for %s: the oldest of %s are dropped", MOST_WAITING, self._name, most)
        self._waiting.setdefault(namespace, collections.deque()).append(event)
        self._delivery.wake(namespace)

    async def oldest(self, namespace: str, /) -> PendingDelivery | None:
        """As `Outbox`."""
        waiting = self._waiting.get(namespace)
        return waiting[0] if waiting else None

    async def settle(self, namespace: str, id_: str, /) -> None:
        """As `Outbox`."""
        waiting = self._waiting.get(namespace)
        if waiting and waiting[0].id == id_:  # else it was dropped meanwhile, as the oldest
            waiting.popleft()
        if not waiting:
            self._waiting.pop(namespace, None)
            self._full.discard(namespace)

    def _heard(self, change: Change[SandboxObject]) -> None:
        if (gone := change.gone) is not None:
            self._told.pop(gone.metadata.uid, None)
