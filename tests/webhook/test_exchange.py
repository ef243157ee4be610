"""How long an answer is waited for: all of it together for as long as was said, however it trickles in."""

import socket
from types import SimpleNamespace

import pytest

from dayfly.execute.webhook import exchange
from dayfly.execute.webhook.ends import End
from dayfly.execute.webhook.exchange import LostError, UnsentError, Way, _connected, _exchanged, _first, send
from dayfly.execute.webhook.request import Origin


class Stream:
    """Says its parts, each of which takes a second, and notes how long it may take; then it is too late."""

    def __init__(self, monkeypatch, *parts: bytes, takes: bool = True) -> None:
        self.parts, self.takes = list(parts), takes
        self.now, self.waits = 100.0, []
        monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: self.now))

    def settimeout(self, seconds):
        self.waits.append(seconds)

    def close(self):
        pass

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

    def connected(self, *_):
        self.now += 3
        return self


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


WAY = Way(Origin("https", "a.example", 443), allowed=True, ca="", connect_s=5, answer_s=5, left_s=7)


@pytest.mark.parametrize(("left", "wait"), [(7, 4), (60, 5)])
def test_what_connecting_took_is_not_there_for_the_answer(monkeypatch, request_, left, wait):
    stream = Stream(monkeypatch, b"HTTP/1.1 204 No Content\r\n\r\n")
    monkeypatch.setattr(exchange, "_connected", stream.connected)
    assert send(WAY._replace(left_s=left), request_).status == 204
    assert stream.waits[0] == wait


def test_what_the_connection_took_is_not_there_for_its_handshake(monkeypatch):
    stream = Stream(monkeypatch)
    monkeypatch.setattr(exchange, "_resolved", lambda *_: [])
    monkeypatch.setattr(exchange, "_first", stream.connected)
    monkeypatch.setattr(exchange, "_secured", lambda stream, _: stream)
    _connected(WAY, exchange.resolve)
    assert stream.waits == [2]


class Network:
    """Where a name leads: to addresses, of which the first answers nobody, or is of a family that this machine lacks."""

    V6, V4 = (socket.AF_INET6, ("2001:db8::1", 443)), (socket.AF_INET, ("192.0.2.1", 443))

    def __init__(self, monkeypatch, *, lacks: bool = False) -> None:
        self.now, self.lacks, self.waits = 100.0, lacks, []
        monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(exchange, "socket", SimpleNamespace(socket=self._socket, SOCK_STREAM=socket.SOCK_STREAM))

    def _socket(self, family, _kind):
        if self.lacks and family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return SimpleNamespace(settimeout=self.waits.append, connect=self._connect, close=list)

    def _connect(self, address):
        if address == self.V6[1]:
            self.now += self.waits[-1]
            raise TimeoutError("timed out")


def test_an_address_that_answers_nobody_leaves_time_for_the_next(monkeypatch):
    network = Network(monkeypatch)
    _first([Network.V6, Network.V4], WAY.origin, 105.0)
    assert network.waits == [2.5, 2.5]
    with pytest.raises(UnsentError, match="cannot be connected to: timed out"):
        _first([Network.V6], WAY.origin, 110.0)
    assert network.waits[2:] == [5.0 + 2.5], "the last has all that is left"


def test_an_address_of_a_family_that_this_machine_lacks_is_passed_over(monkeypatch):
    network = Network(monkeypatch, lacks=True)
    _first([Network.V6, Network.V4], WAY.origin, 105.0)
    assert network.waits == [5.0]
    with pytest.raises(UnsentError, match="cannot be connected to: address family not supported"):
        _first([Network.V6], WAY.origin, 105.0)
