"""How many connections a server of states takes, in all and of one address."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.operator.states import bounded_server


class Handler:
    _task_handler = None

    def force_close(self) -> None: ...


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
    assert [handlers.index(each) for each in bounded._timers] == waits
    for handler in handlers:
        bounded.connection_lost(handler)
    assert (bounded._peers, bounded._of, bounded._timers) == ({}, {}, {})
