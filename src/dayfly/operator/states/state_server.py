"""Each replica's port for states, over TLS. All truth is in the API server, so any of them may answer."""

import asyncio
import contextlib
import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from dayfly.execute.state import handler
from dayfly.execute.state.handler import StateHandler
from dayfly.execute.state.service import StateService
from dayfly.kube import errors
from dayfly.lib.tasks import background
from dayfly.operator.states import authority
from dayfly.operator.states.bounded_socket import BoundedSocket
from dayfly.operator.states.state_access import NoStatesError, StateAccess
from dayfly.operator.states.state_secrets import StateSecrets

log = logging.getLogger(__name__)

# A large body is in memory whole, beside its sealed form.
MAX_LARGE_BODIES = 2
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
    stop = asyncio.Event()
    server: asyncio.Task[None] | None = None
    service: StateService | None = None
    try:
        while True:
            try:
                names = await access.names()
                if names != known or time.monotonic() - made_at > ANEW_S:
                    certify(context, authority.leaf(await access.authority(), names))
                    known, made_at = names, time.monotonic()
                if server is not None and server.done():
                    log.warning("states are not served: %s", server.exception() or "the server has ended")
                    server = None
                if server is None:
                    store = StateSecrets(access.client, access.namespace)
                    service = StateService((await access.authority()).keys, store, now)
                    app = StateHandler(
                        service,
                        max_large_bodies=MAX_LARGE_BODIES,
                        one_large_body_per_run=True,
                        unavailable=(errors.ApiError,),
                    )
                    serving_states = handler.serve(app, [BoundedSocket(port)], stop=stop, tls=context)
                    server = asyncio.create_task(serving_states, name="state server")
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
        stop.set()
        if server is not None:
            await asyncio.gather(server, return_exceptions=True)


def certify(context: ssl.SSLContext, pem: bytes) -> None:
    """Answer with that certificate from now on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaf.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
