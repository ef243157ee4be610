"""(j) The time from the PUT of a sandbox at a server to its fork's first response, compared with a bare Deployment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from testcluster import dns, gateway, stand_ins

from bench.cluster.place import ACCOUNT, SYSTEM, client, operator, place
from bench.fleet import servers
from bench.route import AIM, said, until
from bench.rows import Row, folder, median, show, spread
from dayfly.execute.fork import run
from dayfly.kube.objects import KubeStruct, ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster.place import Place
    from bench.fleet.servers import Server
    from dayfly.kube.client import KubeClient

ROUNDS = 9
CLUSTER, NAMESPACE, GATEWAY, FRONT = "bench", "shop", "edge", "front"
# A minimal service of Python's standard library that returns a word; a real service takes longer to start.
APP = """
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        word = os.environ["WORD"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(word))); self.end_headers()
        self.wfile.write(word)
    def log_message(self, *_): pass
time.sleep(float(os.environ["SLOW"]))
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
# A service that listens immediately, and another that loads for some seconds first.
SLOW = {"that listens at once": 0, "that loads for five seconds first": 5}


class Made(KubeStruct, frozen=True):
    """The fields of a response that are read."""

    metadata: ObjectMeta


DEPLOYMENTS = run.DEPLOYMENTS.read_as(Made)
SERVICES = run.SERVICES.read_as(Made)


class Edge(NamedTuple):
    """A server, its cluster, and the address of the cluster's Gateway."""

    server: Server
    where: Place
    address: str


def measure(rounds: int = ROUNDS) -> Iterator[Row]:
    """Measure sandboxes behind a real Gateway, and bare Deployments with their Services, in turns."""
    with _edge() as edge:
        for what, slow in SLOW.items():
            name = f"{FRONT}-{slow}"
            _baseline(edge, name, slow)
            ours, bare = [], []
            for number in range(rounds):
                bare.append(asyncio.run(_bare(edge, f"own-{slow}-{number}", slow)))
                ours.append(_routed(edge, f"s-{slow}-{number}", name))
            apart = median(ours) / median(bare)
            yield Row(
                f"(j) from the PUT of a sandbox at a server to its fork's first response through Envoy Gateway, a "
                f"service {what} (yardstick: a Deployment until its Service responds)",
                f"{median(ours):.2f} s ({spread(ours)})",
                f"{median(bare):.2f} s ({spread(bare)})",
                f"{apart:.2f} x ({median(ours) - median(bare):+.2f} s)",
                f"{AIM} x",
                apart <= AIM,
            )


@contextlib.contextmanager
def _edge() -> Iterator[Edge]:
    with folder() as here, place() as where, servers.sqlite(here) as server, dns.names(where.cluster):
        own = where.cluster
        own.load(stand_ins.python())
        installed = gateway.install(own)
        own.kubectl("create", "namespace", NAMESPACE)
        for role in ("dayfly-forks", "dayfly-agent"):
            grant = [f"--clusterrole={role}", f"--serviceaccount={SYSTEM}:{ACCOUNT}"]
            own.kubectl("create", "rolebinding", role, f"--namespace={NAMESPACE}", *grant)
        _apply(where, installed.gateway(GATEWAY, NAMESPACE))
        gateway.wait_programmed(own, GATEWAY, NAMESPACE)
        server.ask("PUT", f"clusters/{CLUSTER}", {})
        token = own.folder / "token"
        token.write_text(server.ask("POST", f"clusters/{CLUSTER}/tokens", {})["token"], encoding="ascii")
        bound = f"{servers.ORG}={NAMESPACE}"
        dials = [f"--server-url={server.url}", f"--token-file={token}", f"--agent-namespace={bound}"]
        with operator(where, *dials) as running:
            until(lambda: running.figure("dayfly_server_connected") == 1)
            yield Edge(server, where, installed.address(GATEWAY, NAMESPACE))


def _baseline(edge: Edge, name: str, slow: int) -> None:
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": GATEWAY}],
            "hostnames": [_host(name)],
            "rules": [{"backendRefs": [{"name": name, "port": 80}]}],
        },
    }
    _apply(edge.where, *_service(name, slow), route)
    until(lambda: said(edge.address, 80, host=_host(name)) == name)


def _service(name: str, slow: int) -> tuple[dict[str, Any], dict[str, Any]]:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": stand_ins.PYTHON,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", APP],
        "env": [{"name": "WORD", "value": name}, {"name": "SLOW", "value": str(slow)}],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    meta = {"name": name, "namespace": NAMESPACE}
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    )


def _routed(edge: Edge, name: str, of: str) -> float:
    word = {"env": [{"name": "WORD", "value": name}]}
    fork = {"forkOf": {"kind": "Deployment", "namespace": NAMESPACE, "name": of}, "customizations": word}
    began = time.perf_counter()
    made = edge.server.ask("PUT", f"sandboxes/{name}", {"spec": {"cluster": CLUSTER, "forks": [fork]}})
    until(lambda: said(edge.address, 80, made["routingKey"], host=_host(of)) == name)
    took = time.perf_counter() - began
    edge.server.ask("DELETE", f"sandboxes/{name}")
    until(lambda: name not in {each["name"] for each in edge.server.ask("GET", "sandboxes")})
    _alone(edge)
    return took


async def _bare(edge: Edge, name: str, slow: int) -> float:
    async with client(edge.where.cluster.kubeconfig) as asking:
        return await _started(edge, asking, name, slow)


async def _started(edge: Edge, asking: KubeClient, name: str, slow: int) -> float:
    deployment, service = _service(name, slow)
    began = time.perf_counter()
    await asking.create(DEPLOYMENTS, deployment, NAMESPACE)
    await asking.create(SERVICES, service, NAMESPACE)
    _, found = edge.where.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/services/{name}")
    await asyncio.to_thread(until, lambda: said(found["spec"]["clusterIP"], 80) == name)
    took = time.perf_counter() - began
    for kind in (DEPLOYMENTS, SERVICES):
        await asking.delete(kind, name, NAMESPACE)
    await asyncio.to_thread(_alone, edge)
    return took


def _alone(edge: Edge) -> None:
    """Wait until only the pods of the baselines are left, so that ending pods do not slow down the next round."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def so() -> bool:
        _, found = edge.where.cluster.get(path)
        return all(each["metadata"]["labels"].get("app", "").startswith(FRONT) for each in found["items"])

    until(so)


def _host(name: str) -> str:
    return f"{name}.example"


def _apply(where: Place, *objects: dict[str, Any]) -> None:
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    where.cluster.kubectl("apply", "--filename=-", stdin=listed)


if __name__ == "__main__":
    show(lambda: list(measure(*map(int, sys.argv[1:]))))
