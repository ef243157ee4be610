"""Framed documents: each content has one encoding, and every damaged byte is detected."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayfly.spec.frames import FrameError, decode, encode

keys = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True).filter(lambda key: key != "end")
records = st.lists(st.tuples(keys, st.binary(max_size=200)), max_size=20)


def sealed(body: bytes) -> bytes:
    return body + b"end 64\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def test_the_spelling_is_the_documented_one():
    body = b"dayfly-order 1\n1\nnonce 3\nabc\nenv 0\n\n"
    assert encode("dayfly-order", [("nonce", b"abc"), ("env", b"")]) == sealed(body)


@pytest.mark.slow
@given(keys, records)
def test_encoded_frame_is_decoded(kind, content):
    assert decode(kind, encode(kind, content)) == content


@pytest.mark.slow
@given(records, st.data())
def test_every_cut_is_noticed(content, data):
    document = encode("dayfly-order", content)
    length = data.draw(st.integers(0, len(document) - 1))
    with pytest.raises(FrameError):
        decode("dayfly-order", document[:length])


@given(records, st.data())
def test_every_altered_byte_is_noticed(content, data):
    document = bytearray(encode("dayfly-order", content))
    at = data.draw(st.integers(0, len(document) - 1))
    document[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        decode("dayfly-order", bytes(document))


@given(st.binary(max_size=300))
def test_noise_is_refused_with_an_offset_inside_it(noise):
    with pytest.raises(FrameError) as caught:
        decode("dayfly-order", noise)
    assert 0 <= caught.value.offset <= len(noise)


@pytest.mark.parametrize(
    ("document", "offset"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(sealed(b"dayfly-receipt 1\n1\n"), 0, id="another kind"),
        pytest.param(sealed(b"dayfly-order 1\n2\n"), 0, id="another version"),
        pytest.param(b"dayfly-order 1\n1\n", 17, id="no end"),
        pytest.param(sealed(b"dayfly-order 1\n1\n") + b"x", 89, id="bytes behind the end"),
        pytest.param(sealed(b"dayfly-order 1\n1\n") + sealed(b""), 89, id="two documents"),
        pytest.param(sealed(b"dayfly-order 1\n1\nenv 03\nabc\n"), 17, id="padded length"),
        pytest.param(sealed(b"dayfly-order 1\n1\nenv -1\nabc\n"), 17, id="negative length"),
        pytest.param(sealed(b"dayfly-order 1\n1\nenv 99999999999\nabc\n"), 17, id="overlong length"),
        pytest.param(sealed(b"dayfly-order 1\n1\nenv 9999\nabc\n"), 26, id="value longer than the document"),
        pytest.param(sealed(b"dayfly-order 1\n1\nenv 2\nabc\n"), 25, id="value longer than its length"),
        pytest.param(sealed(b"dayfly-order 1\n1\nEnv 3\nabc\n"), 17, id="upper-case key"),
        pytest.param(sealed(b"dayfly-order 1\n1\n" + b"k" * 33 + b" 3\nabc\n"), 17, id="overlong key"),
        pytest.param(b"dayfly-order 1\n1\nend 64\n" + b"0" * 64 + b"\n", 17, id="wrong digest"),
        pytest.param(sealed(b"dayfly-order 1\n1\n").replace(b"end 64", b"end 63"), 87, id="short digest"),
    ],
)
def test_frame_error_states_its_offset(document, offset):
    with pytest.raises(FrameError) as caught:
        decode("dayfly-order", document)
    assert caught.value.offset == offset
    assert str(offset) in str(caught.value)


@pytest.mark.parametrize("key", ["end", "", "Nonce", "a b", "1a", "k" * 33, "é"])
def test_a_key_that_could_not_be_read_again_is_not_written(key):
    with pytest.raises(FrameError):
        encode("dayfly-order", [(key, b"")])
