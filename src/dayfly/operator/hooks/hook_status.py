"""What the operator says of a LifecycleHook: its status, written when it has changed, and Events on its objects.

One sentence for all of a hook's objects: what stands in the way of the hook itself, else the first object that
somebody should look at. Spoken and never read back.
"""

from typing import Any, Literal, NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube.cache import Change
from dayfly.kube.events import Recorder
from dayfly.kube.objects import Key, ObjectReference
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import HOOKS, HookObject, RunObject
from dayfly.operator.hooks import target_grants
from dayfly.operator.status.status_format import conditions, message_of
from dayfly.operator.status.status_writer import FROZEN as LOST
from dayfly.operator.status.status_writer import StatusUpdate, StatusWriter
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan import messages, phases
from dayfly.plan.reason_catalog import Severity, severity
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase

FROZEN = LOST | {Reason.KIND_NOT_SERVED}
_OVER = (Phase.CLEANED, Phase.ABANDONED)


class HookProblem(NamedTuple):
    """Why somebody should look at one object of a hook."""

    named: str
    reason: str
    message: str


class Counts(NamedTuple):
    """The objects that a hook goes with now; and of these how many end, need somebody, and are older than the hook."""

    objects: int
    ending: int
    troubled: int
    older: int


class HookStatus:
    """Hears of each run of a hook, and speaks of the hook."""

    def __init__(self, cluster: ClusterWatches, events: Recorder) -> None:
        self._cluster = cluster
        self._events = events
        self._runs: dict[str, set[str]] = {}
        self._troubles: dict[str, dict[str, HookProblem]] = {}
        """By the hook's UID, and by run, or by what is in want of one."""
        self._writer = StatusWriter[HookObject](cluster, HOOKS.metadata_only())
        cluster.runs.listen(self._heard)

    @property
    def frozen(self) -> int:
        """How many objects there are of which nothing is done any more."""
        every = (trouble for known in self._troubles.values() for trouble in known.values())
        return sum(trouble.reason in FROZEN for trouble in every)

    def runs_of(self, uid: str) -> list[RunObject]:
        """All runs of a hook, as far as is known; those that are over and stay, too."""
        found = (self._cluster.ledger.get(name) for name in sorted(self._runs.get(uid, ())))
        return [run for run in found if run is not None]

    def troubled_runs(self) -> list[str]:
        """The names of the runs whose objects are in trouble."""
        every = (key for known in self._troubles.values() for key in known)
        return [key for key in every if self._cluster.ledger.get(key) is not None]

    def every_run(self) -> list[RunObject]:
        """All runs of all hooks."""
        return [run for uid in self._runs for run in self.runs_of(uid)]

    def reset(self) -> None:
        """Forget what was written and which objects are in trouble: another process finds that out from now on."""
        self._writer.reset()
        self._troubles.clear()

    def forget(self, uid: str) -> None:
        """The hook is gone."""
        self._writer.forget(uid)
        self._troubles.pop(uid, None)

    def _heard(self, change: Change[RunObject]) -> None:
        """Its objects are counted anew when a run has come, is over, or has gone."""
        run, hook = change.seen, change.seen.spec.hook
        if hook is None:
            return
        known = self._runs.setdefault(hook.uid, set())
        if change.new is None:
            known.discard(run.metadata.name)
        else:
            known.add(run.metadata.name)
        if not known:
            del self._runs[hook.uid]
        if change.new is None or run.ledger.phase in _OVER:
            self.settle(hook.uid, run.metadata.name)
        if change.old is None:
            # Perhaps one that was restored: nobody looks for it any more.
            target = run.ledger.target
            self.settle(hook.uid, runless(target.namespace, target.name, target.uid))
        if change.new is None or change.old is None or change.old.ledger.phase is not run.ledger.phase:
            self._cluster.hooked.add(hook.name)

    # --- of one object ------------------------------------------------------------------------------------------------

    async def tell(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        """Note how one run stands."""
        target = scene.world.run.target
        run = self._cluster.ledger.get(names.run_name(target.name, report.uid))
        if run is None or run.spec.hook is None or (run.ledger.phase in _OVER and not hindrance):
            return 0.0
        if hindrance:
            lack = target_grants.sentence(hindrance)
            reason = Reason.TARGETS_NOT_GRANTED if lack else Reason.BLOCKED
            self.trouble(run, reason, lack or messages.blocked(hindrance))
        elif severity(report.reason) >= Severity.WARNING or phases.has_trouble(report.units):
            self.trouble(run, report.reason, message_of(report))
        elif report.unsupported:
            self.trouble(run, Reason.UNSUPPORTED, messages.unsupported(report.unsupported))
        else:
            self.settle(run.spec.hook.uid, run.metadata.name)
        return 0.0

    async def freeze(self, run: RunObject, why: UndecidableError) -> None:
        """Nothing is done for one object any more."""
        self.trouble(run, why.reason, str(why))

    def trouble(self, run: RunObject, reason: str, message: str) -> None:
        """Somebody should look at the object of a run."""
        assert run.spec.hook is not None, "asked of hooks' runs alone"
        self.note(run.spec.hook.name, run.spec.hook.uid, run.metadata.name, run.ledger.target, (reason, message))

    def note(self, hook: str, uid: str, key: str, target: Target, said: tuple[str, str]) -> None:
        """The same, where there may be no run: `key` stands for the object."""
        reason, message = said
        known = self._troubles.setdefault(uid, {})
        before = known.get(key)
        known[key] = HookProblem(f"{target.kind} {target.namespace}/{target.name}", reason, message)
        if before == known[key]:
            return
        self._cluster.hooked.add(hook)
        if before is None or before.reason != reason:
            kind: Literal["Normal", "Warning"] = "Warning" if severity(reason) >= Severity.TROUBLE else "Normal"
            self._events.record(_regarding(target), f"Hook-{hook}", reason, f"{hook}: {message}", kind)

    def settle(self, uid: str, key: str) -> None:
        """Nobody need look at that object any more."""
        if self._troubles.get(uid, {}).pop(key, None) is None:
            return
        for hook in [each for each in self._cluster.hooks if each.metadata.uid == uid]:
            self._cluster.hooked.add(hook.metadata.name)

    # --- of a hook ----------------------------------------------------------------------------------------------------

    def standing(self, uid: str, ready: str) -> str:
        """The sentence on a hook that is taken up: its first trouble, else `ready`."""
        known = sorted(self._troubles.get(uid, {}).values())
        if not known:
            return ready
        worst = max(known, key=lambda each: severity(each.reason))
        others = f" (and {len(known) - 1} more)" if len(known) > 1 else ""
        return f"{worst.named}: {worst.message}{others}"

    async def say(self, seen: HookObject, reason: str, message: str) -> float:
        """Say how a hook stands; seconds after which to ask again, 0 if all is said.

        Raises:
            errors.ApiError: it is not said yet.
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
                "conditions": conditions(ready, reason, message, meta.generation, since),
            }

        rest = (), message, counts
        update = StatusUpdate(ready, reason, message, (meta.generation,), rest, counts.troubled > 0, status)
        return await self._writer.write(seen, update, now)

    def count(self, uid: str) -> Counts:
        """How many objects a hook goes with, and how these stand."""
        runs = [run for run in self.runs_of(uid) if run.ledger.phase not in _OVER]
        return Counts(
            objects=len(runs),
            ending=sum(run.ledger.closed is not None for run in runs),
            troubled=len(self._troubles.get(uid, ())),
            older=sum(run.spec.hook is not None and run.spec.hook.older for run in runs),
        )


def runless(namespace: str, name: str, uid: str) -> str:
    """What stands for an object that has no run."""
    return f"{Key(namespace, name)} {uid}"


def _regarding(target: Target) -> ObjectReference:
    return ObjectReference(
        api_version=target.api_version,
        kind=target.kind,
        namespace=target.namespace,
        name=target.name,
        uid=target.uid,
    )
