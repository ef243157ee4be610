"""Cron expressions: refusals, and the starts before and after a time."""

from datetime import UTC, datetime

import pytest

from dayfly.spec.errors import SpecError
from dayfly.spec.scalars import cron


def at(year, month, day, hour=0, minute=0, second=0):
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() * 1_000)


@pytest.mark.parametrize("expression", ["* * * * *", "0 7 * * 1-5", "*/5 0 1,15 * *", "0 0 L * *", "0 9 * JAN MON"])
def test_five_fields_are_accepted(expression):
    cron.check(expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "is not 5 cron fields"),
        ("@daily", "is not 5 cron fields"),
        ("0 0 7 * * 1-5", "is not 5 cron fields"),
        ("60 7 * * *", "the minute of"),
        ("0 24 * * *", "the hour of"),
        ("0 0 0 * *", "the day-of-month of"),
        ("0 0 * 13 *", "the month of"),
        ("0 0 * * 9", "the day-of-week of"),
        ("0 0 30 2 *", "the day-of-month of"),
        ("0 0 */0 * *", "the day-of-month of"),
        ("0" * 130 + " 0 * * *", "cron fields"),
    ],
)
def test_other_text_is_refused(expression, said):
    with pytest.raises(SpecError) as caught:
        cron.check(expression, ("spec", "cron"))
    assert caught.value.keys == ("spec", "cron")
    assert said in caught.value.problem


def test_last_start_includes_the_time_itself():
    assert cron.last_start("0 7 * * *", at(2026, 3, 2, 7)) == at(2026, 3, 2, 7)
    assert cron.last_start("0 7 * * *", at(2026, 3, 2, 7) - 1) == at(2026, 3, 1, 7)
    assert cron.last_start("0 7 * * 1-5", at(2026, 3, 1, 12)) == at(2026, 2, 27, 7)


def test_next_start_excludes_the_time_itself():
    assert cron.next_start("0 7 * * *", at(2026, 3, 2, 7)) == at(2026, 3, 3, 7)
    assert cron.next_start("0 7 * * *", at(2026, 3, 2, 7) - 1) == at(2026, 3, 2, 7)
    assert cron.next_start("0 7 * * 1-5", at(2026, 2, 28)) == at(2026, 3, 2, 7)
