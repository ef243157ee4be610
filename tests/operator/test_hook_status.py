"""The status of a hook, and the Events on its objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.operator.rig.hook_bench import QueueBench, run_story
from tests.operator.rig.hook_targets import HOOK

from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.plan.reasons import Reason
from dayfly.spec.report import UnitReport
from dayfly.spec.run import Phase

LACK = 'machines is forbidden: cannot patch resource "machines" in API group "cluster.example.org"'
FAILED = UnitReport(id="drain", name="drain", event="preStop", kind="exec", state="failed")


async def reported(bench: QueueBench, made: RunObject, **how: Any) -> str:
    """Return the message of the hook after a report of a run."""
    scene = SimpleNamespace(world=SimpleNamespace(run=made.ledger))
    fields = {"uid": made.ledger.uid, "reason": "Ready", "message": "m", "units": (), **how}
    hindrance = fields.pop("hindrance", "")
    report = SimpleNamespace(**fields, about="", closed=None, unsupported=())
    assert await bench.status.report_status(scene, report, hindrance=hindrance) == 0.0
    return bench.status.summarize(made.spec.hook.uid, "well")


@pytest.mark.parametrize(
    ("hindrance", "message", "reason"),
    [
        (LACK, "Machine shop/m: the operator may not patch machines.cluster", Reason.TARGETS_NOT_GRANTED),
        ("a quota", "Machine shop/m: cannot continue and is retried: a quota", Reason.BLOCKED),
    ],
)
def test_blocked_run_is_reported_once_until_it_goes_on(hindrance, message, reason):
    async def story(bench: QueueBench):
        made = bench.create_run()
        assert (await reported(bench, made, hindrance=hindrance)).startswith(message)
        await reported(bench, made, hindrance=hindrance)
        assert bench.events == [("Warning", reason)]
        assert await reported(bench, made) == "well"

    run_story(story)


def test_event_repeats_only_for_another_reason():
    async def story(bench: QueueBench):
        made = bench.create_run()
        await reported(bench, made, hindrance="a quota of 1")
        await reported(bench, made, hindrance="a quota of 2")
        assert len(bench.events) == 1
        bench.status.report_problem(made, Reason.PLAN_LOST, "restore it")
        assert bench.events[-1] == ("Warning", Reason.PLAN_LOST)

    run_story(story)


@pytest.mark.parametrize(("reason", "kind"), [("ExitCode", "Warning"), ("HookActive", "Normal")])
def test_event_kind_follows_the_reason(reason, kind):
    async def story(bench: QueueBench):
        bench.status.report_problem(bench.create_run(), reason, "m")
        assert bench.events == [(kind, reason)]

    run_story(story)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"reason": "PartlyApplied"}, "Machine shop/m: m"),
        ({"reason": "Pulling"}, "well"),
        ({"reason": "ResourceFailed"}, "Machine shop/m: m"),
        ({"units": (FAILED,)}, "Machine shop/m: m"),
    ],
)
def test_object_in_trouble_is_named(how, message):
    async def story(bench: QueueBench):
        assert await reported(bench, bench.create_run(), **how) == message

    run_story(story)


def test_run_that_is_over_is_in_trouble_only_if_blocked():
    async def story(bench: QueueBench):
        made = bench.create_run()
        version = str(int(made.metadata.resource_version) + 1)
        meta = msgspec.structs.replace(made.metadata, resource_version=version)
        ledger = msgspec.structs.replace(made.ledger, phase=Phase.CLEANED)
        bench.status.report_problem(made, Reason.BLOCKED, "a quota")
        over = msgspec.structs.replace(made, ledger=ledger, metadata=meta)
        bench.caches.runs.put(over)
        assert bench.status.summarize(made.spec.hook.uid, "well") == "well"
        assert await reported(bench, over, reason="ResourceFailed") == "well"
        assert await reported(bench, over, hindrance="a quota") != "well", "its object is not released"

    run_story(story)


def test_frozen_object_is_reported_and_counted():
    async def story(bench: QueueBench):
        made = bench.create_run()
        why = UndecidableError("restore it")
        why.reason = Reason.PLAN_LOST
        await bench.watched.adapter.report_frozen(made, why)
        assert bench.status.summarize(made.spec.hook.uid, "well") == "Machine shop/m: restore it"
        assert bench.status.frozen_count == 1

    run_story(story)


def test_worst_of_several_troubles_is_reported_with_their_count():
    async def story(bench: QueueBench):
        made = bench.create_run()
        bench.status.report_problem(made, Reason.BLOCKED, "a quota")
        target = msgspec.structs.replace(made.ledger.target, name="a")
        bench.status.record_problem(HOOK, made.spec.hook.uid, "a", target, (Reason.LEDGER_LOST, "restore it"))
        message = bench.status.summarize(made.spec.hook.uid, "well")
        assert message == "Machine shop/a: restore it (and 1 more)"
        assert await bench.status.write(bench.cache_hook(), Reason.HOOK_ACTIVE, message) == 0.0
        assert (bench.written_status["message"], bench.written_status["troubled"]) == (message, 2)

    run_story(story)


def test_status_of_a_deleted_hook_is_dropped():
    async def story(bench: QueueBench):
        seen = bench.cache_hook()
        bench.forget_hook()
        assert await bench.status.write(seen, Reason.HOOK_ACTIVE, "m") == 0.0

    run_story(story)
