"""The verdict about a Terraform state whose run is gone, and the report about all of them."""

from __future__ import annotations

import pytest

from dayfly.plan.leaks.states import STATE_CHECK_SPEC, LeftState, judge_state, sweep_states
from dayfly.plan.leaks.sweep import LeakState, describe_check

NOW = 1_767_225_600_000
GRACE_MS = STATE_CHECK_SPEC.grace_ms


@pytest.mark.parametrize(
    ("changed_at", "ended_at", "verdict"),
    [
        (NOW - GRACE_MS - 1, 0, "orphan"),
        (NOW - GRACE_MS, 0, "unknown"),
        (NOW - 9 * GRACE_MS, NOW - GRACE_MS, "unknown"),
        (NOW - 9 * GRACE_MS, NOW - GRACE_MS - 1, "orphan"),
        (NOW + GRACE_MS, 0, "unknown"),
        (0, NOW + GRACE_MS, "unknown"),
    ],
)
def test_state_is_an_orphan_when_change_and_end_are_old(changed_at: int, ended_at: int, verdict: str):
    found = judge_state(LeftState("states/a/db", changed_at, "0" * 26, "pg@1.0.0", ended_at), NOW)
    assert (found.verdict, found.is_deletable) == (verdict, False)
    assert (found.id, found.name, found.plugin, found.created) == ("0" * 26, "states/a/db", "pg@1.0.0", changed_at)


def test_state_with_an_error_is_unknown_for_this_reason():
    found = judge_state(LeftState("states/a/db", 1, error="it is damaged"), NOW)
    assert (found.verdict, found.reason) == ("unknown", "it is damaged")


def test_report_has_one_finding_for_each_state_and_no_plan():
    states = [LeftState(f"states/{number}/db", 1, f"{number:026}") for number in range(3)]
    after = sweep_states(sweep_states(LeakState(), (), NOW - 1), states, NOW)
    report = describe_check("x", STATE_CHECK_SPEC, "x", after, is_sweeping=False)
    assert (report.number, report.listed_at, report.counts, report.plan) == (2, NOW, {"orphan": 3}, "")
    assert [each.name for each in report.findings] == [each.name for each in states]
