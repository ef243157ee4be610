"""What the process does around one turn of a run, each rule alone: who looks again, what is said, what of it fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta
from dayfly.kube.running import first
from dayfly.operator import main
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.main import Operator, _OfSandboxes
from dayfly.operator.observe import PlanLostError
from dayfly.operator.outputs.outputs import ForeignSecretError
from dayfly.operator.refusals import HINDERED_AFTER, TROUBLED_AFTER
from dayfly.operator.status.sandbox_status import WaitingError
from dayfly.plan.actions import Claim, Decision, Launch, Prepare, Wait
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Run

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
RUN = RunObject(metadata=AnnotatedMeta(name="box", uid="r"), ledger=Run(uid="u", target=TARGET, plan=""))
SCENE = SimpleNamespace(plan="plan", world="world", now=7)
CLAIM = Claim(unit="db/make", attempt=1, kind="exec", ref="p", at=1)
LAUNCH, AHEAD = Launch(unit="db/make", attempt=1), Prepare(unit="db/seed", attempt=1)
REFUSED = errors.Refused("POST pod", "quota", status=403)
TROUBLE = errors.ServerTrouble("POST pod", "busy")


class Bench:
    """A process with all that its turns lean on in the test's hands; `done` is what it asked for, in its order."""

    def __init__(self, monkeypatch) -> None:
        self.done: list[object] = []
        self.made: Decision | None = Decision()
        self.then = Decision()
        self.turn_fault: Exception | None = None
        self.faults: dict[str, Exception] = {}
        self.after: dict[str, float] = {}
        self.scene: SimpleNamespace | None = SCENE
        self.found: RunObject | None = RUN
        self.failures = 0
        self.copies = True
        monkeypatch.setattr(main, "decide", lambda *_: self.then)
        monkeypatch.setattr(main, "describe", lambda _plan, _world, decision, _now: ("report", decision))
        made = self.operator = Operator.__new__(Operator)
        queue = SimpleNamespace(
            add=lambda run, after=0.0: self.done.append(("again", after)),
            retry=lambda run: self.done.append("retry"),
            forget=lambda run: self.done.append("forget"),
            failures=lambda run: self.failures,
        )
        made.cluster = SimpleNamespace(queue=queue, ledger=SimpleNamespace(get=lambda _run: self.found))
        session = SimpleNamespace(resources="of resources", logs="of logs")
        made._reconciler = SimpleNamespace(
            turn=self._turn,
            keep=self._step("keep"),
            last=lambda _run: self.scene,
            again=lambda _run, wake_at: wake_at / 1000,
            lacking=lambda _run: (),
            rest=lambda _run: self.done.append("rest"),
            places=SimpleNamespace(settle=lambda _run, decision: self.done.append(("settle", decision))),
            sessions=SimpleNamespace(of=lambda _run: session),
            logs=SimpleNamespace(run=self._step("logs")),
        )
        made._agent = None
        made._traces = SimpleNamespace(look=lambda _run, _report: None)
        made._resource_status = SimpleNamespace(run=self._step("resources"))
        self.target = SimpleNamespace(tell=self._tell, freeze=self._freeze)
        made.targets = SimpleNamespace(of=self._target)
        self.results: list[str] = []
        self.took: list[float] = []
        count = lambda result: SimpleNamespace(inc=lambda: self.results.append(result))  # noqa: E731 - a metric's
        made.metrics = SimpleNamespace(
            turns=SimpleNamespace(labels=count), turn_seconds=SimpleNamespace(observe=self.took.append)
        )

    async def _turn(self, _run):
        if self.turn_fault:
            raise self.turn_fault
        return self.made

    def _step(self, name: str):
        async def step(*_):
            self.done.append(name)
            if name in self.faults:
                raise self.faults[name]
            return self.after.get(name, 0.0)

        return step

    def _target(self, _run):
        self.target.copies = self.copies
        return self.target

    async def _tell(self, _scene, report, *, hindrance=""):
        self.done.append(("tell", hindrance or report))
        if "tell" in self.faults:
            raise self.faults["tell"]
        return self.after.get("tell", 0.0)

    async def _freeze(self, _run, why):
        self.done.append(("freeze", why))
        if "freeze" in self.faults:
            raise self.faults["freeze"]

    async def turn(self):
        await self.operator._take_turn("box")
        return self.done


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


class TestTurn:
    async def test_after_one_that_did_nothing_it_is_said_how_it_stands_and_the_run_rests(self, bench):
        bench.made = bench.then = Decision()
        assert await bench.turn() == [
            "keep",
            "resources",
            ("tell", ("report", Decision())),
            "logs",
            "rest",
            "forget",
            ("settle", Decision()),
        ]
        assert bench.results == ["done"]

    async def test_of_a_run_that_is_not_there_nothing_is_said(self, bench):
        bench.made = bench.scene = None
        assert await bench.turn() == ["keep", "forget", ("settle", None)]

    async def test_of_a_run_that_went_while_it_was_looked_at_what_was_seen_last_is_said(self, bench):
        bench.made = None
        assert await bench.turn() == [
            "keep",
            "resources",
            ("tell", ("report", bench.then)),
            "logs",
            "forget",
            ("settle", None),
        ]

    @pytest.mark.parametrize(
        ("made", "offered", "known", "why", "said"),
        [
            (None, True, True, "no route", ["no route"]),
            (Decision(), True, True, "no route", []),
            (None, False, True, "no route", []),
            (None, True, False, "no route", []),
            (None, True, True, None, []),
        ],
        ids=["waits", "goes on", "of its own", "has gone", "connected"],
    )
    async def test_that_it_waits_for_its_control_plane_is_said_where_it_does(
        self, bench, made, offered, known, why, said
    ):
        heard: list[object] = []

        async def waiting(_seen: object, why: object) -> None:
            heard.append(why)

        bench.made = made
        bench.operator._agent = SimpleNamespace(why_waiting=lambda _seen: why)
        bench.found = SimpleNamespace(ledger=RUN.ledger, spec=SimpleNamespace(offered="of it" if offered else None))
        boxes = {("box", "shop"): "box"} if known else {}
        bench.operator.cluster.sandboxes = SimpleNamespace(get=lambda *key: boxes.get(key))
        bench.operator._sandbox_status = SimpleNamespace(waiting=waiting)
        await bench.turn()
        assert (heard, bench.results) == (said, ["done"])

    @pytest.mark.parametrize("agent", [False, True])
    async def test_nor_where_nobody_orders_it_or_it_is_not_there(self, bench, agent):
        bench.made = bench.scene = bench.found = None
        if agent:
            bench.operator._agent = SimpleNamespace()
        else:
            bench.found = SimpleNamespace(ledger=RUN.ledger, spec=SimpleNamespace(offered="when there was an agent"))
            bench.operator.cluster.sandboxes = SimpleNamespace(get=lambda *_: "box")
        await bench.turn()
        assert bench.results == ["done"]

    async def test_what_follows_from_its_own_moves_is_said_and_looked_at(self, bench):
        """The watch brings no news of our own commits."""
        bench.made = Decision(moves=(CLAIM,), effects=(LAUNCH,))
        bench.then = Decision(effects=(LAUNCH, AHEAD))
        done = await bench.turn()
        assert done[:2] == ["keep", ("again", 0.0)]
        assert ("tell", ("report", bench.then)) in done
        assert done[-1] == ("settle", bench.then)

    async def test_and_not_looked_at_where_nothing_new_follows(self, bench):
        bench.made = Decision(moves=(CLAIM,), effects=(LAUNCH, AHEAD))
        bench.then = Decision(effects=(LAUNCH,))
        assert ("again", 0.0) not in await bench.turn()

    async def test_where_more_moves_follow_it_is_looked_at(self, bench):
        bench.made, bench.then = Decision(moves=(CLAIM,)), Decision(moves=(CLAIM,))
        assert ("again", 0.0) in await bench.turn()

    async def test_without_a_move_nothing_new_can_follow(self, bench):
        bench.made, bench.then = Decision(effects=(LAUNCH,)), Decision(effects=(AHEAD,))
        assert ("again", 0.0) not in await bench.turn()

    async def test_it_is_looked_at_when_that_was_decided_and_when_something_is_yet_to_be_said(self, bench):
        bench.made = Decision(waits=(Wait(unit="", reason="r", message="m", until=9_000),))
        bench.after = {"resources": 1.0, "tell": 2.0, "logs": 3.0}
        assert [each[1] for each in await bench.turn() if each[0] == "again"] == [9.0, 1.0, 2.0, 3.0]

    async def test_a_run_in_which_a_unit_is_waited_for_does_not_rest(self, bench):
        bench.made = Decision(waits=(Wait(unit="db/make", reason="r", message="m"),))
        assert "rest" not in await bench.turn()

    async def test_moves_of_a_run_that_has_gone_since_have_nothing_that_follows(self, bench):
        bench.made, bench.scene = Decision(moves=(CLAIM,)), None
        assert await bench.turn() == ["keep", "forget", ("settle", bench.made)]

    async def test_a_target_that_is_told_of_no_resources_is_told_how_it_stands(self, bench):
        bench.copies = False
        assert (await bench.turn())[1:3] == [("tell", ("report", Decision())), "rest"]

    async def test_how_long_it_took_is_counted(self, bench, monkeypatch):
        clock = iter((10.0, 12.5))
        monkeypatch.setattr(main.time, "perf_counter", lambda: next(clock))
        await bench.turn()
        assert bench.took == [2.5]


class TestTrouble:
    @pytest.mark.parametrize(
        ("fault", "result"),
        [
            (REFUSED, "error"),
            (TROUBLE, "error"),
            (ForeignSecretError("m"), "error"),
            (PlanLostError("m"), "frozen"),
            (ValueError("m"), "defect"),
        ],
    )
    async def test_a_turn_that_failed_is_taken_again_later_and_holds_no_place_for_it(self, bench, fault, result):
        bench.turn_fault = fault
        done = await bench.turn()
        assert done[0] == "retry"
        assert done[-1] == ("settle", None)
        assert "forget" not in done
        assert bench.results == [result]

    @pytest.mark.parametrize("name", ["keep", "logs"])
    async def test_so_is_one_of_which_the_rest_failed(self, bench, name):
        bench.faults[name] = TROUBLE
        done = await bench.turn()
        assert "retry" in done
        assert "rest" not in done
        assert done[-1] == ("settle", None)

    async def test_what_cannot_be_kept_of_its_resources_keeps_nobody_from_being_told(self, bench):
        bench.faults["resources"] = TROUBLE
        done = await bench.turn()
        assert done[:4] == ["keep", "resources", ("tell", ("report", Decision())), "retry"]
        assert "logs" not in done

    @pytest.mark.parametrize(
        ("fault", "patience", "said"),
        [
            (REFUSED, HINDERED_AFTER, "quota"),
            (TROUBLE, TROUBLED_AFTER, "busy"),
            (ForeignSecretError("Secret s is not ours"), TROUBLED_AFTER, "Secret s is not ours"),
            (ValueError("db://1"), TROUBLED_AFTER, "a bug in the operator, ValueError; see its log"),
        ],
    )
    async def test_what_goes_on_failing_is_said(self, bench, fault, patience, said):
        bench.turn_fault = fault
        bench.failures = patience - 1
        assert ("tell", said) not in await bench.turn()
        bench.failures = patience
        assert ("tell", said) in await bench.turn()

    @pytest.mark.parametrize("lacks", ["scene", "found"])
    async def test_of_what_nobody_has_seen_nothing_is_said(self, bench, lacks):
        bench.turn_fault, bench.failures = REFUSED, 99
        setattr(bench, lacks, None)
        assert await bench.turn() == ["retry", ("settle", None)]

    @pytest.mark.parametrize("fault", [TROUBLE, ValueError("the very same defect")])
    async def test_what_cannot_even_be_said_is_said_at_the_next_try(self, bench, fault):
        bench.turn_fault, bench.failures = REFUSED, 99
        bench.faults["tell"] = fault
        assert (await bench.turn())[-1] == ("settle", None)

    async def test_a_run_whose_documents_are_lost_says_so_if_it_is_there_still(self, bench):
        bench.turn_fault = PlanLostError("restore it")
        assert ("freeze", bench.turn_fault) in await bench.turn()
        bench.faults["freeze"] = TROUBLE
        assert (await bench.turn())[-1] == ("settle", None)
        bench.found = None
        bench.done.clear()
        assert await bench.turn() == ["retry", ("settle", None)]


class TestFreezing:
    @pytest.mark.parametrize(("uid", "said"), [("u", 1), ("another", 0), (None, 0)])
    async def test_only_the_very_sandbox_is_told_that_nothing_is_done_for_it(self, uid, said):
        told: list[tuple[object, str, str]] = []
        seen = None if uid is None else SimpleNamespace(metadata=SimpleNamespace(uid=uid))

        async def waiting(of, why: WaitingError):
            told.append((of, why.reason, str(why)))

        cluster = SimpleNamespace(sandboxes=SimpleNamespace(get=lambda _name, _namespace: seen))
        await _OfSandboxes(cluster, SimpleNamespace(waiting=waiting), None).freeze(RUN, PlanLostError("restore it"))
        assert told == [(seen, Reason.PLAN_LOST, "restore it")] * said


class TestFirst:
    """Until one of several ends."""

    async def test_the_others_have_ended_as_well(self):
        ended = []

        async def long():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("long")

        async def soon():
            ended.append("soon")

        await asyncio.wait_for(first(long(), soon()), 10)
        assert ended == ["soon", "long"]

    async def test_what_went_wrong_in_it_is_raised(self):
        async def wrong():
            raise ValueError("a defect")

        with pytest.raises(ValueError, match="a defect"):
            await first(asyncio.Event().wait(), wrong())
