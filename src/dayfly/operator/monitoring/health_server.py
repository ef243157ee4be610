"""The operator's own small port: is it alive, is it ready, what are its figures."""

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from dayfly.operator.monitoring.metrics import CONTENT_TYPE, Metrics

# Bookmarks come about every minute, and a watch that is silent for longer is begun anew.
STALE_S = 180.0


@contextlib.asynccontextmanager
async def serving(
    port: int, *, age: Callable[[], float], started: Callable[[], float], metrics: Metrics
) -> AsyncIterator[None]:
    """Answer on that port, of every address of this machine, while the block runs.

    Args:
        port: Where.
        age: Seconds since the server last proved the most backward cache current; inf before.
        started: Seconds since the process began: until the first lists are whole it is alive, but not ready.
        metrics: The figures.
    """

    async def healthy(_: web.Request) -> web.Response:
        backward = min(age(), started())
        if backward < STALE_S:
            return web.Response(text=f"the caches are current as of {backward:.0f} s ago\n")
        return web.Response(status=503, text=f"nothing was heard from the API server for {backward:.0f} s\n")

    async def ready(_: web.Request) -> web.Response:
        if age() < STALE_S:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="the caches are not whole, or not current\n")

    async def figures(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE})

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
