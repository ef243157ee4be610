"""How many connections a server of states takes, in all and of one address."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dayfly.operator.states import bounded_server
from dayfly.operator.states.bounded_server import HEAD_S
from kube.fake import rest, run


class Handler:
    _task_handler = None

    def __init__(self) -> None:
        self.closed: list[float] = []

    def force_close(self) -> None:
        self.closed.append(asyncio.get_running_loop().time())


@pytest.mark.parametrize(
    ("limit", "peers", "waits"),
    [("MOST", ("10.0.0.1", "10.0.0.2"), [0]), ("MOST_OF_ONE", ("10.0.0.1", "10.0.0.1", ""), [0, 2])],
)
async def test_one_more_than_there_may_be_is_ended_at_once(monkeypatch, limit, peers, waits):
    """All others have so long to say what they want; of those that are gone nothing is kept."""
    monkeypatch.setattr(bounded_server, limit, 1)
    bounded, aborted = bounded_server.BoundedServer(None), []
    handlers = [Handler() for _ in peers]
    for number, peer in enumerate(peers):
        transport = SimpleNamespace(
            get_extra_info=lambda _name, peer=peer: (peer, 1) if peer else None,
            abort=lambda number=number: aborted.append(number),
        )
        bounded.connection_made(handlers[number], transport)
    assert aborted == [1]
    assert bounded.connections == handlers, "whom it ends with itself"
    assert [handlers.index(each) for each in bounded._timers] == waits
    for handler in handlers:
        bounded.connection_lost(handler)
        assert bounded._of.total() == len(bounded._peers)
    assert (bounded._peers, bounded._of, bounded._timers, bounded.connections) == ({}, {}, {}, [])


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
