"""(x) Claims of kubernetes-sigs/agent-sandbox next to sandboxes with pools, on the same KWOK nodes in the same run.

    .venv/bin/python -m bench.cluster.agent_sandbox CHECKOUT

CHECKOUT is a folder with the source of agent-sandbox, which is built with Go. Its controller has the rights of an
administrator, no webhook, and no refill during a measurement. Its claims take a running pod, and run nothing. The
sandboxes take a member that two steps have created.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.cluster import manifests, pools
from bench.cluster.audit import Audit
from bench.cluster.claims import FILL_S, SETTLE_S, Requests, User, highest_rate, percentile, user
from bench.cluster.idle import Spoken
from bench.cluster.place import HOME, OPERATOR, TIMEOUT_S, kubeconfig, operator, place
from bench.cluster.watches import watching
from bench.rows import Row, median, show
from dayfly.kube.objects import ApiResource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster.audit import Write
    from bench.cluster.place import Place
    from bench.cluster.watches import Watched
    from dayfly.kube.client import KubeClient

SYSTEM, ACCOUNT = "agent-sandbox-system", "agent-sandbox-controller"
WRITER = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
TEMPLATE = "warm"
HITS, RATES = 60, (10, 20, 40)
_GROUP = "extensions.agents.x-k8s.io"
_TEMPLATES = ApiResource(_GROUP, "v1beta1", "sandboxtemplates", "SandboxTemplate", Spoken)
_POOLS = ApiResource(_GROUP, "v1beta1", "sandboxwarmpools", "SandboxWarmPool", Spoken)
_CLAIMS = ApiResource(_GROUP, "v1beta1", "sandboxclaims", "SandboxClaim", Spoken)


class Claimant(NamedTuple):
    """The client of a user of agent-sandbox, and its watches."""

    client: KubeClient
    pools: Watched[Spoken]
    claims: Watched[Spoken]

    async def fill(self, pool: str, ready: int) -> float:
        """Create a pool, and wait until it is full. Return the seconds that it took."""
        began = time.perf_counter()
        await self.client.create(
            _POOLS, _object(_POOLS, pool, replicas=ready, sandboxTemplateRef={"name": TEMPLATE}), HOME
        )

        def is_full(seen: Spoken | None) -> bool:
            return seen is not None and seen.status.get("readyReplicas", 0) >= ready

        await self.pools.until(pool, is_full, HOME, timeout_s=FILL_S)
        return time.perf_counter() - began

    async def claim(self, name: str, pool: str) -> float:
        """Create a claim; return the milliseconds until the watch shows that it is ready."""
        began = time.perf_counter()
        await self.client.create(_CLAIMS, _object(_CLAIMS, name, warmPoolRef={"name": pool}), HOME)
        return (await self.claims.until(name, _is_ready, HOME) - began) * 1e3

    async def end(self, pool: str) -> None:
        """Delete the pool and all claims."""
        await self.client.delete(_POOLS, pool, HOME)
        for each in list(self.claims.cache):
            await self.client.delete(_CLAIMS, each.metadata.name, HOME)
        await self.claims.until_none(timeout_s=FILL_S)


def measure(
    checkout: Path, hits: int = HITS, rates: tuple[int, ...] = RATES, seconds: float = pools.RATE_S
) -> list[Row]:
    """Measure both in turns: single requests with their stored writes, then rising rates."""
    subprocess.run(["go", "build", "-o", checkout / "bin" / ACCOUNT, f"./cmd/{ACCOUNT}"], cwd=checkout, check=True)
    with place(kwok_nodes=1, everything=True) as where, operator(where), _controller(where, checkout):
        return asyncio.run(_measure(where, hits, rates, seconds))


@contextmanager
def _controller(where: Place, checkout: Path) -> Iterator[None]:
    """Run the controller until the block ends."""
    own = where.cluster
    own.kubectl("create", "namespace", SYSTEM)
    own.kubectl("create", "serviceaccount", ACCOUNT, f"--namespace={SYSTEM}")
    grant = ["--clusterrole=cluster-admin", f"--serviceaccount={SYSTEM}:{ACCOUNT}"]
    own.kubectl("create", "clusterrolebinding", ACCOUNT, *grant)
    made = own.kubectl("create", f"--filename={checkout / 'k8s' / 'crds'}", "--output=name").split()
    for each in made:  # there is no webhook that converts
        change = '[{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]'
        own.kubectl("patch", each, "--type=json", f"--patch={change}")
    own.kubectl("wait", "--for=condition=Established", *made, f"--timeout={TIMEOUT_S}s")
    token = own.kubectl("create", "token", ACCOUNT, f"--namespace={SYSTEM}", "--duration=12h").strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--extensions", "--enable-webhook=false", "--sandbox-warm-pool-replenish-delay=12h"]
    options += [f"--leader-election-namespace={SYSTEM}", "--metrics-bind-address=0"]
    options += [f"--kubeconfig={kubeconfig(own, 'agent-sandbox.kubeconfig', token)}"]
    with (own.folder / "logs" / "agent-sandbox.log").open("wb") as log:
        command = [checkout / "bin" / ACCOUNT, f"--health-probe-bind-address={address}", *options]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_ready(process, f"http://{address}/readyz", log.name)
        yield
    finally:
        process.terminate()
        process.wait(timeout=TIMEOUT_S)


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while True:
        with suppress(OSError), urllib.request.urlopen(url, timeout=10):
            return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the controller of agent-sandbox does not start:\n{Path(log).read_text()[-2000:]}")
        time.sleep(0.1)


async def _measure(where: Place, hits: int, rates: tuple[int, ...], seconds: float) -> list[Row]:
    async with AsyncExitStack() as stack:
        person = await stack.enter_async_context(user(where))
        asking = person.client
        warm = await stack.enter_async_context(watching(asking, _POOLS, HOME))
        claims = await stack.enter_async_context(watching(asking, _CLAIMS, HOME))
        other = Claimant(asking, warm, claims)
        pod = {"spec": manifests.pod("")["spec"] | {"restartPolicy": "Always"}}
        await asking.create(_TEMPLATES, _object(_TEMPLATES, TEMPLATE, podTemplate=pod), HOME)
        rows = await _hits(person, other, Audit(where.cluster.audit_log), hits)
        return [*rows, await pools.rate(person, rates, seconds), await _rate(other, rates, seconds)]


async def _hits(person: User, other: Claimant, audit: Audit, hits: int) -> list[Row]:
    await person.create_pool(hits + 1)
    await other.fill("hits", hits + 1)
    await person.claim("first")
    await other.claim("first", "hits")
    await person.request("pause")
    await asyncio.sleep(SETTLE_S)
    ours, theirs = [], []
    audit.new_writes()
    for number in range(hits):
        ours.append(await person.claim(f"hit-{number}"))
        theirs.append(await other.claim(f"hit-{number}", "hits"))
    await asyncio.sleep(SETTLE_S)
    stored = audit.new_writes()
    await person.end_all()
    await other.end("hits")
    return [
        Row(
            "(x) a sandbox that finds a ready member, from POST to Ready (yardstick: a claim of agent-sandbox)",
            f"{median(ours):.0f} ms, p99 {percentile(ours):.0f} ms",
            f"{median(theirs):.0f} ms, p99 {percentile(theirs):.0f} ms",
            f"{median(ours) / median(theirs):.2f} x",
            "none",
            met=True,
        ),
        Row(
            "(x) stored writes of the operator for such a sandbox, with later ones (yardstick: of agent-sandbox)",
            f"{_count(stored, OPERATOR) / hits:.1f}",
            f"{_count(stored, WRITER) / hits:.1f}",
            f"{_count(stored, OPERATOR) / max(_count(stored, WRITER), 1):.2f} x",
            "none",
            met=True,
        ),
    ]


async def _rate(other: Claimant, rates: tuple[int, ...], seconds: float) -> Row:
    requests = Requests(other.fill, other.claim, other.end)
    best, shown = await highest_rate(requests, rates, seconds, pools.RATE_P99_MS)
    what = f"(x) rate of claims of agent-sandbox with p99 below {pools.RATE_P99_MS:g} ms, as in (p)"
    return Row(what, "none", f"{best}/s", shown, "none", met=True)


def _count(writes: list[Write], writer: str) -> int:
    return sum(each.writer == writer and not each.what.endswith(("leases", "events")) for each in writes)


def _is_ready(seen: Spoken | None) -> bool:
    conditions = seen.status.get("conditions", []) if seen is not None else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _object(resource: ApiResource[Spoken], name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


if __name__ == "__main__":
    show(lambda: measure(Path(sys.argv[1]).resolve()))
