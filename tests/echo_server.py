"""An echo server for each routed protocol, and its clients. In a pod, the text of this file is the program."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import aiohttp.web
import grpc
import grpc.aio

METHOD = "/dayfly.test.Speaker/Say"


class EchoHandler(grpc.GenericRpcHandler):
    """Returns each message of a stream with a word before it."""

    def __init__(self, word: str) -> None:
        self.word = word

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.say)

    async def say(self, requests: Any, _context: Any) -> Any:
        async for request in requests:
            yield f"{self.word} {request.decode()}".encode()


async def serve(word: str, host: str, http: int, rpc: int) -> None:
    """Serve HTTP/1.1 and WebSocket on one port and gRPC on the other. Print both ports."""

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        if "Sec-WebSocket-Key" not in request.headers:
            return aiohttp.web.Response(text=word)
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{word} {message.data}")
        return socket

    app = aiohttp.web.Application()
    app.router.add_get("/", answer)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, host, http)
    await site.start()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((EchoHandler(word),))
    chosen = server.add_insecure_port(f"{host}:{rpc}")
    await server.start()
    print(runner.addresses[0][1], chosen, flush=True)
    await server.wait_for_termination()


class Ports(NamedTuple):
    http: int
    grpc: int


@contextlib.contextmanager
def echo_server(word: str, host: str) -> Iterator[Ports]:
    """Run the server as a process of this machine."""
    command = [sys.executable, __file__, host, "0", "0"]
    process = subprocess.Popen(command, env={**os.environ, "WORD": word}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Ports(*map(int, process.stdout.readline().split()))
    finally:
        process.kill()
        process.communicate()


class Echoes(NamedTuple):
    """The response in each protocol, with the word of the answering server."""

    http: str
    http2: str
    websocket: str


def request(host: str, port: int, headers: Mapping[str, str]) -> Echoes:
    """Send a request in each protocol with the same headers, which include `Host`."""
    return asyncio.run(_request(f"http://{host}:{port}/", headers))


async def _request(url: str, headers: Mapping[str, str]) -> Echoes:
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(url) as answer:
            http = await answer.text()
        async with session.ws_connect(url) as socket:
            await socket.send_str("once")
            websocket = await socket.receive_str()
    given = [f"-H{name}: {value}" for name, value in headers.items()]
    curl = ["curl", "-sS", "--max-time", "20", "--http2-prior-knowledge", "-w", " %{http_version}", *given, url]
    process = await asyncio.create_subprocess_exec(*curl, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return Echoes(http, out.decode(), websocket)


def expected(word: str) -> Echoes:
    """Return the responses of a server with this word."""
    return Echoes(word, f"{word} 2", f"{word} once")


def call(host: str, port: int, headers: Mapping[str, str], *, words: tuple[str, ...] = ("one", "two")) -> list[str]:
    """Return the responses of a bidirectional gRPC stream. The header `Host` is the authority."""
    return asyncio.run(_call(f"{host}:{port}", headers, words))


async def _call(target: str, headers: Mapping[str, str], words: tuple[str, ...]) -> list[str]:
    options = [("grpc.default_authority", headers["Host"])]
    metadata = tuple((name, value) for name, value in headers.items() if name != "Host")
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        stream = channel.stream_stream(METHOD)(metadata=metadata, timeout=20)
        responses = []
        for word in words:
            await stream.write(word.encode())
            answer = await stream.read()
            assert isinstance(answer, bytes), await stream.details()
            responses.append(answer.decode())
        await stream.done_writing()
        return responses


def pod(image: str) -> dict[str, Any]:
    """Return a container that runs the server with the word in `WORD`."""
    return {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3.11", "-c", Path(__file__).read_text(), "0.0.0.0", "8080", "8081"],
        "env": [{"name": "WORD", "value": "baseline"}],
        "ports": [{"containerPort": 8080}, {"containerPort": 8081}],
        "readinessProbe": {"tcpSocket": {"port": 8081}, "periodSeconds": 1},
    }


def routed(image: str, namespace: str, gateway: str) -> list[dict[str, Any]]:
    """Return a workload `talk` and its routes: an HTTPRoute for `talk.test` and `h2c.test`, a GRPCRoute for `say.test`."""
    labels, meta, group = {"app": "talk"}, {"name": "talk", "namespace": namespace}, "gateway.networking.k8s.io/v1"
    template = {"metadata": {"labels": labels}, "spec": {"containers": [pod(image)]}}
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    ports.append({"name": "say", "port": 81, "targetPort": 8081, "appProtocol": "kubernetes.io/h2c"})

    def route(kind: str, name: str, port: int) -> dict[str, Any]:
        rules = [{"backendRefs": [{"name": "talk", "port": port}]}]
        spec = {"parentRefs": [{"name": gateway}], "hostnames": [f"{name}.test"], "rules": rules}
        return {"apiVersion": group, "kind": kind, "metadata": {**meta, "name": name}, "spec": spec}

    deployment = {"selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": labels, "ports": ports}},
        route("HTTPRoute", "talk", 80),
        route("HTTPRoute", "h2c", 81),
        route("GRPCRoute", "say", 81),
    ]


if __name__ == "__main__":
    asyncio.run(serve(os.environ["WORD"], sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
