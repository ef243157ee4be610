"""The time of the warning, and durations that end no earlier than a given time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.errors import SpecError
from dayfly.spec.route_group import GroupTtl
from dayfly.spec.sandbox import ttl_seconds
from dayfly.spec.scalars import ttl

MINUTE, HOUR = 60_000, 3_600_000


@pytest.mark.parametrize(
    ("life", "before"), [(30 * MINUTE, 3 * MINUTE), (HOUR, 6 * MINUTE), (8 * HOUR, 10 * MINUTE), (0, 0)]
)
def test_a_tenth_of_a_life_or_ten_minutes(life, before):
    assert ttl.warning_time(1_000, 1_000 + life) == 1_000 + life - before


def test_endless_ttl_has_no_warning():
    assert ttl.warning_time(1_000, 0) == 0


@given(st.integers(0, 2**40), st.integers(-HOUR, 2**40))
def test_no_extension_ends_too_soon_or_a_minute_late(begin, life):
    end = begin + ttl_seconds(ttl.duration_until(begin, begin + life)) * 1000
    assert end >= begin + life
    assert end - begin - life < MINUTE or end == begin + MINUTE


def test_ttl_beyond_the_limit_is_refused():
    with pytest.raises(SpecError, match="is too far away"):
        ttl.duration_until(0, (2**32) * MINUTE)


@pytest.mark.parametrize(
    ("offset", "unmatched", "until"),
    [
        ("createdAt", 0, 100_000 + HOUR),
        ("updatedAt", 0, 200_000 + HOUR),
        ("noMatchedSandboxes", 300_000, 300_000 + HOUR),
        ("noMatchedSandboxes", 0, 0),
    ],
)
def test_group_ttl_counts_from_its_offset(offset, unmatched, until):
    made = GroupTtl(duration="1h", offset_from=offset)
    assert made.end_time(born=100_000, updated=200_000, unmatched=unmatched) == until
