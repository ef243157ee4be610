"""Refusals of steps: their lifetime, and the pauses between reports."""

from __future__ import annotations

import pytest

from dayfly.operator.refusals import KEPT_RETRY_AFTER_S, RETRY_AFTER_S, Refusals, seconds_until_kept_retry
from dayfly.plan.world import NeverRan, UnitRefusal
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Run, UnitRecord

TARGET = Target(kind="Sandbox", namespace="shop", name="box", uid="u")
KEY = "db/make", 2
QUOTA = UnitRefusal(reason="Quota", message="m", since=1_000)


def ledger(attempt: int = 1) -> Run:
    return Run(uid="u", target=TARGET, plan="", units={"db/make": UnitRecord(attempt=attempt)})


@pytest.mark.parametrize(("attempt", "stands"), [(1, True), (2, False), (3, False)])
def test_refusal_ends_once_the_ledger_has_the_attempt(attempt, stands):
    refusals = Refusals()
    refusals.put(KEY, QUOTA)
    assert refusals.current(ledger(attempt), 1_000) == (({"db/make": QUOTA}, {}) if stands else ({}, {}))


def test_refusal_expires_or_ends_with_a_clock_set_back():
    again = 1_000 + round(RETRY_AFTER_S * 1000)
    for now, stands in ((1_000, True), (again - 1, True), (again, False), (999, False)):
        refusals = Refusals()
        assert refusals.retry_at() == 0
        refusals.put(KEY, QUOTA)
        assert refusals.retry_at() == again
        assert bool(refusals.current(ledger(), now)[0]) is stands
        assert refusals.retry_at() == (again if stands else 0)


def test_step_that_can_never_run_stays_so():
    refusals = Refusals()
    never = NeverRan(reason="r", message="m")
    refusals.put(KEY, never)
    assert refusals.current(ledger(), 10**12) == ({}, {KEY: never})
    assert refusals.retry_at() == 0
    refusals.drop(KEY)
    assert refusals.current(ledger(), 0) == ({}, {})


@pytest.mark.parametrize(
    ("before", "at", "message", "after"),
    [
        (None, 1_000, "m", 0.0),
        (QUOTA, 1_000, "m", KEPT_RETRY_AFTER_S),
        (QUOTA, 40_000, "m", KEPT_RETRY_AFTER_S),
        (QUOTA, 30_999, "other words", KEPT_RETRY_AFTER_S),
        (QUOTA, 31_000, "other words", 0.0),
        (QUOTA, 999, "other words", 0.0),  # the clock was set back
    ],
)
def test_first_refusal_is_reported_at_once_other_words_later(before, at, message, after):
    assert seconds_until_kept_retry(before, UnitRefusal(reason="Quota", message=message, since=at)) == after
