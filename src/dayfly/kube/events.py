"""Events (events.k8s.io/v1): created for a change, and counted in a series for a repetition.

Events only inform people, and losing one is harmless. So recording one never fails and never blocks.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import hashlib
import logging
from collections.abc import Callable
from typing import Any, Literal

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import EVENTS, ObjectReference

log = logging.getLogger(__name__)

_MAX_NOTE_BYTES = 1024  # bytes, the limit of the API server
_MAX_NAME_LENGTH = 230  # characters, with space for the suffix that makes the name unique
_MAX_TOPICS = 4_096
# The API server deletes an Event an hour after its last write by default, so a later repetition is a new Event.
_EVENT_LIFETIME_S = 3_000.0
_MAX_QUEUED = 1_000


@dataclasses.dataclass(slots=True)
class _Topic:
    """The latest Event of a topic, and its count."""

    what: tuple[str, str, str]
    name: str
    namespace: str
    written: bool = False
    count: int = 1
    written_at: float = 0.0


class Recorder:
    """Records Events for one controller; `run` writes them.

    A topic is one object with one action. A repetition of the topic's last Event increases the count of its series,
    which is written at most every `quiet` seconds. Anything else creates a new Event, as does a repetition after the
    server may have deleted the last Event.
    """

    def __init__(
        self,
        client: KubeClient,
        controller: str,
        instance: str,
        *,
        quiet: float = 300.0,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """Set the reporting controller, a qualified name such as `dayfly.dev/operator`, and this process."""
        self._client = client
        self._controller = controller
        self._instance = instance
        self._quiet = quiet
        self._now = now
        self._topics: collections.OrderedDict[tuple[str, str], _Topic] = collections.OrderedDict()
        self._waiting: asyncio.Queue[tuple[_Topic, dict[str, Any]]] = asyncio.Queue(_MAX_QUEUED)
        self.lost = 0
        """Events that could not be written, for a metric."""

    def record(
        self,
        regarding: ObjectReference,
        action: str,
        reason: str,
        note: str,
        kind: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Record an Event about an object; action and reason are in CamelCase, the note is a sentence."""
        topic = (regarding.uid or f"{regarding.kind}/{regarding.namespace}/{regarding.name}", action)
        what = (kind, reason, note)
        now = self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        latest = self._topics.get(topic)
        if (
            latest
            and latest.what == what
            and (silent := asyncio.get_running_loop().time() - latest.written_at) < _EVENT_LIFETIME_S
        ):
            self._topics.move_to_end(topic)
            latest.count += 1
            if silent >= self._quiet:
                self._put(latest, {"series": {"count": latest.count, "lastObservedTime": now}})
            return
        body = self._event(regarding, action, what, now)
        metadata = body["metadata"]
        latest = _Topic(what, metadata["name"], metadata["namespace"])
        self._topics[topic] = latest
        while len(self._topics) > _MAX_TOPICS:
            self._topics.popitem(last=False)
        self._put(latest, body)

    async def run(self) -> None:
        """Write the recorded Events until cancelled."""
        while True:
            latest, body = await self._waiting.get()
            try:
                await self._write(latest, body)
            except errors.ApiError as fault:
                self.lost += 1
                log.info("event %s/%s is lost: %s", latest.namespace, latest.name, fault)
            finally:
                self._waiting.task_done()

    async def wait_written(self) -> None:
        """Wait until all recorded Events are written or lost; `run` must be running."""
        await self._waiting.join()

    async def _write(self, latest: _Topic, body: dict[str, Any]) -> None:
        if "series" in body:
            if not latest.written:
                return  # the Event was not created, so its series cannot be updated
            await self._client.patch(EVENTS, body, latest.name, latest.namespace)
        else:
            await self._client.create(EVENTS, body, latest.namespace)
            latest.written = True

    def _put(self, latest: _Topic, body: dict[str, Any]) -> None:
        latest.written_at = asyncio.get_running_loop().time()
        try:
            self._waiting.put_nowait((latest, body))
        except asyncio.QueueFull:
            self.lost += 1

    def _event(self, regarding: ObjectReference, action: str, what: tuple[str, str, str], now: str) -> dict[str, Any]:
        kind, reason, note = what
        # The suffix is derived from content and time, not random, so that a replay has the same names.
        seed = f"{regarding.uid}\0{self._instance}\0{action}\0{reason}\0{note}\0{now}"
        mark = hashlib.sha256(seed.encode()).hexdigest()[:16]
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            # The truncated name must end with a letter or digit.
            "metadata": {
                "name": f"{regarding.name[:_MAX_NAME_LENGTH].rstrip('.-')}.{mark}",
                "namespace": regarding.namespace or "default",
            },
            "eventTime": now,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": _reference(regarding),
            "note": note.encode()[:_MAX_NOTE_BYTES].decode(errors="ignore"),
            "type": kind,
        }


def _reference(to: ObjectReference) -> dict[str, str]:
    fields = {"apiVersion": to.api_version, "kind": to.kind, "namespace": to.namespace, "name": to.name, "uid": to.uid}
    return {name: value for name, value in fields.items() if value}
