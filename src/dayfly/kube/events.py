"""Events (events.k8s.io/v1): said when something changes, counted when it is merely so again.

An Event is a courtesy to people. Losing one harms nothing, so saying one never fails and never waits.
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
from dayfly.kube.client import Client
from dayfly.kube.objects import EVENTS, ObjectReference

log = logging.getLogger(__name__)

_NOTE_MOST = 1024  # bytes, the server's own limit
_NAME_MOST = 230  # characters, with room for what tells Events of one object apart
_REMEMBERED = 4_096
# A server keeps an Event for an hour after it was written last, if nobody has told it otherwise.
_KEPT_S = 3_000.0
_WAITING_MOST = 1_000


@dataclasses.dataclass(slots=True)
class _Said:
    """The latest Event about one topic, and how often it happened since."""

    what: tuple[str, str, str]
    name: str
    namespace: str
    written: bool = False
    count: int = 1
    told_at: float = 0.0


class Recorder:
    """Says Events for one controller. `run` it to have them written.

    A topic is one object and one action. As long as nothing but the same is said about a topic, its one Event is
    kept and its series counted, written at most once in `quiet` seconds; something else makes a new Event, and so does
    the same where it was not said for so long that the server may have dropped the one before.
    """

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        *,
        quiet: float = 300.0,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`controller` is a qualified name such as `dayfly.dev/operator`, `instance` this very process."""
        self._client = client
        self._controller = controller
        self._instance = instance
        self._quiet = quiet
        self._now = now
        self._said: collections.OrderedDict[tuple[str, str], _Said] = collections.OrderedDict()
        self._waiting: asyncio.Queue[tuple[_Said, dict[str, Any]]] = asyncio.Queue(_WAITING_MOST)
        self.lost = 0
        """Events that could not be written, for a metric."""

    def say(
        self,
        regarding: ObjectReference,
        action: str,
        reason: str,
        note: str,
        kind: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Tell people what became of an object, in CamelCase action and reason and a sentence."""
        topic = (regarding.uid or f"{regarding.kind}/{regarding.namespace}/{regarding.name}", action)
        what = (kind, reason, note)
        now = self._now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        said = self._said.get(topic)
        if said and said.what == what and (silent := asyncio.get_running_loop().time() - said.told_at) < _KEPT_S:
            self._said.move_to_end(topic)
            said.count += 1
            if silent >= self._quiet:
                self._put(said, {"series": {"count": said.count, "lastObservedTime": now}})
            return
        body = self._event(regarding, action, what, now)
        metadata = body["metadata"]
        said = _Said(what, metadata["name"], metadata["namespace"])
        self._said[topic] = said
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        self._put(said, body)

    async def run(self) -> None:
        """Write what is said, until cancelled."""
        while True:
            said, body = await self._waiting.get()
            try:
                await self._write(said, body)
            except errors.ApiError as fault:
                self.lost += 1
                log.info("event %s/%s is lost: %s", said.namespace, said.name, fault)
            finally:
                self._waiting.task_done()

    async def written(self) -> None:
        """Wait until all that was said so far is written or lost; `run` must be running."""
        await self._waiting.join()

    async def _write(self, said: _Said, body: dict[str, Any]) -> None:
        if "series" in body:
            if not said.written:
                return  # its beginning was lost, and a count alone says nothing
            await self._client.patch(EVENTS, body, said.name, said.namespace)
        else:
            await self._client.create(EVENTS, body, said.namespace)
            said.written = True

    def _put(self, said: _Said, body: dict[str, Any]) -> None:
        said.told_at = asyncio.get_running_loop().time()
        try:
            self._waiting.put_nowait((said, body))
        except asyncio.QueueFull:
            self.lost += 1

    def _event(self, regarding: ObjectReference, action: str, what: tuple[str, str, str], now: str) -> dict[str, Any]:
        kind, reason, note = what
        # Unlike others' random names, ours tell apart by content and time, and repeat in a replay.
        seed = f"{regarding.uid}\0{self._instance}\0{action}\0{reason}\0{note}\0{now}"
        mark = hashlib.sha256(seed.encode()).hexdigest()[:16]
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            # A name is cut where it may not end: each part of an Event's begins and ends with a letter or digit.
            "metadata": {
                "name": f"{regarding.name[:_NAME_MOST].rstrip('.-')}.{mark}",
                "namespace": regarding.namespace or "default",
            },
            "eventTime": now,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": _reference(regarding),
            "note": note.encode()[:_NOTE_MOST].decode(errors="ignore"),
            "type": kind,
        }


def _reference(to: ObjectReference) -> dict[str, str]:
    fields = {"apiVersion": to.api_version, "kind": to.kind, "namespace": to.namespace, "name": to.name, "uid": to.uid}
    return {name: value for name, value in fields.items() if value}
