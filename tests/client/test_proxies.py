"""HTTPS_PROXY, NO_PROXY and private CAs: for both clients, the operator's server, and receivers of CloudEvents."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dayfly.cli.event_receiver import Poster, parse_receiver
from dayfly.client import DayflyError, RetryPolicy
from dayfly.client.address import Address, resolve
from dayfly.client.loop_io import LoopIo
from dayfly.client.proxies import find_proxy
from dayfly.lib.delivery import DeliveryResult
from dayfly.link.http import HttpConnection

EVENT = b'{"id": "1"}'
NAME = "dayfly.test"  # only the proxy knows where it is


class Server(BaseHTTPRequestHandler):
    """Answers each request with an empty list, over TLS, and records what is posted."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        data = json.dumps({"orgs": [], "sandboxes": []} if "agent" in self.path else []).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        self.server.posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Proxy(BaseHTTPRequestHandler):
    """Connects all names to the server, or refuses with the status of the proxy."""

    def do_CONNECT(self):
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        with socket.create_connection(self.server.target) as there:
            self.send_response(200)
            self.end_headers()
            threading.Thread(target=self.copy, args=(there, self.connection), daemon=True).start()
            self.copy(self.connection, there)
        self.close_connection = True

    def copy(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running(handler, context=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A private CA's only certificate, and its key."""
    folder = tmp_path_factory.mktemp("ca")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    files = ["-keyout", folder / "key", "-out", folder / "crt"]
    subprocess.run(
        [*command, "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", *files],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def proxy(authority, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "crt", authority / "key")
    with running(Server, context) as server, running(Proxy) as found:
        found.target, found.asked, found.status = server.server_address, [], 200
        found.posted = server.posted = []
        found.url = "http://{}:{}".format(*found.server_address)
        for name in ("https_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTPS_PROXY", found.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority / "crt"))
        yield found


def test_client_reaches_the_server_through_the_proxy(proxy, connect, monkeypatch):
    client = connect(f"https://{NAME}", "key")
    assert list(client.sandboxes.list()) == []
    assert list(client.sandboxes.list()) == []
    assert proxy.asked == [(f"{NAME}:443", "")], "one tunnel serves all requests"
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//ada:p%40ss@"))
    assert list(connect(f"https://{NAME}:8443", "key").sandboxes.list()) == []
    assert proxy.asked[1:] == [(f"{NAME}:8443", f"Basic {base64.b64encode(b'ada:p@ss').decode()}")]


def test_refusal_of_the_proxy_is_reported_with_its_variable(proxy, connect):
    proxy.status = 403
    with pytest.raises(DayflyError) as refused:
        connect(f"https://{NAME}", "key", retries=RetryPolicy(patience=0)).sandboxes.list()
    for part in ("HTTPS_PROXY", "403", "NO_PROXY", NAME):
        assert part in str(refused.value)


@pytest.mark.parametrize("value", ["socks5://127.0.0.1:1080", "http://", "http://[", "http://proxy:none"])
def test_invalid_proxy_variable_is_refused(connect, monkeypatch, value):
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(DayflyError) as refused:
        connect(f"https://{NAME}", "key", retries=RetryPolicy(patience=0)).sandboxes.list()
    assert "HTTPS_PROXY" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "excluded", "used"),
    [
        ("https://dayfly.example.com", "", True),
        ("https://dayfly.example.com", ".example.com", False),
        ("https://dayfly.example.com", "example.org,dayfly.example.com:443", False),
        ("https://dayfly.example.com", "*", False),
        ("http://dayfly.example.com", "", False),
        ("http://127.0.0.1:8080", "", False),
    ],
)
def test_proxy_is_used_only_with_tls_outside_of_no_proxy(monkeypatch, url, excluded, used):
    for name in ("https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", excluded)
    assert (find_proxy(resolve(Address(url, "key"))) is not None) is used


async def test_operator_reaches_its_server_through_the_proxy(proxy, authority):
    connection = HttpConnection(f"https://{NAME}", "token", str(authority / "crt"))
    try:
        response = await connection.request("GET", "messages", seconds=30)
    finally:
        await connection.close()
    assert response.status == 200
    assert proxy.asked == [(f"{NAME}:443", "")]


class ClosableIo(LoopIo):
    """Closes its connections at the end of a test, which the server of a receiver never does."""

    def __init__(self):
        super().__init__()
        self.pipes = []

    async def connect(self, to, timeout):  # noqa: ASYNC109 # as an Io has it
        self.pipes.append(await super().connect(to, timeout))
        return self.pipes[-1]


@pytest.fixture
async def poster(proxy):
    io = ClosableIo()
    yield lambda url=f"https://{NAME}/in?team=pay": Poster(parse_receiver(url, frozenset()), io)
    for pipe in io.pipes:
        pipe.close()
    await asyncio.sleep(0)  # the event loop closes them


async def test_receiver_of_events_is_reached_through_the_proxy(proxy, poster):
    post = poster()
    assert [await post(EVENT), await post(EVENT)] == [DeliveryResult()] * 2
    assert proxy.posted == [("/in?team=pay", EVENT)] * 2
    assert proxy.asked == [(f"{NAME}:443", "")], "one tunnel serves both events"


async def test_event_that_the_proxy_refuses_is_resent_later(proxy, poster):
    proxy.status = 407
    found = await poster()(EVENT)
    assert (found.may_retry, proxy.posted) == (True, [])
    for part in ("HTTPS_PROXY", "407", NAME):
        assert part in found.problem
    proxy.status = 200
    assert await poster()(EVENT) == DeliveryResult()


async def test_receiver_with_an_unknown_authority_gets_no_event(proxy, poster, monkeypatch, tmp_path):
    (tmp_path / "none").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    found = await poster()(EVENT)
    assert (found.may_retry, proxy.posted) == (True, [])
    assert f"the certificate of https://{NAME} is not trusted" in found.problem


async def test_receiver_on_this_machine_is_reached_without_the_proxy(proxy, poster):
    with running(Server) as server:
        server.posted = []
        assert await poster(f"http://127.0.0.1:{server.server_port}/in")(EVENT) == DeliveryResult()
        assert server.posted == [("/in", EVENT)]
    assert proxy.asked == []
