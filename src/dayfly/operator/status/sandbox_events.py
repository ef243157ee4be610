"""CloudEvents about the Sandboxes of this cluster, for the receiver that the administrator has configured.

Events are not stored. Each new leader sends the events of the current state again, with the same IDs, so that a
receiver can drop duplicates. So delivery is at least once, while the state of the event lasts. A server sends the
events of the sandboxes that it has created.
"""

import asyncio
import collections
import contextlib
import logging
from typing import NamedTuple

import msgspec

from dayfly.execute.pod.read import format_time
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import NAMESPACES
from dayfly.lib.delivery import Delivery, PendingDelivery, Post
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SandboxObject, served_uid
from dayfly.operator.status.expiry_warning import Expiry
from dayfly.operator.status.sandbox_status import SandboxStatusWriter
from dayfly.plan import cloud_events
from dayfly.plan.cloud_events import EventSubject
from dayfly.spec.report import RunReport

# Limit for all namespaces, about twice the sandboxes of a large cluster. At the limit, the longest queue drops its
# oldest.
MAX_WAITING_EVENTS = 20_000

log = logging.getLogger(__name__)


class ClusterEventReceiver(NamedTuple):
    """Function that sends an event, and the receiver's name in the log."""

    post: Post
    name: str


class SandboxEvents:
    """Queues of unsent events, one for each namespace, so that namespaces do not delay each other."""

    def __init__(self, cluster: ClusterWatches, to: ClusterEventReceiver, status: SandboxStatusWriter) -> None:
        self._cluster, self._name = cluster, to.name
        self._source = "urn:dayfly:cluster"
        # By UID of existing Sandboxes: the IDs of all events that were queued.
        self._queued_ids: dict[str, set[str]] = {}
        self._waiting: dict[str, collections.deque[PendingDelivery]] = {}
        self._delivery = Delivery(self, to.post, to.name)
        self._full: set[str] = set()
        cluster.sandboxes.listen(self._handle_change)
        status.on_report = self._queue_events

    async def identify_cluster(self) -> None:
        """Read the UID of the namespace kube-system, which identifies the cluster in the events' source."""
        with contextlib.suppress(errors.ApiError):
            system = await self._cluster.client.get(NAMESPACES, "kube-system")
            self._source = f"urn:dayfly:cluster:{system.metadata.uid}"

    async def run(self) -> None:
        """Send queued events until cancelled. Then drop all state: another process may be the leader next."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._delivery.stop()
            for known in (self._queued_ids, self._waiting, self._full):
                known.clear()

    def _queue_events(self, seen: SandboxObject, report: RunReport, generation: int, expiry: Expiry) -> None:
        """Queue the new events of a report about a Sandbox, which is for this generation of its spec."""
        meta = seen.metadata
        if served_uid(meta):
            return
        told = self._queued_ids.setdefault(meta.uid, set())
        for kind in cloud_events.event_kinds(report, expires_soon=expiry.soon):
            id_ = cloud_events.event_id(meta.uid, generation, kind)
            # A DELETE increments the generation, although the spec is the same: only a stuck cleanup is new.
            if id_ in told or (meta.deletion_timestamp and kind != "stuck"):
                continue
            told.add(id_)
            event = cloud_events.cloud_event(self._event_subject(seen, generation, expiry), kind, report)
            self._put(meta.namespace, PendingDelivery(id_, msgspec.json.encode(event)))

    def _event_subject(self, seen: SandboxObject, generation: int, expiry: Expiry) -> EventSubject:
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
            expires=format_time(expiry.at) or None,
        )

    def _put(self, namespace: str, event: PendingDelivery) -> None:
        if sum(map(len, self._waiting.values())) >= MAX_WAITING_EVENTS:
            most = max(self._waiting, key=lambda each: len(self._waiting[each]))
            self._waiting[most].popleft()
            if most not in self._full:
                self._full.add(most)
                log.warning("%d events wait for %s: the oldest of %s are dropped", MAX_WAITING_EVENTS, self._name, most)
        self._waiting.setdefault(namespace, collections.deque()).append(event)
        self._delivery.wake(namespace)

    async def oldest(self, namespace: str, /) -> PendingDelivery | None:
        """Implement `Outbox`."""
        waiting = self._waiting.get(namespace)
        return waiting[0] if waiting else None

    async def settle(self, namespace: str, id_: str, /) -> None:
        """Implement `Outbox`."""
        waiting = self._waiting.get(namespace)
        if waiting and waiting[0].id == id_:  # else the limit has dropped it
            waiting.popleft()
        if not waiting:
            self._waiting.pop(namespace, None)
            self._full.discard(namespace)

    def _handle_change(self, change: ObjectChange[SandboxObject]) -> None:
        if (gone := change.deleted) is not None:
            self._queued_ids.pop(gone.metadata.uid, None)
