"""Where the steps of this machine reach their states: a port of the loopback interface that is kept over restarts.

It is opened when the first step needs it, or by the next server while runs of the last one live: a Terraform that
outlives its server asks again, at the same address.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs

from dayfly.embedded import states
from dayfly.embedded.clock import now_ms
from dayfly.embedded.forks import HOST
from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.states import StateFiles
from dayfly.execute.process.files import put, slurp
from dayfly.execute.state import access
from dayfly.execute.state.head import Answer, DamagedError, Head, damaged
from dayfly.execute.state.seal import MAX_BODY
from dayfly.execute.state.service import MAX_LOCK, Place, Service
from dayfly.spec.run import Run
from dayfly.spec.scalars.numbers import port
from dayfly.spec.wire import RunDamagedError

log = logging.getLogger(__name__)

# Each body may be large, and is in memory whole.
BODIES_AT_ONCE = 4
# One that stops in the middle keeps its place from others for so long.
BODY_S = 30.0
TOO_SLOW = Answer(503, b"the request did not come to its end in time; ask again\n")
AGAIN_S = 1.0

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Serve(Protocol):
    """Serves an ASGI application on sockets until `stop` is set."""

    async def __call__(self, app: Any, sockets: list[socket.socket], *, stop: asyncio.Event) -> None: ...


class StateDoor:
    """Serves states on this machine, from the moment on at which somebody needs one."""

    def __init__(self, home: Path, reader: SqliteLedger, serve: Serve) -> None:
        self._home = home
        self._reader = reader
        self._serve = serve
        self._files = StateFiles(home, reader)
        self._keys: access.Keys | None = None
        self._service: Service | None = None
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

    def variables(self, who: access.Caller) -> dict[str, str]:
        """What an attempt is to have in its environment; opens the door if need be.

        Raises:
            OSError: no port can be had, or the key neither read nor written.
        """
        try:
            opened = self._open()
        except ValueError as error:
            raise OSError(str(error)) from None
        return {
            **access.variables(access.Door(self._url), who),
            access.PASSWORD: access.token(opened, who),
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
            return self._files.found(Place(run, resource)).head
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

    def _open(self) -> access.Keys:
        if self._keys is not None:
            return self._keys
        known = states.keys(self._home)
        sock = _listen(self._noted())
        self._tell(sock)
        self._service = Service(known, self._files, now_ms)
        app = _App(self._service)
        self._task = asyncio.create_task(self._keep_open(app, sock), name="states")
        self._keys = known
        return known

    def _tell(self, sock: socket.socket) -> None:
        port = sock.getsockname()[1]
        put(str(self._note), str(port))
        self._url = f"http://{HOST}:{port}"

    async def _keep_open(self, app: "_App", sock: socket.socket) -> None:
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
        return port(slurp(str(self._note)).decode(errors="replace").strip()) or 0


class _App:
    """The service as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = asyncio.Semaphore(BODIES_AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(scope, receive)
        except OSError as error:
            log.warning("a state cannot be read or written: %s", error)
            answer = Answer(503, f"it cannot be read or written now: {error.strerror}\n".encode())
        except RunDamagedError as error:
            log.warning("a state cannot be read or written: %s", error)
            answer = Answer(503, f"{error}\n".encode())
        kind = b"application/json" if answer.json else b"text/plain; charset=utf-8"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Message, receive: Receive) -> Answer:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        method = access.method_of(scope["path"], scope["method"])
        who = self._service.identify(scope["path"], given)
        refusal = await self._service.admit(who, method)
        if refusal is not None or who is None:
            assert refusal is not None, "nobody is refused"
            return refusal
        lock = parse_qs(scope["query_string"].decode("latin-1")).get("ID", [""])[0]
        async with self._bodies:
            try:
                async with asyncio.timeout(BODY_S):
                    body = await _body(receive, MAX_BODY if method in ("POST", "PUT") else MAX_LOCK)
            except TimeoutError:
                return TOO_SLOW
            if body is None:
                return Answer(413, f"at most {MAX_BODY} bytes are taken\n".encode())
            return await self._service.handle(who, method, lock, body)


async def _body(receive: Receive, most: int) -> bytes | None:
    """All of a body; None if it is too large."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionResetError(0, "whoever asked is gone")
        parts.append(message.get("body", b""))
        if (most := most - len(parts[-1])) < 0:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


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
