"""The product inside the model: each look that the search takes is answered by `plan.decide`, each write by `plan.transitions`.

The search counts ledgers; the real `Run` of each number is kept here, with times and sentences left out, so that two
ledgers that differ in nothing that matters are one. `now` is far beyond every back-off; a deadline that has passed is a
bit of the question.
"""

from typing import Any, NamedTuple

import msgspec
from tests.model.cases import AT_ONCE
from tests.model.engine import CONST, Config, Decision, LedgerView, Question

from dayfly.plan import decide as deciding
from dayfly.plan import transitions
from dayfly.plan.actions import Cancel, Dissolve, Effect, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.retry import RECALL_TIMEOUT_MS
from dayfly.plan.sealed import Plan
from dayfly.plan.world import (
    AttemptKey,
    Ended,
    Fact,
    NeverRan,
    Prepared,
    Running,
    Sealed,
    TargetIntent,
    TargetState,
    Unclear,
    Waiting,
    World,
)
from dayfly.spec.lifecycle import Object, unit_id
from dayfly.spec.run import EndRequest, Phase, Result, Run, State, UnitRecord

NOW = 10**12
GATED = frozenset({"exec", "fork"})
NEVER_BY = 2 * NOW
STOP = EndRequest(at=0, reason="Deleted")
STATES = (State.NONE, State.CLAIMED, State.UNKNOWN, State.DONE, State.VOID)
PHASES = {Phase.OPEN: 0, Phase.CLOSED: 1, Phase.CLEANED: 2, Phase.ABANDONED: 2}
GOOD, BAD = Result(outcome="succeeded"), Result(outcome="failed")


class Answer(NamedTuple):
    """One decision, kept for the prose."""

    moves: tuple[Any, ...]
    effects: tuple[Effect, ...]


class Product:
    """Calls `decide` for the search."""

    def __init__(self, plan: Plan, config: Config) -> None:
        self.plan = plan
        self.names = (*plan.steps, *plan.kept)
        self._mutations: int = config.mutations
        self._uids: int = config.uids
        self._at = {name: at for at, name in enumerate(self.names)}
        self.runs: list[Run | None] = [None]
        self._numbers: dict[bytes, int] = {}
        target = plan.documents[0].target
        for uid in ("1", "2"):
            self._number(Run(uid=uid, target=target, plan=plan.digest))

    # --- callbacks of the search --------------------------------------------------------------------------------------

    def summarize(self, number: int, out: LedgerView) -> None:
        run = self.runs[number]
        if run is None:
            return
        out.phase, out.uid, out.empty = PHASES[run.phase], int(run.uid), not run.units
        for name, record in run.units.items():
            at = self._at[name]
            out.attempt[at], out.state[at] = record.attempt, STATES.index(record.state)
            out.succeeded[at] = record.outcome == "succeeded" and record.state is State.DONE
            out.ref[at] = int(record.ref or 0)

    def decide(self, question: Question, out: Decision) -> int:
        """Fills `out`; returns how many effects lie beyond the attempts that the model has room for."""
        run = self.runs[question.ledger]
        assert run is not None, "there is no decision without a Run"
        seen: dict[AttemptKey, int] = {}
        facts: dict[AttemptKey, Fact] = {}
        since = 0 if question.overdue else NOW
        for at in range(len(self.names) * CONST["MAX_ATTEMPTS"]):
            key = self.names[at // CONST["MAX_ATTEMPTS"]], at % CONST["MAX_ATTEMPTS"] + 1
            fact = self._fact(question.fact[at], str(question.seen[at] or ""), since)
            if fact is not None:
                facts[key] = fact
                seen[key] = question.seen[at]
        made = {key: str(ref) for key, ref in seen.items() if ref and self._object(key[0])}
        wish = TargetIntent(stop=STOP if question.stop else None, expires_at=int(question.expired))
        try:
            target = TargetState(started=bool(question.began), stopped=bool(question.rests)) if question.lives else None
            world = World(run=run, intent=wish, facts=facts, object_refs=made, target=target, gated_kinds=GATED)
            decision = deciding.decide(self.plan, world, NOW)
            if decision.moves:
                # operator/runs.py, `commit`
                after = transitions.apply(run, decision.moves, self.plan.creates)
                out.ledger = self._number(after)
        except transitions.IllegalMoveError:
            out.illegal = 1
            return 0
        return self._write(decision.effects, seen, run, out)

    def _object(self, unit: str) -> Object | None:
        """Return the object that a unit creates or removes; None for other units."""
        step = self.plan.steps.get(unit)
        return step.unit.object if step else None

    @staticmethod
    def _fact(code: int, ref: str, since: int) -> Fact | None:
        facts: dict[int, Fact | None] = {
            CONST["FACT_NONE"]: None,
            CONST["FACT_HELD"]: Prepared(ref=ref),
            CONST["FACT_NEVER_RAN"]: NeverRan(reason="Deleted"),
            CONST["FACT_WAITING"]: Waiting(since=since, reason="Starting"),
            CONST["FACT_LACKS"]: Waiting(since=since, reason="ErrImagePull", recallable=True),
            CONST["FACT_RECALLED"]: Waiting(since=since, reason="ErrImagePull", recalled=NOW),
            CONST["FACT_MUTE"]: Waiting(since=since, reason="ErrImagePull", recalled=NOW - RECALL_TIMEOUT_MS),
            CONST["FACT_RUNNING"]: Running(since=since),
            CONST["FACT_SEALED_OK"]: Sealed(result=GOOD),
            CONST["FACT_SEALED_FAIL"]: Sealed(result=BAD),
            CONST["FACT_ENDED_OK"]: Ended(result=GOOD),
            CONST["FACT_ENDED_FAIL"]: Ended(result=BAD),
            CONST["FACT_UNCLEAR"]: Unclear(since=0, reason="PodDeleted", message="", dead_by=NEVER_BY),
            CONST["FACT_DEAD_BY"]: Unclear(since=0, reason="PodDeleted", message="", dead_by=0),
        }
        return facts[code]

    def _write(self, effects: tuple[Effect, ...], seen: dict[AttemptKey, int], run: Run, out: Decision) -> int:
        """Each effect as the single API writes that the operator makes of it (operator/effects.py, `perform`)."""
        writes: list[tuple[str, int]] = []
        beyond = 0
        for effect in effects:
            match effect:
                case Prepare(unit=unit, attempt=attempt):
                    if attempt <= CONST["MAX_ATTEMPTS"]:
                        writes.append(("PREPARE", self._name(unit, attempt)))
                    else:
                        beyond += 1
                case Launch(unit=unit, attempt=attempt) if self._object(unit):
                    writes += self._launch_object(seen, run, unit, attempt)
                case Launch(unit=unit, attempt=attempt):
                    writes.append(("LAUNCH", self._pod(seen, unit, attempt)))
                case Release(unit=unit) if self._object(unit):
                    pass  # ObjectExecutor.release
                case Fence(unit=unit, attempt=attempt) | Cancel(unit=unit, attempt=attempt):
                    if seen.get((unit, attempt)):
                        writes.append(("DELETE", self._pod(seen, unit, attempt)))
                case Recall(unit=unit, attempt=attempt):
                    writes.append(("RECALL", self._pod(seen, unit, attempt)))
                case Release(unit=unit, attempt=attempt):
                    if seen.get((unit, attempt)):
                        pod = self._pod(seen, unit, attempt)
                        writes += [("DELETE", pod), ("UNFINALIZE", pod)]
                case Dissolve():
                    writes += [*self._clear(run), *self._dissolve(run.uid)]
        assert len(writes) <= CONST["MAX_EFFECTS"], "the model has room for the writes of one turn"
        out.count = len(writes)
        for place, (kind, at) in enumerate(writes):
            out.kind[place], out.at[place] = CONST[f"EFFECT_{kind}"], at
        return beyond

    def _launch_object(self, seen: dict[AttemptKey, int], run: Run, unit: str, attempt: int) -> list[tuple[str, int]]:
        """Return the effects of ObjectExecutor.launch: release an object at rest, create a missing one, or delete it."""
        item = self._object(unit)
        assert item is not None, "only for objects"
        if item.remove:
            maker = unit_id(self.plan.steps[unit].resource, item.remove)
            return [("OBJECT_REMOVE", self._name(maker, run.unit(maker).attempt))] if run.unit(maker).attempt else []
        if seen.get((unit, attempt)):
            return [("OBJECT_RELEASE", self._pod(seen, unit, attempt))]
        name = self._name(unit, attempt)
        again = [("OBJECT_AGAIN", name * self._uids + uid) for uid in range(self._uids)]
        return [("OBJECT_LOOK", name), ("OBJECT_POST", name), *again]

    def _clear(self, run: Run) -> list[tuple[str, int]]:
        """ObjectExecutor.clear"""
        made = [name for name in run.units if (item := self._object(name)) and item.written.get("manifest") == AT_ONCE]
        return [("OBJECT_CLEAR", self._name(name, run.unit(name).attempt)) for name in made]

    def _dissolve(self, uid: str) -> list[tuple[str, int]]:
        """operator/effects.py, `_dissolve`: the target first, then the ledger."""
        target = [("TARGET_DELETE", 0), ("TARGET_UNFINALIZE", 0)]
        if self._mutations & CONST["TARGET_LEFT"]:
            del target[0]
        ledger = [("RUN_UNFINALIZE", int(uid)), ("RUN_DELETE", int(uid))]
        return [*ledger, *target] if self._mutations & CONST["RUN_FIRST"] else [*target, *ledger]

    def _name(self, unit: str, attempt: int) -> int:
        return self._at[unit] * CONST["MAX_ATTEMPTS"] + attempt - 1

    def _pod(self, seen: dict[AttemptKey, int], unit: str, attempt: int) -> int:
        return self._name(unit, attempt) * self._uids + seen[unit, attempt] - 1

    # --- ledgers by number ------------------------------------------------------------------------------------------

    def _number(self, run: Run) -> int:
        plain = msgspec.structs.replace(
            run,
            seq=0,
            ended_at=0,
            closed=STOP if run.closed else None,
            units={name: _plain(run.units[name]) for name in sorted(run.units)},
        )
        key = msgspec.json.encode(plain)
        if key not in self._numbers:
            self._numbers[key] = len(self.runs)
            self.runs.append(plain)
        return self._numbers[key]


def _plain(record: UnitRecord) -> UnitRecord:
    return msgspec.structs.replace(record, reason="", message="", claimed_at=0, started_at=0, ended_at=0, outputs={})
