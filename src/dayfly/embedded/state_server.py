"""The HTTP server for Terraform states of steps, on a loopback port that is kept over restarts.

It starts with the first step that needs a state. It also starts with the server if runs of an earlier server live: a
Terraform that outlives its server retries the same address.
"""

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from typing import Protocol

from dayfly.embedded import states
from dayfly.embedded.forks import HOST
from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.states import StateFiles
from dayfly.execute.process.files import read_file, replace_file
from dayfly.execute.state import access
from dayfly.execute.state.handler import StateHandler
from dayfly.execute.state.head import DamagedError, Head, damaged_head
from dayfly.execute.state.service import StateOwner, StateService
from dayfly.lib.clock import now_ms
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.run import Run
from dayfly.spec.scalars.numbers import parse_port

log = logging.getLogger(__name__)

MAX_LARGE_BODIES = 4
RETRY_AFTER_S = 1.0


class Serve(Protocol):
    """Serves states on sockets until `stop` is set."""

    async def __call__(self, app: StateHandler, sockets: list[socket.socket], *, stop: asyncio.Event) -> None: ...


class StateServer:
    """Serves states on this machine, from the first step that needs one."""

    def __init__(self, home: Path, reader: SqliteLedger, serve: Serve) -> None:
        self._home = home
        self._reader = reader
        self._serve = serve
        self._files = StateFiles(home, reader)
        self._keys: access.StateKeys | None = None
        self._service: StateService | None = None
        self._url = ""
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def resume(self) -> None:
        """Start serving at once if running steps may know the address."""
        try:
            if self._known_port() and self._reader.live_uids():
                self._open()
        except (OSError, ValueError) as error:
            log.warning("cannot serve states: %s", error)

    def variables(self, who: access.StateCaller) -> dict[str, str]:
        """Return the environment variables of an attempt; start serving if needed.

        Raises:
            OSError: no port is free, or the key can be neither read nor written.
        """
        try:
            keys = self._open()
        except ValueError as error:
            raise OSError(str(error)) from None
        return {
            **access.variables(access.StateEndpoint(self._url), who),
            access.PASSWORD: access.derive_password(keys, who),
        }

    async def record_unsaved(self) -> None:
        """Record the writes that could not be stored, so that `head` has them."""
        if self._service is not None:
            with contextlib.suppress(OSError, RunDamagedError):
                await self._service.record_unsaved()

    def head(self, run: str, resource: str, reader: tuple[str, int]) -> Head:
        """Return the head of a state; a damaged one counts as a refused write of the attempt `reader`.

        Raises:
            OSError: the state cannot be read now.
        """
        try:
            return self._files.load(StateOwner(run, resource)).head
        except DamagedError as error:
            return damaged_head(error, reader)

    def clear(self, run: Run) -> None:
        """Remove the states of a run that has ended."""
        self._files.clear(run)

    async def close(self) -> None:
        """Stop serving."""
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _open(self) -> access.StateKeys:
        if self._keys is not None:
            return self._keys
        known = states.keys(self._home)
        sock = _listen(self._known_port())
        self._publish_port(sock)
        self._service = StateService(known, self._files, now_ms)
        app = StateHandler(self._service, max_large_bodies=MAX_LARGE_BODIES)
        self._task = asyncio.create_task(self._keep_open(app, sock), name="states")
        self._keys = known
        return known

    def _publish_port(self, sock: socket.socket) -> None:
        port = sock.getsockname()[1]
        replace_file(str(self._port_file), str(port))
        self._url = f"http://{HOST}:{port}"

    async def _keep_open(self, app: StateHandler, sock: socket.socket) -> None:
        """Serve until `close`. Running steps know the address, so a server that ends is started again."""
        again: socket.socket | None = sock
        while True:
            try:
                if again is None:
                    again = _listen(self._known_port())
                    self._publish_port(again)
                await self._serve(app, [again], stop=self._stop)
                said = "the HTTP server has ended"
            except Exception as error:  # noqa: BLE001 - any error is logged, and running steps wait for the next try
                said = repr(error)
            if again is not None:
                again.close()
                again = None
            if self._stop.is_set():
                return
            log.error("states are not served for the next %g s: %s", RETRY_AFTER_S, said)
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(RETRY_AFTER_S):
                    await self._stop.wait()

    @property
    def _port_file(self) -> Path:
        return states.folder(self._home) / "port"

    def _known_port(self) -> int:
        return parse_port(read_file(str(self._port_file)).decode(errors="replace").strip()) or 0


def _listen(port: int) -> socket.socket:
    """Return a socket that listens on `port`, or on a free port if another process uses it."""
    for wanted in dict.fromkeys((port, 0)):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((HOST, wanted))
            sock.listen(128)
        except OSError:
            sock.close()
            if not wanted:
                raise
            log.warning("another process uses port %d, where running steps expect their states", wanted)
        else:
            return sock
    raise AssertionError("the kernel assigns a free port or raises")
