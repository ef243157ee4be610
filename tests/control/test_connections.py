"""Connections that come to nothing: they end by themselves, and however many there are, others are served."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from control.client import KEY, ORG
from dayfly.control import connections

TESTS = Path(__file__).parents[1]
HEAD = f"PUT {ORG}/sandboxes/sb1 HTTP/1.1\r\nHost: localhost\r\nsignadot-api-key: {KEY}\r\n"
BODY = f"{HEAD}Content-Length: 99\r\n\r\n"


@pytest.fixture
def brief(monkeypatch):
    """Nobody is waited for in this test."""
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    monkeypatch.setattr(connections, "BODY_S", 0.2)


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


@pytest.mark.parametrize("sent", [HEAD, HEAD + "x: y", "G", BODY, BODY + '{"spec"'])
def test_half_a_request_ends_by_itself_in_our_form(brief, client, sent):
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
            pytest.fail("it was listened to for ten seconds")


def test_one_that_says_nothing_is_closed_in_silence(brief, client):
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


def test_who_waits_for_an_answer_is_not_hurried(brief, client, host):
    """A long poll lasts longer than either bound."""
    client.put("sandboxes/sb1", {"spec": {"cluster": "local"}})
    assert client.call("GET", "sandboxes/sb1/report?after=99&wait=1").status == 200


def test_with_too_many_those_that_keep_us_waiting_longest_go_first(client, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(client.port)) for _ in range(20)]
        for connection in held:
            with contextlib.suppress(OSError):
                connection.sendall(HEAD.encode())
        assert client.get("sandboxes") == []
        with contextlib.suppress(ConnectionResetError):
            assert held[0].recv(1) == b"", "the first one is gone"


def test_four_hundred_halves_do_not_stop_a_server_with_256_descriptors(tmp_path):
    few = ["sh", "-c", 'ulimit -n 256; exec "$0" "$@"']
    command = [*few, sys.executable, TESTS / "control/small_server.py", tmp_path]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}
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
    """Sandboxes of which a list is more than any kernel holds for us; how much it is."""
    for number in range(10):
        client.put(f"sandboxes/sb{number}", {"spec": {"cluster": "local", "description": "x" * 900_000}})
    return len(json.dumps(client.get("sandboxes")))


def asked(port: int) -> socket.socket:
    """For that list, by somebody who has hardly any room for it."""
    connection = socket.socket()
    connection.settimeout(20)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(HEAD.replace("PUT", "GET").replace("/sb1", "").encode() + b"Connection: close\r\n\r\n")
    return connection


def taken(connection: socket.socket, pause: float = 0) -> int:
    """How much there is to be read, however slowly."""
    size = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            size += len(piece)
            time.sleep(pause)
    return size


def test_who_takes_nothing_of_an_answer_does_not_have_us_keep_it(client, monkeypatch):
    """A thousand of them would be a thousand long lists in memory, for as long as they like."""
    size = stored(client)
    monkeypatch.setattr(connections, "TAKES_S", 0.2)
    lost, gone = connections.BoundedHttp.connection_lost, threading.Event()

    def noted(self, exc):
        lost(self, exc)
        gone.set()

    with asked(client.port) as connection:
        monkeypatch.setattr(connections.BoundedHttp, "connection_lost", noted)
        assert gone.wait(20)
        assert taken(connection) < size // 2


def test_who_takes_an_answer_slowly_has_all_of_it(client, monkeypatch):
    size = stored(client)
    monkeypatch.setattr(connections, "TAKES_S", 0.5)
    with asked(client.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert taken(connection, 0.02) > size // 2
