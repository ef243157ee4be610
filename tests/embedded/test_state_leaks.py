"""The built-in check for Terraform states: it reports states without a run, and deletes none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.embedded.machine import Machine
from tests.embedded.test_leaks import GIVE_UP, cloud, state

from dayfly.embedded import states
from dayfly.link import wire
from dayfly.link.wire import Verdict
from dayfly.spec.identity import resource_id

__all__ = ["cloud"]
HOUR_S = 3_600
SWEEP = wire.SweepLeaks(uid="leakcheck/terraform-states", name="terraform-states")


def leave_state(machine: Machine, run: str, resource: str = "it", age_s: int = 2 * HOUR_S) -> Path:
    """Create the folder of a state that changed some time ago."""
    folder = states.folder(machine.host.home) / run / resource
    folder.mkdir(parents=True)
    (folder / "head").write_text("{}")
    at = folder.stat().st_mtime - age_s
    os.utime(folder, (at, at))
    return folder


async def sweep(machine: Machine) -> Verdict:
    return await machine.host.leak_checks.execute(SWEEP)


async def test_state_without_a_run_is_an_orphan_that_is_never_deleted(machine: Machine):
    assert machine.host.leak_checks.reports() == ()
    assert await sweep(machine) is Verdict.UNKNOWN, "the check appears with its first finding"
    left = leave_state(machine, "gone")
    assert await sweep(machine) is Verdict.TAKEN
    report = state(machine)
    (found,) = report.findings
    assert (found.verdict, found.id, found.name) == ("orphan", resource_id("gone", "it"), "states/gone/it")
    assert (found.deletable, report.plan, left.exists()) == (False, "", True)
    shutil.rmtree(left)
    assert await sweep(machine) is Verdict.TAKEN
    assert (state(machine).findings, state(machine).number) == ((), report.number + 1)


@pytest.mark.parametrize(
    ("age_s", "verdict"), [(HOUR_S - 60, "unknown"), (-HOUR_S, "unknown"), (HOUR_S + 60, "orphan")]
)
async def test_state_is_an_orphan_after_an_hour(machine: Machine, age_s: int, verdict: str):
    leave_state(machine, "gone", age_s=age_s)
    await sweep(machine)
    assert state(machine).counts == {verdict: 1}


async def test_state_of_a_living_run_is_not_reported_until_its_end(machine: Machine, cloud):
    await machine.host.offer(cloud.offer("u"))
    await machine.ready("u")
    leave_state(machine, "u")
    assert await sweep(machine) is Verdict.UNKNOWN
    await machine.host.abandon("u", GIVE_UP)
    await machine.gone("u")
    await sweep(machine)
    (found,) = state(machine).findings
    assert (found.verdict, found.plugin) == ("unknown", "item@1.0.0"), "its run has just ended"
