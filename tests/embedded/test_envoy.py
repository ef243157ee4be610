"""What goes through the proxy: each protocol as it came, for as long as both ends want."""

import asyncio
import os
import signal

import aiohttp
import aiohttp.web
import grpc
import grpc.aio
import pytest
import pytest_asyncio

from dayfly.embedded import envoy
from dayfly.embedded.envoy import Envoy
from dayfly.embedded.envoy_process import holder
from dayfly.embedded.forks import _any_free
from dayfly.execute.route.envoy import Lead, Way
from embedded.machine import until
from embedded.routed import PROGRAM

KEY = "wtmb8kfswrrtb"
MEMBER = ("baggage", f"sd-routing-key={KEY}")


@pytest_asyncio.fixture
async def proxy(tmp_path):
    found = Envoy(PROGRAM, tmp_path)
    yield found
    await found.close()
    assert not holder(f"{tmp_path}/routing/lock")


async def before(proxy, base, fork):
    """Ways before two servers: by the key of each request, and one that gives it."""
    ports = _any_free(), _any_free()
    leads = (Lead((KEY,), fork),)
    ways = [Way("baseline/a/b", ports[0], base, leads), Way("preview/u/x", ports[1], base, leads, KEY)]
    assert await proxy.apply(ways) == {}
    return ports


async def talk(who):
    """A gRPC server of one method, which says who it is as often as it is called."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.stream_stream_rpc_method_handler(self.say)

        async def say(self, requests, _context):
            async for request in requests:
                yield who + b" " + request

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def test_grpc_in_both_directions_and_a_route_that_goes_meanwhile(proxy):
    (base, to_base), (fork, to_fork) = await talk(b"base"), await talk(b"fork")
    ports = await before(proxy, to_base, to_fork)

    async def call(port, metadata=()):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        stream = channel.stream_stream("/a.B/Say")(metadata=metadata)
        await stream.write(b"one")
        return channel, stream, await stream.read()

    calls = [await call(ports[0]), await call(ports[0], (MEMBER,)), await call(ports[1])]
    assert [said for _, _, said in calls] == [b"base one", b"fork one", b"fork one"]
    # A stream that has begun stays where it is, as long as its server does.
    assert await proxy.apply([Way("baseline/a/b", ports[0], to_base)], [to_fork]) == {}
    channel, stream, _ = calls[1]
    await stream.write(b"two")
    assert await stream.read() == b"fork two"
    for each, _, _ in calls:
        await each.close()
    channel, _, said = await call(ports[0], (MEMBER,))
    assert said == b"base one"
    await channel.close()
    await base.stop(None)
    await fork.stop(None)


async def listen(who):
    async def answer(request):
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{who} {message.data}")
        return socket

    app = aiohttp.web.Application()
    app.router.add_get("/", answer)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, site._server.sockets[0].getsockname()[1]


async def test_websockets(proxy):
    (base, to_base), (fork, to_fork) = await listen("base"), await listen("fork")
    ports = await before(proxy, to_base, to_fork)
    said = []
    async with aiohttp.ClientSession() as session:
        for port, headers in ((ports[0], {}), (ports[0], dict([MEMBER])), (ports[1], {})):
            async with session.ws_connect(f"http://127.0.0.1:{port}/", headers=headers) as socket:
                await socket.send_str("one")
                said.append(await socket.receive_str())
    assert said == ["base one", "fork one", "fork one"]
    await base.cleanup()
    await fork.cleanup()


async def test_one_of_another_form_is_replaced_and_there_is_never_a_second(proxy, tmp_path):
    port = _any_free()
    way = [Way("baseline/a/b", port, 1)]
    assert await proxy.apply(way) == {}
    first = proxy.pid
    proxy.leave()
    second = Envoy(PROGRAM, tmp_path)
    assert await second.adopt()
    assert second.pid == first
    second.leave()
    (tmp_path / "routing" / "form").write_text("of another release")
    assert not await proxy.adopt()
    assert await proxy.apply(way) == {}
    assert proxy.pid not in (0, first)


async def test_the_end_of_one_that_was_found_is_seen_too(proxy, tmp_path):
    assert await proxy.apply([Way("baseline/a/b", _any_free(), 1)]) == {}
    proxy.leave()
    other, ended = Envoy(PROGRAM, tmp_path), asyncio.Event()
    other.on_end = ended.set
    assert await other.adopt()
    os.kill(other.pid, signal.SIGKILL)
    await until(ended.is_set)
    assert other.pid == 0


async def test_what_cannot_run_is_said(tmp_path):
    broken = Envoy("/bin/false", tmp_path)
    with pytest.raises(envoy.TroubleError, match="Envoy has ended"):
        await broken.apply([Way("baseline/a/b", _any_free(), 1)])
