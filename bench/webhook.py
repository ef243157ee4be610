"""(f) One webhook on the embedded host, compared with the same request by the standard library in a fresh process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from bench import runs
from bench.rows import Row, cpu_seconds, folder, median, show, spread
from dayfly.link.wire import Offer
from dayfly.spec.lifecycle import (
    As,
    Kind,
    Lifecycle,
    Ref,
    Target,
    Unit,
    UnitInput,
    UnitOutput,
    UnitTimeouts,
    WebhookUnit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dayfly.embedded.host import EmbeddedHost

ROUNDS = 9
REQUESTS = 12
AIM = 1.3
# The response is arbitrary: a record with an id, as services return it.
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"id": "r-1"}'
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
CLIENT = """
import json, sys, urllib.request
body = json.dumps({"name": "shop", "before": sys.argv[2]}).encode()
headers = {"Content-Type": "application/json", "Idempotency-Key": "0123456789abcdef"}
with urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, headers), timeout=60) as answer:
    print(json.load(answer)["id"])
"""


def measure() -> list[Row]:
    """Measure chains of webhooks, and processes that send the same requests, in turns at one server."""
    with folder() as home, _server() as port:
        return asyncio.run(_measure(home, f"http://127.0.0.1:{port}/v1/records", f"127.0.0.1:{port}"))


async def _measure(home: Path, url: str, name: str) -> list[Row]:
    bare, ours, ratios, bare_cpu, ours_cpu = [], [], [], [], []
    async with runs.host(home / "home", webhooks=[name]) as host:
        host.start()
        await _chain(host, "warm-up", url)
        for number in range(ROUNDS):
            wall, used = _bare(url)
            bare.append(wall)
            bare_cpu.append(used)
            wall, used = await _chain(host, f"round-{number}", url)
            ours.append(wall)
            ours_cpu.append(used)
            ratios.append(ours[-1] / bare[-1])
    cpu = f"CPU time {median(ours_cpu):.1f} and {median(bare_cpu):.1f} ms"
    return [
        Row(
            "(f) one webhook, a value taken from its answer, against `urllib` in a fresh process",
            f"{median(ours):.1f} ms",
            f"{median(bare):.1f} ms",
            f"{median(ratios):.2f} x ({spread(ratios)}; {cpu})",
            f"{AIM:g} x",
            median(ratios) <= AIM,
        )
    ]


@contextmanager
def _server() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-I", "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None, "it was asked for"
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def _bare(url: str) -> tuple[float, float]:
    used, begun, told = cpu_seconds(), time.perf_counter(), ""
    for _ in range(REQUESTS):
        done = subprocess.run(
            [sys.executable, "-I", "-c", CLIENT, url, told], check=True, stdout=subprocess.PIPE, text=True
        )
        told = done.stdout.strip()
    wall = time.perf_counter() - begun
    return wall / REQUESTS * 1e3, (cpu_seconds() - used) / REQUESTS * 1e3


async def _chain(host: EmbeddedHost, uid: str, url: str) -> tuple[float, float]:
    """Return milliseconds for one webhook: by the ledger's clock from first claim to last record, and in CPU time."""
    offer = _offer(uid, url)
    used = cpu_seconds()
    await host.offer(offer)
    await runs.all_ready(host, [offer])
    used = cpu_seconds() - used
    first, last = runs.times(host, [offer])
    return (last - first) / REQUESTS, used / REQUESTS * 1e3


def _offer(uid: str, url: str) -> Offer:
    body = {"name": "shop", "before": {"$input": "before"}}
    request = {"method": "POST", "url": url, "body": body}
    plain = Unit(
        name="w0",
        kind=Kind.WEBHOOK,
        inputs=(UnitInput(name="before", value="", as_=As()),),
        outputs=(UnitOutput(name="id", json_path="$.id"),),
        timeouts=UnitTimeouts(run_ms=300_000, grace_ms=300_000),
        webhook=WebhookUnit(request=request),
    )
    steps = [plain]
    for number in range(1, REQUESTS):
        read = UnitInput(name="before", from_=Ref(unit=f"w{number - 1}", output="id"), as_=As())
        steps.append(msgspec.structs.replace(plain, name=f"w{number}", inputs=(read,)))
    target = Target(kind="Sandbox", name=uid, uid=uid)
    documents = (Lifecycle(target=target, resource="dns", pre_start=tuple(steps)), Lifecycle(target=target))
    return Offer(uid=uid, name=uid, target=target, documents=documents)


if __name__ == "__main__":
    show(measure)
