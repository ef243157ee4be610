"""Refused requests of a run: when each is tried again, and what is reported of them."""

from __future__ import annotations

from dayfly.kube import errors
from dayfly.operator.refusals import REPORT_REFUSAL_AFTER
from dayfly.operator.retries import Retries

ONE, OTHER = ("Release", "db/make", 1), ("Delete", "a-uid", 0)
NO = errors.Forbidden("DELETE pod", "not now", status=403)


def test_refused_request_waits_and_others_do_not():
    retries = Retries()
    retries.refuse(ONE, NO, 1_000, 2.0)
    assert 2.0 <= retries.wait(ONE, 1_000) < 2.01
    assert 0.5 <= retries.wait(ONE, 2_500) < 0.51
    assert retries.wait(ONE, 3_000) == 0.0
    assert retries.wait(OTHER, 1_000) == 0.0


def test_refused_request_is_due_when_the_clock_is_set_back():
    retries = Retries()
    retries.refuse(ONE, NO, 1_000, 2.0)
    assert retries.wait(ONE, 999) == 0.0


def test_hindrance_is_reported_once_it_is_unlikely_to_pass():
    retries = Retries()
    for number in range(REPORT_REFUSAL_AFTER):
        assert (retries.failures(ONE), retries.reportable_refusal()) == (number, "")
        retries.refuse(ONE, NO, 1_000, 2.0)
    assert (retries.reportable_refusal(), retries.reportable_refusal(OTHER), retries.reportable_refusal(ONE)) == (
        "not now",
        "not now",
        "",
    )
    retries.drop(ONE)
    assert (bool(retries), retries.failures(ONE), retries.reportable_refusal()) == (False, 0, "")


def test_sweep_forgets_what_a_turn_did_not_ask_for():
    retries = Retries()
    for key in (ONE, OTHER):
        retries.refuse(key, NO, 1_000, 2.0)
    retries.sweep()
    assert (retries.failures(ONE), retries.failures(OTHER)) == (1, 1), "they were tried in this turn"
    retries.wait(ONE, 1_500)
    retries.sweep()
    assert (retries.failures(ONE), retries.failures(OTHER)) == (1, 0)
    retries.sweep()
    assert not retries
