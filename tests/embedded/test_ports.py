"""The ports of forks, kept until their run ends; and the generation of a fork, from its baseline and addresses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.embedded import documents as doc
from tests.embedded.routed_machine import preview

from dayfly.embedded import forks
from dayfly.embedded.forks import BaselineProcesses, Ports
from dayfly.embedded.routes.envoy_process import unbindable
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.plan.sealed import seal
from dayfly.spec.workload import Workload

FORK, PEER = "fork:default/app", "fork:default/api"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "work").mkdir(mode=0o700)
    return AttemptStorage(str(tmp_path / "work"), str(tmp_path), "boot", "boot here", str(tmp_path))


def test_port_of_a_fork_stays_the_same(place):
    ports = Ports(place)
    assert ports.find("u", FORK) == 0
    port = ports.assign("u", FORK)
    assert ports.assign("u", FORK) == ports.find("u", FORK) == ports.renew("u", FORK) == port
    assert ports.assign("u", PEER) != port
    assert Ports(place).find("u", FORK) == port, "the next server has it"


def test_a_note_that_is_no_port_is_none(place):
    """A damaged or edited note: with that port, the fork could never start."""
    for number in (0, 65_536, 99_999_999):
        place.write_number(f"u.{forks.slug(FORK)}.port", number)
        ports = Ports(place)
        assert ports.find("u", FORK) == 0
        assert 0 < ports.renew("u", FORK) <= 65_535
    place.write_number(f"u.{forks.slug(FORK)}.port", 65_535)
    assert Ports(place).find("u", FORK) == 65_535


def test_forgetting_a_run_keeps_ports_of_others(place):
    ports = Ports(place)
    kept = ports.assign("other", FORK)
    for fork in (FORK, PEER):
        ports.assign("u", fork)
    ports.forget("u")
    assert ports.find("u", FORK) == ports.find("u", PEER) == 0
    assert ports.find("other", FORK) == Ports(place).find("other", FORK) == kept
    ports.assign("u", FORK)
    Ports(place).keep_only({"other"})
    assert [note.name.split(".")[0] for note in Path(place.work).glob("*.port")] == ["other"]


def test_promised_port_survives_removal_of_its_file(place):
    """A cleanup program may remove the notes while the fork runs."""
    ports = Ports(place)
    kept = ports.assign("other", FORK)
    ports.assign("u", FORK)
    for note in Path(place.work).glob("*.port"):
        note.unlink()
    ports.forget("u")
    assert ports.find("other", FORK) == kept
    assert ports.find("u", FORK) == 0


def test_port_is_unprivileged(place):
    assert Ports(place).assign("u", FORK) > 1023


def test_port_in_use_is_replaced(place):
    ports = Ports(place)
    port = ports.assign("u", FORK)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert ports.renew("u", FORK) != port
    assert Ports(place).find("u", FORK) == ports.find("u", FORK) != port


def test_promised_port_is_not_chosen_again(place):
    ports = Ports(place, iter([7, 7, 8]).__next__)
    assert [ports.assign("u", FORK), ports.assign("u", PEER)] == [7, 8]
    later = Ports(place, iter([7, 9]).__next__)
    assert [later.assign("u", FORK), later.assign("v", FORK)] == [7, 9], "also not by the next server"


def test_port_with_closing_connections_is_kept(place):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # the side that closes first keeps the closing connection
    ports = Ports(place, lambda: port)
    assert ports.assign("u", FORK) == ports.find("u", FORK) == port
    assert ports.renew("u", FORK) == port
    assert unbindable(port) == ""


def plan(*forks):
    return seal((doc.resource("r", [doc.step("a")]),), forks)


def asks(name, *peers):
    """A fork that uses the addresses of others."""

    def source(peer):
        of = {"kind": "Deployment", "namespace": "default", "name": peer}
        return {"fork": {"forkOf": of, "expression": "{{.Host}}:{{.Port}}"}}

    return doc.fork(name, env=[doc.set_env(f"AT_{peer}", source=source(peer)) for peer in peers])


def test_fork_generation_changes_with_addresses_it_reads(place):
    ports, wished = Ports(place), plan(asks("app", "api", "mute"), doc.fork("api"), doc.fork("mute"))
    there = {FORK, PEER}

    def generations():
        followed = ports.follow("u", wished, there)
        assert list(followed.kept) == list(wished.kept)
        return {name: fork.generation for name, fork in followed.kept.items()}

    before = generations()
    assert before == {name: fork.generation for name, fork in wished.kept.items()} | {
        FORK: f"{wished.kept[FORK].generation} [{ports.find('u', PEER)}]"
    }
    assert ports.find("u", "fork:default/mute") == 0, "a fork without a port gets none"
    assert generations() == before
    ports.forget("u")
    assert generations()[FORK] != before[FORK]


class TestBaselines:
    @pytest.fixture
    def baselines(self):
        found = BaselineProcesses()
        found.put(Workload(name="app", command=("/bin/app",), port=80, routed_port=90))
        found.put(Workload(name="mute", command=("/bin/mute",)))
        return found

    WISHED = plan(doc.fork("app"), doc.fork("mute"), doc.fork("gone"), preview("k", after=()))

    def test_a_fork_has_a_port_if_its_baseline_has_one(self, baselines):
        assert baselines.with_ports(self.WISHED) == {FORK}

    def test_fork_generation_changes_with_its_baseline(self, baselines):
        def generations():
            return {name: fork.generation for name, fork in baselines.follow_baselines(self.WISHED).kept.items()}

        plain = {name: fork.generation for name, fork in self.WISHED.kept.items()}
        before = generations()
        assert {name for name in plain if before[name] != plain[name]} == {FORK, "fork:default/mute"}
        baselines.put(Workload(name="app", command=("/bin/app",), port=80, routed_port=91))
        assert generations() == before, "the routed port of the baseline does not change its forks"
        baselines.put(Workload(name="app", command=("/bin/app", "-v"), port=80))
        assert {name for name, each in generations().items() if each != before[name]} == {FORK}
