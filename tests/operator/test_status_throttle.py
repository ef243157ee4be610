"""When a changed status is written: urgent changes at once, progress seldom."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.execute.pod.read import format_time
from dayfly.operator.cluster.objects import StoredStatus
from dayfly.operator.status.status_throttle import (
    QUIET_MS,
    SETTLED_MS,
    TROUBLE_INTERVAL_MS,
    TROUBLE_SETTLED_MS,
    StatusThrottle,
)

URGENT = ("Creating",)


def written(at: int) -> StatusThrottle:
    throttle = StatusThrottle()
    throttle.record_write(URGENT, ("0/9",), at)
    return throttle


def test_urgent_change_is_written_at_once():
    assert written(0).delay(("Ready",), ("0/9",), 1) is None


def test_unchanged_status_is_not_written_again():
    assert written(0).delay(URGENT, ("0/9",), 10**9) == 0.0


def test_progress_after_a_quiet_time_is_written_at_once():
    assert written(0).delay(URGENT, ("1/9",), QUIET_MS) is None


def test_settled_progress_is_written():
    throttle = written(0)
    assert throttle.delay(URGENT, ("1/9",), 1_000) == SETTLED_MS / 1000 + 0.001
    assert throttle.delay(URGENT, ("1/9",), 1_000 + SETTLED_MS - 1) == 0.002
    assert throttle.delay(URGENT, ("1/9",), 1_000 + SETTLED_MS) is None


def test_continuous_progress_is_written_twice_a_minute():
    throttle, writes = written(0), []
    for second in range(1, 91):
        if throttle.delay(URGENT, (f"{second}/99",), second * 1000) is None:
            throttle.record_write(URGENT, (f"{second}/99",), second * 1000)
            writes.append(second)
    assert writes == [30, 60, 90]


def test_short_steps_write_no_progress_before_the_end():
    throttle = written(0)
    assert all(throttle.delay(URGENT, (f"{step}/8",), step * 2_000) for step in range(1, 9))


def test_slow_progress_is_written_at_once_each_time():
    throttle = written(0)
    for number in range(1, 4):
        at = number * (QUIET_MS + 1)
        assert throttle.delay(URGENT, (f"{number}/9",), at) is None
        throttle.record_write(URGENT, (f"{number}/9",), at)


def test_changing_trouble_is_written_every_few_seconds():
    throttle, writes = written(0), []
    assert throttle.delay(URGENT, ("no node",), 500, troubled=True) == TROUBLE_SETTLED_MS / 1000 + 0.001
    for tenth in range(5, 101, 5):
        if throttle.delay(URGENT, (f"try {tenth}",), tenth * 100, troubled=True) is None:
            throttle.record_write(URGENT, (f"try {tenth}",), tenth * 100)
            writes.append(tenth * 100)
    assert writes == [TROUBLE_INTERVAL_MS, 2 * TROUBLE_INTERVAL_MS, 3 * TROUBLE_INTERVAL_MS]


def test_progress_settles_again_after_each_write():
    throttle = written(0)
    throttle.delay(URGENT, ("1/9",), 4_000)
    throttle.record_write(URGENT, ("1/9",), 5_000)
    throttle.delay(URGENT, ("2/9",), 6_000)
    assert throttle.delay(URGENT, ("2/9",), 6_000 + SETTLED_MS - 1) is not None
    assert throttle.delay(URGENT, ("2/9",), 6_000 + SETTLED_MS) is None


def test_transition_time_is_kept_until_the_condition_changes():
    throttle = StatusThrottle()
    first = throttle.transition_time(False, "ResourcesPending", 1_000)
    assert throttle.transition_time(False, "ResourcesPending", 9_000) == first
    assert throttle.transition_time(True, "Ready", 9_000) != first


@pytest.mark.parametrize(("since", "kept"), [("then", "then"), ("", format_time(7_000))])
def test_condition_time_of_an_earlier_process_is_kept(since, kept):
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}] if since else []
    stored = msgspec.convert({"ready": True, "reason": "r", "message": "m", "conditions": conditions}, StoredStatus)
    found = StatusThrottle.from_status(stored, URGENT, ("0/9",))
    assert found.transition_time(True, "r", 7_000) == kept
    assert found.delay(URGENT, ("0/9",), 7_000) == 0.0
    assert found.transition_time(False, "r", 8_000) == format_time(8_000)


@pytest.mark.parametrize(
    ("version", "shown", "is_so"),
    [("9", ("b",), True), ("9", ("a",), False), ("5", ("b",), False), ("4", ("b",), False), ("10", ("b",), True)],
)
def test_newer_different_status_counts_as_overwritten(version, shown, is_so):
    throttle = StatusThrottle()
    assert not throttle.is_overwritten(version, shown), "nothing was written"
    throttle.version, throttle.visible = "5", ("a",)
    assert throttle.is_overwritten(version, shown) is is_so
