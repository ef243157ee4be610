"""A log of steps outside the cluster, written as they run: the ground truth for "twice", "order" and "never".

The script of a step connects, sends one line, and continues after the answer. Dayfly is not involved, and processes
that a test kills do not write the log.
"""

import socketserver
import threading
from collections import Counter
from typing import NamedTuple

from tests.cluster.waiting import eventually


class Entry(NamedTuple):
    """One line: the resource, the attempt, and the action (`create first`, `delete gone`)."""

    resource: str
    attempt: int
    said: str


class Journal:
    """A server at the address under which pods reach this machine. Held lines are answered when they are released."""

    def __init__(self, address: str) -> None:
        self.entries: list[Entry] = []
        self._held: set[str] = set()
        self._change = threading.Condition()
        self._server = _Server((address, 0), self)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def tell(self, said: str) -> str:
        """Return a shell command that sends a line and waits for the answer; without an answer it fails."""
        host, port = self._server.server_address[:2]
        line = f'"$DAYFLY_RESOURCE_ID $DAYFLY_ATTEMPT {said}"'
        return f'[ "$(echo {line} | nc {host} {port})" = on ] || exit 70'

    def hold(self, *said: str) -> None:
        """Let steps that send one of these lines wait from now on."""
        with self._change:
            self._held.update(said)

    def let_go(self, *said: str) -> None:
        """Answer the waiting steps and stop holding these lines; without arguments all lines."""
        with self._change:
            self._held.difference_update(said or set(self._held))
            self._change.notify_all()

    def wait_for(self, said: str, *, times: int = 1) -> Entry:
        """Wait until there are `times` such entries; return the last of these."""
        found = eventually(lambda: self.of(said)[times - 1 :], f"the journal's line {said!r}")
        return found[0]

    def of(self, said: str) -> list[Entry]:
        """Return all entries with this line."""
        return [entry for entry in self.entries if entry.said == said]

    def check(self) -> None:
        """Each create step of a resource began at most once, and none after a delete step of that resource."""
        twice = [
            key
            for key, count in Counter((entry.resource, entry.said) for entry in self._creates()).items()
            if count > 1
        ]
        assert not twice, f"ran more than once: {twice}\n{self}"
        deleting: set[str] = set()
        for entry in self.entries:
            assert not (entry in self._creates() and entry.resource in deleting), (
                f"created after cleanup: {entry}\n{self}"
            )
            if entry.said.startswith("delete "):
                deleting.add(entry.resource)

    def close(self) -> None:
        """Answer all steps and close the server."""
        self.let_go()
        self._server.shutdown()
        self._server.server_close()

    def __str__(self) -> str:
        return "\n".join(f"{entry.resource} {entry.attempt} {entry.said}" for entry in self.entries)

    def _creates(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.said.startswith("create ")]

    def hear(self, line: str) -> None:
        resource, attempt, said = line.split(maxsplit=2)
        with self._change:
            self.entries.append(Entry(resource, int(attempt), said))
            self._change.wait_for(lambda: said not in self._held)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], journal: Journal) -> None:
        super().__init__(address, _Handler)
        self.journal = journal


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        if line := self.rfile.readline().decode().strip():  # a step that was killed at once sends no line
            self.server.journal.hear(line)
            self.wfile.write(b"on")
