"""The limits on connections to the server of states: how many, in all and from one address, and how long in silence."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest
from aiohttp import web

from dayfly.operator.states import bounded_server
from embedded.machine import until
from ports import free_port


@pytest.mark.parametrize(("limit", "most"), [("MOST", 2), ("MOST_OF_ONE", 2)])
async def test_connections_beyond_the_limit_are_closed_at_once(monkeypatch, limit, most):
    """Before any TLS. Connections that have ended no longer count."""
    monkeypatch.setattr(bounded_server, limit, most)
    loop, port = asyncio.get_running_loop(), free_port()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def fill() -> None:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most + 3)]
        ended = [asyncio.create_task(reader.read()) for reader, _ in opened]
        await until(lambda: sum(task.done() for task in ended) == 3)
        assert not any(task.done() for task in ended[:most]), "earlier connections stay"
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)

    with bounded_server.BoundedSocket(port) as listening:
        server = await loop.create_server(asyncio.Protocol, sock=listening, ssl=context)
        async with server:
            await fill()
            await asyncio.sleep(0.05)  # the server learns of their ends
            await fill()


async def test_each_address_has_its_own_limit_over_both_protocols(monkeypatch):
    monkeypatch.setattr(bounded_server, "MOST_OF_ONE", 1)
    with bounded_server.BoundedSocket(free_port()) as listening:
        listening.listen()
        port = listening.getsockname()[1]
        for peer in ("127.0.0.1", "127.0.0.2", "127.0.0.1"):
            with socket.create_connection(("127.0.0.1", port), source_address=(peer, 0)):
                taken, _ = listening.accept()
                another = socket.create_connection(("127.0.0.1", port), source_address=(peer, 0))
                with another, pytest.raises(ConnectionAbortedError):
                    listening.accept()
                taken.close()
                taken.close()
        if socket.has_dualstack_ipv6():
            for _ in range(2):
                with socket.create_connection(("::1", port)), listening.accept()[0]:
                    pass


async def test_time_of_a_request_does_not_count_as_silence(monkeypatch):
    """A connection is closed if it is silent before its first request, or after one."""
    monkeypatch.setattr(bounded_server, "HEAD_S", 0.2)

    async def respond_slowly(_request: web.BaseRequest) -> web.Response:
        await asyncio.sleep(0.5)
        return web.Response(text="done")

    loop = asyncio.get_running_loop()
    async with await loop.create_server(bounded_server.BoundedServer(respond_slowly), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        began = loop.time()
        assert (await reader.read()).endswith(b"done")
        assert 0.6 < loop.time() - began < 5
        with contextlib.closing(writer):
            silent, other = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(other):
                assert await asyncio.wait_for(silent.read(), 5) == b""
