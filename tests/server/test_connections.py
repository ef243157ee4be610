"""Slow and broken connections end, and any number of them does not block others."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.server.client import KEY, ORG

from dayfly.lib import http_server
from dayfly.page import files

TESTS = Path(__file__).parents[1]
HEAD = f"PUT {ORG}/sandboxes/sb1 HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {KEY}\r\n"
BODY = f"{HEAD}Content-Length: 99\r\n\r\n"


@pytest.fixture
def brief(monkeypatch):
    """Use short timeouts."""
    monkeypatch.setattr(http_server, "HEAD_S", 0.2)
    monkeypatch.setattr(http_server, "BODY_S", 0.2)


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


@pytest.mark.parametrize("sent", [HEAD, HEAD + "x: y", "G", BODY, BODY + '{"spec"'])
def test_half_a_request_times_out_with_an_api_error(brief, client, sent):
    with opened(client.port) as connection:
        connection.sendall(sent.encode())
        answer = connection.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 408 ")
    assert "did not come to its end in time" in json.loads(answer.partition("\r\n\r\n")[2])["error"]
    assert client.get("sandboxes") == []


def test_drops_of_a_head_do_not_prolong_it(brief, client):
    with opened(client.port) as connection:
        connection.settimeout(0.05)
        connection.sendall(HEAD.encode())
        for _ in range(200):
            with contextlib.suppress(TimeoutError):
                assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
                break
            connection.sendall(b"x: y\r\n")
        else:
            pytest.fail("it was read for ten seconds")


def test_silent_connection_is_closed_without_an_answer(brief, client):
    with opened(client.port) as connection:
        assert connection.recv(1) == b""


def test_half_a_second_request_ends_as_well(brief, client):
    whole = f"GET {ORG}/sandboxes HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {KEY}\r\n\r\n"
    with opened(client.port) as connection:
        connection.sendall(whole.encode())
        answers = connection.makefile("rb")
        assert b"200" in answers.readline()
        while answers.readline().strip():
            pass
        connection.sendall(HEAD.encode())
        assert b"HTTP/1.1 408 " in answers.read()


def test_long_poll_may_outlast_the_connection_limits(brief, client, host):
    """A long poll takes longer than both limits."""
    client.put("sandboxes/sb1", {"spec": {"cluster": "local"}})
    assert client.call("GET", "sandboxes/sb1/report?after=99&wait=1").status == 200


def test_slowest_connections_are_closed_when_too_many(client, monkeypatch):
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 8)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(client.port)) for _ in range(20)]
        for connection in held:
            with contextlib.suppress(OSError):
                connection.sendall(HEAD.encode())
        assert client.get("sandboxes") == []
        with contextlib.suppress(ConnectionResetError):
            assert held[0].recv(1) == b"", "the first connection is closed"


@pytest.mark.slow
@pytest.mark.long_story
def test_four_hundred_half_requests_leave_the_server_usable(tmp_path):
    few = ["sh", "-c", 'ulimit -n 256; exec "$0" "$@"']
    command = [*few, sys.executable, TESTS / "server/small_server.py", tmp_path]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS.parent}"}
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server,
        contextlib.ExitStack() as stack,
    ):
        try:
            port = int(server.stdout.readline())
            for _ in range(400):
                connection = stack.enter_context(opened(port))
                with contextlib.suppress(OSError):
                    connection.sendall(HEAD.encode())
            with opened(port) as connection:
                connection.sendall(b"GET /api/v2/meta/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
        finally:
            server.kill()


def stored(client) -> int:
    """Create sandboxes whose list exceeds the buffers of the kernel; return its size."""
    for number in range(10):
        client.put(f"sandboxes/sb{number}", {"spec": {"cluster": "local", "description": "x" * 900_000}})
    return len(json.dumps(client.get("sandboxes")))


def request_long_list(port: int) -> socket.socket:
    """Request that list on a connection with a small receive buffer."""
    connection = socket.socket()
    connection.settimeout(20)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(HEAD.replace("PUT", "GET").replace("/sb1", "").encode() + b"Connection: close\r\n\r\n")
    return connection


def taken(connection: socket.socket, pause: float = 0) -> int:
    """Read to the end, slowly; return the number of bytes."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            size += len(piece)
            time.sleep(pause)
    return size


def test_client_that_reads_nothing_is_disconnected(client, monkeypatch):
    """A thousand such clients would keep a thousand long lists in memory."""
    size = stored(client)
    monkeypatch.setattr(http_server, "READ_INTERVAL_S", 0.2)
    lost, gone = http_server.BoundedHttp.connection_lost, threading.Event()
    with request_long_list(client.port) as connection:
        address = connection.getsockname()

        def noted(self, exc):
            lost(self, exc)
            if self.client == address:
                gone.set()

        monkeypatch.setattr(http_server.BoundedHttp, "connection_lost", noted)
        assert gone.wait(20)
        assert taken(connection) < size // 2


def test_slow_reader_is_not_disconnected(client, monkeypatch):
    size = stored(client)
    monkeypatch.setattr(http_server, "READ_INTERVAL_S", 0.5)
    with request_long_list(client.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert taken(connection, 0.02) > size // 2


GET = f"GET {ORG}/sandboxes HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {KEY}\r\n"
LONG_HEAD, LONG_URL = "the head of the request is too long", "the address of the request is too long"


def answers(port: int, *sent: bytes) -> list[tuple[int, dict, object]]:
    """Return status, headers and JSON of each answer on a connection, until the server closes it."""
    found = []
    with opened(port) as connection:
        for piece in sent:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(piece)
        data = connection.makefile("rb")
        while line := data.readline():
            headers = {}
            while header := data.readline().strip():
                name, _, value = header.decode().partition(": ")
                headers[name.lower()] = value
            status = int(line.split()[1])
            if status >= 200:
                assert headers["content-type"] == "application/json"
                found.append((status, headers, json.loads(data.read(int(headers["content-length"])))))
    return found


def refusal(port: int, *sent: bytes) -> tuple[int, str]:
    """Return the only answer, an API error after which the server closes the connection."""
    ((status, headers, body),) = answers(port, *sent)
    assert set(body) == {"error", "requestId"}
    assert len(body["requestId"]) == 16
    assert headers["connection"] == "close"
    return status, body["error"]


def head_of(size: int, start: str = GET) -> bytes:
    """Return a complete head of `size` bytes."""
    start += "Connection: close\r\n"
    return (start + "x: " + (size - len(start) - len("x: \r\n\r\n")) * "y" + "\r\n\r\n").encode()


@pytest.mark.parametrize("behind", ["", GET + "Connection: close\r\n\r\n"])
def test_head_of_64_kib_is_served_and_one_byte_more_is_not(client, behind):
    most = http_server.MAX_HEAD_BYTES
    assert [status for status, *_ in answers(client.port, head_of(most))] == [200]
    status, error = refusal(client.port, head_of(most + 1) + behind.encode())
    assert (status, error.startswith(LONG_HEAD)) == (431, True)


@pytest.mark.parametrize("size", [1, 1000, 60_000, 1 << 20])
def test_long_head_is_refused_however_it_is_sent(client, size):
    for many in (http_server.MAX_HEAD_BYTES + 1, 120_000, 400_000):
        whole = head_of(many)
        pieces = [whole] if size == 1 else [whole[at : at + size] for at in range(0, many, size)]
        assert refusal(client.port, *pieces)[0] == 431


@pytest.mark.parametrize("line", ["x" + 70_000 * " " + ": y\r\n", "x:" + 70_000 * " " + "y\r\n", "x: " + 70_000 * "y"])
def test_long_line_is_refused(client, line):
    assert refusal(client.port, (GET + line).encode())[0] in (400, 431)


@pytest.mark.parametrize("size", [66_000, 70_000, 300_000])
@pytest.mark.parametrize("end", ["", " HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_long_url_is_refused_with_an_api_error(client, size, end):
    status, error = refusal(client.port, f"GET /api/v2/{size * 'x'}{end}".encode())
    assert (status, error.startswith(LONG_URL)) == (414, True)


MALFORMED = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown method": GET.replace("GET", "FETCH").encode() + b"\r\n",
    "no target": b"GET\r\n\r\n",
    "wrong target": b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target of CONNECT": b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "length no number": HEAD.encode() + b"Content-Length: abc\r\n\r\n",
    "length negative": HEAD.encode() + b"Content-Length: -1\r\n\r\n",
    "two lengths": HEAD.encode() + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "length and chunks": HEAD.encode() + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk no number": HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "space in name": GET.encode() + b"a b: c\r\n\r\n",
    "NUL in value": GET.encode() + b"a: \0\r\n\r\n",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
def test_malformed_request_is_refused_with_an_api_error(client, caplog, sent):
    assert refusal(client.port, sent)[0] == 400
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("sent", [*MALFORMED.values(), head_of(70_000)])
def test_error_comes_after_the_answers_to_earlier_requests(client, sent):
    first = GET.encode() + b"\r\n"
    found = answers(client.port, first + first + sent)
    assert [status for status, *_ in found[:2]] == [200, 200]
    assert found[2:][0][0] in (400, 431)
    assert len(found) == 3


def test_rest_of_an_answered_request_gets_no_second_answer(client):
    """Without a valid key, the server does not read the body."""
    head = HEAD.replace(KEY, "wrong") + "Transfer-Encoding: chunked\r\n\r\n"
    with opened(client.port) as connection:
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, "error" in json.loads(answer.read())) == (401, True)
        connection.sendall(b"xyz\r\n")
        assert connection.recv(1 << 16) == b""


def test_body_that_is_declared_too_long_is_refused_unread(client):
    sent = HEAD + "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
    assert refusal(client.port, sent.encode())[0] == 413


def test_http_1_0_is_served_and_ends_the_connection(client):
    ((status, headers, _),) = answers(client.port, GET.replace("HTTP/1.1", "HTTP/1.0").encode() + b"\r\n")
    assert (status, headers["connection"]) == (200, "close")


def test_fault_outside_of_handlers_is_an_api_error(client, monkeypatch):
    monkeypatch.setattr(files, "redirect_to_page", None)
    sent = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
    status, error = refusal(client.port, sent)
    assert (status, "internal error of Dayfly" in error) == (500, True)
