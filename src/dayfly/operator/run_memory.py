"""The memory of a run between its turns: one object, which is dropped with the run.

It only saves work: a new process starts without it and rebuilds it. Each package of the operator defines its own part
and receives only that part.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from dayfly.execute.executor import Known
from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.forks.fork_reconciler import ForkMemory, ForkSight
from dayfly.operator.objects.object_memory import ObjectMemory
from dayfly.operator.pods.pod_memory import PodMemory
from dayfly.operator.refusals import Refusals
from dayfly.operator.retries import Retries
from dayfly.operator.routes.route_memory import RouteMemory, RouteSight
from dayfly.operator.status.resource_status import ResourceMemory
from dayfly.operator.status.step_logs import LogMemory
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Objection


class Sight(msgspec.Struct):
    """One turn's view beside the scene: the very objects, so that effects can name them."""

    run: RunObject
    session: "RunMemory"
    plan: Plan
    now: int
    closing: bool
    """Whether the run is closed, or is to be in this turn."""
    abandoned: bool
    """Whether nobody wants its cleanup any more: then nothing is waited for that serves that alone."""
    known: dict[str, Known] = {}
    """By kind, what its executor has found out."""
    given: dict[str, dict[str, bytes]] = {}
    """By the units that may be begun and read their target, what it has for them."""
    lacking: dict[str, Objection] = {}
    """Of those units, the ones that wait for what it does not have."""
    outputs: dict[AttemptKey, dict[str, bytes]] = {}
    pods: dict[AttemptKey, Pod] = {}
    objects: dict[AttemptKey, dict[str, Any]] = {}
    """By the attempts that have made them, those that are there."""
    failed: Exception | None = None
    """The first error that did not end the turn; the turn ends with it."""
    unrouted: tuple[str, ...] = ()
    """Ways to it that lead nowhere; they are said wherever Ready is."""
    routes: RouteSight = msgspec.field(default_factory=RouteSight)
    forks: ForkSight = msgspec.field(default_factory=lambda: ForkSight(ForkMemory(Refusals())))


class Work(msgspec.Struct):
    """What a run that has something under way needs for its next turn; found again when it is looked at again."""

    plan: tuple[str, Plan] | None = None
    """By the digest of the forks that are wished for."""
    gone: frozenset[str] = frozenset()
    """UIDs of pods that a quorum read has said to be gone."""
    scene: Scene | None = None
    sight: Sight | None = None


class RunMemory:
    """All that this process remembers of one Run object. There may be as many as runs, so it is kept small."""

    __slots__ = (
        "ahead",
        "fenced",
        "forks",
        "ledger",
        "logs",
        "loosened",
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
        self.fenced = False
        """Whether our finalizer was seen on its living target."""
        self.loosened = False
        """Whether its target was let go as far as its own stop is concerned."""
        self.ahead: frozenset[AttemptKey] = frozenset()
        """Attempts whose pods were made by us before it was their turn."""
        self.work = Work()
        self.refusals = Refusals()
        self.retries = Retries()
        self.forks = ForkMemory(self.refusals, self.retries)
        self.pods: dict[str, PodMemory] = {}
        """By UID, those that are neither released nor gone."""
        self.objects: dict[AttemptKey, ObjectMemory] = {}
        self.resources: dict[str, ResourceMemory] = {}
        self.logs = LogMemory()
        self.routes = RouteMemory(self.retries)

    def pod(self, uid: str) -> PodMemory:
        """What is remembered of the pod of that UID."""
        if (known := self.pods.get(uid)) is None:
            known = self.pods[uid] = PodMemory()
        return known

    @property
    def is_blank(self) -> bool:
        """Whether it remembers no more than that its target was fenced."""
        forks = (self.forks.stuck, self.forks.refused)
        remembered = (self.pods, self.objects, self.resources, *forks, self.refusals, self.retries)
        return not (any(remembered) or self.routes or self.logs.waiting or self.logs.dealt_with or self.loosened)


class RunMemories:
    """Those of all runs. A run that is born again under its name is another one."""

    def __init__(self, dropped: Callable[[RunMemory], None]) -> None:
        """`dropped` is told of each that ends, for what is under way on its behalf."""
        self._dropped = dropped
        self._by_name: dict[str, RunMemory] = {}
        self._by_ledger: dict[str, RunMemory] = {}
        self._resting: dict[str, str] = {}
        """The UIDs of runs, by their names, of which nothing need be remembered but that their targets were fenced."""
        self._woven: dict[str, tuple[str, ...]] = {}
        """And the rules for their forks that Istio's proxies go by: a VirtualService tells when it was written last, be
        it for another fork, and not since when the rules for one are in it."""

    def find(self, run: RunObject | None) -> RunMemory | None:
        """The run's own, if anything was remembered of it."""
        found = self._by_name.get(run.metadata.name) if run is not None else None
        return found if found is not None and run is not None and found.uid == run.metadata.uid else None

    def of(self, run: RunObject) -> RunMemory:
        """The run's own, begun if there is none."""
        found = self._by_name.get(run.metadata.name)
        if found is None or found.uid != run.metadata.uid:
            fenced = self._resting.get(run.metadata.name) == run.metadata.uid
            woven = self._woven.get(run.metadata.name, ()) if fenced else ()
            self.drop(run.metadata.name)
            found = self._by_name[run.metadata.name] = self._by_ledger[run.ledger.uid] = RunMemory(run)
            found.fenced = fenced
            found.routes.woven_at = dict.fromkeys(woven, 0)
        return found

    def made_ahead(self, run: RunObject, pod: Pod) -> bool:
        """Whether we have made a run's pod before it was its turn."""
        found = self.find(run)
        ahead = found.ahead if found is not None else ()
        return any(pod.metadata.name == names.pod_name(run.ledger.uid, *key) for key in ahead)

    def rest(self, name: str) -> None:
        """Nothing is under way in that run: most rest most of the time, and their number is what memory goes by."""
        found = self._by_name.get(name)
        if found is None:
            return
        found.work = Work()
        if found.is_blank:
            del self._by_name[name], self._by_ledger[found.ledger]
            if found.fenced:
                self._resting[name] = found.uid
                if found.routes.woven_at:
                    self._woven[name] = tuple(found.routes.woven_at)

    def by_ledger(self, uid: str) -> RunMemory:
        """That of a turn which is being taken.

        Raises:
            KeyError: there is none.
        """
        return self._by_ledger[uid]

    def clear(self) -> None:
        """Drop all: another process works from now on."""
        for name in [*self._by_name, *self._resting, *self._woven]:
            self.drop(name)

    def drop(self, name: str) -> None:
        """The run of that name is no more."""
        self._resting.pop(name, None)
        self._woven.pop(name, None)
        if found := self._by_name.pop(name, None):
            self._by_ledger.pop(found.ledger, None)
            found.work = Work()
            self._dropped(found)
