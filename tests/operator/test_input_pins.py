"""The label of a prepared pod names the outputs and fork values that it holds."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.execute.pod import names
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta, Pod, PodSpec, PodStatus
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.pods import input_pins
from dayfly.plan.sealed import seal
from dayfly.spec.lifecycle import (
    As,
    Baseline,
    Exec,
    ForkValue,
    Lifecycle,
    Ref,
    Target,
    Unit,
    UnitInput,
    UnitOutput,
    UnitTimeouts,
)
from dayfly.spec.run import OutputRecord, Run, State, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")


def a_run(uid: str = "r", **units: UnitRecord) -> RunObject:
    ledger = Run(uid="u", target=TARGET, plan="", units={f"db/{name}": record for name, record in units.items()})
    return RunObject(metadata=AnnotatedMeta(name="box", uid=uid), ledger=ledger)


def given(name: str, unit: str, output: str) -> UnitInput:
    return UnitInput(name=name, from_=Ref(unit=unit, output=output), as_=As(env=name.upper()))


def mute(_: ForkValue) -> str:
    """Represent a run without forks."""
    raise ForkAddressUnknownError("WaitingForForks", "it is not there")


class TestInputPins:
    LIMITS = UnitTimeouts(schedule_ms=10_000, pull_ms=10_000)
    INPUTS = (given("url", "make", "url"), given("user", "seed", "user"))
    READER = Unit(name="use", kind="exec", inputs=INPUTS, timeouts=LIMITS, exec=Exec(script="#!/bin/sh"))
    MAKER = Unit(name="make", kind="exec", outputs=(UnitOutput(name="url", path="/u"),), exec=Exec(script="#!/bin/sh"))
    SEED = Unit(name="seed", kind="exec", outputs=(UnitOutput(name="user", path="/u"),), exec=Exec(script="#!/bin/sh"))
    PLAN = seal((Lifecycle(target=TARGET, resource="db", pre_start=(MAKER, SEED, READER)),))
    STEP = PLAN.steps["db/use"]
    URL = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1)}
    MADE = UnitRecord(attempt=2, state=State.DONE, outcome="succeeded", outputs=URL)
    SEEDED = UnitRecord(
        attempt=3,
        state=State.DONE,
        outcome="succeeded",
        outputs={"user": OutputRecord(digest="sha256:0", size=1, attempt=3)},
    )

    def pod(self, reads: str | None, born: str = "1970-01-01T00:00:00Z") -> Pod:
        labels = None if reads is None else {names.READS_LABEL: reads}
        meta = ObjectMeta(name="p", namespace="n", uid="p", labels=labels, creation_timestamp=born)
        return Pod(metadata=meta, spec=PodSpec(), status=PodStatus())

    def test_label_names_the_attempts_that_it_reads(self):
        assert input_pins.pin_label(a_run(), self.STEP, mute) == "0-0"
        assert input_pins.pin_label(a_run(make=self.MADE), self.STEP, mute) == "1-0"
        alive = UnitRecord(attempt=4, state=State.CLAIMED)
        assert input_pins.pin_label(a_run(make=self.MADE, seed=alive), self.STEP, mute) == "1-4"
        assert input_pins.pin_label(a_run(), self.PLAN.steps["db/make"], mute) == ""
        many = msgspec.structs.replace(self.READER, inputs=self.INPUTS * 20)
        assert input_pins.pin_label(a_run(), msgspec.structs.replace(self.STEP, unit=many), mute) == ""

    def test_pod_with_outdated_fork_values_is_replaced(self):
        of = Baseline(kind="Deployment", namespace="shop", name="web")
        told = UnitInput(name="where", fork=ForkValue(fork_of=of, expression="{{.Service.Port}}"), as_=As(env="WHERE"))
        run, unit = a_run(make=self.MADE, seed=self.SEEDED), msgspec.structs.replace(self.READER, inputs=(told,))
        for inputs, first in ((told,), ""), ((*self.INPUTS, told), "1-3-"):
            step = msgspec.structs.replace(self.STEP, unit=msgspec.structs.replace(unit, inputs=inputs))
            label = input_pins.pin_label(run, step, lambda _: "80")
            assert label.startswith(f"{first}f")
            assert input_pins.is_current(run, step, self.pod(label), 0, lambda _: "80")
            assert not input_pins.is_current(run, step, self.pod(label), 0, lambda _: "81")
            assert not input_pins.is_current(run, step, self.pod(label), 0, mute)
            assert not input_pins.is_newer(run, step, self.pod(label))

    @pytest.mark.parametrize(("creates", "label"), [(True, "1-3"), (False, "0-3")])
    def test_binary_output_is_absent_for_cleanup_steps(self, creates, label):
        binary = msgspec.structs.replace(
            self.MADE, outputs={"url": msgspec.structs.replace(self.URL["url"], text=False)}
        )
        units = {"pre_start": (self.MAKER, self.SEED)}
        units |= {"pre_start": (*units["pre_start"], self.READER)} if creates else {"post_stop": (self.READER,)}
        step = seal((Lifecycle(target=TARGET, resource="db", **units),)).steps["db/use"]
        assert input_pins.pin_label(a_run(make=binary, seed=self.SEEDED), step, lambda _: "") == label

    def test_output_is_found_by_the_attempt_that_wrote_it(self):
        found = input_pins.secret_key(a_run(make=self.MADE), "db/make", "url")
        assert (found.secret, found.key) == (names.outputs_name("u", "db/make", 1), "url")
        assert input_pins.secret_key(a_run(make=self.MADE), "db/make", "other") is None
        assert input_pins.secret_key(a_run(), "db/make", "url") is None

    @pytest.mark.parametrize(
        ("reads", "now", "fits"), [("1-3", 9_999, True), ("1-3", 10_000, False), ("1-2", 0, False), (None, 0, False)]
    )
    def test_pod_fits_with_its_inputs_and_time_left(self, reads, now, fits):
        found = a_run(make=self.MADE, seed=self.SEEDED)
        assert input_pins.is_current(found, self.STEP, self.pod(reads), now, mute) is fits

    @pytest.mark.parametrize(
        ("reads", "newer"),
        [("1-3", False), ("3-3", True), ("1-4", True), ("2-3", False), (None, False)]
        # No operator writes such a label.
        + [(said, False) for said in ("9-x", "x", "-9", "9-", "9--9", "\u0669", "9_9", " 9")],
    )
    def test_label_with_a_later_attempt_is_newer(self, reads, newer):
        found = a_run(make=self.MADE, seed=self.SEEDED)
        assert input_pins.is_newer(found, self.STEP, self.pod(reads)) is newer
