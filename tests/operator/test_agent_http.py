"""The connection to a server: its token is sent only to that server."""

from __future__ import annotations

import pytest
from aiohttp import web

from dayfly.link.http import HttpConnection, TransportError


@pytest.mark.parametrize(
    "url",
    ["http://dayfly.test", "http://control.test:7777", "ftp://dayfly.test", "dayfly.test", "https://a:b@dayfly.test"],
)
async def test_token_is_not_sent_unencrypted(url):
    with pytest.raises(ValueError, match=r"https://"):
        HttpConnection(url, "token")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
async def test_within_this_machine_it_may(host):
    await HttpConnection(f"http://{host}:7777", "token").close()


@pytest.fixture
async def server():
    """Return a server that redirects, and the server that it redirects to."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.path} {request.headers.get('signadot-cluster-token')}")
        if request.path.endswith("/births"):
            return web.Response(status=307, headers={"Location": "/elsewhere"})
        if request.path.endswith("/said"):
            return web.Response(body=await request.read())
        return web.Response(body=b"x" * (17 << 20 if request.path.endswith("/huge") else 3))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}", asked
    await runner.cleanup()


async def test_redirects_and_huge_responses_are_refused(server):
    url, asked = server
    way = HttpConnection(url, "t")
    try:
        assert (await way.request("POST", "births", seconds=10)).status == 307
        assert (await way.request("GET", "messages", seconds=10)).body == b"xxx"
        with pytest.raises(TransportError, match="too long"):
            await way.request("GET", "huge", seconds=10)
    finally:
        await way.close()
    assert asked == [f"/api/v2/agent/{name} t" for name in ("births", "messages", "huge")]


async def test_response_at_the_size_limit_is_read(server, monkeypatch):
    url, _ = server
    way = HttpConnection(url, "t")
    monkeypatch.setattr("dayfly.link.http.MAX_ANSWER_BYTES", 3)
    try:
        assert (await way.request("POST", "said", body=b"{ }", seconds=10)).body == b"{ }"
        with pytest.raises(TransportError, match="too long"):
            await way.request("POST", "said", body=b"{  }", seconds=10)
    finally:
        await way.close()


async def test_proxy_of_the_environment_is_used(server, monkeypatch):
    url, asked = server
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    way = HttpConnection("http://127.0.0.1:9", "t")  # no server listens there
    try:
        assert (await way.request("GET", "messages", seconds=10)).body == b"xxx"
    finally:
        await way.close()
    assert asked == ["/api/v2/agent/messages t"]


async def test_untrusted_certificate_is_refused(tmp_path):
    import asyncio
    import ssl
    import subprocess

    key, certificate = tmp_path / "key", tmp_path / "certificate"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", "req", *options.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: ASYNC221 - a moment
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        for authority, trusted in ((str(certificate), True), ("", False)):
            way = HttpConnection(url, "t", authority)
            try:
                if trusted:
                    assert (await way.request("GET", "messages", seconds=10)).status == 200
                else:
                    with pytest.raises(TransportError):
                        await way.request("GET", "messages", seconds=10)
            finally:
                await way.close()
