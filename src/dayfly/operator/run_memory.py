"""The memory of a run between its turns: one object, which is dropped with the run.

It only saves work: a new process starts without it and rebuilds it. Each package of the operator defines its own part
and receives only that part.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from dayfly.execute.executor import Observations
from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.forks.fork_reconciler import ForkMemory, ForkSight
from dayfly.operator.objects.object_observer import ObjectMemory
from dayfly.operator.outputs.log_outputs import LogWait
from dayfly.operator.pods.pod_events import EventQuery
from dayfly.operator.refusals import Refusals
from dayfly.operator.retries import Retries
from dayfly.operator.routes.route_memory import RouteMemory, RouteSight
from dayfly.operator.status.resource_status import ResourceMemory
from dayfly.operator.status.step_logs import LogMemory
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, UnitRefusal


class Sight(msgspec.Struct):
    """One turn's data besides the scene: the objects themselves, so that effects can use their UIDs."""

    run: RunObject
    memory: "RunMemory"
    plan: Plan
    now: int
    closing: bool
    """Whether the run is closed, or will be in this turn."""
    abandoned: bool
    """Whether the cleanup was abandoned, so that nothing waits for results that only cleanup needs."""
    reset: frozenset[str] = frozenset()
    """Resources that get another pool member."""
    known: dict[str, Observations] = {}
    """Results of the executors, by kind of unit."""
    given: dict[str, dict[str, bytes]] = {}
    """Values of the target for the units that may start and read them."""
    missing_fields: dict[str, UnitRefusal] = {}
    """Objections against those of these units whose values are missing."""
    outputs: dict[AttemptKey, dict[str, bytes]] = {}
    pods: dict[AttemptKey, Pod] = {}
    objects: dict[AttemptKey, dict[str, Any]] = {}
    """Existing objects by the attempts that created them."""
    first_error: Exception | None = None
    """The first error that did not end the turn at once; it is raised at the end."""
    has_joined: bool = False
    """Whether this turn has joined a pool member, so that the next turn, which claims it, follows at once."""
    ineffective: tuple[str, ...] = ()
    """Parts of the spec that have no effect, for the report."""
    routes: RouteSight = msgspec.field(default_factory=RouteSight)
    forks: ForkSight = msgspec.field(default_factory=lambda: ForkSight(ForkMemory(Refusals())))


class PodMemory:
    """The memory of one pod of a run."""

    def __init__(self) -> None:
        self.changes: str | None = None
        """Differences of the stored pod from its manifest, empty if there are none; None before the check."""
        self.is_outdated = False
        """Whether a peer built the pod from earlier values of the target, so that it must be built again."""
        self.clock_skew: UnitRefusal | None = None
        """The objection if the pod was too old to start in the moment in which it was created."""
        self.event_query = EventQuery()
        self.log_wait = LogWait()


class Work(msgspec.Struct):
    """Data of a run in progress for its next turn. It can be rebuilt."""

    plan: tuple[str, Plan] | None = None
    """The sealed plan, with the digest of its forks."""
    absent_pods: frozenset[str] = frozenset()
    """UIDs of pods that a quorum read has not found."""
    scene: Scene | None = None
    sight: Sight | None = None


class RunMemory:
    """The memory of one Run. It is small, because there are as many as runs."""

    __slots__ = (
        "ahead",
        "forks",
        "has_target_finalizer",
        "is_hold_removed",
        "joined",
        "ledger",
        "logs",
        "name",
        "objects",
        "pods",
        "refusals",
        "resources",
        "retries",
        "routes",
        "uid",
        "work",
    )

    def __init__(self, run: RunObject) -> None:
        self.name, self.uid, self.ledger = run.metadata.name, run.metadata.uid, run.ledger.uid
        self.has_target_finalizer = False
        """Whether our finalizer was seen on the target before its deletion began."""
        self.is_hold_removed = False
        """Whether the target's own stop is no longer blocked."""
        self.ahead: frozenset[AttemptKey] = frozenset()
        """Attempts whose pods we have created before their turn."""
        self.work = Work()
        self.refusals = Refusals()
        self.retries = Retries()
        self.forks = ForkMemory(self.refusals, self.retries)
        self.joined: dict[str, str] = {}
        """By resource: the run of the pool member that this process has joined for it."""
        self.pods: dict[str, PodMemory] = {}
        """By UID: the pods that are neither released nor gone."""
        self.objects: dict[AttemptKey, ObjectMemory] = {}
        self.resources: dict[str, ResourceMemory] = {}
        self.logs = LogMemory()
        self.routes = RouteMemory(self.retries)

    def pod(self, uid: str) -> PodMemory:
        """Return the memory of a pod, which is created if needed."""
        if (known := self.pods.get(uid)) is None:
            known = self.pods[uid] = PodMemory()
        return known

    @property
    def is_blank(self) -> bool:
        """Whether nothing is remembered except `has_target_finalizer`."""
        forks = (self.forks.stuck, self.forks.refused)
        remembered = (self.pods, self.objects, self.resources, *forks, self.refusals, self.retries)
        return not (any(remembered) or self.routes or self.logs.waiting or self.logs.handled or self.is_hold_removed)


class RunMemories:
    """The memories of all runs. A new run with the name of an earlier one has a separate memory."""

    def __init__(self, dropped: Callable[[RunMemory], None]) -> None:
        """Create an empty store. `dropped` is called with each memory that ends, to stop its background tasks."""
        self._dropped = dropped
        self._by_name: dict[str, RunMemory] = {}
        self._by_ledger: dict[str, RunMemory] = {}
        self._resting: dict[str, str] = {}
        """UIDs, by name, of idle runs whose memory contains nothing but `has_target_finalizer`."""
        self._istio_rules: dict[str, tuple[str, ...]] = {}
        """Istio rules of idle runs that have reached the proxies. They cannot be derived again: a VirtualService only
        shows when it was last written, not since when it contains a certain rule."""

    def find(self, run: RunObject | None) -> RunMemory | None:
        """Return the run's memory if there is one."""
        found = self._by_name.get(run.metadata.name) if run is not None else None
        return found if found is not None and run is not None and found.uid == run.metadata.uid else None

    def get_or_create(self, run: RunObject) -> RunMemory:
        """Return the run's memory, which is created if needed."""
        found = self._by_name.get(run.metadata.name)
        if found is None or found.uid != run.metadata.uid:
            has_finalizer = self._resting.get(run.metadata.name) == run.metadata.uid
            rules = self._istio_rules.get(run.metadata.name, ()) if has_finalizer else ()
            self.drop(run.metadata.name)
            found = self._by_name[run.metadata.name] = self._by_ledger[run.ledger.uid] = RunMemory(run)
            found.has_target_finalizer = has_finalizer
            found.routes.rules_seen_at = dict.fromkeys(rules, 0)
        return found

    def is_prepared_ahead(self, run: RunObject, pod: Pod) -> bool:
        """Return whether we have created this pod before its step's turn."""
        found = self.find(run)
        ahead = found.ahead if found is not None else ()
        return any(pod.metadata.name == names.pod_name(run.ledger.uid, *key) for key in ahead)

    def shrink(self, name: str) -> None:
        """Reduce the memory of an idle run. Most runs are idle, so their number determines memory use."""
        found = self._by_name.get(name)
        if found is None:
            return
        found.work = Work()
        if found.is_blank:
            del self._by_name[name], self._by_ledger[found.ledger]
            if found.has_target_finalizer:
                self._resting[name] = found.uid
                if found.routes.rules_seen_at:
                    self._istio_rules[name] = tuple(found.routes.rules_seen_at)

    def by_ledger(self, uid: str) -> RunMemory:
        """Return the memory of a run during its turn.

        Raises:
            KeyError: there is none.
        """
        return self._by_ledger[uid]

    def clear(self) -> None:
        """Drop all memories: another process is active now."""
        for name in [*self._by_name, *self._resting, *self._istio_rules]:
            self.drop(name)

    def drop(self, name: str) -> None:
        """Drop the memory of a run that is gone."""
        self._resting.pop(name, None)
        self._istio_rules.pop(name, None)
        if found := self._by_name.pop(name, None):
            self._by_ledger.pop(found.ledger, None)
            found.work = Work()
            self._dropped(found)
