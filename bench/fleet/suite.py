"""(g), (h) Reads during constant changes, compared with reads at rest; and the traffic of publishing a plugin."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from bench.fleet import servers
from bench.rows import Row, Table, folder, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from bench.fleet.servers import Server, Used

AGENTS, SANDBOXES, PER_SECOND = 50, 10_000, 20
# Idle turns alternate with turns under load. Each turn has this many reads of each kind.
TURNS, READS = 5, 100
PAGE = 100
PUBLISHED, PUBLISHED_S = 20, 5.0
# The fleet is at rest after this time without messages. A turn under load starts to count after this time.
QUIET_S, BEGUN_S = 3, 2
AIM = 3.0
Database: TypeAlias = "Callable[[Path], AbstractContextManager[Server]]"
DATABASES: Mapping[str, Database] = {"SQLite": servers.sqlite, "PostgreSQL": servers.postgresql}
KINDS = {
    "a sandbox": "sandboxes/{name}",
    f"a page of {PAGE}": f"sandboxes?limit={PAGE}&after={{name}}",
    "why": "sandboxes/{name}/why",
    "first event of its changes": "sandboxes/{name}/changes",
}


class Fleet:
    """The process that generates the load."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *words: object) -> dict[str, Any]:
        """Send a command, and wait until it is done."""
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.response()

    def response(self) -> dict[str, Any]:
        """Read the next response."""
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the fleet's process ended")
        return json.loads(line)


class Phase(NamedTuple):
    """One turn: the seconds of each read by kind, its duration, and the CPU time in it."""

    took: dict[str, list[float]]
    seconds: float
    used: Used


class Found(NamedTuple):
    """The results of one database."""

    idle: list[Phase]
    busy: list[Phase]
    memory: tuple[float, float]
    changes: int
    failed: int
    sent: list[int]
    published: int
    loads: tuple[float, float]


def measure(
    sandboxes: int = SANDBOXES,
    agents: int = AGENTS,
    turns: int = TURNS,
    reads: int = READS,
    databases: Mapping[str, Database] = DATABASES,
) -> Iterator[Any]:
    """Measure on each of the databases."""
    found = {}
    for name, database in databases.items():
        with folder() as place, database(place) as server, _fleet(server, agents) as fleet:
            found[name] = _with(server, fleet, sandboxes, turns, reads)
        yield from _rows(name, found[name], agents)
    yield _table(found, agents, sandboxes)


def _with(server: Server, fleet: Fleet, sandboxes: int, turns: int, reads: int) -> Found:
    began = os.getloadavg()[0]
    fleet.run("fill", sandboxes)
    fleet.run("settle", QUIET_S)
    reader = Reader(server)
    reader.turn(fleet.run("count")["names"], 5)
    before = fleet.run("count")
    fleet.run("publish", PUBLISHED)
    time.sleep(PUBLISHED_S)
    first = fleet.run("count")
    idle, busy = [], []
    for _ in range(turns):
        names = fleet.run("count")["names"]
        idle.append(reader.turn(names, reads))
        fleet.run("flow", PER_SECOND)
        time.sleep(BEGUN_S)
        busy.append(reader.turn(names, reads))
        fleet.run("still")
        fleet.run("settle", QUIET_S)
    last = fleet.run("count")
    return Found(
        idle,
        busy,
        server.memory(),
        last["changes"],
        last["failed"],
        [now - then for now, then in zip(last["letters"], first["letters"], strict=True)],
        sum(first["letters"]) - sum(before["letters"]),
        (began, os.getloadavg()[0]),
    )


class Reader:
    """Sends one request after another over a kept connection, as a client does."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._host = urlsplit(server.url).netloc
        self._connection = http.client.HTTPConnection(self._host)

    def turn(self, names: list[str], reads: int) -> Phase:
        """Send this many requests of each kind, in turns."""
        took: dict[str, list[float]] = {kind: [] for kind in KINDS}
        # Between turns the server would close an idle connection.
        self._connection = http.client.HTTPConnection(self._host, timeout=servers.TIMEOUT_S)
        used, began = self._server.used(), time.perf_counter()
        for number in range(reads):
            for kind, path in KINDS.items():
                at = f"/api/v2/orgs/{servers.ORG}/{path.format(name=names[number * 7919 % len(names)])}"
                since = time.perf_counter()
                if (self._first_event if path.endswith("/changes") else self._whole)(at):
                    took[kind].append(time.perf_counter() - since)
        after = self._server.used()
        self._connection.close()
        spent = type(used)(after.server - used.server, after.database - used.database)
        return Phase(took, time.perf_counter() - began, spent)

    def _whole(self, at: str) -> bool:
        try:
            answer = self._answer(at)
        except http.client.RemoteDisconnected:
            self._connection.close()  # it was idle for too long, so the next request opens another
            answer = self._answer(at)
        self.said = answer.read()
        return self._is_good(at, answer)

    def _answer(self, at: str) -> http.client.HTTPResponse:
        self._connection.request("GET", at, headers={"signadot-api-key": self._server.key})
        return self._connection.getresponse()

    def _first_event(self, at: str) -> bool:
        connection = http.client.HTTPConnection(self._host, timeout=servers.TIMEOUT_S)
        try:
            connection.request("GET", at, headers={"signadot-api-key": self._server.key})
            answer = connection.getresponse()
            return self._is_good(at, answer) and answer.readline().startswith(b"event: changed")
        finally:
            connection.close()

    def _is_good(self, at: str, answer: http.client.HTTPResponse) -> bool:
        """Return whether the response is good. A sandbox may have been deleted since it was listed."""
        if answer.status not in (200, 404):
            raise RuntimeError(f"{at}: {answer.status} {answer.reason} {self.said}")
        return answer.status == 200


@contextmanager
def _fleet(server: Server, agents: int) -> Iterator[Fleet]:
    tokens = {}
    for number in range(agents):
        name = f"c{number}"
        server.ask("PUT", f"clusters/{name}", {})
        tokens[name] = server.ask("POST", f"clusters/{name}/tokens", {})["token"]
    command = [sys.executable, "-m", "bench.fleet.load"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        fleet = Fleet(process)
        config = {"url": server.url, "key": server.key, "org": servers.ORG, "tokens": tokens}
        try:
            fleet.run(json.dumps(config))
            yield fleet
        finally:
            assert process.stdin is not None, "opened as a pipe"
            process.stdin.close()  # this ends the process
            process.wait(servers.TIMEOUT_S)


def _rows(database: str, found: Found, agents: int) -> Iterator[Row]:
    for kind in KINDS:
        idle, busy = (_all(phases, kind) for phases in (found.idle, found.busy))
        apart = _high(busy) / _high(idle)
        yield Row(
            f"(g) reading {kind} during {PER_SECOND} changes a second, {database}, 99th percentile "
            "(yardstick: at rest)",
            f"{_high(busy) * 1e3:.1f} ms",
            f"{_high(idle) * 1e3:.1f} ms",
            f"{apart:.1f} x (medians {_middle(busy) * 1e3:.1f} and {_middle(idle) * 1e3:.1f} ms)",
            f"{AIM:g} x",
            apart <= AIM,
        )
    yield Row(
        f"(h) {PUBLISHED} published versions of an unused plugin, {database}: bytes to {agents} agents",
        f"{found.published}",
        "-",
        f"{found.published} bytes",
        "0",
        found.published == 0,
    )


def _table(found: dict[str, Found], agents: int, sandboxes: int) -> Table:
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]

    def line(what: str, say: Callable[[Found], str]) -> None:
        lines.append(f"| {what} | " + " | ".join(say(each) for each in found.values()) + " |")

    line("memory of the server, MB", lambda each: f"{each.memory[0]:.0f}")
    line("memory of the database, MB", lambda each: f"{each.memory[1]:.0f}" if each.memory[1] else "in the server")
    for name, of in (("at rest", 0), (f"at {PER_SECOND} changes a second", 1)):
        for who, which in (("server", 0), ("database", 1)):

            def say(each: Found, of: int = of, which: int = which) -> str:
                phases = each[of]
                spent = sum(phase.used[which] for phase in phases) / sum(phase.seconds for phase in phases)
                return f"{spent * 1e3:.0f}" if spent else "in the server"

            line(f"CPU time of the {who} {name}, reads included, ms a second", say)
    line("reads a second, at rest and under load", lambda each: f"{_pace(each.idle)} and {_pace(each.busy)}")
    line("bytes to an agent for each change, least and most", _sent)
    line("changes that failed, of all", lambda each: f"{each.failed} of {each.changes + each.failed}")
    line("load average at the start and the end", lambda each: "{:.1f} and {:.1f}".format(*each.loads))
    title = f"{agents} agents with {sandboxes:,} sandboxes, and one client that watches all changes"
    return Table(title, "\n".join(lines) + "\n")


def _sent(found: Found) -> str:
    each = [sent * len(found.sent) / max(found.changes, 1) for sent in found.sent]
    return f"{min(each):,.0f} and {max(each):,.0f}"


def _pace(phases: list[Phase]) -> str:
    asked = sum(len(times) for phase in phases for times in phase.took.values())
    return f"{asked / sum(phase.seconds for phase in phases):.0f}"


def _all(phases: list[Phase], kind: str) -> list[float]:
    return sorted(took for phase in phases for took in phase.took[kind])


def _high(took: list[float]) -> float:
    return took[min(len(took) - 1, len(took) * 99 // 100)]


def _middle(took: list[float]) -> float:
    return took[len(took) // 2]


if __name__ == "__main__":
    show(lambda: [each for each in measure() if isinstance(each, Row)])
