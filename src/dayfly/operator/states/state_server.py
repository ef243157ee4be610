"""Each replica's port for states, over TLS. All truth is in the API server, so any of them may answer."""

import asyncio
import contextlib
import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

from dayfly.execute.state import access as state_access
from dayfly.execute.state.access import Caller
from dayfly.execute.state.head import Answer
from dayfly.execute.state.seal import MAX_BODY
from dayfly.execute.state.service import BUSY, MAX_LOCK, Service
from dayfly.kube import errors
from dayfly.lib.tasks import background
from dayfly.operator.states import authority
from dayfly.operator.states.bounded_server import BoundedServer, BoundedSocket
from dayfly.operator.states.state_access import NoStatesError, StateAccess
from dayfly.operator.states.state_secrets import StateSecrets

log = logging.getLogger(__name__)

# A large body is in memory whole, beside its sealed form.
SMALL, BODIES_AT_ONCE = 1 << 20, 2
BODY_S = 30.0
ANSWER_S = 90.0
"""With what it waits for others' bodies and for the API server."""

_TOO_SLOW = Answer(408, b"the request did not come to its end in time\n")
# How often it is looked whether the Service has another address, and after how long a certificate is made anew.
LOOK_S, ANEW_S = 60.0, 30 * 24 * 3600.0


@contextlib.asynccontextmanager
async def serving(access: StateAccess, port: int, now: Callable[[], int]) -> AsyncIterator[None]:
    """Answer on that port while the block runs, from when the cluster has what it takes."""
    async with background(_serve(access, port, now), "states"):
        yield


async def _serve(access: StateAccess, port: int, now: Callable[[], int]) -> None:
    context, known, made_at = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), [""], 0.0
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    runner: web.ServerRunner | None = None
    service: Service | None = None
    try:
        while True:
            try:
                names = await access.names()
                if names != known or time.monotonic() - made_at > ANEW_S:
                    certify(context, authority.leaf(await access.authority(), names))
                    known, made_at = names, time.monotonic()
                if runner is None:
                    store = StateSecrets(access.client, access.namespace)
                    service = Service((await access.authority()).keys, store, now)
                    runner = await _listening(StateHandler(service), port, context)
                    log.info("states are served on port %d", port)
                if service is not None:
                    with contextlib.suppress(errors.ApiError):  # they stay to be recorded
                        await service.record_unsaved()
            except authority.BrokenAuthorityError as error:
                access.forget()
                log.warning("states are not served: %s", error)
            except (NoStatesError, errors.ApiError, OSError) as error:
                log.warning("states are not served: %s", error)
            await asyncio.sleep(LOOK_S)
    finally:
        if runner is not None:
            await runner.cleanup()


async def _listening(app: "StateHandler", port: int, context: ssl.SSLContext) -> web.ServerRunner:
    """The server once it listens.

    Raises:
        OSError: the port cannot be had; the next try begins anew.
    """
    runner = web.ServerRunner(BoundedServer(app.handle))
    await runner.setup()
    try:
        await web.SockSite(runner, BoundedSocket(port), ssl_context=context).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


def certify(context: ssl.SSLContext, pem: bytes) -> None:
    """Answer with that certificate from now on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaf.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)


class StateHandler:
    """The service as a handler of the web library."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = asyncio.Semaphore(BODIES_AT_ONCE)
        self._at_it: set[str] = set()

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """One request."""
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answer(request)
        except (TimeoutError, errors.ApiError) as error:
            log.warning("a state cannot be read or written: %s", error if str(error) else "no answer in time")
            answer = Answer(503, b"the state cannot be read or written now; ask again\n")
        kind = "application/json" if answer.json else "text/plain"
        response = web.Response(status=answer.status, body=answer.body, content_type=kind)
        if not request.content.at_eof():
            response.force_close()  # nobody reads the rest of what was refused
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        method = state_access.method_of(request.path, request.method)
        who = self._service.identify(request.path, request.headers.get("Authorization", ""))
        refusal = await self._service.admit(who, method)
        if refusal is not None or who is None:
            assert refusal is not None, "nobody is refused"
            return refusal
        most = MAX_BODY if method in ("POST", "PUT") else MAX_LOCK
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_S):
                whole = await _read(request, parts, min(most, SMALL))
        except TimeoutError:
            return _TOO_SLOW
        if not whole:
            return await self._large(request, who, method, parts, most)
        # Not within that time: the request has come, and what takes long now is the API server.
        return await self._service.handle(who, method, request.query.get("ID", ""), b"".join(parts))

    async def _large(self, request: web.BaseRequest, who: Caller, method: str, parts: list[bytes], most: int) -> Answer:
        """Of bodies that are no small ones few are read at once, and of one run one."""
        if who.run in self._at_it:
            return BUSY
        self._at_it.add(who.run)
        try:
            async with self._bodies:
                try:
                    async with asyncio.timeout(BODY_S):
                        whole = await _read(request, parts, most)
                except TimeoutError:
                    return _TOO_SLOW
                if not whole:
                    return Answer(413, f"at most {MAX_BODY} bytes are taken\n".encode())
                return await self._service.handle(who, method, request.query.get("ID", ""), b"".join(parts))
        finally:
            self._at_it.discard(who.run)


async def _read(request: web.BaseRequest, parts: list[bytes], most: int) -> bool:
    """Read a body on to its end, and a piece beyond so many bytes at most; whether that was its end."""
    so_far = sum(map(len, parts))
    while so_far <= most and not request.content.at_eof():
        parts.append(await request.content.readany())
        so_far += len(parts[-1])
    return so_far <= most
