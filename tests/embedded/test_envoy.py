"""Traffic through the proxy: each protocol unchanged, for as long as both ends want."""

import asyncio
import os
import shutil
import signal
import sys

import aiohttp
import aiohttp.web
import grpc
import grpc.aio
import pytest
import pytest_asyncio
from tests.embedded.machine import until
from tests.embedded.routed_machine import PROGRAM
from tests.ports import free_port

from dayfly.embedded.routes import envoy
from dayfly.embedded.routes.envoy import Envoy
from dayfly.embedded.routes.envoy_process import holder, is_closed
from dayfly.execute.route.envoy import EnvoyEntry, KeyRoute

KEY = "wtmb8kfswrrtb"
MEMBER = ("baggage", f"sd-routing-key={KEY}")


@pytest_asyncio.fixture
async def proxy(tmp_path):
    found = Envoy(PROGRAM, tmp_path)
    yield found
    await found.close()
    assert not holder(f"{tmp_path}/routing/lock")


async def before(proxy, base, fork):
    """Entries in front of two servers: by routing key, and a preview that adds one."""
    ports = free_port(), free_port()
    leads = (KeyRoute((KEY,), fork),)
    ways = [EnvoyEntry("baseline/a/b", ports[0], base, leads), EnvoyEntry("preview/u/x", ports[1], base, leads, KEY)]
    assert await proxy.apply(ways) == {}
    return ports


async def talk(who):
    """A gRPC server with one method, which returns its name in each message."""

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


async def test_grpc_streams_both_ways_and_survives_a_removed_route(proxy):
    (base, to_base), (fork, to_fork) = await talk(b"base"), await talk(b"fork")
    ports = await before(proxy, to_base, to_fork)

    async def call(port, metadata=()):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        stream = channel.stream_stream("/a.B/Say")(metadata=metadata)
        await stream.write(b"one")
        return channel, stream, await stream.read()

    calls = [await call(ports[0]), await call(ports[0], (MEMBER,)), await call(ports[1])]
    assert [said for _, _, said in calls] == [b"base one", b"fork one", b"fork one"]
    # A stream that has started stays on its server, as long as the server runs.
    assert await proxy.apply([EnvoyEntry("baseline/a/b", ports[0], to_base)], [to_fork]) == {}
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
    port = free_port()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, port


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


async def test_proxy_of_another_form_is_replaced_without_a_second(proxy, tmp_path):
    port = free_port()
    way = [EnvoyEntry("baseline/a/b", port, 1)]
    assert await proxy.apply(way) == {}
    first = proxy.pid
    proxy.detach()
    second = Envoy(PROGRAM, tmp_path)
    assert await second.adopt()
    assert second.pid == first
    second.detach()
    (tmp_path / "routing" / "form").write_text("of another release")
    assert not await proxy.adopt()
    assert await proxy.apply(way) == {}
    assert proxy.pid not in (0, first)


async def test_the_end_of_one_that_was_found_is_seen_too(proxy, tmp_path):
    assert await proxy.apply([EnvoyEntry("baseline/a/b", free_port(), 1)]) == {}
    proxy.detach()
    other, ended = Envoy(PROGRAM, tmp_path), asyncio.Event()
    other.on_end = ended.set
    assert await other.adopt()
    os.kill(other.pid, signal.SIGKILL)
    await until(ended.is_set)
    assert other.pid == 0


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo begins; echo no such option; exit 1", "Envoy has ended: no such option"),
        ("exit 1", "Envoy has ended"),
        ("exec sleep 60", "it reads no clusters"),
    ],
)
async def test_program_that_does_not_serve_is_reported(tmp_path, monkeypatch, script, said):
    monkeypatch.setattr(envoy, "APPLY_TIMEOUT_S", 0.3)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    broken = Envoy(str(program), tmp_path)
    with pytest.raises(envoy.EnvoyError, match=rf"{said}$"):
        await broken.apply([EnvoyEntry("baseline/a/b", free_port(), 1)])
    await broken.close()


async def test_no_proxy_is_started_without_entries(proxy):
    assert await proxy.apply([]) == {}
    assert proxy.pid == 0


async def test_port_of_two_ways_goes_to_the_first(proxy):
    """A baseline can be declared with a port that was chosen for a preview before."""
    port, other = free_port(), free_port()
    ways = [
        EnvoyEntry("baseline/a/b", port, 1),
        EnvoyEntry("preview/u/x", port, 2),
        EnvoyEntry("preview/u/y", other, 3),
    ]
    for _ in range(2):
        said = await proxy.apply(ways)
        assert said == {
            "preview/u/x": f"requests cannot be taken in on port {port} of this machine: baseline/a/b has it"
        }
        assert not is_closed(port)
        assert not is_closed(other)


async def test_apply_after_a_full_disk_closes_undesired_listeners(proxy, monkeypatch):
    """The first of two tables was written before the disk refused the second."""
    kept, new = EnvoyEntry("baseline/a/b", free_port(), 1), EnvoyEntry("preview/u/x", free_port(), 2)
    assert await proxy.apply([kept]) == {}
    write, pid = envoy.replace_file, proxy.pid

    def full(path, text):
        if "preview" in path:
            raise OSError(28, "no space left on device")
        write(path, text)

    monkeypatch.setattr(envoy, "replace_file", full)
    with pytest.raises(OSError, match="no space left"):
        await proxy.apply([kept._replace(port=3), new])
    monkeypatch.undo()
    assert await proxy.apply([kept]) == {}
    assert (is_closed(kept.listen_port), is_closed(new.listen_port), proxy.pid) == (False, True, pid)


@pytest.mark.parametrize("wished", [True, False])
async def test_ways_of_a_former_server_are_closed_if_unwished(proxy, tmp_path, wished):
    old = [EnvoyEntry("baseline/a/b", free_port(), 1), EnvoyEntry("preview/u/x", free_port(), 2)]
    assert await proxy.apply(old) == {}
    proxy.detach()
    after = Envoy(PROGRAM, tmp_path)
    assert await after.apply(old[:1] if wished else []) == {}
    for way in old[int(wished) :]:
        await until(lambda way=way: is_closed(way.listen_port), f"{way.name} to be closed")
    assert is_closed(old[0].listen_port) is not wished
    await after.close()
    await after.close()
    assert after.pid == 0


@pytest.mark.parametrize("packaged", [True, False])
def test_program_of_the_package_comes_before_the_path(tmp_path, monkeypatch, packaged):
    program = tmp_path / "envoy" / "_bin" / "envoy"
    program.parent.mkdir(parents=True)
    program.touch(0o755 if packaged else 0o644)
    (tmp_path / "envoy" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert envoy.find_envoy() == (str(program) if packaged else "/bin/envoy")
