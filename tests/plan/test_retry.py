"""Attempts and retries after the end of an attempt."""

import pytest
from tests.plan.builders import document, plan_of, unit

from dayfly.plan.retry import BACKOFF_MAX_MS, MAX_NEVER_RAN, PRE_STOP_TRIES, UnitState, backoff, retry_at, unit_state
from dayfly.spec.lifecycle import LifecycleEvent, UnitRetry
from dayfly.spec.run import State, UnitRecord


def step(event=LifecycleEvent.PRE_START, **retry):
    name = {
        LifecycleEvent.PRE_START: "pre_start",
        LifecycleEvent.POST_START: "post_start",
        LifecycleEvent.PRE_STOP: "pre_stop",
        LifecycleEvent.POST_STOP: "post_stop",
    }[event]
    return plan_of(document(**{name: (unit("it", retry=UnitRetry(**retry)),)})).steps["db/it"]


def failures(count):
    return UnitRecord(attempt=count, state=State.DONE, outcome="failed", failures=count)


def voids(count):
    return UnitRecord(attempt=count, state=State.VOID, voids=count)


@pytest.mark.parametrize(
    ("event", "retry", "count", "then"),
    [
        (LifecycleEvent.PRE_START, {}, 1, UnitState.FAILED),
        (LifecycleEvent.POST_START, {}, 1, UnitState.FAILED),
        (LifecycleEvent.PRE_START, {"limit": 5}, 1, UnitState.FAILED),
        (LifecycleEvent.PRE_START, {"idempotent": True, "limit": 3}, 2, UnitState.RETRYABLE),
        (LifecycleEvent.PRE_START, {"idempotent": True, "limit": 3}, 3, UnitState.FAILED),
        (LifecycleEvent.PRE_START, {"idempotent": True, "limit": 0}, 999, UnitState.RETRYABLE),
        (LifecycleEvent.PRE_STOP, {}, PRE_STOP_TRIES - 1, UnitState.RETRYABLE),
        (LifecycleEvent.PRE_STOP, {}, PRE_STOP_TRIES, UnitState.FAILED),
        (LifecycleEvent.POST_STOP, {}, 999, UnitState.RETRYABLE),
    ],
)
def test_after_failures(event, retry, count, then):
    assert unit_state(step(event, **retry), failures(count)) is then


@pytest.mark.parametrize(
    ("event", "count", "then"),
    [
        (LifecycleEvent.PRE_START, MAX_NEVER_RAN - 1, UnitState.RETRYABLE),
        (LifecycleEvent.PRE_START, MAX_NEVER_RAN, UnitState.FAILED),
        (LifecycleEvent.PRE_STOP, PRE_STOP_TRIES - 1, UnitState.RETRYABLE),
        (LifecycleEvent.PRE_STOP, PRE_STOP_TRIES, UnitState.FAILED),
        (LifecycleEvent.POST_STOP, 999, UnitState.RETRYABLE),
    ],
)
def test_after_attempts_that_never_ran(event, count, then):
    assert unit_state(step(event), voids(count)) is then


@pytest.mark.parametrize("reason", ["PodRefused", "FieldInvalid", "InputInvalid"])
def test_create_that_can_never_start_fails_at_its_first_void(reason):
    record = UnitRecord(attempt=1, state=State.VOID, voids=1, reason=reason)
    assert unit_state(step(LifecycleEvent.PRE_START), record) is UnitState.FAILED
    assert unit_state(step(LifecycleEvent.POST_STOP), record) is UnitState.RETRYABLE


def test_a_void_is_no_failure():
    record = UnitRecord(attempt=2, state=State.DONE, outcome="failed", failures=1, voids=1)
    assert unit_state(step(idempotent=True, limit=2), record) is UnitState.RETRYABLE


def test_pre_stop_has_five_tries_whether_they_ran_or_not():
    def record(failures):
        return UnitRecord(attempt=failures + 2, state=State.DONE, outcome="failed", failures=failures, voids=2)

    assert unit_state(step(LifecycleEvent.PRE_STOP), record(2)) is UnitState.RETRYABLE
    assert unit_state(step(LifecycleEvent.PRE_STOP), record(3)) is UnitState.FAILED


@pytest.mark.parametrize("idempotent", [False, True])
def test_create_that_cannot_be_executed_fails_at_once(idempotent):
    record = UnitRecord(attempt=1, state=State.VOID, reason="NotExecutable", voids=1)
    assert unit_state(step(idempotent=idempotent), record) is UnitState.FAILED
    assert unit_state(step(LifecycleEvent.POST_STOP), record) is UnitState.RETRYABLE


@pytest.mark.parametrize(
    ("record", "then"),
    [
        (UnitRecord(), UnitState.FRESH),
        (UnitRecord(attempt=1, state=State.CLAIMED), UnitState.ALIVE),
        (UnitRecord(attempt=1, state=State.UNKNOWN), UnitState.UNKNOWN),
        (UnitRecord(attempt=1, state=State.DONE, outcome="succeeded"), UnitState.SUCCEEDED),
    ],
)
def test_standing(record, then):
    assert unit_state(step(), record) is then


def test_the_back_off_doubles_up_to_its_most():
    assert [backoff(5_000, times, 60_000) for times in range(1, 7)] == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    assert backoff(5_000, 1_000, BACKOFF_MAX_MS) == BACKOFF_MAX_MS
    assert [backoff(1, times, 2**22 + 1) for times in (22, 23, 24)] == [2**21, 2**22, 2**22 + 1]


def test_a_first_back_off_longer_than_the_most_is_kept():
    assert backoff(700_000, 4, BACKOFF_MAX_MS) == 700_000


def test_no_back_off_stays_none():
    assert backoff(0, 9, BACKOFF_MAX_MS) == 0


def test_failures_and_voids_count_together():
    record = UnitRecord(attempt=3, state=State.VOID, failures=2, voids=1, ended_at=100)
    assert retry_at(step(backoff_ms=1_000), record, 100) == 100 + 4_000


@pytest.mark.parametrize(
    ("claimed", "ended", "now", "due"),
    [
        (1_000, 2_000, 2_000, 3_000),
        (1_000, 2_000, 9_000, 3_000),
        (1_000, 5_000, 2_000, 2_000),  # its node's clock is ahead of ours: count from the claim, which uses our clock
        (100_000, 105_000, 40_000, 101_000),  # a peer's clock may be ahead by a minute
        (100_001, 105_000, 40_000, 1_000),  # our clock was set back: no pause
    ],
)
def test_a_clock_set_back_delays_no_retry(claimed, ended, now, due):
    record = UnitRecord(attempt=1, state=State.DONE, failures=1, claimed_at=claimed, ended_at=ended)
    assert retry_at(step(backoff_ms=1_000), record, now) == due
