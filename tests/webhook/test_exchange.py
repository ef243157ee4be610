"""How long an answer is waited for: all of it together for as long as was said, however it trickles in."""

from types import SimpleNamespace

import pytest

from dayfly.execute.webhook import exchange
from dayfly.execute.webhook.ends import End
from dayfly.execute.webhook.exchange import LostError, _exchanged


class Stream:
    """Says its parts, each of which takes a second, and notes how long it may take; then it is too late."""

    def __init__(self, monkeypatch, *parts: bytes, takes: bool = True) -> None:
        self.parts, self.takes = list(parts), takes
        self.now, self.waits = 100.0, []
        monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: self.now))

    def settimeout(self, seconds):
        self.waits.append(seconds)

    def sendall(self, _data):
        if not self.takes:
            raise TimeoutError
        self.now += 1

    def recv_into(self, buffer):
        if not self.parts:
            raise TimeoutError
        self.now += 1
        part = self.parts.pop(0)
        buffer[: len(part)] = part
        return len(part)


@pytest.fixture
def request_():
    headers = (("Accept", "*/*"),)
    return SimpleNamespace(
        method="GET", body=None, headers=headers, target="/", origin=SimpleNamespace(authority="a.example")
    )


def test_each_part_may_take_what_is_left(monkeypatch, request_):
    stream = Stream(monkeypatch, b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\n", b"o", b"k")
    answer = _exchanged(stream, request_, 103.5)
    assert (answer.status, answer.body, answer.fault) == (200, b"ok", None)
    assert stream.waits == pytest.approx([3.5, 2.5, 1.5, 0.5, 0.001]), "and at last a moment"


def test_one_that_does_not_end_is_slow_and_one_that_does_not_begin_is_lost(monkeypatch, request_):
    begun = Stream(monkeypatch, b"HTTP/1.1 200 OK\r\n", b"Content-Length: 9\r\n\r\n", b"o")
    assert _exchanged(begun, request_, 200.0).fault is End.SLOW
    for stream in (Stream(monkeypatch), Stream(monkeypatch, takes=False)):
        with pytest.raises(LostError, match="no answer came in time"):
            _exchanged(stream, request_, 200.0)
