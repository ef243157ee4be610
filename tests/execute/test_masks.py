"""What is overwritten in the end of a log; the runner's own masking is tried in tests/runner/test_mask.py."""

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.execute.masks import LEAST, forms, overwritten

SECRET = b's3cr3t/Value+with%odd "signs"'


@pytest.mark.parametrize("form", sorted(forms(SECRET + b"\n")))
def test_each_form_becomes_as_many_stars(form):
    assert overwritten(b"<" + form + b">", [SECRET + b"\n"]) == b"<" + b"*" * len(form) + b">"


def test_the_forms_are_those_that_are_printed():
    wanted = {
        SECRET,
        base64.b64encode(SECRET).rstrip(b"="),
        base64.urlsafe_b64encode(SECRET + b"\n").rstrip(b"="),
        quote(SECRET.decode()).encode(),
        quote(SECRET.decode(), safe="").encode(),
        SECRET.replace(b'"', b'\\"'),
    }
    assert wanted <= forms(SECRET + b"\n")


def test_of_several_lines_those_that_are_long_enough():
    assert overwritten(b"  AAAABBBB\nend AAAABBB\n", [b"-----BEGIN\n AAAABBBB\nend"]) == b"  ********\nend AAAABBB\n"


@pytest.mark.parametrize("value", [b"", b"abc", b"abc\n\n", b"x" * 70_000])
def test_what_is_too_short_or_too_long_masks_nothing(value):
    assert overwritten(b"abc" + value, [value]) == b"abc" + value


def test_a_log_that_begins_within_a_value():
    assert overwritten(SECRET[5:] + b" x", [SECRET], cut=True).endswith(b"* x")
    assert SECRET[10:] not in overwritten(SECRET[5:] + b" x", [SECRET], cut=True)
    assert overwritten(SECRET[5:], [SECRET]) == SECRET[5:], "it is whole, so that is something else"
    assert overwritten(SECRET[-LEAST + 1 :], [SECRET], cut=True) == SECRET[-LEAST + 1 :]


@given(st.binary(max_size=40), st.lists(st.binary(max_size=8), max_size=4))
def test_nothing_masked_is_left_and_the_length_stays(log, values):
    found = overwritten(log, values)
    assert len(found) == len(log)
    for value in values:
        bare = value.rstrip(b"\r\n")
        assert len(bare) < LEAST or b"*" in bare or bare not in found
