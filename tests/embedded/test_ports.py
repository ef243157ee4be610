"""The ports of forks: each has its own, over restarts of its server as well, until its run is over."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dayfly.embedded import forks
from dayfly.embedded.envoy_process import unbindable
from dayfly.embedded.forks import Ports
from dayfly.execute.process.place import Place

FORK, PEER = "fork:default/app", "fork:default/api"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "work").mkdir(mode=0o700)
    return Place(str(tmp_path / "work"), str(tmp_path), "boot", "boot here", str(tmp_path))


def test_it_stays_the_same(place):
    ports = Ports(place)
    assert ports.known("u", FORK) == 0
    port = ports.of("u", FORK)
    assert ports.of("u", FORK) == ports.known("u", FORK) == ports.renew("u", FORK) == port
    assert ports.of("u", PEER) != port
    assert Ports(place).known("u", FORK) == port, "the next server knows"


def test_with_its_run_it_is_forgotten_and_no_other(place):
    ports = Ports(place)
    kept = ports.of("other", FORK)
    for fork in (FORK, PEER):
        ports.of("u", fork)
    ports.forget("u")
    assert ports.known("u", FORK) == ports.known("u", PEER) == 0
    assert ports.known("other", FORK) == Ports(place).known("other", FORK) == kept
    ports.of("u", FORK)
    Ports(place).keep_only({"other"})
    assert [note.name.split(".")[0] for note in Path(place.work).glob("*.port")] == ["other"]


def test_what_others_were_promised_outlives_its_notes(place):
    """They lie where somebody may clear up under a fork that runs."""
    ports = Ports(place)
    kept = ports.of("other", FORK)
    ports.of("u", FORK)
    for note in Path(place.work).glob("*.port"):
        note.unlink()
    ports.forget("u")
    assert ports.known("other", FORK) == kept
    assert ports.known("u", FORK) == 0


def test_it_is_one_that_anybody_may_listen_at(place):
    assert Ports(place).of("u", FORK) > 1023


def test_one_at_which_somebody_else_listens_is_replaced(place):
    ports = Ports(place)
    port = ports.of("u", FORK)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert ports.renew("u", FORK) != port
    assert Ports(place).known("u", FORK) == ports.known("u", FORK) != port


def test_one_that_another_was_promised_is_not_chosen_though_nobody_listens_there(place, monkeypatch):
    free = iter([7, 7, 8])
    monkeypatch.setattr(forks, "_any_free", lambda: next(free))
    ports = Ports(place)
    assert [ports.of("u", FORK), ports.of("u", PEER)] == [7, 8]


def test_one_at_which_old_connections_close_is_kept(place, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # whoever closes first has the closing connection
    monkeypatch.setattr(forks, "_any_free", lambda: port)
    ports = Ports(place)
    assert ports.of("u", FORK) == ports.known("u", FORK) == port
    monkeypatch.undo()
    assert ports.renew("u", FORK) == port
    assert unbindable(port) == ""
