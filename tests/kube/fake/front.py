"""A socket in front of a fake cluster, for tests of HTTP itself: broken connections, plain HTTP, other languages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from tests.kube.fake.cluster import FakeCluster, FakeTransport

from dayfly.kube.transport import KubeRequest, LostError, NotSentError


@contextlib.asynccontextmanager
async def serving(cluster: FakeCluster) -> AsyncIterator[str]:
    """Serve on a free port of this machine during the block; yield the server's address."""
    transport = cluster.transport("http")

    async def handle(incoming: web.Request) -> web.StreamResponse:
        request = KubeRequest(
            incoming.method,
            incoming.path,
            dict(incoming.query),
            await incoming.read(),
            incoming.content_type,
            headers={name: value for name, value in incoming.headers.items() if name.startswith("Impersonate-")},
        )
        try:
            if incoming.query.get("watch") or incoming.path.endswith("/log"):
                return await _stream(incoming, transport, request)
            answer = await transport.send(request)
        except (LostError, NotSentError):
            assert incoming.transport
            incoming.transport.abort()
            return web.Response()
        return web.Response(
            body=answer.body, status=answer.status, headers=dict(answer.headers), content_type="application/json"
        )

    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def _stream(incoming: web.Request, transport: FakeTransport, request: KubeRequest) -> web.StreamResponse:
    async with transport.stream(request) as stream:
        response = web.StreamResponse(status=stream.status)
        await response.prepare(incoming)
        async for chunk in stream.chunks:
            await response.write(chunk)
        return response
