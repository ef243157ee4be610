"""The embedded host: attempt folders, launchers that outlive their server, and reboots.

A launcher takes the lock of the folder and links the marker `started`. If a restarted server has linked `void` first,
the launcher ends. Otherwise it runs the script, writes the receipt, and releases the lock when all processes of the
step have ended. Markers and receipts are not synced, so a reboot may lose them. The ledger is synced.
"""

from tests.simulator.server import Server
from tests.simulator.world import Simulation

from dayfly.execute.turn import Scene
from dayfly.plan.reasons import Reason
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Running, Sealed, Stalled, Unclear, Waiting
from dayfly.spec.run import Result, Run, State

SPAWNED, LOCKED, RUNNING, SEALED, DYING, GONE = range(6)


class Folder:
    """The files of one attempt."""

    __slots__ = ("boot", "marker", "receipt", "removed", "since")

    def __init__(self, boot: str, since: int) -> None:
        self.boot = boot
        self.marker = ""
        self.receipt: Result | None = None  # without an outcome: `void`
        self.removed = False
        self.since = since


class Launcher:
    """A launcher and the script below it."""

    __slots__ = ("attempt", "cancelled", "folder", "frozen", "hung", "kill_at", "ready", "stage", "started", "unit")

    def __init__(self, unit: str, attempt: int, folder: Folder, *, hung: bool) -> None:
        self.unit = unit
        self.attempt = attempt
        self.folder = folder
        self.stage = SPAWNED
        self.started = 0
        self.kill_at = 0
        self.cancelled = False
        self.ready = False
        self.hung = hung  # does not keep its own deadline
        self.frozen = False  # does not come to start its script


class Machine(Simulation):
    """The embedded host."""

    def __init__(self, *args, **kwargs) -> None:
        self.boot = 1
        self.folders: dict[AttemptKey, Folder] = {}
        self.launchers: list[Launcher] = []
        super().__init__(*args, **kwargs)

    def ref(self) -> str:
        return f"boot-{self.boot}"

    # --- what a server sees -------------------------------------------------------------------------------------------

    def read(self, server: Server, run: Run) -> dict[AttemptKey, Fact]:
        facts = {key: self._fact(server, key, folder) for key, folder in self.folders.items()}
        for name, record in run.units.items():
            if record.state in (State.CLAIMED, State.UNKNOWN) and (name, record.attempt) not in facts:
                facts[name, record.attempt] = self._markerless(record.ref, record.claimed_at)
        return facts

    def _markerless(self, boot: str, since: int) -> Fact:
        if boot == self.ref():
            return Stalled(since=since)
        return Unclear(since=since, reason="Rebooted", message="the machine was restarted", dead_by=0)

    def _holder(self, folder: Folder) -> Launcher | None:
        return next((who for who in self.launchers if who.folder is folder and LOCKED <= who.stage <= DYING), None)

    def _fact(self, server: Server, key: AttemptKey, folder: Folder) -> Fact:
        holder = self._holder(folder)
        if folder.receipt is not None:
            if not folder.receipt.outcome:
                return NeverRan(reason="NeverRan", message="fenced before it started")
            return Sealed(result=folder.receipt) if holder else Ended(result=folder.receipt)
        if folder.marker == "void":
            return NeverRan(reason="NeverRan", message="fenced before it started")
        if folder.marker == "unfit":
            return NeverRan(reason=Reason.INPUT_NOT_TEXT, message="an input contains a zero byte")
        if folder.marker == "broken":
            return NeverRan(reason=Reason.NOT_EXECUTABLE, message="its interpreter does not exist")
        if folder.marker == "started" and holder:
            return Running(since=holder.started or folder.since, ready=holder.ready)
        if folder.marker == "started":
            result = Result(outcome="failed", reason="ResultLost", started_at=folder.since, ended_at=server.now)
            return Ended(result=result)
        child = any(who in server.children and who.folder is folder and who.stage < GONE for who in self.launchers)
        if holder or child:
            return Waiting(since=folder.since, reason="Starting")
        return self._markerless(folder.boot, folder.since)

    # --- what a server does -------------------------------------------------------------------------------------------

    def prepare(self, server: Server, unit: str, attempt: int) -> None:
        raise AssertionError("this host has no gate before the claim")

    def recall(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        raise AssertionError("this host says of no attempt that it could be recalled")

    def launch(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        folder = self.folders.setdefault((unit, attempt), Folder(self.ref(), self.now))
        if self.faulty and self.rng.random() < self.clumsy:
            return  # no process could be made
        if self.scenario.shapes[unit].unfit and not folder.marker:
            folder.marker = "unfit"  # nothing is started with such an input
            self.news()
            return
        launcher = Launcher(unit, attempt, folder, hung=self.rng.random() < 0.05)
        launcher.frozen = self.rng.random() < 0.04 and self.scenario.shapes[unit].event is not None
        self.launchers.append(launcher)
        server.children.add(launcher)

    def fence(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        folder = self.folders.setdefault((unit, attempt), Folder(self.ref(), self.now))
        if not folder.marker:
            folder.marker = "void"
            self.news()

    def cancel(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        folder = self.folders.get((unit, attempt))
        holder = self._holder(folder) if folder else None
        if holder is not None and not holder.cancelled:
            holder.cancelled = True
            holder.kill_at = min(holder.kill_at or 1 << 60, self.now + 5_000)

    def release(self, server: Server, scene: Scene, unit: str, attempt: int) -> None:
        self.oracle.released(unit, attempt, held=False)
        folder = self.folders.pop((unit, attempt), None)
        if folder is not None:
            folder.removed = True

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def step(self) -> bool:
        movable = [who for who in self.launchers if self._movable(who)]
        if not movable:
            return False
        self._move(self.rng.choice(movable))
        return True

    def _movable(self, who: Launcher) -> bool:
        if who.stage == SEALED:
            return not who.kill_at
        if who.stage != RUNNING:
            return not (who.frozen and who.stage < RUNNING and not who.folder.marker)
        shape = self.scenario.shapes[who.unit]
        if shape.event is None and not who.ready:
            return True
        return (who.cancelled and not shape.deaf) or not (self.hangs(who.unit) or who.hung)

    def _move(self, who: Launcher) -> None:
        folder = who.folder
        match who.stage:
            case 0:
                who.stage = LOCKED
                if folder.removed or self._others(who):
                    self._leave(who)
            case 1 if folder.removed or folder.receipt is not None:
                self._leave(who)
            case 1 if folder.marker:
                if folder.marker == "void":
                    folder.receipt = Result(outcome="")
                self._leave(who)
            case 1 if self.scenario.shapes[who.unit].broken:
                folder.marker = "broken"  # the receipt is written in the next step
                self._leave(who)
            case 1:
                folder.marker, folder.since = "started", self.now
                who.stage, who.started = RUNNING, self.now
                if self.scenario.shapes[who.unit].event is not None and not who.hung:
                    who.kill_at = self.now + 60_000
                self.oracle.started(who.unit, who.attempt, folder.boot)
                self.say(f"{who.unit}#{who.attempt}", "starts")
            case 2:
                if self.scenario.shapes[who.unit].event is None and not who.ready and not who.cancelled:
                    who.ready = True
                else:
                    self._end(who, "Cancelled" if who.cancelled else "")
            case _:
                self._leave(who)
        self.news()

    def _others(self, who: Launcher) -> bool:
        return any(o is not who and o.folder is who.folder and LOCKED <= o.stage <= DYING for o in self.launchers)

    def _leave(self, who: Launcher) -> None:
        if who.stage in (SEALED, DYING):
            self.oracle.ended(who.unit, who.attempt)
        who.stage = GONE
        self.launchers.remove(who)

    def _end(self, who: Launcher, killed: str) -> None:
        result = self.result(who.unit, who.attempt, who.started, killed=killed)
        self.oracle.sealed(who.unit, who.attempt, result.outcome)
        who.folder.receipt = result
        who.stage = SEALED
        # Now and then something of it lives on for a while.
        who.kill_at = self.now + 20_000 if self.rng.random() < 0.1 else 0
        self.say(f"{who.unit}#{who.attempt}", f"ends: {result.outcome} {result.reason}")

    def deadlines(self) -> list[int]:
        return [who.kill_at for who in self.launchers if who.stage in (RUNNING, SEALED) and who.kill_at]

    def tick(self) -> None:
        for who in list(self.launchers):
            if who.stage in (RUNNING, SEALED) and 0 < who.kill_at <= self.now:
                if who.stage == SEALED:
                    self._leave(who)
                else:
                    self._end(who, "Cancelled" if who.cancelled else "RunDeadlineExceeded")
                self.news()

    def fault(self) -> None:
        rng = self.rng
        if rng.random() < 0.25:
            self._reboot()
        elif self.launchers:
            forks = [
                who for who in self.launchers if who.stage == RUNNING and self.scenario.shapes[who.unit].event is None
            ]
            if forks and rng.random() < 0.5:
                self._end(rng.choice(forks), "")
                self.news()
            else:
                self._kill(rng.choice(self.launchers))

    def _kill(self, who: Launcher) -> None:
        """`kill -9` of the launcher; its script dies with it, and the lock is free only then."""
        self.say(f"the launcher of {who.unit}#{who.attempt}", "is killed")
        if who.stage == RUNNING:
            who.stage = DYING
        elif who.stage != DYING:
            self._leave(who)
        self.news()

    def _reboot(self) -> None:
        """Power is gone: nothing lives on, what was not synced may be lost, servers start again."""
        self.boot += 1
        self.say("the machine", f"is restarted as {self.ref()}")
        for who in self.launchers:
            if RUNNING <= who.stage <= DYING:
                self.oracle.ended(who.unit, who.attempt)
            who.stage = GONE
        self.launchers.clear()
        for key, folder in list(self.folders.items()):
            if self.rng.random() < 0.4:
                folder.receipt = None
            if self.rng.random() < 0.4:
                folder.marker = ""
            if self.rng.random() < 0.2:
                del self.folders[key]
        for server in self.servers:
            if server.coroutine is not None:
                server.coroutine.close()
            server.restart()

    def leftovers(self) -> list[str]:
        return (
            [f"the folder of {unit}#{attempt}" for unit, attempt in self.folders] if not self.oracle.run.abandon else []
        )
