"""A machine with a real Envoy in front of a baseline, and sandboxes with forks of it."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import time

import msgspec
from tests.embedded import documents as doc
from tests.embedded.machine import Machine
from tests.ports import free_port

from dayfly.embedded.routes import envoy
from dayfly.embedded.routes.envoy_process import holder
from dayfly.spec.lifecycle import Baseline, PreviewUnit, Route, Unit
from dayfly.spec.workload import Workload

# Returns its name and the request.
SERVER = (
    "import http.server,json,os\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  protocol_version='HTTP/1.1'\n"
    "  def do_GET(s):\n"
    "    said=json.dumps({'who':os.environ['WHO'],'headers':s.headers.items(),'path':s.path}).encode()\n"
    "    s.send_response(200); s.send_header('content-length',str(len(said))); s.end_headers(); s.wfile.write(said)\n"
    "  def log_message(*a): pass\n"
    "http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['PORT'])), H).serve_forever()\n"
)
COMMAND = ("/usr/bin/env", "python3", "-S", "-c", SERVER)
DRAIN_MS = 100
PROGRAM = envoy.find_envoy()
ROUTE, FORK = "route:default/app", "fork:default/app"


def workload(name):
    return Baseline(kind="Deployment", namespace="default", name=name)


def route(*keys, of="app", drain_ms=DRAIN_MS):
    found = Route(baseline=workload(of), keys=keys, drain_ms=drain_ms)
    return Unit(name=of, kind="route", route=found, after=(f"fork:default/{of}",))


def preview(key, name="front", of="app", after=(ROUTE,)):
    found = PreviewUnit(scheme="http", host=f"{of}.default.svc", port=80, key=key)
    return Unit(name=name, kind="preview", preview=found, after=after)


class Said(msgspec.Struct):
    """Return the name of the responder, and the request that it received."""

    status: int
    who: str = ""
    headers: list[tuple[str, str]] = []
    path: str = ""

    def all(self, name):
        return [value for each, value in self.headers if each.lower() == name]


def get(port, path="/", headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.putrequest("GET", path)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        return Said(answer.status, **json.loads(body)) if answer.status == 200 else Said(answer.status)


def _answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Routed:
    """`port` is where requests to the baseline `app` arrive; `baseline` is the baseline that was declared last."""

    app = workload("app")

    def __init__(self, machine: Machine):
        self.machine = machine
        self.port = 0
        self._servers = []

    async def up(self, **options):
        self.machine.options = {"proxy": PROGRAM, **options}
        await self.machine.up()
        self.port = await self.declare("app")

    @property
    def host(self):
        return self.machine.host

    @property
    def proxy(self):
        """Return the process ID of the proxy."""
        return holder(f"{self.machine.home}/routing/lock")

    async def declare(self, name, *, routed_port=None, waits=True):
        """Serve a baseline from this process; return the port where its requests arrive."""
        port = self.serve(name)
        found = Workload(
            name=name, command=COMMAND, env={"WHO": "fork"}, port=port, routed_port=routed_port or free_port()
        )
        await self.host.baseline(found)
        self.baseline = found
        end = time.monotonic() + 60
        while waits and not await self.leads_to(name, found.routed_port):
            assert time.monotonic() < end, f"requests to {name} are not accepted"
            await asyncio.sleep(0.01)
        return found.routed_port

    async def leads_to(self, name, port):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return (await self.ask(port=port)).who == name
        return False

    def serve(self, who):
        port = free_port()
        self._servers.append(subprocess.Popen(COMMAND, env={**os.environ, "WHO": who, "PORT": str(port)}))
        end = time.monotonic() + 30
        while not _answers(port):
            assert time.monotonic() < end, "the baseline does not answer"
            time.sleep(0.01)
        return port

    async def offer(self, uid, *keys, of="app", also=(), forks=None, generation=0, **times):
        """Create a sandbox whose fork answers as `uid`; `keys` route to it."""
        fork = doc.fork(of, env=[doc.set_env("WHO", uid)])
        kept = (fork, route(*keys, of=of), *also) if forks is None else forks
        await self.host.offer(doc.offer(doc.hooks(), uid=uid, forks=kept, generation=generation, **times))

    async def ask(self, *headers, path="/", port=0, **named):
        given = [*headers, *((name.replace("_", "-"), value) for name, value in named.items())]
        return await asyncio.to_thread(get, port or self.port, path, given)

    async def who(self, *headers, **named):
        return (await self.ask(*headers, **named)).who

    def close(self):
        for server in self._servers:
            server.kill()
            server.wait()
