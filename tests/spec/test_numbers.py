"""Whole numbers from untrusted text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.scalars.numbers import MAX_PORT, parse_port, parse_whole


@given(st.integers(0, 1 << 70), st.integers(0, 1 << 64))
def test_number_up_to_the_limit_is_read(number, most):
    assert parse_whole(str(number), most) == (number if number <= most else None)


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", " 1", "1 ", "0x1", "1_0", "²", "\N{ARABIC-INDIC DIGIT ONE}", "1" * 5_000, "x"]
)
def test_text_that_is_no_number_is_rejected(text):
    assert parse_whole(text, 1 << 63) is None


@pytest.mark.parametrize(
    ("text", "number"), [("0", None), ("1", 1), (str(MAX_PORT), MAX_PORT), ("65536", None), ("080", 80)]
)
def test_ports(text, number):
    assert parse_port(text) == number
