"""Three clusters under one server of two replicas, one of which is killed every five seconds."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cluster.journal import Journal
from tests.cluster.member_cluster import ORG, Member, member
from tests.cluster.server_changes import PEOPLE, PLUGIN, Day, plugin, wish
from tests.cluster.waiting import eventually
from tests.selection import in_time
from tests.server import databases
from tests.server.replicas import Replicas, RetryingClient
from tests.server.test_killed_replicas import check_audit

EAST, WEST, NORTH = "east", "west", "north"
AT_FIRST, BRIEF, CHANGES = 100, 20, 1000
# Only the clocks of the server advance by a day: a cluster starts nothing if the operator's clock is a day ahead of its
# API server's. So the sandboxes that expire in the meantime have a time to live of minutes.
DAY_H, MOVES, BRIEFLY = 24, 4, "2m"
MERGED_S = 60.0
# All of some hundred sandboxes is read from all sides: more often, and that would be most of the machine's work.
LOOK_S = 4.0


class Plane(NamedTuple):
    """The server, its clusters, and a client."""

    database: Kept
    replicas: Replicas
    asking: RetryingClient
    east: Member
    west: Member
    north: Member
    journal: Journal

    @property
    def members(self) -> tuple[Member, Member, Member]:
        return self.east, self.west, self.north

    def sandboxes(self, cluster: str) -> dict[str, dict[str, Any]]:
        """Return all its sandboxes for a cluster, by name."""
        found = self.asking.must("GET", "sandboxes")
        return {each["name"]: each for each in found if each["spec"]["cluster"] == cluster}

    def ready(self, cluster: str, *names: str) -> bool:
        found = self.sandboxes(cluster)
        return all(name in found and found[name]["status"]["ready"] for name in names)

    def message(self, name: str) -> str:
        return self.asking.must("GET", f"sandboxes/{name}")["status"]["message"]

    def gone(self, name: str) -> bool:
        return self.asking.ask("GET", f"sandboxes/{name}")[0] == 404


class Kept:
    """The database of the server, and a backup of it."""

    def __init__(self, postgres: databases.Postgres, backup: Path) -> None:
        self.url = postgres.fresh()
        self._postgres = postgres
        self._backup = backup

    def dump(self) -> None:
        self._postgres.dump(self.url, self._backup)

    def restore(self) -> None:
        self._postgres.restore(self.url, self._backup)


@pytest.fixture
def plane(machine, tmp_path) -> Iterator[Plane]:
    with contextlib.ExitStack() as stack:
        database = Kept(stack.enter_context(databases.postgres()), tmp_path / "backup")
        replicas = Replicas(database.url, tmp_path)
        stack.callback(replicas.close)
        asking = RetryingClient(replicas.balancer.add_address(), ORG, replicas.init(ORG))
        clusters = [
            stack.enter_context(member(name, replicas.balancer.add_address(), kubelet=name == EAST))
            for name in (EAST, WEST, NORTH)
        ]
        journal = Journal(clusters[0].where.cluster.network.host)
        stack.callback(journal.close)
        replicas.start()
        for name in (EAST, WEST, NORTH):
            asking.must("PUT", f"clusters/{name}", {})
        yield Plane(database, replicas, asking, *clusters, journal)


def token(plane: Plane, cluster: str) -> str:
    return plane.asking.must("POST", f"clusters/{cluster}/tokens", {})["token"]


@pytest.mark.proof
@pytest.mark.builds("kwok")
@pytest.mark.timeout(900, func_only=True)
def test_three_clusters_survive_killed_replicas(plane, played):
    asking, journal = plane.asking, plane.journal
    asking.must("PUT", f"resource-plugins/{PLUGIN}", plugin(journal))
    with contextlib.ExitStack() as operators:
        for each in (plane.east, plane.west):
            operators.enter_context(each.dialling(token(plane, each.name)))
        first = {EAST: ["e0", "e1", "e2"], WEST: [f"w{number}" for number in range(AT_FIRST)], NORTH: ["n0", "n1"]}
        with ThreadPoolExecutor(PEOPLE) as pool:
            wishes = [(name, cluster) for cluster, names in first.items() for name in names]
            list(pool.map(lambda each: asking.must("PUT", f"sandboxes/{each[0]}", wish(each[1])), wishes))
        a_bad_token_is_refused_and_does_no_harm(plane, first[NORTH])
        operators.enter_context(plane.north.dialling(token(plane, NORTH)))
        for cluster, names in first.items():
            eventually(
                lambda cluster=cluster, names=names: plane.ready(cluster, *names),
                f"{cluster} is ready",
                seconds=240,
                pause=1.0,
            )

        took = a_day_away(plane, first[WEST])
        a_database_that_was_restored_freezes(plane)

        for member_ in plane.members:
            for name in plane.sandboxes(member_.name):
                asking.must("DELETE", f"sandboxes/{name}")
        for member_ in plane.members:
            eventually(
                lambda at=member_.name: not plane.sandboxes(at), f"{member_.name} has nothing", seconds=240, pause=1.0
            )
            member_.check_nothing_left()
    for member_ in plane.members:
        member_.check_once()
    journal.check()
    check_audit(asking)
    assert "Traceback" not in plane.replicas.words()
    said = f"merged in {took:.0f} s, {plane.replicas.kills} kills"
    played("changes at the server while a cluster was away for a day", CHANGES, said)
    assert in_time(took, MERGED_S), said


def a_bad_token_is_refused_and_does_no_harm(plane: Plane, names: list[str]) -> None:
    """The cluster starts nothing, and both sides report the bad token."""
    with plane.north.dialling("dfc_nobody_knows_this_one") as running:
        eventually(lambda: running.figure("dayfly_server_refusals") > 0, "it is refused")
        assert running.figure("dayfly_server_connected") == 0
        eventually(
            lambda: "no operator has connected yet" in plane.message(names[0]), "its sandbox reports why it waits"
        )
        assert not plane.north.sandboxes()
    assert "no valid cluster token" in plane.north.words()


def a_day_away(plane: Plane, names: list[str]) -> float:
    """The seconds in which both sides agree again about all that has changed, counted from when the way is open."""
    west, clock = plane.west, plane.replicas.clock
    with ThreadPoolExecutor(PEOPLE) as pool:
        ttl = {"duration": BRIEFLY, "offsetFrom": "updatedAt"}
        list(pool.map(lambda name: plane.asking.must("PUT", f"sandboxes/{name}", wish(WEST, ttl=ttl)), names[:BRIEF]))
    eventually(
        lambda: all(west.runs()[name]["spec"]["offered"].get("expiresAt") for name in names[:BRIEF]), "it is told"
    )
    assert not drops(west), "it is cut off before their time is over"
    west.way.cut()
    day = Day(plane.asking, WEST, names[BRIEF:], CHANGES)
    passing = threading.Thread(target=day.pass_by)
    passing.start()
    for number in range(1, MOVES + 1):
        eventually(
            lambda number=number: day.done >= number * CHANGES // MOVES or not passing.is_alive(),
            "it passes",
            seconds=600,
        )
        clock.move_on(DAY_H / MOVES)
    passing.join()
    assert day.done == CHANGES
    others_go_on(plane)
    # The cluster applies the received times to live, and the server does not guess.
    eventually(lambda: drops(west) == BRIEF, "they expire in the cluster", seconds=240)
    here = plane.sandboxes(WEST)
    assert {*names, *day.living, *day.brief} <= here.keys()
    assert all("its operator last connected at" in here[name]["status"]["message"] for name in names[:BRIEF])
    assert not [each for each in here.values() if each["status"]["ready"]]

    began = time.monotonic()
    west.way.open()
    eventually(lambda: merged(plane, day), "both sides agree", seconds=600, pause=LOOK_S)
    took = time.monotonic() - began
    makes = [each for each in west.begun() if each.unit.endswith("/make")]
    begun = {each.run for each in makes}
    assert len(begun) == len(makes) == AT_FIRST + sum(name.startswith("v") for name in day.living)
    return took


def drops(member_: Member) -> int:
    return sum(each.unit.endswith("/drop") for each in member_.begun())


def others_go_on(plane: Plane) -> None:
    """The other clusters feel nothing of it."""
    for cluster, name in ((EAST, "e-meanwhile"), (NORTH, "n-meanwhile")):
        plane.asking.must("PUT", f"sandboxes/{name}", wish(cluster))
        eventually(lambda cluster=cluster, name=name: plane.ready(cluster, name), f"{name} is ready")
        plane.asking.must("DELETE", f"sandboxes/{name}")
        eventually(lambda name=name: plane.gone(name), f"{name} is gone")


def merged(plane: Plane, day: Day) -> bool:
    """Return whether the server, the confirmed changes of the clients, and the cluster agree."""
    here = plane.sandboxes(WEST)
    wishes = {name: int(each["spec"]["labels"]["n"]) for name, each in here.items()}
    if wishes != day.living or not all(each["status"]["ready"] for each in here.values()):
        return False
    newest = {name: milliseconds(each["updatedAt"]) for name, each in here.items()}
    taken = {name: each["spec"]["offered"]["generation"] for name, each in plane.west.runs().items()}
    return newest == taken and plane.west.sandboxes().keys() == day.living.keys()


def milliseconds(time_: str) -> int:
    return round(dt.datetime.fromisoformat(time_).timestamp() * 1000)


def a_database_that_was_restored_freezes(plane: Plane) -> None:
    """The clusters start, stop and delete nothing until a person has decided, and then nothing runs a second time."""
    asking = plane.asking
    names = {each: [f"{each}-{what}" for what in ("kept", "before", "after", "new")] for each in (EAST, WEST, NORTH)}
    for cluster, (kept, before, _, _) in names.items():
        for name in (kept, before):
            asking.must("PUT", f"sandboxes/{name}", wish(cluster))
        eventually(lambda at=cluster, both=(kept, before): plane.ready(at, *both), f"{cluster} has two more")
    plane.database.dump()
    for cluster, (_, before, after, _) in names.items():
        asking.must("DELETE", f"sandboxes/{before}")
        asking.must("PUT", f"sandboxes/{after}", wish(cluster))
    for each in plane.members:
        _, before, after, _ = names[each.name]
        eventually(lambda at=each.name, name=after: plane.ready(at, name), f"{after} is ready")
        eventually(lambda name=before: plane.gone(name), f"{before} is gone")
        # The server records its end first, and the cluster learns of that later.
        eventually(lambda at=each, name=before: name not in at.sandboxes(), f"{before} is released")
    with plane.replicas.stopped():
        plane.database.restore()
    for each in plane.members:
        eventually(lambda at=each.name: frozen(plane, at).get("compared"), f"{each.name} is frozen", seconds=240)
    objects = [{name: item["metadata"]["uid"] for name, item in each.sandboxes().items()} for each in plane.members]
    begun = [len(each.begun()) for each in plane.members]
    for cluster, (kept, _, _, new) in names.items():
        asking.must("DELETE", f"sandboxes/{kept}")
        asking.must("PUT", f"sandboxes/{new}", wish(cluster))
    kills = plane.replicas.kills
    # Each of the two twice: in between it had all the time that it ever has.
    eventually(lambda: plane.replicas.kills >= kills + 4, "both replicas are killed again")
    for each, its, count in zip(plane.members, objects, begun, strict=True):
        now = each.sandboxes()
        assert {name: item["metadata"]["uid"] for name, item in now.items()} == its
        assert not [name for name, item in now.items() if "deletionTimestamp" in item["metadata"]]
        assert len(each.begun()) == count
        _, before, after, new = names[each.name]
        sides = frozen(plane, each.name)
        assert sides["onlyInCluster"] == [now[after]["metadata"]["labels"]["dayfly.dev/served"]]
        assert sides["onlyHere"] == [before, new]
        assert "frozen" in plane.message(new)
    for each in plane.members:
        asking.must("POST", f"clusters/{each.name}/thaw", {})
    for each in plane.members:
        kept, before, after, new = names[each.name]
        eventually(lambda at=each.name, name=new: plane.ready(at, name), f"{new} is ready")
        eventually(lambda name=kept: plane.gone(name), f"{kept} is gone")
        eventually(
            lambda name=before: "no longer knows this sandbox" in plane.message(name), f"{before} is said to be lost"
        )
        asking.must("DELETE", f"sandboxes/{before}?force=true")
        of_the_cluster = each.sandboxes()[after]["metadata"]["name"]
        each.where.cluster.kubectl(
            "delete", "sandboxes.dayfly.dev", of_the_cluster, "-n", "acme-sandboxes", "--timeout=120s"
        )


def frozen(plane: Plane, cluster: str) -> dict[str, Any]:
    return plane.asking.must("GET", f"clusters/{cluster}/thaw")
