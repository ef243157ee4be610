"""The schedule: the next step, the faults, and the requests of the owner. Hosts (`machine`, `cluster`) are subclasses."""

import abc
import zlib
from random import Random

import msgspec
from tests.simulator.ledgers import open_ledger
from tests.simulator.oracle import Oracle, Violation
from tests.simulator.scenario import DIFFERENT_PLANS, OUTPUTS, TARGET, Scenario, draw, output_record
from tests.simulator.server import ALIVE, Crash, Server
from tests.simulator.target import SelfStarting

from dayfly.embedded.ledger import LedgerError, StoredRun
from dayfly.execute.turn import Scene, turn
from dayfly.plan import messages
from dayfly.plan.actions import Decision, Move
from dayfly.plan.decide import decide
from dayfly.plan.sealed import Plan
from dayfly.plan.world import AttemptKey, Fact, TargetIntent, TargetState, UnitRefusal
from dayfly.spec.run import EndRequest, Result, Run

START = 1_000_000_000  # unix milliseconds at which every story begins
SETTLE = 2_500  # steps within which a world without faults must come to rest


class Simulation(abc.ABC):
    """One schedule. Subclasses model a host; everything random comes from `rng`."""

    gated = False
    news_of_writes = False  # whether writing the ledger wakes its servers, as a watch does

    def __init__(self, seed: int, *, story: list[str] | None = None, rng: Random | None = None) -> None:
        self.rng = rng = rng or Random(seed)
        self.ledger, self.connection = open_ledger(hook=self.at_write)
        self.story = story
        self.now = START
        self.faulty = True
        self.interleaving = 0.3
        self.crash_in = 0  # boundaries until the server is killed; 0 for never
        self.refuse = 0  # the number of writes for which the disk is full
        self.pending: tuple[Run, tuple[Move, ...]] | None = None
        self.objections: dict[str, UnitRefusal] = {}
        self.scenario: Scenario = draw(rng.randrange(DIFFERENT_PLANS))
        self.known_refs: set[str] | None = None  # what may be claimed, where that must exist before
        self.slots = rng.choice((1, 2, 4, 99, 99))
        self.revision = 0
        self.turns = 0
        self.clumsy = 0.6 if rng.random() < 0.08 else 0.03  # the rate at which requests to the host have no effect
        self.resting = True  # whether an open run that has nothing to do may stay so
        self.uid = f"run-{type(self).__name__}-{seed}"
        self.servers = [Server(self, name) for name in self.names()]
        self.actor = self.servers[0]
        self.stored: StoredRun | None = None
        self._birth()

    def _birth(self) -> None:
        rng = self.rng
        plan = self.scenario.plans[0]
        run = Run(uid=self.uid, target=TARGET, plan=plan.digest, born_at=self.now)
        self.intent = TargetIntent(
            expires_at=self.now + rng.randrange(200_000) if rng.random() < 0.15 else 0,
            lease_until=self.now + rng.randrange(200_000) if rng.random() < 0.1 else 0,
        )
        stored = StoredRun(
            run=run, name="box", documents=self.scenario.documents, forks=self.scenario.revisions[0], intent=self.intent
        )
        with self.ledger.transaction("birth"):
            assert self.ledger.create(stored), "a uid is used once"
        self.target = SelfStarting() if self.scenario.self_starting else None
        # Every other target of this kind lives on, and only the hook's run ends.
        removed = self.target is not None and zlib.crc32(self.uid.encode()) % 2 == 0
        self.ending = "HookRemoved" if removed else "Deleted"
        self.oracle = Oracle(self.scenario, run, self.target)
        self._wished()

    def _wished(self) -> None:
        self.oracle.wished = {step.id: step.generation for step in self.scenario.plans[self.revision].kept.values()}

    # --- what hosts answer --------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        return ("the server",)

    @abc.abstractmethod
    def ref(self) -> str: ...

    @abc.abstractmethod
    def read(self, server: Server, run: Run) -> dict[AttemptKey, Fact]: ...

    @abc.abstractmethod
    def prepare(self, server: Server, unit: str, attempt: int) -> None: ...

    @abc.abstractmethod
    def launch(self, server: Server, scene: Scene, unit: str, attempt: int) -> None: ...

    @abc.abstractmethod
    def fence(self, server: Server, scene: Scene, unit: str, attempt: int) -> None: ...

    @abc.abstractmethod
    def recall(self, server: Server, scene: Scene, unit: str, attempt: int) -> None: ...

    @abc.abstractmethod
    def cancel(self, server: Server, scene: Scene, unit: str, attempt: int) -> None: ...

    @abc.abstractmethod
    def release(self, server: Server, scene: Scene, unit: str, attempt: int) -> None: ...

    def target_told(self, run: Run) -> TargetState | None:
        """Return the state that the target's adapter reports to a server that has read `run`."""
        if self.target is None:
            return None
        return self.target.told(run, late=self.faulty and self.rng.random() < 0.1)

    def move_on(self) -> bool:
        """Let the target, or anything else outside the servers, take one step; false if all of it waits."""
        if self.target is not None:
            self.target.lives_on = self.oracle.leaves
        if self.target is not None and self.rng.random() < 0.5:
            said = self.target.move(self.rng, self.oracle.run.phase)
            if said:
                self.say("the target", said)
                self.news()
                return True
        if self.step():
            return True
        return self.target is not None and self.target.can_move(self.oracle.run.phase)

    def step(self) -> bool:
        """Let something outside the servers take one step; false if all of it waits for time or for a server."""
        raise NotImplementedError

    def fault(self) -> None:
        """Break something of the host."""
        raise NotImplementedError

    def deadlines(self) -> list[int]:
        """Return the times at which a timer ends something outside the servers."""
        raise NotImplementedError

    def tick(self) -> None:
        """The clock has moved on: end what its own deadline ends."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Return the resources that still exist."""
        raise NotImplementedError

    # --- time, changes, faults ---------------------------------------------------------------------------------------

    def say(self, who: str, what: object = "") -> None:
        """Add one line to the story, if it is recorded."""
        if self.story is not None:
            text = "; ".join(map(repr, what)) if isinstance(what, tuple) else str(what)
            self.story.append(f"{(self.now - START) / 1000:>9.1f} s  {who}: {text}")

    def news(self) -> None:
        """Wake the servers after a change, sometimes not all of them."""
        for server in self.servers:
            if not (self.faulty and self.rng.random() < 0.1):
                server.dirty = True

    def advance(self, to: int) -> None:
        """Time goes on, past every deadline in between."""
        for moment in sorted(at for at in self.deadlines() if self.now < at <= to):
            self.now = max(self.now, moment)
            self.tick()
        self.now = max(self.now, to)
        self.tick()

    def boundary(self, name: str) -> None:
        """A point at which a server may be killed."""
        if self.crash_in:
            self.crash_in -= 1
            if not self.crash_in:
                self.say(self.actor.name, f"is killed {name}")
                raise Crash

    def at_write(self, name: str) -> None:
        """The hook of the ledger: update the truth after each commit. The server may be killed before and after it."""
        if name == "after commit" and self.pending is not None:
            self.oracle.committed(*self.pending)
            self.pending = None
        elif name == "after dissolve":
            self.oracle.dissolved()
        if name.startswith("after"):
            self.connection.set_progress_handler(None, 0)
            self._remember(name)
        elif self.refuse and name != "before birth":
            self.refuse -= 1
            self._fill_disk()
        self.boundary(name)

    def _remember(self, name: str) -> None:
        """Keep the run in memory after most commits; after other writes, read it back."""
        known = name == "after commit" and self.stored is not None and self.rng.random() < 0.7
        self.stored = msgspec.structs.replace(self.stored, run=self.oracle.run) if known else None

    def _fill_disk(self) -> None:
        """Let SQLite itself fail at a random point of a write."""
        left = [1]

        def refuse() -> int:
            left[0] -= 1
            return left[0] == 0

        self.connection.set_progress_handler(refuse, self.rng.randrange(1, 120))

    def load(self, server: Server) -> StoredRun | None:
        """The run as this server sees it: only where several are active may that be an older one."""
        if self.gated and self.faulty and server.stored is not None and self.rng.random() < 0.15:
            return server.stored
        if self.stored is None:
            self.stored = self._read_back()
        server.stored = self.stored
        return self.stored

    def _read_back(self) -> StoredRun | None:
        """Read the ledger and check that it equals the last write."""
        stored = self.ledger.load(self.uid)
        if (stored is None) != self.oracle.gone:
            raise Violation(14, "the ledger and the truth disagree whether there is a run")
        if stored is not None and stored.run != self.oracle.run:
            raise Violation(8, "the ledger does not hold what was written last")
        return stored

    def plan_of(self, stored: StoredRun) -> Plan:
        for forks, plan in zip(self.scenario.revisions, self.scenario.plans, strict=True):
            if forks == stored.forks:
                return plan
        raise Violation(10, "the ledger contains forks that are not in the spec")

    def free_slots(self, run: Run) -> int:
        """Return the number of steps that may start besides the attempts that are alive in the ledger."""
        return max(
            self.slots - sum(record.state in ALIVE for name, record in run.units.items() if name[:5] != "fork:"), 0
        )

    def result(self, unit: str, attempt: int, started: int, *, killed: str = "") -> Result:
        """Return the result of an attempt's script."""
        shape = self.scenario.shapes[unit]
        failed = bool(killed) or self.oracle.starts[unit] <= shape.fails or (shape.event is None and attempt % 2 == 1)
        outputs = () if failed and not shape.spills else OUTPUTS if not failed or attempt % 2 else OUTPUTS[:1]
        return Result(
            outcome="failed" if failed else "succeeded",
            reason=killed or ("Failed" if failed else ""),
            started_at=started,
            ended_at=self.now,
            outputs={output: output_record(unit, attempt, output) for output in outputs},
        )

    def hangs(self, unit: str) -> bool:
        """Whether the script that runs now would never end by itself: a fork, or the first start of a slow one."""
        shape = self.scenario.shapes[unit]
        return shape.event is None or (shape.hangs and self.oracle.starts[unit] == 1)

    # --- the schedule -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Chaos, then calm."""
        for _ in range(self.rng.randrange(5, 45)):
            self.chaos()
        self.finish()

    def finish(self) -> None:
        """Stop injecting faults: all requests must take effect, and then all resources must be removed."""
        self.calm()
        self.settle()
        if not self.oracle.gone and self.scenario.revisions[0]:
            self._check_rest()
            self.revise(2 - self.revision)
            self.settle()
        if not self.oracle.gone:
            self._check_rest()
            if not (self.intent.expires_at or self.intent.lease_until):
                self.ask(TargetIntent(stop=self._request(self.ending)))
            self.resting = False
            self.settle()
        if not self.oracle.gone:
            raise Violation(13, f"nothing moves any more, and the run is {self.oracle.run.phase}")
        left = self.leftovers()
        if left:
            raise Violation(14, f"left behind: {', '.join(left)}")

    def chaos(self) -> None:
        """One step of a bad day."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.45:
            server = rng.choice(self.servers)
            if server.due() or rng.random() < 0.1:
                self.take_turn(server)
            else:
                self.move_on()
        elif chance < 0.72:
            self.move_on()
        elif chance < 0.80:
            self.wait()
        elif chance < 0.86:
            self.owner()
        elif chance < 0.93:
            self.server_fault()
        else:
            self.fault()

    def wait(self) -> None:
        """Advance the clock to the next timer, or to a random time."""
        rng = self.rng
        wakes = [server.wake - server.skew for server in self.servers if server.wake]
        moments = [at for at in (*wakes, *self.deadlines()) if at > self.now]
        if moments and rng.random() < 0.7:
            self.advance(rng.choice(moments))
        else:
            self.advance(self.now + rng.choice((1, 500, 5_000, 70_000)))

    def take_turn(self, server: Server) -> None:
        """Let a server go on until it pauses, ends its turn, or is killed."""
        self.actor = server
        if server.coroutine is None:
            server.coroutine = turn(self.uid, server)
        try:
            server.coroutine.send(None)
        except StopIteration as end:
            server.coroutine = None
            self._turned(server, end.value)
        except Crash:
            self.crash_in = 0
            server.restart()
        except LedgerError as error:
            self.say(server.name, f"cannot write: {error}")
            server.coroutine = None
            server.dirty = True
            self.stored = None
        except (Violation, GeneratorExit):
            raise
        except Exception as error:
            raise Violation(0, f"a turn raised {error!r}") from error
        finally:
            self.connection.set_progress_handler(None, 0)

    def _turned(self, server: Server, decision: Decision | None) -> None:
        if decision is None or server.scene is None:
            server.wake = 0
            return
        scene = server.scene
        server.wake = decision.wake_at
        if server.wake and server.wake <= scene.now:
            raise Violation(13, f"wakes at {server.wake}, and it is {scene.now}: a hot loop")
        if self.story is not None:
            for wait in decision.waits:
                if wait.unit:
                    self.say(
                        server.name,
                        f"{wait.unit} waits: {wait.reason}, {messages.render(wait.message, wait.since, wait.until, scene.now)}",
                    )
        if any(wait.reason == "WaitingForSlot" for wait in decision.waits) and self.free_slots(self.oracle.run):
            server.dirty = True  # a host with a free slot checks the waiting runs again
        self.oracle.told(scene, decision)
        self.turns += 1
        if self.turns % 16 == 5 and decide(scene.plan, scene.world, scene.now) != decision:
            raise Violation(0, "the same world was decided in two ways")

    def owner(self) -> None:
        """The target's owner, or time, wants something else."""
        rng, chance, wish = self.rng, self.rng.random(), self.intent
        if chance < 0.25:
            self.ask(TargetIntent(stop=wish.stop or self._request(self.ending), abandon=wish.abandon))
        elif chance < 0.32:
            self.ask(TargetIntent(stop=wish.stop, abandon=self._request("Forced")))
        elif chance > 0.9 and (retry := self.hurry()):
            self.ask(msgspec.structs.replace(wish, retry=retry))
        elif chance < 0.5 and wish.stop is None:
            lease = self.now + rng.randrange(1, 300_000) if wish.lease_until else 0
            self.ask(TargetIntent(expires_at=wish.expires_at, lease_until=lease))
        else:
            self.revise(rng.randrange(len(self.scenario.revisions)))

    def hurry(self) -> dict[str, int]:
        """Skip the back-off after random attempts: ended, future and forgotten ones."""
        records = self.oracle.run.units
        chosen = {unit: max(record.attempt + self.rng.choice((-1, 0, 0, 0, 1)), 1) for unit, record in records.items()}
        self.oracle.hurried |= set(chosen.items())
        return chosen

    def revise(self, revision: int) -> None:
        """Change the forks in the spec of the owner."""
        forks = self.scenario.revisions[revision]
        if self._write("forks", lambda: self.ledger.set_forks(self.uid, forks, self.now)):
            self.revision = revision
            self._wished()
            self.say("the owner", f"revises the forks: {sorted(self.oracle.wished)}")

    def _request(self, reason: str) -> EndRequest:
        return EndRequest(at=self.now, reason=reason, message="asked for by its owner", by="ada")

    def ask(self, intent: TargetIntent) -> None:
        """Write the owner's intent into the ledger."""
        if self._write("intent", lambda: self.ledger.set_intent(self.uid, intent)):
            self.intent = intent
            self.say("the owner", f"wishes {intent}")

    def _write(self, what: str, change) -> bool:
        """A request to the first server: it is answered, refused, or dies with its server."""
        armed, self.crash_in = self.crash_in, 0
        try:
            with self.ledger.transaction(what):
                changed = change()
        except LedgerError:
            return False
        finally:
            self.crash_in = armed
            self.connection.set_progress_handler(None, 0)
        self.news()
        return changed

    def server_fault(self) -> None:
        """Break a server, its disk, its clock, or its patience."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.55:
            self.crash_in = rng.randrange(1, 6)
        elif chance < 0.7:
            server = rng.choice(self.servers)
            if server.coroutine is not None:
                server.coroutine.close()
            server.restart()
            self.say(server.name, "is killed and started again")
        elif chance < 0.8:
            self.refuse = rng.randrange(1, 4)
        elif chance < 0.9:
            rng.choice(self.servers).skew = self.jump()
        else:
            unit = rng.choice(tuple(self.scenario.shapes))
            self.objections = {} if self.objections else {unit: UnitRefusal(reason="NoRoom", message="no room now")}

    def jump(self) -> int:
        """A clock jumps: by how much, in milliseconds."""
        return self.rng.choice((-86_400_000, -5_000, 0, 5_000, 86_400_000))

    def calm(self) -> None:
        """Faults stop; servers that were killed are started again and look at everything."""
        self.faulty = False
        self.crash_in = self.refuse = 0
        self.objections = {}
        self.interleaving = 0.0
        for server in self.servers:
            server.skew = 0
            server.dirty = True
            server.old = {}
        self.say("everything", "is calm from here on")

    def settle(self) -> None:
        """Only what must happen happens, until nothing does."""
        for _ in range(SETTLE):
            server = next((server for server in self.servers if server.due()), None)
            if server is not None and (self.rng.random() < 0.5 or not self.move_on()):
                self.take_turn(server)
            elif server is None and not self.move_on():
                if self.resting and self.oracle.at_rest() and not self.oracle.gone:
                    return
                moments = [server.wake for server in self.servers if server.wake] + self.deadlines()
                if not moments:
                    return
                self.advance(max(min(moments), self.now + 1))
        raise Violation(13, f"still moving after {SETTLE} steps")

    def _check_rest(self) -> None:
        """Check that a run at rest writes nothing and does nothing in further turns."""
        if not self.oracle.at_rest():
            raise Violation(13, "nothing moves any more, and the run is not at rest")
        if self.intent.stop or self.intent.abandon:
            raise Violation(13, "its owner wants it gone, and it rests open")
        seq = self.oracle.run.seq
        for server in self.servers:
            server.dirty = True
            while server.due():
                self.take_turn(server)
        if self.oracle.run.seq != seq:
            raise Violation(13, "a run at rest is written to")
