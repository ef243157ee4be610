"""Splitting of logs in pieces: the output of the step and the receipt of the runner."""

import base64
import hashlib

import pytest

from dayfly.execute.pod import logs
from dayfly.execute.pod.logs import MARK, TAIL_LIMIT, LogSplitter
from dayfly.spec.frames import encode

RECORDS = [("nonce", b"n"), ("pod", b"p"), ("content", b"url\0db://1\0x"), ("content", b"key\0")]
DOCUMENT = encode("dayfly-receipt", RECORDS)
DIGEST = hashlib.sha256(DOCUMENT).hexdigest()


def sealed(document: bytes = DOCUMENT, digest: str = DIGEST) -> bytes:
    """Return the receipt as the runner writes it, in two lines."""
    coded = base64.b64encode(document)
    lines = [MARK + b"dayfly-receipt", MARK + b"=" + coded[:40], MARK + b"=" + coded[40:]]
    return b"\n".join([*lines, MARK + b"dayfly-end " + digest.encode(), b""])


def fed(*pieces: bytes) -> LogSplitter:
    found = LogSplitter()
    for piece in pieces:
        found.feed(piece)
    return found


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_log_split_anywhere_gives_the_same_result(size):
    log = b"one\n" + MARK * 2 + b"two\n" + sealed()
    found = fed(*(log[at : at + size] for at in range(0, len(log), size)))
    assert bytes(found.tail) == b"one\n" + MARK + b"two\n"
    assert found.is_complete
    assert (found.records, found.digest, found.dropped) == (RECORDS, DIGEST, 0)
    assert (found.field("pod"), found.field("none")) == ("p", "")
    assert found.contents() == {"url": b"db://1\0x", "key": b""}


@pytest.mark.parametrize(
    "log", [sealed(digest="0" * 64), sealed(DOCUMENT[:-1]), sealed(b"nothing", hashlib.sha256(b"nothing").hexdigest())]
)
def test_document_that_differs_from_its_seal_is_rejected(log):
    found = fed(log)
    assert not found.is_complete
    assert (found.field("pod"), found.contents()) == ("", {})


def test_invalid_base64_is_rejected():
    assert not fed(MARK + b"=%%\n" + MARK + b"dayfly-end " + DIGEST.encode() + b"\n").is_complete


@pytest.mark.parametrize("stray", [b"%", b" ", b"-"])
def test_stray_character_in_base64_is_rejected(stray):
    """A decoder that ignores it would find the sealed receipt."""
    line = MARK + b"=" + base64.b64encode(DOCUMENT)[:40]
    assert not fed(sealed().replace(line, line + stray)).is_complete


def test_restarted_document_replaces_the_one_before():
    assert fed(MARK + b"=Zm9v\n", sealed()).is_complete


@pytest.mark.parametrize(
    ("last", "tail"), [(b"end", b"end"), (MARK * 2 + b"end", MARK + b"end"), (MARK + b"=Zm", b""), (b"", b"")]
)
def test_last_line_without_newline_is_kept(last, tail):
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


def test_line_longer_than_1_mib_is_kept_in_parts():
    found = fed(b"a" * (1 << 20))
    assert bytes(found.tail) == b""
    found.feed(b"b")
    assert bytes(found.tail[-2:]) == b"ab"
    found.feed(b"c\n")
    assert bytes(found.tail[-4:]) == b"abc\n"


def timed(*lines: tuple[str, bytes]) -> bytes:
    """Return lines with timestamps, as the kubelet does."""
    return b"".join(f"2026-01-01T{moment}000000Z ".encode() + line for moment, line in lines)


AT = 1_767_225_600_000
LINES = timed(
    ("00:00:00.000", b"one\n"),
    ("00:00:00.004", b"\n"),
    ("00:00:01.500", MARK * 2 + b"two\n"),
    ("00:00:01.500", b"2026-01-01T00:00:00Z its own\n"),
    *(("00:00:02.000", line + b"\n") for line in sealed().splitlines()),
)


def test_timestamp_is_kept_as_text_without_timed_mode():
    assert bytes(fed(b"2026-01-01T00:00:00Z one\n").tail) == b"2026-01-01T00:00:00Z one\n"


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_timestamps_are_not_part_of_the_lines(size):
    found = LogSplitter(timed=True)
    for at in range(0, len(LINES), size):
        found.feed(LINES[at : at + size])
    found.end()
    text = b"one\n\n" + MARK + b"two\n2026-01-01T00:00:00Z its own\n"
    assert found.printed() == (text, len(text), ((0, AT), (5, AT + 1_500)))
    assert found.is_complete


def test_dropped_beginning_loses_its_times():
    found = LogSplitter(timed=True)
    found.feed(timed(("00:00:00.000", b"a" * 40_000 + b"\n"), ("00:00:01.000", b"b" * 40_000 + b"\n")))
    tail, size, times = found.printed()
    assert (len(tail), size) == (TAIL_LIMIT, 80_002)
    assert times == ((0, AT), (TAIL_LIMIT - 40_001, AT + 1_000))
    found.feed(timed(("00:00:02.000", b"c" * 70_000 + b"\n")))
    assert found.printed().times == ((0, AT + 2_000),)


def test_times_of_a_clock_set_back_are_dropped():
    found = LogSplitter(timed=True)
    found.feed(timed(("00:00:05.000", b"a\n"), ("00:00:01.000", b"b\n"), ("00:00:06.000", b"c\n")))
    assert found.printed().times == ((0, AT + 5_000), (4, AT + 6_000))


def test_kubelet_lines_without_times_are_kept():
    found = LogSplitter(timed=True)
    said = b"failed to open the log\n2026-13-45T99 x\n2026-01-01T00:00:00 y\n1969-12-31T23:59:59Z z\n"
    found.feed(said)
    assert found.printed() == (said, len(said), ())


def test_line_without_end_has_one_time():
    found = LogSplitter(timed=True)
    found.feed(timed(("00:00:00.000", b"first\n"), ("00:00:01.000", b"x" * 1_100_000)))
    found.feed(b"y y\n" + timed(("00:00:02.000", b"z\n")))
    tail, size, times = found.printed()
    assert bytes(tail).endswith(b"xxy y\nz\n")
    assert size == 6 + 1_100_000 + 4 + 2
    assert times == ((0, AT + 1_000), (TAIL_LIMIT - 2, AT + 2_000))


def test_each_line_up_to_the_limit_has_its_own_time():
    found = LogSplitter(timed=True)
    for number in range(logs.MAX_TIMES):
        found.feed(timed((f"00:{number // 60:02d}:{number % 60:02d}.000", b"x\n")))
    assert found.printed().times == tuple((2 * number, AT + 1_000 * number) for number in range(logs.MAX_TIMES))


def test_number_of_times_is_limited():
    found = LogSplitter(timed=True)
    for number in range(3_000):
        found.feed(timed((f"00:{number // 60:02d}:{number % 60:02d}.000", b"x\n")))
        assert len(found.times) <= logs.MAX_TIMES
    assert len(found.printed().times) > logs.MAX_TIMES // 8


@pytest.mark.parametrize(
    ("printed", "total", "kept"),
    [
        (b"one\n", 4, b"one\n"),
        (b"one\n", 0, b"one\n"),
        (b"one\n", 10, b"one\n[dayfly: this log is incomplete: the container runtime lost its last 6 bytes]\n"),
        (b"one", 10, b"one\n[dayfly: this log is incomplete: the container runtime lost its last 7 bytes]\n"),
        (b"", 10, b"[dayfly: this log is incomplete: the container runtime lost its last 10 bytes]\n"),
    ],
    ids=["complete", "total unknown", "end lost", "end lost within a line", "all lost"],
)
def test_log_without_its_end_is_marked_incomplete(printed, total, kept):
    found = fed(printed)
    found.end()
    assert found.printed(total)[:2] == (kept, max(total, len(printed)))


def test_log_with_receipt_but_fewer_bytes_lacks_its_start():
    """The kubelet rotates logs and returns only the newest file, which has the receipt."""
    found = fed(b"last\n", sealed())
    assert found.printed(1_000)[:2] == (b"last\n", 1_000)


def test_incomplete_log_stays_within_the_tail_limit():
    found = LogSplitter(timed=True)
    found.feed(b"2026-01-02T03:04:05Z " + b"x" * (TAIL_LIMIT - 1) + b"\n")
    tail, size, times = found.printed(2 * TAIL_LIMIT)
    assert (len(tail), size) == (TAIL_LIMIT, 2 * TAIL_LIMIT)
    assert tail.endswith(b"bytes]\n")
    assert [offset for offset, _ in times] == [0]
