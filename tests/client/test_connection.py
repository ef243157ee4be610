"""Faulty peers: untrusted servers, other protocols, partial responses, and redirects."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.test_shared_server import certificate
from tests.server import specs
from tests.server.client import KEY

from dayfly.client import (
    AsyncClient,
    Client,
    DayflyError,
    Exit,
    NotFoundError,
    RefusedError,
    RetryPolicy,
    UnreachableError,
    servers,
)
from dayfly.client.address import Address, ServerAddress
from dayfly.client.connection import ApiRequest, Connection, run
from dayfly.client.home import Home
from dayfly.client.loop_io import LoopIo

NEVER = RetryPolicy(patience=0)
LIST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]"


@contextlib.contextmanager
def answering(answer, tls=None):
    """A server with one response for all connections, which records the requests."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError), connection:
                    wrapped = tls.wrap_socket(connection, server_side=True) if tls else connection
                    with wrapped:
                        asked.append(wrapped.recv(65536))
                        wrapped.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


class Scripted:
    """An `Io` whose connections return scripted bytes in order, or raise scripted errors."""

    def __init__(self, *connections):
        self.connections = list(connections)
        self.sent = []

    async def connect(self, to, timeout):  # noqa: ASYNC109 # as an Io has it
        self.said = list(self.connections.pop(0))
        return self

    async def send(self, data, timeout):  # noqa: ASYNC109 # as above
        self.sent.append(data)

    async def receive(self, timeout):  # noqa: ASYNC109 # as above
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    def is_quiet(self):
        return True

    def close(self):
        pass


def exchanging(*connections):
    """A connection over scripted ones; each exchange returns its body."""
    connection = Connection(Address("http://a:1", "k"), Scripted(*connections), 30)
    return lambda: run(connection.exchange(ApiRequest("POST", "/x", {}))).body


def test_untrusted_certificate_sends_nothing(connect, tmp_path):
    chain, key = certificate(tmp_path)
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(chain, key)
    with answering(LIST, of_server) as (url, asked):
        with pytest.raises(UnreachableError, match=r"the certificate of https://127.* is not trusted") as refused:
            connect(url, KEY, retries=NEVER).sandboxes.list()
        assert (asked, refused.value.sent) == ([], False)
        assert "SSL_CERT_FILE" in refused.value.advice
        ours = ssl.create_default_context(cafile=chain)
        assert connect(url, KEY, tls=ours).sandboxes.list() == ()
        assert f"Bearer {KEY}".encode() in asked[0]


def test_client_trusts_the_authority_of_a_later_login(connect, tmp_path):
    (tmp_path / "old").mkdir()
    chain, key = certificate(tmp_path)
    old, _ = certificate(tmp_path / "old")
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(chain, key)
    home = Home.of(tmp_path / "home")
    with answering(LIST, of_server) as (url, _):
        servers.put(home, "work", servers.Server(url, "local", KEY, Path(old).read_text()))
        dayfly = connect(server="work", home=home.path, retries=RetryPolicy(patience=1, first=0.01, longest=0.01))
        servers.put(home, "work", servers.Server(url, "local", KEY, Path(chain).read_text()))
        assert dayfly.sandboxes.list() == (), "after a trust error, the client finds the new address of the server"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 2", "closed the connection without an answer|broke off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[", "broke off in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n[", "broke off in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000, "does not speak HTTP|broke off"),
    ],
)
def test_unusable_answer_is_reported_as_sent(connect, answer, message):
    with answering(answer) as (url, _), pytest.raises(UnreachableError, match=message) as refused:
        connect(url, KEY, retries=NEVER).sandboxes.list()
    assert refused.value.sent


DEEP = b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"


@pytest.mark.parametrize("body", [b'{"name": "\xe9"}', b'{"name": 1}', b"<html>", DEEP])
def test_unreadable_answer_fails_at_once(connect, body):
    """Another program or a newer server answers: the client fails at once, as a retry would get the same."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
    patient = RetryPolicy(patience=60)
    with answering(head % len(body) + body) as (url, _), pytest.raises(UnreachableError, match="does not understand"):
        connect(url, KEY, retries=patient).sandboxes.get("sb1")
    for ask in ("version", "routing_rules"):
        with answering(head % len(body) + body) as (url, _), pytest.raises(UnreachableError, match="not understand"):
            getattr(connect(url, KEY, retries=patient), ask)()
    event = b"event: changed\ndata: " + body + b"\n\n"
    with answering(head % len(event) + event) as (url, _), pytest.raises(UnreachableError, match="does not understand"):
        next(connect(url, KEY, retries=patient).sandboxes.follow())


@pytest.mark.parametrize("status", [400, 404])
def test_error_without_json_is_no_answer_of_dayfly(connect, status):
    """Otherwise the 404 of another program would mean that a sandbox is gone."""
    head = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(DEEP))
    with answering(head + DEEP) as (url, _), pytest.raises(UnreachableError, match=f"answers {status} without JSON"):
        connect(url, KEY, retries=RetryPolicy(patience=60)).sandboxes.get("sb1")


def test_redirect_does_not_receive_the_key(connect):
    with answering(LIST) as (other, asked):
        moved = f"HTTP/1.1 302 Found\r\nlocation: {other}/x\r\ncontent-length: 2\r\n\r\n{{}}".encode()
        with answering(moved) as (url, _), pytest.raises(UnreachableError, match="answers 302"):
            connect(url, KEY, retries=NEVER).sandboxes.list()
        assert asked == []


@pytest.mark.parametrize(
    ("behind", "message"), [("/dayfly", "has a path"), ("?x=1", "has a path"), ("/#x", "has a path"), ("//", "")]
)
def test_an_address_is_host_and_port_alone(connect, behind, message):
    """Otherwise the key would be sent to the server at the root of the host."""
    with answering(LIST) as (url, asked):
        if message:
            with pytest.raises(DayflyError, match=message) as fault:
                connect(url + behind, KEY)
            assert (fault.value.code, asked) == (Exit.USAGE, [])
        else:
            assert connect(url + behind, KEY).sandboxes.list() == ()


def test_a_password_in_an_address_is_refused_and_not_repeated(connect):
    for url in ("http://me:canary@a:1", "gopher://me:canary@a", "http://me:canary@[::1"):
        with pytest.raises(DayflyError, match="contains a user name or password") as fault:
            connect(url, KEY)
        assert "canary" not in str(fault.value)


def test_many_threads_share_a_client(server):
    with Client(f"http://127.0.0.1:{server.port}", KEY) as dayfly, ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: dayfly.sandboxes.apply({"name": f"sb{n}", **specs.empty()}).name, range(40)))
        assert sorted(made) == sorted(each.name for each in dayfly.sandboxes.list())


def test_names_cannot_lead_out_of_their_place(dayfly, server):
    for name in ("../clusters", "..", "sb1/outputs", "sb1?x=1", "sb1#x", "a b", "\u732b", "\udcff", "%2e%2e"):
        with pytest.raises((NotFoundError, RefusedError)) as refused:
            dayfly.sandboxes.get(name)
        assert refused.value.status in (400, 404), name
    assert dayfly.sandboxes.list(label="a=\udcff") == ()
    assert server.get("sandboxes") == []


def test_surplus_bytes_are_not_read_as_the_next_answer():
    """As from a server that miscounts the bytes of its response, or sends a second one."""
    late = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"
    ask = exchanging([LIST + late], [LIST])
    assert (ask(), ask()) == (b"[]", b"[]")


def test_unrequested_answer_on_idle_connection_is_detected(monkeypatch):
    """As from a proxy that sends 408 on an idle connection and closes it."""
    feed = asyncio.StreamReader.feed_data

    async def said_and_closed():
        came, over = asyncio.Event(), asyncio.Event()

        def fed(reader, data):
            feed(reader, data)
            came.set()

        async def speak(reader, writer):
            writer.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
            await over.wait()
            writer.close()

        monkeypatch.setattr(asyncio.StreamReader, "feed_data", fed)
        async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            pipe = await LoopIo().connect(ServerAddress("127.0.0.1", port, tls=False, host="a"), 30)
            await came.wait()
            quiet = [pipe.is_quiet()]
            await pipe.receive(30)
            quiet.append(pipe.is_quiet())
            over.set()
            await pipe.receive(30)
            quiet.append(pipe.is_quiet())
            pipe.close()
        return quiet

    quiet = asyncio.run(said_and_closed())
    assert quiet == [False, True, False], "consumed bytes do not count, but an end does"


def test_early_refusal_of_a_long_body_is_read():
    """As from a server that refuses a long body: it closes before the client has sent all of it."""
    reason = b'{"error": "the body is longer than 7 bytes"}'

    async def refuse(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: %d\r\n\r\n" % len(reason) + reason)
        writer.transport.abort()

    async def refused():
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with AsyncClient(url, KEY, retries=NEVER) as dayfly:
                await dayfly.sandboxes.apply({"name": "sb1", "spec": {"x": "x" * (32 << 20)}})

    with pytest.raises(RefusedError, match="the body is longer than 7 bytes"):
        asyncio.run(refused())


@pytest.mark.parametrize("begun", [LIST[:9], LIST[:-1]])
def test_reset_within_an_answer_is_not_a_stale_connection(begun):
    """A stale idle connection is retried, but this request was executed."""
    ask = exchanging([LIST, begun, ConnectionResetError()], [LIST])
    ask()
    with pytest.raises(UnreachableError, match="broke off in the middle of its answer") as broken:
        ask()
    assert (broken.value.sent, broken.value.stale) == (True, False)
    ask = exchanging([LIST, ConnectionResetError()])
    ask()
    with pytest.raises(UnreachableError, match="without an answer") as ended:
        ask()
    assert ended.value.stale
