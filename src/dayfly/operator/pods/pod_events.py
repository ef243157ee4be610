"""Why a pod does not start, where its status is silent: kubelets speak in Events of a missing Secret or volume, of an
image that is being pulled, and, once the pod has ended without a start, still of what kept it from one.
"""

import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from dayfly.execute.pod.read import milliseconds, stamp
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import EVENTS, Event, Pod
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan, Waiting
from dayfly.spec.run import Result

End = TypeVar("End", Result, NeverRan)

# Most pods start within that; those that do not are asked about again and again, the silent ones sooner. What takes the
# place of a word is to be said within ten seconds, and a saying takes its time as well.
PATIENCE_MS, AGAIN_MS = 3_000, 5_000
# So much longer where the kubelet has not written a status either: it is busy, the likelier the more pods wait with it.
UNHEARD_MS, CROWD = 3_000, 20
# And all of them together no oftener than every so many milliseconds: for each question the server looks through all
# Events of the namespace.
APART_MS = 10
# Where many pods wait there are thousands of these, and it is the server's work on them that all wait for. So a
# question is followed by so many times the time that its answer took, and the line of those who ask is no longer than
# that.
RESPITE, LONGEST_MS = 5, 60_000
# The kubelet's words around an image. Events have whole seconds: of two in one second the later in this order counts.
_PULLING, _PULLED = str(Reason.PULLING), "Pulled"
_ORDER = {_PULLING: 1, "Failed": 2, _PULLED: 3}


class _KubeletMessage(NamedTuple):
    """The kubelet's latest word, and whether it is that it fetches the image."""

    reason: str
    message: str
    pulls: bool


class Silence:
    """That of one pod which waits: when its Events are to be asked for again, and what they said."""

    def __init__(self) -> None:
        self.due = 0
        self.in_line = False
        """Whether that is its place in the line of those that ask a slow server."""
        self.said: _KubeletMessage | None = None


class PodEvents:
    """The latest warnings about waiting pods, asked for when one has waited in silence."""

    def __init__(self, client: Client, now: Callable[[], int]) -> None:
        self._client = client
        self._now = now
        self._waiting: weakref.WeakSet[Silence] = weakref.WeakSet()
        """Those of all pods that wait, as long as their runs remember them."""
        self._apart = float(APART_MS)
        self._line = 0
        """When the last who stands in line has asked, and its answer was had respite for."""

    async def explain(
        self, pod: Pod, fact: Waiting, silence: Silence, *, recallable: bool, pressing: bool = False
    ) -> Waiting:
        """The same fact, with the kubelet's own words where it has any. Not being allowed to ask is no trouble.

        `recallable` if a recall could prove that nothing of it ran.
        `pressing` if what is done with the pod now depends on it: then nobody waits until it has been silent for long.
        """
        if fact.message:
            return fact
        now = self._now()
        if silence not in self._waiting:
            unheard = UNHEARD_MS if fact.reason == Reason.STARTING else 0
            patience = PATIENCE_MS + unheard * min(len(self._waiting), CROWD) // CROWD
            # The kubelet's clock may be ahead of ours.
            silence.due, silence.said, silence.in_line = min(fact.since, now) + self._pause(patience), None, False
            self._waiting.add(silence)
        pressing = pressing and silence.said is None and not pod.metadata.deletion_timestamp
        if pressing or (now >= silence.due and not self._stands_in_line(silence, now)):
            silence.in_line = False
            silence.said = await self._ask(pod, fact.reason)
            silence.due = now + self._pause(AGAIN_MS if silence.said else PATIENCE_MS)
        said = silence.said
        if said is None:
            return fact
        can = said.pulls and recallable
        return msgspec.structs.replace(fact, reason=said.reason, message=said.message, recallable=can)

    def again_in(self, silence: Silence) -> float:
        """Seconds after which a pod that was to be explained, and whose status is silent, is to be asked about."""
        return max(silence.due - self._now(), 0) / 1000 + 0.001

    def end(self, silence: Silence) -> None:
        """The pod has started, or is gone."""
        self._waiting.discard(silence)

    async def last_words(self, pod: Pod, end: End) -> End:
        """The same end, of a container that may not have begun, with the last that its kubelet had against it."""
        warnings = [event for event in await self._events(pod) if event.type == "Warning" and not _bare(event)]
        if not warnings:
            return end
        said = messages.with_last_report(end.message, max(warnings, key=_when).note)
        return msgspec.structs.replace(end, message=said)

    def _stands_in_line(self, silence: Silence, now: int) -> bool:
        """Whether it is to wait for its turn first, since the server takes its time."""
        if silence.in_line or self._apart <= APART_MS:
            return False
        turn = max(self._line, now)
        if turn > now + LONGEST_MS:
            silence.due = now + LONGEST_MS  # most of those before it have started by then
            return True
        self._line = turn + round(self._apart)
        silence.due, silence.in_line = turn, turn > now
        return silence.in_line

    def _pause(self, least: int) -> int:
        return max(least, len(self._waiting) * APART_MS)

    async def _ask(self, pod: Pod, reason: str) -> _KubeletMessage | None:
        known = [event for event in await self._events(pod) if event.type == "Warning" or event.reason in _ORDER]
        latest = max(known, key=_when, default=None)
        if latest is None or latest.reason == _PULLED:
            return None
        if latest.reason != _PULLING:
            return _KubeletMessage(latest.reason or reason, latest.note, pulls=False)
        image = latest.note.removeprefix("Pulling image ").strip('"')
        return _KubeletMessage(_PULLING, messages.pulling(image, stamp(_when(latest)[0])), pulls=True)

    async def _events(self, pod: Pod) -> list[Event]:
        began = self._now()
        try:
            page = await self._client.page(
                EVENTS, pod.metadata.namespace, fields=f"regarding.uid={pod.metadata.uid}", limit=50
            )
        except (errors.Refused, errors.Throttled, errors.ServerTrouble):
            return []
        finally:
            # An answer that was late by chance is soon forgotten.
            self._apart = max(self._apart / 2, RESPITE * (self._now() - began), APART_MS)
        return page.items


def _when(event: Event) -> tuple[int, int]:
    """When it happened last, in unix milliseconds, and its place among those of that second."""
    series = event.series.last_observed_time if event.series else None
    at = milliseconds(series or event.deprecated_last_timestamp or event.event_time)
    return at, _ORDER.get(event.reason, 0)


def _bare(event: Event) -> bool:
    """Whether it repeats a reason of the status and no more, as in `Error: ErrImagePull`."""
    return event.note.startswith("Error: ") and " " not in event.note.removeprefix("Error: ")
