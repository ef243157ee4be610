"""A host with gated pods, two active servers, and stale views.

The API server is modelled by its documented guarantees: a gated pod is never bound, a pod with a deletion timestamp is
never bound again, and each write contains the UID. A server's view of living attempts may be stale. It treats a pod as
absent only after a new read, and always has the current state of attempts that the ledger has recorded.
"""

from tests.simulator.oracle import Violation
from tests.simulator.server import ALIVE as HOPED
from tests.simulator.server import Server
from tests.simulator.world import Simulation

from dayfly.execute.turn import Scene
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import RECALL_TIMEOUT_MS
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Prepared, Running, Sealed, Unclear, Waiting
from dayfly.spec.lifecycle import CREATE_EVENTS
from dayfly.spec.run import Phase, Result, Run, UnitRecord

NONE, ALIVE, SEALED, DEAD = range(4)
MARGIN = 10_000  # by how much clocks may differ
START_WINDOW = 30_000  # the runner refuses to start a pod that is older
RUN, GRACE = 60_000, 5_000
DEAD_BY = START_WINDOW + RUN + GRACE + 2 * MARGIN
ACTIVE = 600_000  # how long a kubelet lets a pod be, started or not
NEVER = Result(outcome="")


class Pod:
    """A pod in its true state. A server sees a snapshot of it."""

    __slots__ = (
        *(
            "attempt",
            "bound",
            "broken",
            "clings",
            "created",
            "deleting",
            "gated",
            "kill_at",
            "lacks",
            "lost",
            "nowhere",
            "reads",
            "ready",
            "recalled",
            "result",
            "shown",
        ),
        *("spareless", "started", "state", "uid", "unit"),
    )

    def __init__(self, unit: str, attempt: int, uid: str, now: int) -> None:
        self.unit = unit
        self.attempt = attempt
        self.reads: tuple[int, ...] = ()  # the attempts whose outputs it was made for
        self.uid = uid
        self.created = now
        self.gated = True
        self.deleting = False
        self.bound = False
        self.broken = False  # its program could not be executed
        self.clings = False  # it lives on for a while after its receipt
        self.nowhere = False  # no node takes it
        self.lacks = False  # its image is missing
        self.recalled = 0  # since when it has another container, in which the runner excludes that it begins
        self.spareless = False  # the image of that one is missing
        self.lost = False  # its node is cut off: it reports nothing
        self.state = NONE
        self.shown = NONE  # the state in the API
        self.ready = False
        self.started = 0
        self.kill_at = 0
        self.result = NEVER


def snapshot(pod: Pod) -> Pod:
    """The pod as it is seen now."""
    seen = object.__new__(Pod)
    for name in Pod.__slots__:
        setattr(seen, name, getattr(pod, name))
    return seen


class Cluster(Simulation):
    """The gated host."""

    gated = True
    news_of_writes = True

    def __init__(self, *args, **kwargs) -> None:
        self.pods: dict[AttemptKey, Pod] = {}  # what the API holds, by name
        self.orphans: list[Pod] = []  # processes whose pod is gone from the API
        self.views: dict[str, dict[AttemptKey, Pod]] = {}
        self.uids = 0
        self.calmed = 0  # the time from which no faults are injected
        super().__init__(*args, **kwargs)
        self.known_refs = set()

    def names(self) -> tuple[str, ...]:
        return ("operator A", "operator B")

    def ref(self) -> str:
        return ""

    def jump(self) -> int:
        return self.rng.randrange(-MARGIN, MARGIN + 1)

    def calm(self) -> None:
        super().calm()
        self.calmed = self.now
        if self.rng.random() < 0.7:  # mostly one operator is left
            self.servers = self.servers[:1]
        for pod in self.pods.values():
            pod.lost = pod.lost and self.rng.random() < 0.5

    # --- what a server sees -------------------------------------------------------------------------------------------

    def read(self, server: Server, run: Run) -> dict[AttemptKey, Fact]:
        view = self.views.get(server.name)
        if view is None or not self.faulty or self.rng.random() < 0.7:
            view = {key: snapshot(pod) for key, pod in self.pods.items()}
        else:
            server.dirty = True
            view = self._refreshed(view, run)
        self.views[server.name] = view
        facts = {key: self._fact(server, pod, run.unit(pod.unit)) for key, pod in view.items() if self._fits(pod, run)}
        for name, record in run.units.items():
            key = (name, record.attempt)
            if record.state in HOPED and not self._is_it(view.get(key), record):
                facts[key] = self._absent(record, server)
        return facts

    def _reads(self, unit: str, run: Run) -> tuple[int, ...]:
        """Return the attempt of each output that the unit reads, claimed or recorded; 0 if there is none."""
        told = []
        for read, output in self.scenario.shapes[unit].reads:
            record = run.unit(read)
            known = record.outputs.get(output)
            told.append(record.attempt if record.state in HOPED else known.attempt if known else 0)
        return tuple(told)

    def _newer(self, pod: Pod, run: Run) -> bool:
        """Return whether the pod was created by a server that knew later attempts than the ledger."""
        shape = self.scenario.shapes[pod.unit]
        return any(made > run.unit(read).attempt for made, (read, _) in zip(pod.reads, shape.reads, strict=True))

    def _fits(self, pod: Pod, run: Run) -> bool:
        """Return whether an unclaimed pod was created for the current inputs; True for other pods."""
        unclaimed = pod.gated and not pod.deleting and pod.attempt > run.unit(pod.unit).attempt
        return not unclaimed or pod.reads == self._reads(pod.unit, run)

    def _refreshed(self, view: dict[AttemptKey, Pod], run: Run) -> dict[AttemptKey, Pod]:
        """Return a stale view in which recorded and missing attempts are read again."""
        fresh = dict(view)
        for name, record in run.units.items():
            for attempt in range(1, record.attempt + 1):
                key = (name, attempt)
                if key in fresh and attempt == record.attempt and record.state in HOPED:
                    continue
                fresh.pop(key, None)
                if key in self.pods:
                    fresh[key] = snapshot(self.pods[key])
        return fresh

    @staticmethod
    def _is_it(pod: Pod | None, record: UnitRecord) -> bool:
        """Return whether the pod is the claimed one, or a gated pod of the same name."""
        return pod is not None and (pod.uid == record.ref or (pod.gated and not pod.deleting))

    def _absent(self, record: UnitRecord, server: Server) -> Fact:
        since = min(record.claimed_at, server.now)
        message = "its pod is gone"
        return Unclear(since=since, reason="PodDeleted", message=message, dead_by=record.claimed_at + DEAD_BY)

    def _fact(self, server: Server, pod: Pod, record: UnitRecord) -> Fact:
        if pod.deleting and not pod.bound:
            return NeverRan(reason="Deleted", message="deleted before it was placed")
        if pod.gated:
            return Prepared(ref=pod.uid)
        if pod.shown == DEAD:
            if pod.broken:
                return NeverRan(reason=Reason.NOT_EXECUTABLE, message="its interpreter does not exist")
            if not pod.result.outcome:
                return NeverRan(reason="NotStarted", message="its node reports that it never started")
            return Ended(result=pod.result)
        if pod.lost:
            dead_by = pod.created + DEAD_BY + max(record.claimed_at - pod.created, 0)
            return Unclear(since=pod.created, reason="NodeLost", message="its node is cut off", dead_by=dead_by)
        if pod.shown == SEALED:
            return Sealed(result=pod.result)
        if pod.shown == ALIVE:
            return Running(since=pod.started, ready=pod.ready)
        recallable = pod.lacks and pod.bound and not pod.deleting
        return Waiting(
            since=pod.created,
            reason="Pending",
            message="is being placed",
            recallable=recallable,
            recalled=pod.recalled,
        )

    # --- what a server does -------------------------------------------------------------------------------------------

    def _lost_request(self) -> bool:
        return self.faulty and self.rng.random() < self.clumsy

    def _seen(self, server: Server, unit: str, attempt: int) -> Pod | None:
        """Return the current pod if it is still the pod in the server's view."""
        seen, pod = self.views[server.name].get((unit, attempt)), self.pods.get((unit, attempt))
        return pod if seen is not None and pod is not None and pod.uid == seen.uid else None

    def prepare(self, server: Server, unit: str, attempt: int) -> None:
        assert server.run is not None, "who prepares has read the ledger"
        reads, there = self._reads(unit, server.run), self._seen(server, unit, attempt)
        outdated = there is not None and there.reads != reads and not self._newer(there, server.run)
        if outdated and there is not None and there.gated and not self._lost_request():
            self.say(server.name, f"replaces {unit}#{attempt} {there.uid}, made for {there.reads}, not {reads}")
            self.oracle.released(unit, attempt, held=True)
            del self.pods[unit, attempt]
        if (unit, attempt) not in self.pods and not self._lost_request():
            self.uids += 1
            pod = self.pods[unit, attempt] = Pod(unit, attempt, f"uid-{self.uids}", self.now)
            pod.reads = reads
            pod.nowhere = self.rng.random() < 0.04 and self.scenario.shapes[unit].event is not None
            pod.lacks = self.rng.random() < 0.08 and self.scenario.shapes[unit].event in CREATE_EVENTS
            pod.spareless = pod.lacks and self.rng.random() < 0.3
            self.known_refs.add(pod.uid)
            self.news()

    def launch(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        # By the UID that this very turn saw: a server that was paused since then names the old one.
        pod, fact = self._seen(server, unit, attempt), scene.world.facts.get((unit, attempt))
        same = pod is not None and isinstance(fact, Prepared) and pod.uid == fact.ref
        if pod is not None and same and pod.gated and not self._lost_request():
            if pod.reads != self._reads(unit, self.oracle.run) and not self.oracle.gone:
                raise Violation(7, f"{unit}#{attempt} was made for the outputs of attempts {pod.reads}")
            pod.gated = False
            self.news()

    def fence(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        self._delete(self._seen(server, unit, attempt))

    def recall(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        pod = self._seen(server, unit, attempt)
        if pod is not None and not pod.recalled and not self._lost_request():
            pod.recalled = server.now
            self.news()

    def cancel(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        self._delete(self._seen(server, unit, attempt))

    def _delete(self, pod: Pod | None) -> None:
        if pod is None or pod.deleting or self._lost_request():
            return
        pod.deleting = True
        if pod.state == ALIVE:
            pod.kill_at = min(pod.kill_at or 1 << 60, self.now + GRACE)
        self.news()

    def release(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        pod = self._seen(server, unit, attempt)
        if pod is not None and not self._lost_request():
            self.oracle.released(unit, attempt, held=False)
            del self.pods[unit, attempt]
            self.news()

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def step(self) -> bool:
        movable = [pod for pod in (*self.pods.values(), *self.orphans) if self._movable(pod)]
        stray = [pod for pod in self.pods.values() if self._stray(pod)]
        if not movable and not stray:
            return False
        pod = self.rng.choice(movable + stray)
        if pod in stray:
            self._reap(pod)
        elif pod.shown != pod.state and not pod.lost and self.rng.random() < 0.6:
            pod.shown = pod.state
        else:
            self._move(pod)
        self.news()
        return True

    def _movable(self, pod: Pod) -> bool:
        if not pod.lost and pod.shown != pod.state and (pod.unit, pod.attempt) in self.pods:
            return True
        if pod.state == ALIVE:
            shape = self.scenario.shapes[pod.unit]
            if shape.event is None and not pod.ready:
                return True
            return (pod.deleting and not shape.deaf) or not self.hangs(pod.unit)
        if pod.state == SEALED:
            return not pod.clings
        if pod.state != NONE or pod.gated:
            return False
        if not pod.bound:
            return not (pod.deleting or pod.nowhere)
        return not pod.lacks or pod.deleting or (pod.recalled > 0 and not pod.spareless) or self._overdue(pod)

    def _overdue(self, pod: Pod) -> bool:
        return self.now >= pod.created + ACTIVE

    def _check_forsaken(self, pod: Pod) -> None:
        """Check that a recalled pod that cannot report was fenced long before its kubelet ended it."""
        record = self.oracle.run.unit(pod.unit)
        awaited = record.state in HOPED and record.ref == pod.uid and not (self.faulty or self.oracle.gone)
        awaited = awaited and pod.created + ACTIVE > self.calmed  # before that operators may have had no turn
        if awaited and not pod.deleting and 0 < pod.recalled < self.now - RECALL_TIMEOUT_MS - MARGIN:
            raise Violation(13, f"{pod.unit}#{pod.attempt} was not fenced after its recall")

    def _move(self, pod: Pod) -> None:
        shape = self.scenario.shapes[pod.unit]
        match pod.state:
            case 0 if not pod.bound:
                pod.bound = True
            case 0 if pod.lacks and (pod.deleting or self._overdue(pod)):
                self._check_forsaken(pod)
                # Its kubelet would report the same for a pod that has run.
                pod.result = Result(outcome="failed", reason="ContainerStatusUnknown")
                self._dead(pod)
            case 0 if pod.recalled and not pod.spareless and (pod.lacks or self.rng.random() < 0.5):
                self.say(f"{pod.unit}#{pod.attempt}", "seals that it never began")
                self._dead(pod)
            case 0 if pod.deleting or (shape.event is not None and self.now >= pod.created + START_WINDOW):
                self._dead(pod)
            case 0 if shape.broken:
                pod.broken = True
                self._dead(pod)
            case 0:
                pod.state, pod.started = ALIVE, self.now
                pod.kill_at = self.now + RUN if shape.event is not None else 0
                self.oracle.started(pod.unit, pod.attempt, pod.uid)
                self.say(f"{pod.unit}#{pod.attempt}", f"starts as {pod.uid}")
            case 1 if shape.event is None and not pod.ready and not pod.deleting:
                pod.ready = True
            case 1:
                self._seal(pod, "Deleted" if pod.deleting else "")
            case 2:
                self._dead(pod)

    def _seal(self, pod: Pod, killed: str) -> None:
        pod.result = self.result(pod.unit, pod.attempt, pod.started, killed=killed)
        pod.state = SEALED
        if self.rng.random() < 0.1:  # a container of it takes its time
            pod.clings = True
            pod.kill_at = min(pod.kill_at or 1 << 60, self.now + 2 * GRACE)
        self.oracle.sealed(pod.unit, pod.attempt, pod.result.outcome)
        self.say(f"{pod.unit}#{pod.attempt}", f"ends: {pod.result.outcome} {pod.result.reason}")

    def _dead(self, pod: Pod) -> None:
        if pod.state == SEALED:
            self.oracle.ended(pod.unit, pod.attempt)
        pod.state = DEAD
        if pod in self.orphans:
            self.orphans.remove(pod)

    def _stray(self, pod: Pod) -> bool:
        """Return whether the sweeper may delete the pod after it has read the current state."""
        record, run = self.oracle.run.unit(pod.unit), self.oracle.run
        if self.oracle.gone:
            return True
        if not pod.gated or self.rng.random() < (0.7 if self.faulty else 0):
            return False
        if pod.attempt <= record.attempt:
            return pod.attempt < record.attempt or pod.uid != record.ref
        return run.phase is not Phase.OPEN and self.scenario.shapes[pod.unit].creates

    def _reap(self, pod: Pod) -> None:
        self.say("the sweeper", f"takes {pod.unit}#{pod.attempt} {pod.uid} away")
        if pod.state in (ALIVE, SEALED):
            self._seal(pod, "Deleted")
            self._dead(pod)
        del self.pods[pod.unit, pod.attempt]

    def deadlines(self) -> list[int]:
        every = (*self.pods.values(), *self.orphans)
        lacking = [pod.created + ACTIVE for pod in every if pod.state == NONE and pod.bound and pod.lacks]
        return lacking + [pod.kill_at for pod in every if pod.state in (ALIVE, SEALED) and pod.kill_at]

    def tick(self) -> None:
        for pod in (*self.pods.values(), *self.orphans):
            if pod.state in (ALIVE, SEALED) and 0 < pod.kill_at <= self.now:
                if pod.state == ALIVE:
                    self._seal(pod, "Deleted" if pod.deleting else "RunDeadlineExceeded")
                self._dead(pod)
                self.news()

    def fault(self) -> None:
        """A user deletes a pod or strips its finalizer; a node is cut off or comes back."""
        if not self.pods:
            return
        pod = self.rng.choice(list(self.pods.values()))
        chance = self.rng.random()
        ending = [p for p in self.pods.values() if p.state == SEALED and p.kill_at and not p.lost]
        if ending and chance < 0.5:  # the moment between receipt and end is short, and the worst one
            pod, chance = self.rng.choice(ending), 1.0
            pod.clings = True
        kept = self.scenario.shapes[pod.unit].event is None
        if pod.lacks and pod.state == NONE and chance < 0.3:
            pod.lacks = False
            self.say("the image", f"of {pod.unit}#{pod.attempt} comes")
            self.news()
            return
        if kept and pod.state == ALIVE and chance < 0.7:
            self._seal(pod, "")
            self.news()
        elif chance < 0.4:
            self.say("a user", f"deletes {pod.unit}#{pod.attempt} {pod.uid}")
            self._delete(pod)
        elif chance < 0.6 and not kept and pod.state in (NONE, ALIVE):
            self.say("a user", f"strips {pod.unit}#{pod.attempt} {pod.uid}")
            del self.pods[pod.unit, pod.attempt]
            if pod.bound:
                self.orphans.append(pod)
            self.news()
        elif not kept and pod.bound:
            pod.lost = not pod.lost
            self.say("a node", f"is {'cut off' if pod.lost else 'back'} with {pod.unit}#{pod.attempt}")
            self.news()

    def leftovers(self) -> list[str]:
        return [f"the pod of {unit}#{attempt}" for unit, attempt in self.pods]
