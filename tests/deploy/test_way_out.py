"""The network access of the `make cluster` node: it reaches what this machine reaches, and reports other failures."""

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
from testcluster import way_out  # noqa: E402 - found beside the tests


@contextlib.contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[tuple[str, int]]:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_address
    finally:
        server.shutdown()
        server.server_close()


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that echoes its input until the other end closes, and then sends `, and no more`."""

    def answer(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    while heard := connection.recv(1000):
                        connection.sendall(heard)
                    connection.sendall(b", and no more")

    with listening() as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        yield "{}:{}".format(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def asked(address: tuple[str, int], place: str, say: bytes = b"hello") -> tuple[str, bytes]:
    """The first line of the answer to CONNECT, and what comes after its head until the end."""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        answer = connection.makefile("rb")
        first = answer.readline().decode().strip()
        while answer.readline().strip():
            pass
        if " 200 " not in first:
            return first, answer.read()

        def speak() -> None:
            connection.sendall(say)
            connection.shutdown(socket.SHUT_WR)

        speaker = threading.Thread(target=speak)
        speaker.start()
        heard = answer.read()
        speaker.join()
        return first, heard


def test_tunnel_carries_data_in_both_directions(echo):
    with serving(way_out.Server(listening())) as node:
        long = b"x" * 1_000_000
        first, heard = asked(node, echo, long)
    assert first == "HTTP/1.0 200 OK"
    assert heard == long + b", and no more"


def test_unreachable_address_is_reported_in_the_status_line():
    with listening() as gone:
        place = "{}:{}".format(*gone.getsockname())
    with serving(way_out.Server(listening())) as node:
        first, _ = asked(node, place)
        nowhere, _ = asked(node, "registry.example")
    assert first == f"HTTP/1.0 502 this machine does not reach {place}: [Errno 111] Connection refused"
    assert nowhere == "HTTP/1.0 502 this machine does not reach registry.example: no host and port"


def test_tunnel_uses_the_proxy_of_the_machine(echo, monkeypatch):
    """The tunnel sends the proxy's credentials, for names that only the proxy resolves; NO_PROXY bypasses it."""
    seen = []

    class Proxy(way_out.Handler):
        def do_CONNECT(self) -> None:  # noqa: N802 - as http.server has it
            seen.append((self.path, self.headers["Proxy-Authorization"]))
            self.path = echo if self.path == "registry.example:443" else "127.0.0.1:1"
            # From here on as this machine without a proxy.
            monkeypatch.delenv("HTTPS_PROXY")
            super().do_CONNECT()

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Proxy)) as proxy, serving(way_out.Server(listening())) as node:
        monkeypatch.setenv("HTTPS_PROXY", "http://ada:s%20ecret@{}:{}".format(*proxy))
        assert asked(node, "registry.example:443") == ("HTTP/1.0 200 OK", b"hello, and no more")
        assert seen == [("registry.example:443", f"Basic {base64.b64encode(b'ada:s ecret').decode()}")]
        monkeypatch.setenv("HTTPS_PROXY", "http://{}:{}".format(*proxy))
        first, _ = asked(node, "other.example:443")
        assert first.startswith(
            "HTTP/1.0 502 this machine does not reach other.example:443: Tunnel connection failed: "
        )
        assert first.endswith(": 502 this machine does not reach 127.0.0.1:1: [Errno 111] Connection refused")
        monkeypatch.setenv("HTTPS_PROXY", "http://{}:{}".format(*proxy))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert asked(node, echo) == ("HTTP/1.0 200 OK", b"hello, and no more")
        assert len(seen) == 2
