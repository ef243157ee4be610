"""The embedded host over one home, which a test can stop and start, and the journal of its scripts."""

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

from dayfly.embedded.host import EmbeddedHost
from dayfly.embedded.ledger import SqliteLedger
from dayfly.spec.run import EndRequest
from dayfly.spec.workload import Workload

SERVER = ["python3", "-m", "http.server", "--bind", "127.0.0.1"]


async def until(found, what="it", seconds=60.0):
    """Poll until `found` returns a true value, and return it. `what` is the error message, or a function that returns
    it.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if seen := found():
            return seen
        await asyncio.sleep(0.005)
    raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")


def work_of(home: Path) -> Path:
    """Return the home's work folder, which tests delete, after a check that it is one of Dayfly's."""
    place = home / "place"
    work = Path(place.read_text()) if place.exists() else home / "attempts"
    own = work.parent == Path("/dev/shm") and work.name.startswith("dayfly-")
    assert own or home.parent in work.parents, f"{place} names {work}"
    return work


def _probing(runner: str, isolation: str, folder: Path) -> str:
    """Return the path of a runner wrapper that reports this isolation."""
    program = folder / f"runner-{isolation}"
    program.write_text(f'#!/bin/sh\n[ "$1" = probe ] && echo isolation={isolation} || exec {runner} "$@"\n')
    program.chmod(0o755)
    return str(program)


class Machine:
    """`host` is the running host. Scripts append lines to the journal, `$JOURNAL`."""

    def __init__(self, folder: Path, runner: str) -> None:
        self.home = folder / "home"
        self.journal = folder / "journal"
        self.runner = runner
        self.host: EmbeddedHost = None
        self.options = {}

    async def up(self, *, start=True, **options):
        options = {**self.options, **options}
        isolation = options.pop("isolation", None)
        environment = {**os.environ, "JOURNAL": str(self.journal)}
        runner = options.pop("runner", self.runner)
        if isolation:
            runner = _probing(runner, isolation, self.journal.parent)
        self.host = await EmbeddedHost.open(self.home, runner=runner, environment=environment, **options)
        if start:
            self.host.start()
        return self.host

    async def down(self, **options):
        if self.host is not None:
            host, self.host = self.host, None
            await host.close(**options)

    async def end(self):
        """Stop the host, and kill its remaining steps."""
        await self.down()
        for folder in self.folders():
            with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
                os.kill(int((folder / "marker").read_text().split("\n")[1]), signal.SIGKILL)
        shutil.rmtree(self.work, ignore_errors=True)

    @property
    def work(self):
        return work_of(self.home)

    def folders(self):
        return [entry for entry in self.work.iterdir() if entry.is_dir()] if self.work.exists() else []

    def lines(self):
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def stored(self, uid="u"):
        """Return the run's row in the ledger."""
        with contextlib.closing(SqliteLedger(self.home / "ledger.db")) as ledger:
            return ledger.load(uid)

    @contextlib.contextmanager
    def database(self):
        """Open the ledger's file, to damage it."""
        with contextlib.closing(sqlite3.connect(self.home / "ledger.db", isolation_level=None)) as found:
            yield found

    def report(self, uid="u"):
        return self.host.report(uid)

    def unit(self, name, uid="u"):
        return next(unit for unit in self.report(uid).units if unit.id == name)

    async def ready(self, uid="u"):
        await until(lambda: self.report(uid).ready, lambda: f"{uid} to be ready; now {self.report(uid)}")

    async def reason(self, word, uid="u", seconds=60.0):
        await until(lambda: self.report(uid).reason == word, lambda: f"{word}; now {self.report(uid)}", seconds)
        return self.report(uid)

    async def state(self, name, word, uid="u"):
        await until(lambda: self.unit(name, uid).state == word, lambda: f"{name} {word}; now {self.report(uid)}")
        return self.unit(name, uid)

    async def said(self, name, word, uid="u"):
        """Wait for a unit's reason; return its message."""
        await until(lambda: self.unit(name, uid).reason == word, lambda: f"{name} {word}; now {self.report(uid)}")
        return self.unit(name, uid).message

    async def wrote(self, line):
        await until(lambda: line in self.lines(), lambda: f"{line!r} in the journal; now {self.lines()}")

    async def delete(self, uid="u"):
        await self.host.stop(uid, EndRequest(at=1, reason="Deleted", message="asked"))

    async def gone(self, uid="u", seconds=60.0):
        await until(lambda: self.host.has_ended(uid), lambda: f"{uid} to end; now {self.report(uid)}", seconds)
        # The end is in the ledger a moment before the host forgets the living run. After another write it has.
        await self.host.acknowledge(())

    async def finish(self, uid="u"):
        await self.delete(uid)
        await self.gone(uid)

    def history(self, uid="u"):
        return [(entry.move, entry.unit, entry.attempt, entry.reason) for entry in self.host.history(uid)]

    def values(self, uid="u"):
        return {f"{value.unit}.{value.output}": value.value for value in self.host.values(uid)}

    def log(self, unit, attempt=1, uid="u"):
        return self.host.read_log(uid, unit, attempt, offset=0, limit=1 << 20)

    async def baseline(self, name="app", command=(), *, port=8080, env=None):
        """Declare a baseline: a web server, or another command."""
        command = tuple(command) or ("/bin/sh", "-c", f'exec {" ".join(SERVER)} "$PORT"')
        await self.host.baseline(Workload(name=name, command=command, port=port, env=env or {}))
