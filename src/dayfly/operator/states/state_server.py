"""Serves states over TLS, in each replica. All data is in the API server, so each replica can answer any request."""

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

# Maximum number of large request bodies at once: each is in memory as a whole, next to its sealed form.
MAX_LARGE_BODIES = 2
# Interval at which the address of the Service is read, and age at which the certificate is replaced.
CHECK_INTERVAL_S, CERTIFICATE_MAX_AGE_S = 60.0, 30 * 24 * 3600.0


@contextlib.asynccontextmanager
async def serve_states(access: StateAccess, port: int, now: Callable[[], int]) -> AsyncIterator[None]:
    """Serve states on the port while the block runs, once the cluster has a Service and a Secret for it."""
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
                names = await access.service_names()
                if names != known or time.monotonic() - made_at > CERTIFICATE_MAX_AGE_S:
                    use_certificate(context, authority.create_leaf(await access.authority(), names))
                    known, made_at = names, time.monotonic()
                if server is not None and server.done():
                    log.warning("the state server has stopped: %s", server.exception() or "the server has ended")
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
                    log.info("serving states on port %d", port)
                if service is not None:
                    with contextlib.suppress(errors.ApiError):  # they are recorded at a later try
                        await service.record_unsaved()
            except authority.BrokenAuthorityError as error:
                access.forget_authority()
                log.warning("states are not served: %s", error)
            except (NoStatesError, errors.ApiError, OSError) as error:
                log.warning("states are not served: %s", error)
            await asyncio.sleep(CHECK_INTERVAL_S)
    finally:
        stop.set()
        if server is not None:
            await asyncio.gather(server, return_exceptions=True)


def use_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Use the certificate for new connections."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leaf.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
