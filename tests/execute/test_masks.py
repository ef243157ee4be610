"""Masking of the end of a log. tests/runner/test_mask.py tests the masking of the runner."""

import base64
import random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.execute.log_masks import MAX_VALUE_BYTES, MIN_VALUE_BYTES, forms, mask

SECRET = b's3cr3t/Value+with%odd "signs"'


@pytest.mark.parametrize("form", sorted(set(forms(SECRET + b"\n"))))
def test_each_form_is_replaced_by_stars(form):
    assert mask(b"<" + form + b">", [SECRET + b"\n"]) == b"<" + b"*" * len(form) + b">"


def test_forms_match_printed_encodings():
    wanted = {
        SECRET,
        base64.b64encode(SECRET).rstrip(b"="),
        base64.urlsafe_b64encode(SECRET + b"\n").rstrip(b"="),
        quote(SECRET.decode()).encode(),
        quote(SECRET.decode(), safe="").encode(),
        SECRET.replace(b'"', b'\\"'),
    }
    assert wanted <= set(forms(SECRET + b"\n"))


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("a<b>&c", r"a\u003cb\u003e\u0026c"),  # by Go, as in `terraform output -json` and kubectl
        ('p"ä😀ß', r"p\"\u00e4\ud83d\ude00\u00df"),  # by Python
        ('p"ä😀ß', r"p\"ä😀ß"),
        ("a\x1b\b/\f", r"a\u001b\b/\f"),
    ],
)
def test_value_is_masked_in_every_json_escape(value, printed):
    assert mask(f'"{printed}"'.encode(), [value.encode()]).strip(b'"').strip(b"*") == b""


def test_binary_value_is_masked_as_bytes():
    assert mask(b"<\xff\xfe\xfd\xfc>", [b"\xff\xfe\xfd\xfc"]) == b"<****>"


def test_long_lines_of_a_value_are_masked_separately():
    assert mask(b"  AAAABBBB\nend AAAABBB\n", [b"-----BEGIN\n AAAABBBB\nend"]) == b"  ********\nend AAAABBB\n"


@pytest.mark.parametrize("value", [b"", b"abc", b"abc\n\n", b"x" * 70_000])
def test_too_short_or_too_long_value_is_not_masked(value):
    assert mask(b"abc" + value, [value]) == b"abc" + value


def test_longest_value_is_masked():
    value = b"x" * MAX_VALUE_BYTES
    assert mask(value, [value]) == b"*" * MAX_VALUE_BYTES
    assert mask(value, [value + b"x"]) == value


def test_rest_of_a_value_at_the_log_start_is_masked():
    assert mask(SECRET[5:] + b" x", [SECRET], cut=True).endswith(b"* x")
    assert SECRET[10:] not in mask(SECRET[5:] + b" x", [SECRET], cut=True)
    assert mask(SECRET[5:], [SECRET]) == SECRET[5:], "the log is complete, so it cannot begin within a value"
    assert mask(SECRET[-MIN_VALUE_BYTES + 1 :], [SECRET], cut=True) == SECRET[-MIN_VALUE_BYTES + 1 :]


@pytest.mark.parametrize("at", range(1, len(SECRET) - MIN_VALUE_BYTES + 1))
def test_rest_of_a_value_at_a_cut_log_start_is_masked(at):
    assert mask(SECRET[at:] + b" x", [SECRET], cut=True) == b"*" * (len(SECRET) - at) + b" x"


LINES = bytes(random.Random(1).choices(b"abcdefghijklmnop", k=65_536))
HOSTILE = {
    "thousands of lines, each in the log": (LINES, b"\n".join(LINES[at : at + 8] for at in range(0, 58_000, 9)), False),
    "the same byte, up to one": (b"a" * 65_535 + b"b", b"a" * 65_536, True),
    "lines of each length": (b"a" * 65_536, b"\n".join(b"a" * length for length in range(8, 350)), True),
    "bytes of all kinds": (LINES, random.Random(2).randbytes(65_536), True),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("case", HOSTILE)
def test_masking_cost_is_bounded_for_hostile_logs(case):
    """Masking blocks all runs. It takes some tenths of a second, but a minute with one regular expression for all forms."""
    log, value, cut = HOSTILE[case]
    assert len(mask(log, [value], cut=cut)) == len(log)


def test_longest_possible_rest_of_a_value_is_masked():
    """The match is after the maximum number of positions."""
    value = b"aaaab" * 200 + b"c"
    masked = mask(b"aaaab" * 100 + b"x" * 2_000, [value], cut=True)
    assert masked.startswith(b"*" * 500)
    assert masked.endswith(b"x" * 1_000)


@given(st.binary(max_size=40), st.lists(st.binary(max_size=8), max_size=4))
def test_nothing_masked_is_left_and_the_length_stays(log, values):
    found = mask(log, values)
    assert len(found) == len(log)
    for value in values:
        bare = value.rstrip(b"\r\n")
        assert len(bare) < MIN_VALUE_BYTES or b"*" in bare or bare not in found
