"""Inputs of units: present, absent or unfit, according to the ledger."""

import pytest

from dayfly.execute.inputs import (
    ENV_INPUT_LIMIT,
    ForkAddressUnknownError,
    UnitOutputRef,
    is_complete,
    is_fit,
    resolve,
    unfit_messages,
)
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.spec.lifecycle import (
    As,
    Baseline,
    Exec,
    ForkUnit,
    ForkValue,
    Lifecycle,
    Ref,
    Target,
    Unit,
    UnitInput,
)
from dayfly.spec.run import OutputRecord, Phase, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", name="box", uid="u")


def step(name, *inputs):
    return Unit(name=name, kind="exec", exec=Exec(script="#!/bin/sh"), inputs=inputs)


def reads(unit="make", *, env=True, resource=""):
    where = As(env="URL") if env else As(path="/url")
    return UnitInput(name="url", from_=Ref(unit=unit, output="url", resource=resource), as_=where)


def run_with(phase=Phase.OPEN, **records):
    units = {f"db/{name}": record for name, record in records.items()}
    return Run(uid="r", target=TARGET, plan="", units=units, phase=phase)


def producer(size=3, *, text=True, state=State.DONE):
    output = OutputRecord(digest="sha256:0", size=size, text=text)
    return UnitRecord(attempt=1, state=state, outcome="succeeded", outputs={"url": output})


def plan_of(read):
    documents = [
        Lifecycle(
            target=TARGET, resource="db", pre_start=(step("make"), step("seed", read)), post_stop=(step("drop", read),)
        ),
        Lifecycle(target=TARGET, resource="app", pre_start=(step("other"),)),
    ]
    return seal(tuple(documents))


class TestResolving:
    def test_known_inputs_are_referenced_and_others_absent(self):
        unit = step("seed", reads(), UnitInput(name="own", value="v"), UnitInput(name="none"))
        found = resolve(run_with(make=producer()), unit, "db", must_run=False)
        assert found.sources == {"url": UnitOutputRef("db/make", "url"), "own": b"v", "none": None}
        assert found.absent == ["none"]
        none = resolve(run_with(), unit, "db", must_run=False)
        assert none.absent == ["url", "none"]

    @pytest.mark.parametrize("resource", ["", "db"])
    def test_input_may_come_from_another_resource(self, resource):
        found = resolve(run_with(make=producer()), step("x", reads(resource=resource)), "app", must_run=False)
        assert found.sources == {"url": UnitOutputRef("db/make", "url") if resource else None}

    @pytest.mark.parametrize("state", [State.CLAIMED, State.UNKNOWN])
    def test_input_of_a_running_step_counts_as_present(self, state):
        found = resolve(
            run_with(make=producer(ENV_INPUT_LIMIT + 1, state=state)), step("x", reads()), "db", must_run=False
        )
        assert found.sources == {"url": UnitOutputRef("db/make", "url")}

    @pytest.mark.parametrize(
        ("record", "reason"),
        [
            (producer(ENV_INPUT_LIMIT), None),
            (producer(ENV_INPUT_LIMIT + 1), Reason.INPUT_TOO_LARGE),
            (producer(text=False), Reason.INPUT_NOT_TEXT),
        ],
    )
    def test_variable_has_a_size_limit(self, record, reason):
        run = run_with(make=record)
        unit = step("seed", reads())
        if reason is None:
            assert resolve(run, unit, "db", must_run=False).unfit == {}
            return
        with pytest.raises(CannotRenderError, match="let the step read it as a file") as caught:
            resolve(run, unit, "db", must_run=False)
        assert caught.value.reason == reason
        cleaning = resolve(run, unit, "db", must_run=True)
        assert (cleaning.absent, list(cleaning.unfit)) == (["url"], ["url"])
        in_file = resolve(run, step("seed", reads(env=False)), "db", must_run=False)
        assert (in_file.absent, in_file.unfit) == ([], {})

    def test_every_input_of_a_fork_is_a_variable(self):
        fork = ForkUnit(baseline=Baseline(kind="Deployment", namespace="shop", name="app"))
        unit = Unit(name="app", kind="fork", fork=fork, inputs=(reads(env=False),))
        for record in (producer(ENV_INPUT_LIMIT + 1), producer(text=False)):
            with pytest.raises(CannotRenderError) as caught:
                resolve(run_with(make=record), unit, "db", must_run=False)
            assert "let the step read it" not in str(caught.value)

    def test_constant_has_the_same_limits(self):
        zero = step("x", UnitInput(name="v", value="a\0", as_=As(env="V")))
        with pytest.raises(CannotRenderError, match="contains a zero byte"):
            resolve(run_with(), zero, "db", must_run=False)
        large = step("x", UnitInput(name="v", value="a" * (ENV_INPUT_LIMIT + 1), as_=As(env="V")))
        with pytest.raises(CannotRenderError, match="65537 bytes"):
            resolve(run_with(), large, "db", must_run=False)


OF = Baseline(kind="Deployment", namespace="shop", name="web")


def fork_reader(expression="{{.Service.Host}}", name="where", **where):
    return UnitInput(
        name=name,
        fork=ForkValue(fork_of=OF, expression=expression),
        as_=As(**(where or {"env": "WHERE"})),
    )


def mute(_):
    raise ForkAddressUnknownError(Reason.FORK_WITHOUT_PORT, "it has no port")


class TestForks:
    def test_fork_value_resolves_like_a_constant(self):
        asked = []

        def tell(value):
            asked.append(value)
            return "10.0.0.1"

        found = resolve(run_with(), step("warm", fork_reader()), "", must_run=False, forks=tell)
        assert (found.sources, found.absent, found.unfit) == ({"where": b"10.0.0.1"}, [], {})
        assert asked == [fork_reader().fork]

    def test_missing_fork_value_blocks_a_step_but_no_cleanup(self):
        with pytest.raises(ForkAddressUnknownError, match="it has no port"):
            resolve(run_with(), step("warm", fork_reader()), "", must_run=False, forks=mute)
        found = resolve(
            run_with(), step("drain", fork_reader(), UnitInput(name="own", value="v")), "", must_run=True, forks=mute
        )
        assert found.sources == {"where": None, "own": b"v"}
        assert (found.absent, found.unfit) == (["where"], {"where": "it has no port"})

    def test_fork_value_without_a_source_is_absent_without_remark(self):
        found = resolve(run_with(), step("warm", fork_reader()), "", must_run=False)
        assert (found.absent, found.unfit) == (["where"], {})

    @pytest.mark.parametrize(
        ("value", "reason"), [("a\0", "a zero byte"), ("a" * (ENV_INPUT_LIMIT + 1), "65537 bytes")]
    )
    def test_fork_value_must_fit_its_destination(self, value, reason):
        with pytest.raises(CannotRenderError, match=reason) as caught:
            resolve(run_with(), step("warm", fork_reader()), "", must_run=False, forks=lambda _: value)
        assert not isinstance(caught.value, ForkAddressUnknownError), "this is permanent"
        in_file = step("warm", fork_reader(path="/where"))
        assert resolve(run_with(), in_file, "", must_run=False, forks=lambda _: value).unfit == {}

    def test_missing_fork_value_is_remarked_until_its_hook_has_run(self):
        plan = seal((Lifecycle(target=TARGET, pre_stop=(step("drain", fork_reader()),)),))
        fork = UnitRecord(attempt=1, state=State.CLAIMED, kind="fork", generation="g")

        def run(**more):
            return Run(uid="r", target=TARGET, plan="", phase=Phase.CLOSED, units={"fork:shop/web": fork, **more})

        assert unfit_messages(plan, run(), mute) == {"drain": "it has no port; it is passed as absent"}
        assert unfit_messages(plan, run(), lambda _: "h") == {}
        assert unfit_messages(plan, run(drain=UnitRecord(attempt=1, state=State.DONE)), mute) == {}, (
            "it has read its inputs"
        )
        never = Run(uid="r", target=TARGET, plan="", phase=Phase.CLOSED)
        assert unfit_messages(plan, never, mute) == {}, "no preStop is needed"


class TestPlans:
    def test_delete_step_is_always_fit(self):
        plan, run = plan_of(reads()), run_with(make=producer(text=False))
        assert is_fit(run, plan.steps["db/make"])
        assert not is_fit(run, plan.steps["db/seed"])
        assert is_fit(run, plan.steps["db/drop"])

    def test_absent_input_is_remarked_on_a_closing_run(self):
        plan, bad = plan_of(reads()), producer(text=False)
        assert unfit_messages(plan, run_with(make=bad)) == {}
        assert unfit_messages(plan, run_with(make=producer(), phase=Phase.CLOSED)) == {}
        [(unit, said)] = unfit_messages(plan, run_with(make=bad, phase=Phase.CLOSED)).items()
        assert unit == "db/drop"
        assert said.endswith("; it is passed as absent")

    def test_outputs_are_complete_once_all_create_steps_succeeded(self):
        plan, ended = plan_of(reads()), UnitRecord(attempt=1, state=State.DONE, outcome="failed")
        assert not is_complete(plan, run_with(make=producer()), "db")
        assert not is_complete(plan, run_with(make=producer(), seed=ended), "db")
        assert is_complete(plan, run_with(make=producer(), seed=producer()), "db"), (
            "create steps of other resources do not count"
        )
        assert not is_complete(plan, run_with(make=producer(), seed=producer()), "app")
