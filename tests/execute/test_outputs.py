"""Outputs in the ledger: text or binary, within the limit."""

import msgspec
import pytest

from dayfly.execute import outputs as execute_outputs
from dayfly.execute.outputs import RUN_OUTPUT_LIMIT, apply_ends, mark_binary
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Ended, Running, Sealed
from dayfly.spec.run import OutputRecord, Result, Run, State, Target, UnitRecord


def outputs(**sizes):
    return {name: OutputRecord(digest="sha256:00", size=size) for name, size in sizes.items()}


def run(**units):
    return Run(uid="r", target=Target(kind="Sandbox", name="box", uid="u"), plan="p", units=units)


def end(*, outcome="succeeded", kind=Ended, **sizes):
    return kind(
        result=Result(outcome=outcome, reason="" if outcome == "succeeded" else "ExitCode", outputs=outputs(**sizes))
    )


def within_limit(run, facts, *, cleans=()):
    return execute_outputs.enforce_limit(run, facts, lambda name: name not in cleans)


CLAIMED = UnitRecord(attempt=1, state=State.CLAIMED)


def test_output_with_a_zero_byte_is_binary():
    told = mark_binary(end(a=1, b=3), {"a": b"x", "b": b"a\0b"})
    assert {name: output.text for name, output in told.result.outputs.items()} == {"a": True, "b": False}
    plain = end(a=1)
    assert mark_binary(plain, {"a": b"x"}) is plain


@pytest.mark.parametrize("kind", [Ended, Sealed])
@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_outputs_of_a_run_have_a_limit(kind, more, fits):
    kept = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=outputs(x=1_000))
    fact = end(kind=kind, a=RUN_OUTPUT_LIMIT - 1_001, b=1 + more)
    [found] = within_limit(run(a=CLAIMED, k=kept), {("a", 1): fact}).values()
    if fits:
        assert found is fact
    else:
        assert isinstance(found, kind)
        assert (found.result.outcome, found.result.reason, found.result.outputs) == (
            "failed",
            Reason.OUTPUT_TOO_LARGE,
            {},
        )
        assert (
            f"with its {RUN_OUTPUT_LIMIT - 999} bytes of outputs the run would have {RUN_OUTPUT_LIMIT + 1}"
            in found.result.message
        )


@pytest.mark.parametrize("kind", [Ended, Sealed])
@pytest.mark.parametrize(
    ("outcome", "before", "said"),
    [("succeeded", "", ""), ("succeeded", "input i has", "input i has; "), ("failed", "code 1", "code 1; ")],
)
def test_delete_step_with_too_many_outputs_still_succeeds(kind, outcome, before, said):
    """The step would be retried forever with the same outputs, so they are discarded."""
    kept = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=outputs(x=RUN_OUTPUT_LIMIT))
    fact = end(kind=kind, outcome=outcome, gone=4)
    fact = kind(result=msgspec.structs.replace(fact.result, message=before))
    ledger = run(k=kept, drop=CLAIMED)
    found = within_limit(ledger, {("drop", 1): fact}, cleans=("drop",))
    [result] = [each.result for each in found.values()]
    message = f"{said}with its 4 bytes of outputs the run would have {RUN_OUTPUT_LIMIT + 4}; at most {RUN_OUTPUT_LIMIT}"
    assert result == msgspec.structs.replace(
        fact.result, message=f"{message} are allowed, so they are discarded", outputs={}
    )
    assert within_limit(ledger, found, cleans=("drop",)) == found, "a second observation has the same result"


def test_second_of_two_large_results_may_exceed_the_limit():
    half = RUN_OUTPUT_LIMIT // 2 + 1
    facts = {("a", 1): end(o=half), ("b", 1): end(o=half)}
    found = within_limit(run(a=CLAIMED, b=CLAIMED), facts)
    assert [fact.result.outcome for fact in found.values()] == ["succeeded", "failed"]


@pytest.mark.parametrize(
    ("outcome", "name", "fits"),
    [("succeeded", "new", True), ("failed", "old", True), ("failed", "new", False)],
)
def test_success_replaces_outputs_but_failure_adds_to_them(outcome, name, fits):
    before = UnitRecord(attempt=2, state=State.CLAIMED, outputs=outputs(old=RUN_OUTPUT_LIMIT - 10))
    fact = end(outcome=outcome, **{name: 100})
    [found] = within_limit(run(a=before), {("a", 2): fact}).values()
    assert (found is fact) is fits


@pytest.mark.parametrize(
    ("record", "attempt"),
    [
        (UnitRecord(attempt=2, state=State.CLAIMED), 1),
        (UnitRecord(attempt=1, state=State.DONE, outcome="succeeded"), 1),
    ],
    ids=["of an earlier attempt", "recorded"],
)
def test_unrecorded_result_is_not_measured(record, attempt):
    fact = end(o=RUN_OUTPUT_LIMIT + 1)
    assert within_limit(run(a=record), {("a", attempt): fact}) == {("a", attempt): fact}


def test_awaited_ends_are_applied_to_the_ledger():
    facts = {("a", 1): end(o=1), ("b", 1): end(o=1), ("c", 1): end(o=1), ("d", 1): Running(since=1)}
    units = {
        "a": CLAIMED,
        "b": UnitRecord(attempt=2, state=State.CLAIMED),
        "c": UnitRecord(attempt=1, state=State.VOID),
        "d": CLAIMED,
    }
    found = apply_ends(run(**units), facts)
    assert found.unit("a").state is State.DONE
    assert {name: found.unit(name) for name in "bcd"} == {name: units[name] for name in "bcd"}
