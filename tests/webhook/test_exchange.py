"""Timeouts of a request: the connection, and the whole response, however slowly its parts arrive."""

import socket
import ssl
from types import SimpleNamespace

import pytest

from dayfly.execute.webhook import http_exchange
from dayfly.execute.webhook.exit_codes import ExitCode
from dayfly.execute.webhook.http_exchange import ResponseLostError, ServerAccess, UnsentError, send
from dayfly.execute.webhook.request import ServerOrigin, WebhookRequest

V6, V4 = (socket.AF_INET6, ("2001:db8::1", 443)), (socket.AF_INET, ("192.0.2.1", 443))
HTTP, HTTPS = ServerOrigin("http", "a.example", 80), ServerOrigin("https", "a.example", 443)
WAY = ServerAccess(HTTP, allowed=True, ca="", connect_s=5, answer_s=5, left_s=60)
REQUEST = WebhookRequest(HTTP, "GET", "/", (("Accept", "*/*"),), None)
SHORT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Network:
    """Sockets in virtual time. `waits` are their timeouts.

    Connecting takes `connecting` seconds, and each part of the response one second. After the last part nothing follows.
    """

    def __init__(self, monkeypatch, *parts, connecting=0, silent=(), lacks=(), takes=True):
        self.parts, self.connecting, self.silent, self.lacks, self.takes = list(parts), connecting, silent, lacks, takes
        self.now, self.waits = 100.0, []
        monkeypatch.setattr(http_exchange, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(
            http_exchange, "socket", SimpleNamespace(socket=self.socket, SOCK_STREAM=socket.SOCK_STREAM)
        )

    def socket(self, family, _kind):
        if family in self.lacks:
            raise OSError(97, "Address family not supported by protocol")
        return self

    def send(self, *addresses, **way):
        """Send a request to a host name with these addresses."""
        return send(WAY._replace(**way), REQUEST, lambda *_: list(addresses or (V4,)))

    def settimeout(self, seconds):
        self.waits.append(seconds)

    def connect(self, address):
        if address in self.silent:
            self.now += self.waits[-1]
            raise TimeoutError("timed out")
        self.now += self.connecting

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

    def close(self):
        pass


def test_each_part_of_an_answer_may_use_the_remaining_time(monkeypatch):
    network = Network(monkeypatch, b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n\r\n", b"o", b"k")
    answer = network.send(answer_s=3.5)
    assert (answer.status, answer.body, answer.fault) == (200, b"ok", None)
    assert network.waits[1:] == pytest.approx([3.5, 2.5, 1.5, 0.5, 0.001]), "the last timeout is minimal"


def test_answer_that_does_not_end_is_slow(monkeypatch):
    begun = Network(monkeypatch, b"HTTP/1.1 200 OK\r\n", b"Content-Length: 9\r\n\r\n", b"o")
    assert begun.send().fault is ExitCode.SLOW


@pytest.mark.parametrize("takes", [True, False])
def test_answer_that_does_not_begin_is_lost(monkeypatch, takes):
    with pytest.raises(ResponseLostError, match="no response in time"):
        Network(monkeypatch, takes=takes).send()


@pytest.mark.parametrize(("left", "wait"), [(7, 4), (60, 5)])
def test_time_to_connect_is_not_left_for_the_answer(monkeypatch, left, wait):
    network = Network(monkeypatch, SHORT, connecting=3)
    assert network.send(left_s=left).status == 204
    assert network.waits[1] == wait


def test_time_to_connect_is_not_left_for_the_handshake(monkeypatch):
    network = Network(monkeypatch, SHORT, connecting=3)
    context = SimpleNamespace(wrap_socket=lambda stream, server_hostname: stream)
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: context)
    assert network.send(origin=HTTPS).status == 204
    assert network.waits[1] == 2


def test_silent_address_leaves_time_for_the_next(monkeypatch):
    network = Network(monkeypatch, SHORT, silent=[V6[1]])
    assert network.send(V6, V4).status == 204
    assert network.waits[:2] == [2.5, 2.5]
    with pytest.raises(UnsentError, match=": timed out"):
        network.send(V6)
    assert network.waits[-1] == 5, "the last address has all remaining time"


def test_address_of_a_family_that_is_missing_is_skipped(monkeypatch):
    network = Network(monkeypatch, SHORT, lacks=[socket.AF_INET6])
    assert network.send(V6, V4).status == 204
    assert network.waits[0] == 5
    with pytest.raises(UnsentError, match=": address family not supported"):
        network.send(V6)
