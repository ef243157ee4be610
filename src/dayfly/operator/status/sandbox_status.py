"""What the operator says of a Sandbox: its status, patched when it has changed, and never read back; Events beside it.

A change of reason is said at once, anything else at most every few seconds: what is over sooner is not worth a write.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import stamp
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.lib.queue import WorkQueue
from dayfly.operator import refusals
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    SERVED_KEY_ANNOTATION,
    SandboxObject,
    WrittenStatus,
    served_for,
)
from dayfly.operator.status.expiry import Expiry
from dayfly.operator.status.status_format import condition, conditions, endpoints_of, message_of, pods_of, units_of
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.operator.status.status_writer import AGAIN_S, StatusUpdate, StatusWriter
from dayfly.plan import messages, phases
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import routing_key
from dayfly.spec.report import RunReport
from dayfly.spec.unsupported_fields import SUPPORTED, unsupported


class SandboxNotReadyError(Exception):
    """The sandbox cannot become a run yet; `reason` is one word, the text what it waits for."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def hindered(error: Exception, failures: int) -> SandboxNotReadyError | None:
    """Return what to report of an error that has ended `failures` attempts before this one; None if it may pass."""
    if failures + 1 < refusals.patience(error):
        return None
    return SandboxNotReadyError(Reason.BLOCKED, messages.blocked(refusals.hindrance(error)))


async def reconcile_and_report(
    queue: WorkQueue[Key],
    key: Key,
    reconcile: Callable[[Key], Awaitable[SandboxNotReadyError | None]],
    report: Callable[[Key, SandboxNotReadyError], Awaitable[None]],
) -> None:
    """Reconcile an object of a queue, and report why it has no run yet."""
    async with reporting(lambda: queue.failures(key), lambda why: report(key, why)):
        why = await reconcile(key)
    if why is not None:
        await report(key, why)


@contextlib.asynccontextmanager
async def reporting(
    failures: Callable[[], int], report: Callable[[SandboxNotReadyError], Awaitable[None]]
) -> AsyncIterator[None]:
    """Report an error that ends the body, and raise it. `failures()` attempts have failed before this one."""
    try:
        yield
    except Exception as error:
        if (why := hindered(error, failures())) is not None:
            with contextlib.suppress(errors.ApiError):  # it is reported at the next try
                await report(why)
        raise


class Heeded(NamedTuple):
    """The newest generation of a Sandbox's wish that was looked at, and why its run did not take that one up."""

    generation: int
    refusal: SandboxNotReadyError | None = None


class _SandboxMessage(NamedTuple):
    """What is said of a Sandbox: of that generation of its owner's wish."""

    ready: bool
    reason: str
    message: str
    generation: int
    about: str = ""
    others: int = 0


class SandboxStatusWriter:
    """Writes statuses of Sandboxes. After a restart it compares with the status that it finds."""

    def __init__(self, cluster: ClusterWatches, events: Recorder) -> None:
        self._cluster = cluster
        self._writer = StatusWriter[SandboxObject](cluster, SANDBOXES, events, _found)
        self.told: Callable[[SandboxObject, RunReport, int, Expiry], None] = lambda *_: None
        """Told how the run of a Sandbox stands, and of which generation of its wish that is."""
        self.frozen, self.forget, self.reset = self._writer.frozen, self._writer.forget, self._writer.reset
        cluster.sandboxes.listen(self._heard)

    async def run(
        self, scene: Scene, report: RunReport, heeded: Callable[[SandboxObject], Heeded], *, hindrance: str = ""
    ) -> float:
        """Say how the run of a Sandbox stands; seconds after which to ask again, 0 if all is said.

        `heeded` tells which of its owner's wishes the run speaks of, and what was wrong with a newer one; `hindrance`
        is what keeps the operator from taking the run any further, whatever its steps are at.
        """
        target = scene.world.run.target
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            self.forget(target.uid)
            return 0.0
        said = _SandboxMessage(
            report.ready,
            report.reason,
            message_of(report),
            seen.metadata.generation,
            report.about,
            report.others,
        )
        if report.closed is None and not seen.metadata.deletion_timestamp:
            generation, refusal = heeded(seen)
            said = said._replace(generation=generation)
            if refusal is not None and severity(report.reason) < Severity.WARNING:
                message = f"{refusal}; its forks stay as they are"
                said = _SandboxMessage(False, refusal.reason, message, generation)
        if hindrance and not report.ready:
            message = messages.blocked(hindrance)
            said = _SandboxMessage(False, Reason.BLOCKED, message, said.generation)
        spoken = msgspec.structs.replace(report, ready=said.ready, reason=said.reason, message=said.message)
        self.told(seen, spoken, said.generation, Expiry.of(scene.world, seen.spec, self._cluster.now()))
        return await self._say(seen, said, (scene, report))

    async def report(self, key: Key, why: SandboxNotReadyError) -> None:
        """As `waiting`, for the Sandbox of that name if there is one."""
        if (seen := self._cluster.sandboxes.get(key.name, key.namespace)) is not None:
            await self.waiting(seen, why)

    async def waiting(self, seen: SandboxObject, why: SandboxNotReadyError) -> None:
        """Report why nothing is done for a Sandbox. A ready one stays ready while the operator is hindered."""
        is_ready = seen.status is not None and seen.status.ready and not seen.metadata.deletion_timestamp
        if why.reason == Reason.BLOCKED and is_ready:
            return
        await self._say(seen, _SandboxMessage(False, why.reason, str(why), seen.metadata.generation), None)

    def doubt(self, seen: SandboxObject, sentence: str) -> None:
        """Warn of what a Sandbox asks for in vain; it is done all the same."""
        self._writer.record(seen, Reason.PARTLY_APPLIED, sentence, action="Compile")

    def _heard(self, change: Change[SandboxObject]) -> None:
        seen = change.seen
        if change.new is None:
            self.forget(seen.metadata.uid)  # whoever ended its run: no turn of ours comes to speak of it
        elif self._writer.is_overwritten(seen):
            self._cluster.queue.add(names.run_name(seen.metadata.name, seen.metadata.uid), after=AGAIN_S)
            self._cluster.wishes.add(Key.of(seen), after=AGAIN_S)

    async def _say(self, seen: SandboxObject, said: _SandboxMessage, about: tuple[Scene, RunReport] | None) -> float:
        ready, reason, message, generation, unit, others = said
        report = about[1] if about else None
        lacking = (*unsupported(seen.spec, by_name=False), *(report.unsupported if report else ()))
        if lacking and ready:
            message = f"{message} {messages.unsupported(lacking)}"
        units = report.units if report else ()
        run = names.run_name(seen.metadata.name, seen.metadata.uid)
        urls = self._cluster.urls.get(run, {}) if report else {}
        meta, now, before = seen.metadata, self._cluster.now(), seen.status or WrittenStatus()
        progress = f"{report.done}/{report.total}" if report else before.progress or "0/0"
        closed = (report is not None and report.closed is not None) or bool(meta.deletion_timestamp)
        begun = report is not None or bool(before.units)
        phase = phases.phase(begun=begun, closed=closed, ready=ready, reason=reason)
        standing = tuple((unit.id, unit.state, unit.attempt) for unit in units)
        expiry = Expiry.of(about[0].world if about else None, seen.spec, now)
        served = (SUPPORTED, False, Reason.UNSUPPORTED, messages.unsupported(lacking))
        if not lacking:
            served = (SUPPORTED, True, Reason.SUPPORTED, "")
        rest = (), message, progress, standing, bool(lacking), expiry.soon, urls

        def status(since: str) -> dict[str, Any]:
            return {
                "observedGeneration": generation,
                "phase": phase,
                "ready": ready,
                "reason": reason,
                "message": message,
                "about": unit,
                "others": others,
                "progress": progress,
                "routingKey": (meta.annotations or {}).get(SERVED_KEY_ANNOTATION) or routing_key(meta.uid),
                **({"servedFor": whose} if (whose := served_for(meta)) else {}),
                **endpoints_of(seen.status, urls),
                "expiresAt": stamp(expiry.at) or None,
                "conditions": [
                    *conditions(ready, reason, message, generation, since),
                    condition(seen, served, now),
                    *expiry.conditions(generation),
                ],
                **({"run": run, "units": units_of(units, pods_of(*about))} if about else {}),
            }

        troubled = phases.has_trouble(units)
        update = StatusUpdate(ready, reason, message, (phase, generation), rest, troubled, status, expiry)
        return await self._writer.write(seen, update, now)


def _found(seen: SandboxObject) -> StatusThrottle:
    """What its status says: if not we, a process before this one has said it."""
    spoken = seen.status
    if spoken is None:
        return StatusThrottle()
    news = spoken.ready, spoken.reason, spoken.phase, spoken.observed_generation
    standing = tuple((unit.id, unit.state, unit.attempt) for unit in spoken.units)
    lacks = any(each.type == SUPPORTED and each.status == "False" for each in spoken.conditions)
    urls = {each.name: each.url for each in spoken.endpoints}
    rest = (), spoken.message, spoken.progress, standing, lacks, Expiry.was_said(spoken), urls
    return StatusThrottle.found(spoken, news, rest)
