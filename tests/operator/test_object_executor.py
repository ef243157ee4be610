"""What is done about objects, each rule alone: who is asked before a claim, what is made of one, what goes, what stays."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from dayfly.execute.executor import Known
from dayfly.execute.inputs import UntoldError
from dayfly.execute.object.render import FINALIZER, RELEASE_ANNOTATION
from dayfly.execute.object.run import NotServedError
from dayfly.execute.order import CannotRenderError
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.executors.object_executor import ObjectExecutor
from dayfly.operator.objects import object_view
from dayfly.operator.objects.object_memory import ObjectMemory
from dayfly.operator.session import Session, Sight
from dayfly.plan.actions import Cancel, Fence, Launch
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, NeverRan, Objection, Running
from dayfly.spec.lifecycle import As, Exec, Input, Lifecycle, Object, Output, Ref, Target, Timeouts, Unit
from dayfly.spec.run import OutputRecord, Phase, Result, Run, State, UnitRecord
from dayfly.spec.wire import RefusedError

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
MANIFEST = {"apiVersion": "db.example.org/v1", "kind": "Claim", "spec": {}}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {}}
OF, DROP = {"unit": "db/make", "attempt": 1}, {"unit": "db/drop", "attempt": 1}
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED, kind="object", ref="o", claimed_at=1)
UNSEEN = msgspec.structs.replace(ALIVE, ref="")
MADE = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", kind="object", ref="o")
SAID = Objection(reason="Quota", message="no room", since=5)
REFUSED = errors.Refused("POST claim", "no room", status=403, reason="Quota")


def document(manifest: dict, *, reads: bool = False) -> Lifecycle:
    told = (Input(name="url", from_=Ref(unit="first", output="url"), as_=As()),) if reads else ()
    first = Unit(name="first", kind="exec", exec=Exec(script="#!/bin/sh"), outputs=(Output(name="url", path="/u"),))
    written = {"manifest": manifest, "ready": {"condition": "Ready"}}
    make = Unit(name="make", kind="object", object=Object(written=written), inputs=told, timeouts=Timeouts(run_ms=100))
    drop = Unit(name="drop", kind="object", object=Object(remove="make"))
    return Lifecycle(target=TARGET, resource="db", pre_start=(first, make), post_stop=(drop,))


class Bench:
    """An executor over one run; `done` is what it asked for, in its order."""

    def __init__(
        self, *, manifest: dict = MANIFEST, reads: bool = False, closing: bool = False, phase=Phase.OPEN, **units
    ):
        self.done: list[object] = []
        self.plan = seal((document(manifest, reads=reads),))
        records = {f"db/{name}": each for name, each in units.items()}
        ledger = Run(uid="u", target=TARGET, plan="", units=records, phase=phase)
        self.run = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=ledger)
        self.fresh: list[RunObject | None] = [self.run]
        self.fault: Exception | None = None
        self.found: dict | None = None
        self.answer: Objection | UntoldError | None = None
        self.fact: object = Running(since=1, reason="r", message="m")
        made = self.executor = ObjectExecutor.__new__(ObjectExecutor)
        made._cluster = SimpleNamespace(
            now=lambda: 5,
            queue=SimpleNamespace(add=lambda _run, after=0.0: self.done.append(("again", after))),
            ledger=SimpleNamespace(fresh=self._fresh),
        )
        made._objects = SimpleNamespace(
            kind=self._kind,
            find=self._found,
            create=self._does("create"),
            change=self._does("change"),
            delete=self._does("delete"),
            let_go=self._does("let go"),
        )
        made._views = SimpleNamespace(manifest=self._manifest)
        made._observer = SimpleNamespace(made=self._looks("made"), removed=self._looks("removed"), ask=self._ask)
        session = Session(self.run)
        self.sight = Sight(self.run, session, self.plan, 5, closing=closing, abandoned=False)

    async def _fresh(self, _name):
        return self.fresh.pop(0) if len(self.fresh) > 1 else self.fresh[0]

    async def _kind(self, version, kind):
        if isinstance(self.fault, NotServedError):
            raise self.fault
        return f"{kind} of {version}"

    async def _found(self, _kind, name, namespace):
        self.done.append(("find", namespace))
        return self.found

    async def _manifest(self, *_):
        if isinstance(self.fault, CannotRenderError):
            raise self.fault
        return "manifest"

    def _does(self, word: str):
        async def act(_kind, what, *more, **how):
            said = [name for name, value in how.items() if value]
            self.done.append((word, what["metadata"]["uid"] if isinstance(what, dict) else what, *more, *said))
            if self.fault:
                raise self.fault
            return self.object()

        return act

    def _looks(self, word: str):
        async def look(turn, step, _memory):
            self.done.append((word, step.id))
            if self.found is not None:
                turn.found[step.id, 1] = self.found
            return self.fact

        return look

    async def _ask(self, _turn, step, attempt):
        self.done.append(("ask", step.id, attempt))
        if isinstance(self.answer, UntoldError):
            raise self.answer
        return self.answer

    def object(self, uid: str = "o", *, deleted: bool = False, rests: bool = False) -> dict:
        token = object_view.place(self.run, self.plan.steps["db/make"], 1).identity.token
        meta = {"name": "x", "namespace": "shop", "uid": uid, "resourceVersion": "7", "finalizers": [FINALIZER]}
        meta["annotations"] = {names.NONCE_ANNOTATION: token}
        if rests:
            meta["annotations"][RELEASE_ANNOTATION] = '{"suspend": false}'
        if deleted:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"kind": "Claim", "metadata": meta, "spec": {}}

    def sees(self, **how):
        """Its object was there when the turn began."""
        self.sight.objects[("db/make", 1)] = self.object(**how)
        return self

    def words(self) -> list[str]:
        return [each[0] for each in self.done]

    async def observe(self):
        await self.executor.observe(self.sight)
        return self.executor.known(self.sight)

    def memory(self, unit: str = "db/make"):
        return self.sight.session.objects[unit, 1]


class TestObserving:
    async def test_what_is_claimed_is_looked_at_by_what_it_does_and_again_while_it_goes_on(self):
        bench = Bench(make=ALIVE, drop=ALIVE, first=MADE)
        known = await bench.observe()
        assert set(known.facts) == {("db/make", 1), ("db/drop", 1)}
        assert bench.done == [("made", "db/make"), ("again", 1.0), ("removed", "db/drop"), ("again", 1.0)]
        bench.done.clear()
        await bench.observe()
        assert [each for each in bench.done if each[0] == "again"] == [("again", 2.0)] * 2

    async def test_what_is_found_is_what_is_changed_then(self):
        bench = Bench(make=ALIVE)
        bench.found = bench.object()
        await bench.observe()
        await bench.executor.cancel(bench.sight, Cancel(**OF, reason="r", message="m"))
        assert ("delete", "o", "unchanged") in bench.done

    async def test_what_has_ended_is_not_looked_at_again(self):
        bench = Bench(make=ALIVE)
        bench.fact = Ended(result=Result(outcome="succeeded"))
        await bench.observe()
        assert bench.done == [("made", "db/make")]

    @pytest.mark.parametrize("phase", [Phase.CLEANED, Phase.ABANDONED])
    async def test_of_a_run_that_is_over_nothing_is_looked_at(self, phase):
        bench = Bench(make=ALIVE, phase=phase)
        assert await bench.observe() == Known(facts={}, objections={}, outputs={})
        assert bench.done == []


class TestForeseeing:
    """Before an object is claimed the server says whether it would take it."""

    FIRST = UnitRecord(
        attempt=1,
        state=State.DONE,
        outcome="succeeded",
        kind="exec",
        outputs={"url": OutputRecord(digest="sha256:0", size=1, attempt=1)},
    )

    async def test_it_is_asked_once(self):
        bench = Bench()
        for _ in range(2):
            assert (await bench.observe()).objections == {}
        assert bench.done == [("ask", "db/make", 1)]

    async def test_what_it_says_against_that_is_remembered_and_not_asked_at_once(self):
        bench = Bench()
        bench.answer = SAID
        for _ in range(2):
            await bench.observe()
        assert bench.done == [("ask", "db/make", 1)]
        assert bench.sight.session.refusals.of(bench.run.ledger, 5)[0] == {"db/make": SAID}
        assert not bench.memory().admitted

    async def test_what_a_fork_cannot_tell_now_is_waited_for(self):
        bench = Bench()
        bench.answer = UntoldError(Reason.WAITING_FOR_FORKS, "m")
        assert (await bench.observe()).objections == {
            "db/make": Objection(reason=Reason.WAITING_FOR_FORKS, message="m")
        }
        assert not bench.memory().admitted

    async def test_nobody_is_asked_as_long_as_its_target_lacks_what_it_reads(self):
        bench = Bench()
        bench.sight.lacking = {"db/make": SAID}
        await bench.observe()
        assert bench.done == []

    @pytest.mark.parametrize(
        "how",
        [{"closing": True}, {"make": MADE}, {"make": ALIVE}, {"reads": True}],
        ids=["ends", "made", "alive", "waits"],
    )
    async def test_nobody_is_asked_before_it_is_due_or_after(self, how):
        bench = Bench(**how)
        await bench.observe()
        assert "ask" not in bench.words()

    async def test_what_it_is_made_of_can_be_read_once_that_is_recorded(self):
        """The turn that records it does not claim what follows."""
        bench = Bench(reads=True, first=msgspec.structs.replace(ALIVE, kind="exec"))
        end = Ended(result=Result(outcome="succeeded", outputs=self.FIRST.outputs))
        bench.sight.known["exec"] = Known(facts={("db/first", 1): end}, objections={}, outputs={})
        objection = (await bench.observe()).objections["db/make"]
        assert (objection.reason, objection.since) == (Reason.STARTING, 5)
        assert bench.done == [("again", 0.0)]
        recorded = Bench(reads=True, first=self.FIRST)
        assert (await recorded.observe()).objections == {}
        assert recorded.done == [("ask", "db/make", 1)]


class TestMaking:
    async def launch(self, bench: Bench, **of):
        await bench.executor.launch(bench.sight, Launch(**(of or OF)))
        return bench.done

    async def test_it_is_made_and_looked_at(self):
        assert await self.launch(Bench(make=UNSEEN)) == [("create", "manifest"), ("again", 0.0)]

    @pytest.mark.parametrize(
        "record",
        [
            MADE,
            ALIVE,
            msgspec.structs.replace(UNSEEN, attempt=2),
            msgspec.structs.replace(UNSEEN, state=State.VOID),
            UnitRecord(kind="object"),
        ],
        ids=["done", "seen", "another attempt", "void", "none"],
    )
    async def test_it_is_not_made_where_the_ledger_has_gone_on(self, record):
        bench = Bench(make=UNSEEN)
        ledger = msgspec.structs.replace(bench.run.ledger, units={"db/make": record})
        bench.fresh = [msgspec.structs.replace(bench.run, ledger=ledger)]
        assert await self.launch(bench) == [("again", 0.0)]

    async def test_nor_where_its_run_is_gone_or_another_or_has_closed(self):
        for how in (None, {"metadata": AnnotatedMeta(name="box", uid="another")}, {}):
            bench = Bench(make=UNSEEN)
            closed = msgspec.structs.replace(bench.run.ledger, phase=Phase.CLOSED)
            bench.fresh = [how if how is None else msgspec.structs.replace(bench.run, **(how or {"ledger": closed}))]
            assert await self.launch(bench) == [("again", 0.0)]

    async def test_what_was_made_too_late_is_taken_back(self):
        bench = Bench(make=UNSEEN)
        bench.fresh = [bench.run, None]
        assert bench.fresh
        assert await self.launch(bench) == [("create", "manifest"), ("delete", "o"), ("let go", "o"), ("again", 0.0)]

    @pytest.mark.parametrize(
        ("record", "phase", "words"),
        [
            (ALIVE, Phase.OPEN, ["create", "again"]),
            (MADE, Phase.OPEN, ["create", "again"]),
            (MADE, Phase.CLEANED, ["create", "again"]),
            (msgspec.structs.replace(ALIVE, ref="another"), Phase.OPEN, ["create", "delete", "let go", "again"]),
            (UNSEEN, Phase.CLEANED, ["create", "delete", "let go", "again"]),
        ],
        ids=["seen", "ready", "over", "another was seen", "never seen"],
    )
    async def test_what_a_peer_has_seen_meanwhile_is_the_runs(self, record, phase, words):
        bench = Bench(make=UNSEEN)
        ledger = msgspec.structs.replace(bench.run.ledger, units={"db/make": record}, phase=phase)
        bench.fresh = [bench.run, msgspec.structs.replace(bench.run, ledger=ledger)]
        await self.launch(bench)
        assert bench.words() == words

    async def test_a_close_that_comes_in_between_ends_it_as_any_other(self):
        bench = Bench(make=UNSEEN)
        closed = msgspec.structs.replace(bench.run.ledger, phase=Phase.CLOSED)
        bench.fresh = [bench.run, msgspec.structs.replace(bench.run, ledger=closed)]
        assert await self.launch(bench) == [("create", "manifest"), ("again", 0.0)]

    async def test_what_is_there_already_tells_in_the_next_turn_and_nothing_is_said(self):
        bench = Bench(make=UNSEEN)
        bench.fault = errors.AlreadyExists("POST claim", "m", status=409)
        assert await self.launch(bench) == [("create", "manifest"), ("again", 0.0)]
        assert bench.memory().refused is None

    async def test_what_may_be_there_is_looked_for_and_nothing_is_said_if_it_is(self):
        bench = Bench(make=UNSEEN)
        bench.fault, bench.found = errors.OutcomeUnknown("POST claim", "m"), bench.object()
        assert await self.launch(bench) == [("create", "manifest"), ("find", "shop"), ("again", 0.0)]
        assert bench.memory().refused is None

    async def test_what_is_not_there_hinders_the_turn_and_is_not_tried_again_at_once(self):
        """A webhook that does not answer makes every creation one of unknown outcome."""
        bench = Bench(make=UNSEEN)
        bench.fault = errors.OutcomeUnknown("POST claim", "m")
        with pytest.raises(errors.OutcomeUnknown):
            await self.launch(bench)
        assert bench.words() == ["create", "find"]

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (REFUSED, Objection(reason="Quota", message="no room", since=5)),
            (NotServedError("not served"), Objection(reason=Reason.KIND_NOT_SERVED, message="not served", since=5)),
            (CannotRenderError(Reason.INPUT_UNFIT, "m"), NeverRan(reason=Reason.INPUT_UNFIT, message="m")),
            (UntoldError(Reason.STARTING, "m"), Objection(reason=Reason.STARTING, message="m", since=5)),
        ],
    )
    async def test_what_was_said_against_it_is_remembered_until_the_next_try(self, fault, said):
        bench = Bench(make=UNSEEN)
        bench.fault = fault
        assert (await self.launch(bench))[-1] == ("again", 0.0)
        assert bench.memory().refused == said
        bench.fault = None
        await self.launch(bench)
        assert bench.memory().refused is None

    @pytest.mark.parametrize(("rests", "words"), [(True, ["change", "again"]), (False, ["again"])])
    async def test_one_that_was_made_at_rest_is_released(self, rests, words):
        bench = Bench(manifest=JOB, make=ALIVE).sees(rests=rests)
        await self.launch(bench)
        assert bench.words() == words


class TestRemoving:
    async def removed(self, bench: Bench):
        await bench.executor.launch(bench.sight, Launch(**DROP))
        return bench.done

    async def test_the_object_that_was_seen_goes(self):
        bench = Bench(make=MADE, drop=UNSEEN).sees()
        assert await self.removed(bench) == [("delete", "o"), ("again", 0.0)]

    async def test_one_that_was_not_looked_at_yet_is_looked_for(self):
        bench = Bench(make=MADE, drop=UNSEEN)
        bench.found = bench.object()
        assert await self.removed(bench) == [("find", "shop"), ("delete", "o"), ("again", 0.0)]

    @pytest.mark.parametrize("found", [None, "another"])
    async def test_anothers_stays(self, found):
        bench = Bench(make=MADE, drop=UNSEEN)
        bench.found = found and bench.object(uid=found)
        assert await self.removed(bench) == [("find", "shop"), ("again", 0.0)]


class TestEnding:
    @pytest.mark.parametrize("act", ["fence", "cancel"])
    @pytest.mark.parametrize(
        ("seen", "done"),
        [({"deleted": True}, []), ({}, [("delete", "o", "unchanged"), ("again", 0.0)])],
    )
    async def test_what_is_not_ready_in_time_goes_at_once(self, act, seen, done):
        bench = Bench(make=ALIVE).sees(**seen)
        effect = {"fence": Fence, "cancel": Cancel}[act](**OF, reason="r", message="m")
        await getattr(bench.executor, act)(bench.sight, effect)
        assert bench.done == done

    async def test_one_that_was_never_made_is_looked_for_at_once(self):
        bench = Bench(make=ALIVE)
        await bench.executor.fence(bench.sight, Fence(**OF, reason="r", message="m"))
        assert bench.done == [("again", 0.0)]

    async def test_one_that_cannot_be_looked_at_waits_for_its_time(self):
        bench = Bench(make=ALIVE)
        await bench.executor.cancel(bench.sight, Cancel(**OF, reason="r", message="m"))
        assert bench.done == []

    async def test_what_could_not_be_deleted_a_moment_ago_is_not_tried_again_at_once(self):
        bench = Bench(make=ALIVE).sees()
        bench.sight.session.objects["db/make", 1] = ObjectMemory(refused=SAID)
        await bench.executor.cancel(bench.sight, Cancel(**OF, reason="r", message="m"))
        assert bench.done == []

    async def test_that_it_could_not_be_deleted_is_remembered(self):
        bench = Bench(make=ALIVE).sees()
        bench.fault = REFUSED
        await bench.executor.cancel(bench.sight, Cancel(**OF, reason="r", message="m"))
        assert bench.memory().refused == Objection(reason="Quota", message="no room", since=5)


class TestClearing:
    @pytest.mark.parametrize(("found", "words"), [("o", ["find", "let go"]), ("another", ["find"]), (None, ["find"])])
    async def test_with_the_run_our_finalizer_goes(self, found, words):
        bench = Bench(make=MADE, drop=MADE)
        bench.found = found and bench.object(uid=found)
        await bench.executor.clear(bench.sight)
        assert bench.words() == words

    @pytest.mark.parametrize("how", [{}, {"manifest": JOB, "make": MADE}], ids=["never tried", "made at rest"])
    async def test_what_never_had_our_finalizer_is_not_looked_for(self, how):
        bench = Bench(**how)
        await bench.executor.clear(bench.sight)
        assert bench.done == []

    @pytest.mark.parametrize("phase", [Phase.CLEANED, Phase.ABANDONED])
    @pytest.mark.parametrize("fault", [REFUSED, NotServedError("not served")])
    async def test_where_it_cannot_the_run_stays_unless_it_was_given_up(self, fault, phase):
        bench = Bench(make=MADE, phase=phase)
        bench.found, bench.fault = bench.object(), fault
        if phase is Phase.ABANDONED:
            await bench.executor.clear(bench.sight)
        else:
            with pytest.raises(errors.ServerTrouble, match="our finalizer is still on it"):
                await bench.executor.clear(bench.sight)


@pytest.mark.parametrize(("kind", "fits"), [(MANIFEST, True), ({"apiVersion": "v1", "kind": "Node"}, False)])
def test_a_document_that_was_compiled_elsewhere_is_judged_here(kind, fits):
    executor = ObjectExecutor.__new__(ObjectExecutor)
    unit = Unit(name="make", kind="object", object=Object(written={"manifest": kind}))
    if fits:
        executor.admit("db/make", unit)
        executor.admit("db/drop", Unit(name="drop", kind="object", object=Object(remove="make")))
    else:
        with pytest.raises(RefusedError, match="db/make: "):
            executor.admit("db/make", unit)
