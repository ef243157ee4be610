"""Limits on connections to the state server, in total and from one address."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from tests.embedded.machine import until
from tests.ports import free_port

from dayfly.operator.states import bounded_socket


@pytest.mark.parametrize(("limit", "most"), [("MAX_CONNECTIONS", 2), ("MAX_CONNECTIONS_PER_ADDRESS", 2)])
async def test_connections_beyond_the_limit_are_closed_at_once(monkeypatch, limit, most):
    """Connections are refused before TLS. Closed ones no longer count."""
    monkeypatch.setattr(bounded_socket, limit, most)
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

    with bounded_socket.BoundedSocket(port) as listening:
        server = await loop.create_server(asyncio.Protocol, sock=listening, ssl=context)
        async with server:
            await fill()
            await asyncio.sleep(0.05)  # the server handles their ends
            await fill()


async def test_each_address_has_its_own_limit_over_both_protocols(monkeypatch):
    monkeypatch.setattr(bounded_socket, "MAX_CONNECTIONS_PER_ADDRESS", 1)
    with bounded_socket.BoundedSocket(free_port()) as listening:
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
