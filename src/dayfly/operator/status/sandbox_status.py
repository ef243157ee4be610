"""Statuses and Events of Sandboxes. A status is written when it has changed, and never read back.

A changed reason is written at once. Other changes are written every few seconds, because a later one may replace them.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.read import format_time
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import ObjectChange
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key
from dayfly.lib.queue import WorkQueue
from dayfly.operator import refusals
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    SERVED_KEY_ANNOTATION,
    SandboxObject,
    StoredStatus,
    served_for,
)
from dayfly.operator.status.expiry_warning import Expiry
from dayfly.operator.status.status_format import (
    condition,
    endpoints_of,
    member_pods,
    message_of,
    pods_of,
    readiness,
    supported_row,
    units_of,
    with_unsupported_parts,
)
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.operator.status.status_writer import CONFLICT_RETRY_S, ObjectStatusWriter, StatusUpdate
from dayfly.plan import messages, phases
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason
from dayfly.spec.identity import routing_key
from dayfly.spec.report import RunReport
from dayfly.spec.unsupported_fields import SUPPORTED, unsupported_sandbox_fields


class SandboxNotReadyError(Exception):
    """A Sandbox has no run yet, or its newest spec is not applied. `reason` and the message are for its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def to_status_error(error: Exception, failures: int) -> SandboxNotReadyError | None:
    """Return the error as a reason for the status, or None if too few attempts have failed to report it."""
    if failures + 1 < refusals.failures_until_report(error):
        return None
    return SandboxNotReadyError(Reason.BLOCKED, messages.blocked(refusals.error_message(error)))


async def reconcile_and_report(
    queue: WorkQueue[Key],
    key: Key,
    reconcile: Callable[[Key], Awaitable[SandboxNotReadyError | None]],
    report: Callable[[Key, SandboxNotReadyError], Awaitable[None]],
) -> None:
    """Reconcile an object of a queue and report why it has no run yet."""
    async with report_on_error(lambda: queue.failures(key), lambda why: report(key, why)):
        why = await reconcile(key)
    if why is not None:
        await report(key, why)


@contextlib.asynccontextmanager
async def report_on_error(
    failures: Callable[[], int], report: Callable[[SandboxNotReadyError], Awaitable[None]]
) -> AsyncIterator[None]:
    """Report an exception of the body and raise it again. `failures()` is the number of earlier failed attempts."""
    try:
        yield
    except Exception as error:
        if (why := to_status_error(error, failures())) is not None:
            with contextlib.suppress(errors.ApiError):  # it is reported at the next try
                await report(why)
        raise


class AppliedSpec(NamedTuple):
    """The newest generation of a Sandbox's spec that was processed, and why the run does not use it."""

    generation: int
    refusal: SandboxNotReadyError | None = None


class _SandboxMessage(NamedTuple):
    """Content of a status, and the generation of the spec that it describes."""

    ready: bool
    reason: str
    message: str
    generation: int
    about: str = ""
    others: int = 0


class SandboxStatusWriter:
    """Writes the statuses of Sandboxes. After a restart it compares each with the stored status first."""

    def __init__(self, cluster: ClusterWatches, events: Recorder) -> None:
        self._cluster = cluster
        self._writer = ObjectStatusWriter[SandboxObject](cluster, SANDBOXES, events, _stored_throttle)
        self.on_report: Callable[[SandboxObject, RunReport, int, Expiry], None] = lambda *_: None
        """Called with each report about a Sandbox's run, and the generation of the spec that it describes."""
        self.frozen, self.forget, self.reset = self._writer.frozen, self._writer.forget, self._writer.reset
        cluster.sandboxes.listen(self._handle_change)

    async def write_report(
        self,
        scene: Scene,
        report: RunReport,
        applied_spec: Callable[[SandboxObject], AppliedSpec],
        *,
        hindrance: str = "",
    ) -> float:
        """Write the status of a Sandbox with a run if it is due. Return the seconds until it is; 0 if it is written.

        `applied_spec` returns which generation of the spec the run uses, and why not a newer one. `hindrance` is the
        error that prevents the operator from continuing the run, if any.
        """
        target = scene.world.run.target
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            self.forget(target.uid)
            return 0.0
        content = _SandboxMessage(
            report.ready,
            report.reason,
            message_of(report),
            seen.metadata.generation,
            report.about,
            report.others,
        )
        if report.closed is None and not seen.metadata.deletion_timestamp:
            generation, refusal = applied_spec(seen)
            content = content._replace(generation=generation)
            if refusal is not None and severity(report.reason) < Severity.WARNING:
                message = f"{refusal}; its forks stay as they are"
                content = _SandboxMessage(False, refusal.reason, message, generation)
        if hindrance and not report.ready:
            message = messages.blocked(hindrance)
            content = _SandboxMessage(False, Reason.BLOCKED, message, content.generation)
        reported = msgspec.structs.replace(report, ready=content.ready, reason=content.reason, message=content.message)
        self.on_report(
            seen, reported, content.generation, Expiry.from_world(scene.world, seen.spec, self._cluster.now())
        )
        return await self._write(seen, content, (scene, report))

    async def report(self, key: Key, why: SandboxNotReadyError) -> None:
        """Call `report_waiting` for the Sandbox of that name, if there is one."""
        if (seen := self._cluster.sandboxes.get(key.name, key.namespace)) is not None:
            await self.report_waiting(seen, why)

    async def report_waiting(self, seen: SandboxObject, why: SandboxNotReadyError) -> None:
        """Report why the operator does nothing for a Sandbox.

        An error of the operator does not make a ready one unready.
        """
        is_ready = seen.status is not None and seen.status.ready and not seen.metadata.deletion_timestamp
        if why.reason == Reason.BLOCKED and is_ready:
            return
        await self._write(seen, _SandboxMessage(False, why.reason, str(why), seen.metadata.generation), None)

    def warn(self, seen: SandboxObject, sentence: str) -> None:
        """Record a warning Event about a part of the spec that has no effect; the rest is applied."""
        self._writer.record(seen, Reason.PARTLY_APPLIED, sentence, action="Compile")

    def _handle_change(self, change: ObjectChange[SandboxObject]) -> None:
        seen = change.latest
        if change.new is None:
            self.forget(seen.metadata.uid)  # no later turn of its run would do this
        elif self._writer.is_overwritten(seen):
            self._cluster.queue.add(names.run_name(seen.metadata.name, seen.metadata.uid), after=CONFLICT_RETRY_S)
            self._cluster.sandbox_queue.add(Key.from_object(seen), after=CONFLICT_RETRY_S)

    async def _write(
        self, seen: SandboxObject, content: _SandboxMessage, about: tuple[Scene, RunReport] | None
    ) -> float:
        ready, reason, message, generation, unit, others = content
        report = about[1] if about else None
        lacking = (*unsupported_sandbox_fields(seen.spec, by_name=False), *(report.unsupported if report else ()))
        if ready:
            message = with_unsupported_parts(message, lacking)
        units = report.units if report else ()
        run = names.run_name(seen.metadata.name, seen.metadata.uid)
        urls = self._cluster.urls.get(run, {}) if report else {}
        meta, now, before = seen.metadata, self._cluster.now(), seen.status or StoredStatus()
        progress = f"{report.done}/{report.total}" if report else before.progress or "0/0"
        closed = (report is not None and report.closed is not None) or bool(meta.deletion_timestamp)
        begun = report is not None or bool(before.units)
        phase = phases.phase(begun=begun, closed=closed, ready=ready, reason=reason)
        pods = pods_of(*about) | member_pods(self._cluster, about[0]) if about else {}
        standing = tuple((unit.id, unit.state, unit.attempt, pods.get(unit.id, ""), unit.member) for unit in units)
        expiry = Expiry.from_world(about[0].world if about else None, seen.spec, now)
        deferred = (), message, progress, standing, bool(lacking), expiry.soon, urls

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
                "expiresAt": format_time(expiry.at) or None,
                "conditions": [
                    *readiness(ready, reason, message, generation, since),
                    condition(seen, supported_row(lacking), now),
                    *expiry.conditions(generation),
                ],
                **({"run": run, "units": units_of(units, pods)} if about else {}),
            }

        has_trouble = phases.has_trouble(units)
        update = StatusUpdate(ready, reason, message, (phase, generation), deferred, has_trouble, status, expiry)
        return await self._writer.write(seen, update, now)


def _stored_throttle(seen: SandboxObject) -> StatusThrottle:
    """Return a throttle with the stored status, which an earlier process may have written."""
    stored = seen.status
    if stored is None:
        return StatusThrottle()
    urgent = stored.ready, stored.reason, stored.phase, stored.observed_generation
    standing = tuple((unit.id, unit.state, unit.attempt, unit.pod, unit.member) for unit in stored.units)
    lacks = any(each.type == SUPPORTED and each.status == "False" for each in stored.conditions)
    urls = {each.name: each.url for each in stored.endpoints}
    deferred = (), stored.message, stored.progress, standing, lacks, Expiry.is_warned_in(stored), urls
    return StatusThrottle.from_status(stored, urgent, deferred)
