"""The operator's HTTP port with `/healthz`, `/readyz` and `/metrics`."""

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from dayfly.operator.monitoring.metrics import CONTENT_TYPE, Metrics

# API servers send bookmarks about every minute, and a watch without events is restarted after a longer time.
STALE_S = 180.0


@contextlib.asynccontextmanager
async def serve_health(
    port: int, *, age: Callable[[], float], started: Callable[[], float], metrics: Metrics
) -> AsyncIterator[None]:
    """Serve health checks and metrics on a port of all addresses while the block runs.

    Args:
        port: The port.
        age: Seconds since the API server last confirmed the oldest cache; infinite before the first list is complete.
        started: Seconds since the process began. Before the first lists are complete it is alive but not ready.
        metrics: The metrics.
    """

    async def healthy(_: web.Request) -> web.Response:
        backward = min(age(), started())
        if backward < STALE_S:
            return web.Response(text=f"the caches were current {backward:.0f} s ago\n")
        return web.Response(status=503, text=f"no response from the API server for {backward:.0f} s\n")

    async def ready(_: web.Request) -> web.Response:
        if age() < STALE_S:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="the caches are incomplete or not current\n")

    async def figures(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthy), web.get("/readyz", ready), web.get("/metrics", figures)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, None, port)
        await site.start()
        yield
    finally:
        await runner.cleanup()
