"""Inputs from the target object: exactly one value, or absent."""

import msgspec
import pytest

from dayfly.execute import inputs
from dayfly.execute.inputs import resolve
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.sealed import seal
from dayfly.spec.lifecycle import As, Exec, Lifecycle, Target, Unit, UnitInput
from dayfly.spec.run import EndRequest, Run, UnitRecord

TARGET = Target(api_version="v1", kind="Machine", namespace="shop", name="m", uid="u")
FOUND = {"spec": {"volume": "pv $(reboot)\n1", "size": 3, "many": [1, 2], "none": None, "zero": "a\0b"}, "metadata": {}}


def plan(query: str):
    reads = (UnitInput(name="it", target=query, as_=As(env="IT")),)
    units = {name: (Unit(name=name, kind="exec", inputs=reads, exec=Exec(script="#!/bin/sh\n")),) for name in "ab"}
    return seal((Lifecycle(target=TARGET, pre_start=units["a"], pre_stop=units["b"]),))


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("$.spec.volume", b"pv $(reboot)\n1"),
        ("$.spec.size", b"3"),
        ("$.spec.many", b"[1, 2]"),
        ("$.spec.many[*]", None),
        ("$.spec.none", None),
        ("$.spec.nothing", None),
    ],
)
def test_exactly_one_value_is_passed(query, value):
    """A create step waits for the value; a stop step runs without it."""
    found = plan(query)
    for name in "ab":
        given = inputs.target_values(found.steps[name], FOUND)
        assert given.get("it") == value
        assert bool(inputs.missing_target_field(found.steps[name], FOUND, "Machine")) is (value is None and name == "a")
        read = resolve(
            Run(uid="r", target=TARGET, plan=""), found.steps[name].unit, "", must_run=name == "b", given=given
        )
        assert read.sources == {"it": value}


def test_missing_target_has_no_values():
    step = plan("$.spec.volume").steps["b"]
    assert inputs.target_values(step, None) == {}
    assert inputs.missing_target_field(step, None, "Machine") == ""


def test_value_no_variable_can_hold_is_an_error_or_absent():
    found = plan("$.spec.zero")
    run = Run(uid="r", target=TARGET, plan="")
    given = inputs.target_values(found.steps["a"], FOUND)
    with pytest.raises(CannotRenderError, match="zero byte"):
        resolve(run, found.steps["a"].unit, "", must_run=False, given=given)
    assert resolve(run, found.steps["b"].unit, "", must_run=True, given=given).sources == {"it": None}


def test_target_is_read_only_by_steps_that_may_still_start():
    found, run = plan("$.spec.volume"), Run(uid="r", target=TARGET, plan="")

    def readers(run: Run) -> list[str]:
        return [step.id for step in inputs.steps_with_target_inputs(found, run, closing=run.closed is not None)]

    assert readers(run) == ["a"]
    done = msgspec.structs.replace(run, units={"a": UnitRecord(attempt=1, state="done", outcome="succeeded")})
    assert readers(done) == []
    assert readers(msgspec.structs.replace(done, closed=EndRequest(at=1, reason="Deleted"))) == ["b"]
