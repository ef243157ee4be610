"""Where the steps of this machine reach their states: a port of the loopback interface that is kept over restarts.

It is opened when the first step needs it, or by the next server while runs of the last one live: a Terraform that
outlives its server asks again, at the same address.
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
from dayfly.execute.state.head import DamagedError, Head, damaged
from dayfly.execute.state.service import StateOwner, StateService
from dayfly.lib.clock import now_ms
from dayfly.spec.host_errors import RunDamagedError
from dayfly.spec.run import Run
from dayfly.spec.scalars.numbers import port

log = logging.getLogger(__name__)

MAX_LARGE_BODIES = 4
AGAIN_S = 1.0


class Serve(Protocol):
    """Serves states on sockets until `stop` is set."""

    async def __call__(self, app: StateHandler, sockets: list[socket.socket], *, stop: asyncio.Event) -> None: ...


class StateDoor:
    """Serves states on this machine, from the moment on at which somebody needs one."""

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
        """Open it at once if steps may be running that know the address."""
        try:
            if self._noted() and self._reader.uids():
                self._open()
        except (OSError, ValueError) as error:
            log.warning("states cannot be served: %s", error)

    def variables(self, who: access.StateCaller) -> dict[str, str]:
        """What an attempt is to have in its environment; opens the door if need be.

        Raises:
            OSError: no port can be had, or the key neither read nor written.
        """
        try:
            opened = self._open()
        except ValueError as error:
            raise OSError(str(error)) from None
        return {
            **access.variables(access.StateEndpoint(self._url), who),
            access.PASSWORD: access.derive_password(opened, who),
        }

    async def record_unsaved(self) -> None:
        """Record the writes that could not be stored, so that `head` has them."""
        if self._service is not None:
            with contextlib.suppress(OSError, RunDamagedError):
                await self._service.record_unsaved()

    def head(self, run: str, resource: str, reader: tuple[str, int]) -> Head:
        """Return the head of a state; a damaged one counts as a refused write of the attempt `reader`.

        Raises:
            OSError: it cannot be read now.
        """
        try:
            return self._files.found(StateOwner(run, resource)).head
        except DamagedError as error:
            return damaged(error, reader)

    def clear(self, run: Run) -> None:
        """The run is over."""
        self._files.clear(run)

    async def close(self) -> None:
        """Answer nobody any more."""
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _open(self) -> access.StateKeys:
        if self._keys is not None:
            return self._keys
        known = states.keys(self._home)
        sock = _listen(self._noted())
        self._tell(sock)
        self._service = StateService(known, self._files, now_ms)
        app = StateHandler(self._service, max_large_bodies=MAX_LARGE_BODIES)
        self._task = asyncio.create_task(self._keep_open(app, sock), name="states")
        self._keys = known
        return known

    def _tell(self, sock: socket.socket) -> None:
        port = sock.getsockname()[1]
        replace_file(str(self._note), str(port))
        self._url = f"http://{HOST}:{port}"

    async def _keep_open(self, app: StateHandler, sock: socket.socket) -> None:
        """Serve until the end. Steps that run know the address: if nobody serves there any more, it is opened again."""
        again: socket.socket | None = sock
        while True:
            try:
                if again is None:
                    again = _listen(self._noted())
                    self._tell(again)
                await self._serve(app, [again], stop=self._stop)
                said = "whoever served them has ended"
            except Exception as error:  # noqa: BLE001 - whichever it is, it is said, and steps wait for an answer
                said = repr(error)
            if again is not None:
                again.close()
                again = None
            if self._stop.is_set():
                return
            log.error("states are not served for %g s: %s", AGAIN_S, said)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), AGAIN_S)

    @property
    def _note(self) -> Path:
        return states.folder(self._home) / "port"

    def _noted(self) -> int:
        return port(read_file(str(self._note)).decode(errors="replace").strip()) or 0


def _listen(port: int) -> socket.socket:
    """A socket at the port of before; at another if somebody else has that by now."""
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
            log.warning("port %d, at which running steps look for their states, is somebody else's by now", wanted)
        else:
            return sock
    raise AssertionError("the kernel names a free port or refuses")
