"""How many connections a server of states takes, in all and of one address."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import SimpleNamespace

import pytest

from dayfly.operator.states import bounded_server
from dayfly.operator.states.bounded_server import HEAD_S
from embedded.machine import until
from kube.fake import rest, run
from ports import free_port


class Handler:
    _task_handler = None

    def __init__(self) -> None:
        self.closed: list[float] = []

    def force_close(self) -> None:
        self.closed.append(asyncio.get_running_loop().time())


@pytest.mark.parametrize(("limit", "most"), [("MOST", 2), ("MOST_OF_ONE", 2)])
async def test_one_more_than_there_may_be_is_ended_at_once_though_it_says_nothing(monkeypatch, limit, most):
    """Of TLS not a word was said yet. Of those that are gone nothing is kept."""
    monkeypatch.setattr(bounded_server, limit, most)
    loop, port = asyncio.get_running_loop(), free_port()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with bounded_server.BoundedSocket(port) as listening:
        server = await loop.create_server(asyncio.Protocol, sock=listening, ssl=context)
        async with server:
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most + 3)]
            ended = [asyncio.create_task(reader.read()) for reader, _ in opened]
            await until(lambda: sum(task.done() for task in ended) == 3)
            assert listening._of.total() == most
            assert not any(task.done() for task in ended[:most]), "who was there before stays"
            for _, writer in opened:
                writer.close()
            await until(lambda: not listening._of)
            again, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: listening._of.total() == 1)
            assert not again.at_eof()
            writer.close()
            await asyncio.gather(*ended, return_exceptions=True)
            await until(lambda: not listening._of)


async def test_by_both_protocols_it_is_reached_and_each_address_has_its_own(monkeypatch):
    monkeypatch.setattr(bounded_server, "MOST_OF_ONE", 1)
    with bounded_server.BoundedSocket(free_port()) as listening:
        listening.listen()
        port = listening.getsockname()[1]
        for peer in ("127.0.0.1", "127.0.0.2"):
            with socket.create_connection(("127.0.0.1", port), source_address=(peer, 0)):
                taken, _ = listening.accept()
                another = socket.create_connection(("127.0.0.1", port), source_address=(peer, 0))
                with another, pytest.raises(ConnectionAbortedError):
                    listening.accept()
                taken.close()
                taken.close()
        if socket.has_dualstack_ipv6():
            with socket.create_connection(("::1", port)), listening.accept()[0]:
                assert listening._of == {"::1": 1}
        assert listening._of == {}


def test_a_request_has_its_time_and_silence_before_and_after_it_has_not():
    async def story():
        handler, transport = Handler(), SimpleNamespace(get_extra_info=lambda _: ("10.0.0.1", 1))

        async def answering(_request):
            await rest(10 * HEAD_S)

        bounded = bounded_server.BoundedServer(answering)
        bounded.connection_made(handler, transport)
        await rest(HEAD_S - 1)
        await bounded._answer(SimpleNamespace(protocol=handler))
        assert handler.closed == []
        await rest(HEAD_S)
        assert handler.closed == [12 * HEAD_S - 1]

    run(story())
