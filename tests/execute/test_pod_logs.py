"""A log that comes in pieces: what the step said, and what the runner sealed behind it."""

import base64
import hashlib

import pytest

from dayfly.execute.pod import logs
from dayfly.execute.pod.logs import MARK, TAIL_LIMIT, Splitter
from dayfly.spec.frames import encode

RECORDS = [("nonce", b"n"), ("pod", b"p"), ("content", b"url\0db://1\0x"), ("content", b"key\0")]
DOCUMENT = encode("dayfly-receipt", RECORDS)
DIGEST = hashlib.sha256(DOCUMENT).hexdigest()


def sealed(document: bytes = DOCUMENT, digest: str = DIGEST) -> bytes:
    """As the runner writes it, in two lines."""
    coded = base64.b64encode(document)
    lines = [MARK + b"dayfly-receipt", MARK + b"=" + coded[:40], MARK + b"=" + coded[40:]]
    return b"\n".join([*lines, MARK + b"dayfly-end " + digest.encode(), b""])


def fed(*pieces: bytes) -> Splitter:
    found = Splitter()
    for piece in pieces:
        found.feed(piece)
    return found


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_however_it_is_cut_it_tells_the_same(size):
    log = b"one\n" + MARK * 2 + b"two\n" + sealed()
    found = fed(*(log[at : at + size] for at in range(0, len(log), size)))
    assert bytes(found.tail) == b"one\n" + MARK + b"two\n"
    assert found.whole
    assert (found.records, found.digest, found.dropped) == (RECORDS, DIGEST, 0)
    assert (found.field("pod"), found.field("none")) == ("p", "")
    assert found.contents() == {"url": b"db://1\0x", "key": b""}


@pytest.mark.parametrize(
    "log", [sealed(digest="0" * 64), sealed(DOCUMENT[:-1]), sealed(b"nothing", hashlib.sha256(b"nothing").hexdigest())]
)
def test_what_is_not_the_document_that_was_sealed_is_none(log):
    found = fed(log)
    assert not found.whole
    assert (found.field("pod"), found.contents()) == ("", {})


def test_what_no_base64_is_none_either():
    assert not fed(MARK + b"=%%\n" + MARK + b"dayfly-end " + DIGEST.encode() + b"\n").whole


def test_a_document_that_is_begun_anew_replaces_the_one_before():
    assert fed(MARK + b"=Zm9v\n", sealed()).whole


@pytest.mark.parametrize(
    ("last", "tail"), [(b"end", b"end"), (MARK * 2 + b"end", MARK + b"end"), (MARK + b"=Zm", b""), (b"", b"")]
)
def test_a_line_without_an_end_is_the_steps_too(last, tail):
    found = fed(last)
    assert bytes(found.tail) == b""
    found.end()
    assert bytes(found.tail) == tail
    found.end()
    assert bytes(found.tail) == tail


def test_only_the_tail_is_kept_and_the_rest_is_counted():
    found = fed(b"a" * TAIL_LIMIT)
    found.feed(b"\n")
    assert (len(found.tail), found.dropped) == (TAIL_LIMIT, 1)
    found.feed(b"bc\n")
    assert (bytes(found.tail[-4:]), found.dropped) == (b"\nbc\n", 4)


def test_a_line_without_an_end_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(logs, "_LINE_LIMIT", 4)
    found = fed(b"abcd")
    assert bytes(found.tail) == b""
    found.feed(b"e")
    assert bytes(found.tail) == b"abcde"
    found.feed(b"f\n")
    assert bytes(found.tail) == b"abcdef\n"
