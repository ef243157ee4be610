"""The status of LifecycleHooks, and Events on their objects. It is written on change and never read back.

The status message is the problem of the hook itself, or else the worst problem of one of its objects.
"""

from typing import Any, Literal, NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube.cache import ObjectChange
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key, ObjectReference
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import HOOKS, HookObject, RunObject
from dayfly.operator.hooks import target_grants
from dayfly.operator.status.status_format import message_of, readiness
from dayfly.operator.status.status_writer import FROZEN as LOST
from dayfly.operator.status.status_writer import ObjectStatusWriter, StatusUpdate
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.lifecycle_hook import ENDED_PHASES
from dayfly.plan import messages, phases
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport

FROZEN = LOST | {Reason.KIND_NOT_SERVED}


class HookProblem(NamedTuple):
    """A problem with one object of a hook that needs a user's attention."""

    target: str
    reason: str
    message: str


class Counts(NamedTuple):
    """A hook's objects: all with a live run, and how many end, have a problem, or are older than the hook."""

    objects: int
    ending: int
    troubled: int
    older: int


class HookStatus:
    """Collects the problems of a hook's runs, and writes the hook's status."""

    def __init__(self, cluster: ClusterWatches, events: Recorder) -> None:
        self._cluster = cluster
        self._events = events
        self._runs: dict[str, set[str]] = {}
        self._problems: dict[str, dict[str, HookProblem]] = {}
        """By the hook's UID, and by run name or `problem_key`."""
        self._writer = ObjectStatusWriter[HookObject](cluster, HOOKS.metadata_only())
        cluster.runs.listen(self._on_run_change)

    @property
    def frozen_count(self) -> int:
        """The number of objects for which nothing is done."""
        every = (problem for known in self._problems.values() for problem in known.values())
        return sum(problem.reason in FROZEN for problem in every)

    def runs_of(self, uid: str) -> list[RunObject]:
        """Return all cached runs of a hook, also ended ones that are kept."""
        found = (self._cluster.ledger.get(name) for name in sorted(self._runs.get(uid, ())))
        return [run for run in found if run is not None]

    def list_problem_runs(self) -> list[str]:
        """Return the names of runs whose objects have a problem."""
        every = (key for known in self._problems.values() for key in known)
        return [key for key in every if self._cluster.ledger.get(key) is not None]

    def list_runs(self) -> list[RunObject]:
        """Return all cached runs of all hooks."""
        return [run for uid in self._runs for run in self.runs_of(uid)]

    def reset(self) -> None:
        """Forget what was written, and all problems: another replica is active now."""
        self._writer.reset()
        self._problems.clear()

    def forget(self, uid: str) -> None:
        """Forget a hook that is gone."""
        self._writer.forget(uid)
        self._problems.pop(uid, None)

    def _on_run_change(self, change: ObjectChange[RunObject]) -> None:
        """Queue the hook if a run is new, has changed its phase, or is gone."""
        run, hook = change.latest, change.latest.spec.hook
        if hook is None:
            return
        known = self._runs.setdefault(hook.uid, set())
        if change.new is None:
            known.discard(run.metadata.name)
        else:
            known.add(run.metadata.name)
        if not known:
            del self._runs[hook.uid]
        if change.new is None or run.ledger.phase in ENDED_PHASES:
            self.clear_problem(hook.uid, run.metadata.name)
        if change.old is None:
            # The run may have been restored, so the object no longer lacks one.
            target = run.ledger.target
            self.clear_problem(hook.uid, problem_key(target.namespace, target.name, target.uid))
        if change.new is None or change.old is None or change.old.ledger.phase is not run.ledger.phase:
            self._cluster.hooked.add(hook.name)

    # --- of one object ------------------------------------------------------------------------------------------------

    async def report_status(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        """Record the problem of one run, or that it has none."""
        target = scene.world.run.target
        run = self._cluster.ledger.get(names.run_name(target.name, report.uid))
        if run is None or run.spec.hook is None or (run.ledger.phase in ENDED_PHASES and not hindrance):
            return 0.0
        if hindrance:
            lack = target_grants.describe_refusal(hindrance)
            reason = Reason.TARGETS_NOT_GRANTED if lack else Reason.BLOCKED
            self.report_problem(run, reason, lack or messages.blocked(hindrance))
        elif severity(report.reason) >= Severity.WARNING or phases.has_trouble(report.units):
            self.report_problem(run, report.reason, message_of(report))
        elif report.unsupported:
            self.report_problem(run, Reason.UNSUPPORTED, messages.unsupported(report.unsupported))
        else:
            self.clear_problem(run.spec.hook.uid, run.metadata.name)
        return 0.0

    async def report_frozen(self, run: RunObject, why: UndecidableError) -> None:
        """Record that nothing is done for one object."""
        self.report_problem(run, why.reason, str(why))

    def report_problem(self, run: RunObject, reason: str, message: str) -> None:
        """Record a problem of the object of a run."""
        assert run.spec.hook is not None, "only runs of hooks"
        self.record_problem(
            run.spec.hook.name, run.spec.hook.uid, run.metadata.name, run.ledger.target, (reason, message)
        )

    def record_problem(self, hook: str, uid: str, key: str, target: Target, text: tuple[str, str]) -> None:
        """Record a problem of an object. `key` is its run's name, or a `problem_key`; `text` is reason and message."""
        reason, message = text
        known = self._problems.setdefault(uid, {})
        before = known.get(key)
        known[key] = HookProblem(f"{target.kind} {target.namespace}/{target.name}", reason, message)
        if before == known[key]:
            return
        self._cluster.hooked.add(hook)
        if before is None or before.reason != reason:
            kind: Literal["Normal", "Warning"] = "Warning" if severity(reason) >= Severity.TROUBLE else "Normal"
            self._events.record(_regarding(target), f"Hook-{hook}", reason, f"{hook}: {message}", kind)

    def clear_problem(self, uid: str, key: str) -> None:
        """Forget the problem of an object."""
        if self._problems.get(uid, {}).pop(key, None) is None:
            return
        for hook in [each for each in self._cluster.hooks if each.metadata.uid == uid]:
            self._cluster.hooked.add(hook.metadata.name)

    # --- of a hook ----------------------------------------------------------------------------------------------------

    def summarize(self, uid: str, ready: str) -> str:
        """Return the message of an active hook: its worst problem, or else `ready`."""
        known = sorted(self._problems.get(uid, {}).values())
        if not known:
            return ready
        worst = max(known, key=lambda each: severity(each.reason))
        others = f" (and {len(known) - 1} more)" if len(known) > 1 else ""
        return f"{worst.target}: {worst.message}{others}"

    async def write(self, seen: HookObject, reason: str, message: str) -> float:
        """Write the status of a hook; return the seconds after which to write it again, 0 if it is complete.

        Raises:
            errors.ApiError: it is not written yet.
        """
        meta, now, ready = seen.metadata, self._cluster.now(), reason == Reason.HOOK_ACTIVE
        counts = self.count(meta.uid)

        def status(since: str) -> dict[str, Any]:
            return {
                "observedGeneration": meta.generation,
                "ready": ready,
                "reason": reason,
                "message": message,
                **counts._asdict(),
                "conditions": readiness(ready, reason, message, meta.generation, since),
            }

        rest = (), message, counts
        update = StatusUpdate(ready, reason, message, (meta.generation,), rest, counts.troubled > 0, status)
        return await self._writer.write(seen, update, now)

    def count(self, uid: str) -> Counts:
        """Count the objects of a hook."""
        runs = [run for run in self.runs_of(uid) if run.ledger.phase not in ENDED_PHASES]
        return Counts(
            objects=len(runs),
            ending=sum(run.ledger.closed is not None for run in runs),
            troubled=len(self._problems.get(uid, ())),
            older=sum(run.spec.hook is not None and run.spec.hook.older for run in runs),
        )


def problem_key(namespace: str, name: str, uid: str) -> str:
    """Return a key for the problem of an object that has no run."""
    return f"{Key(namespace, name)} {uid}"


def _regarding(target: Target) -> ObjectReference:
    return ObjectReference(
        api_version=target.api_version,
        kind=target.kind,
        namespace=target.namespace,
        name=target.name,
        uid=target.uid,
    )
