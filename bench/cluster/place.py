"""A separate cluster with Dayfly installed, the operator as a process of this machine, and a client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from testcluster import cluster as clusters

from bench.rows import ROOT
from dayfly.kube.auth import load
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.transport import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from testcluster.cluster import Cluster

ACCOUNT = "dayfly-operator"
SYSTEM = "dayfly-system"
RUNNERS = "dayfly-runners"
OPERATOR = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
HOME = "bench"
TIMEOUT_S = 120
CLOSE_TIMEOUT_S = 30
# Only for this client, so that its rate limits affect no result.
UNBOUND = Limits(rate=100_000.0, burst=100_000)
# Record every change with its response, which shows whether it was stored; and requests that follow logs.
_EVERYTHING = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/log"]}]},
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "RequestResponse"},
    ],
}
# For bulk: only the operator's changes. A whole log would take much of the server's time.
_OURS = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata", "users": [OPERATOR]},
    ],
}
_STAGES = Path(__file__).with_name("stages.yaml")


_AS_IN_A_POD = """
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io
cp -R "$1" /run/secrets/kubernetes.io/serviceaccount
shift
exec "$@"
"""


class Place(NamedTuple):
    """The cluster, and the operator's account with the rights of its manifest.

    `address` is the API server's host and port, as pods get it. `kubeconfig` is the same account for other programs.
    """

    cluster: Cluster
    kubeconfig: Path
    account: Path
    address: tuple[str, str]
    runner: Path


class Operator(NamedTuple):
    """An operator process. `ready_after` is the time in seconds until its caches were complete."""

    pid: int
    port: int
    ready_after: float

    def figure(self, name: str, **labels: str) -> float:
        """Return the current value of a metric; 0 if it does not exist yet."""
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in _ask(self.port, "metrics").splitlines():
            if line.startswith(f"{wanted} "):
                return float(line.rpartition(" ")[2])
        return 0.0


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def place(
    *, kwok_nodes: int = 0, everything: bool = False, audit: dict[str, Any] | None = None, checkout: Path = ROOT
) -> Iterator[Place]:
    """Start a cluster, with a real node or KWOK nodes, and install a checkout's manifest without its Deployment.

    `audit` is the policy of its audit log. By default a real node has the policy `everything`, and KWOK nodes have none
    unless requested.
    """
    owner = os.pidfd_open(os.getpid())  # the cluster ends even if the benchmark is killed
    try:
        stages = _STAGES.read_text(encoding="utf-8")
        audit = audit or (_OURS if kwok_nodes and not everything else _EVERYTHING)
        own = clusters.up(kubelet=not kwok_nodes, kwok_nodes=kwok_nodes, stages=stages, audit=audit, owner=owner)
    finally:
        os.close(owner)
    try:
        yield _install(own, checkout)
    finally:
        clusters.down(own)


def _install(own: Cluster, checkout: Path) -> Place:
    if own.kubectl(
        "get", "nodes", "--selector=!kubernetes.io/arch", "--output=name"
    ):  # KWOK's nodes have no such label
        own.kubectl("label", "nodes", "--all", "kubernetes.io/arch=amd64", "kubernetes.io/os=linux")
    install(own, checkout)
    own.kubectl("create", "namespace", HOME)
    own.kubectl("annotate", "namespace", HOME, "dayfly.dev/steps=100000")
    for namespace in (HOME, RUNNERS):
        own.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=60s")
    token = own.kubectl("create", "token", ACCOUNT, f"--namespace={SYSTEM}", "--duration=12h").strip()
    path = kubeconfig(own, "operator.kubeconfig", token)
    server = json.loads(own.kubectl("config", "view", "--raw", "--output=json"))["clusters"][0]["cluster"]
    account = own.folder / "account"
    account.mkdir(mode=0o700)
    (account / "token").write_text(token, encoding="utf-8")
    (account / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    address = urllib.parse.urlsplit(server["server"])
    runner = own.folder / "runner"
    subprocess.run([checkout / "runner" / "build.sh", runner, "x86_64"], check=True)
    return Place(own, path, account, (str(address.hostname), str(address.port)), runner)


def kubeconfig(own: Cluster, name: str, token: str) -> Path:
    """Write a private file in the folder of the cluster, with which a client has this token. Return its path."""
    config = json.loads(own.kubectl("config", "view", "--raw", "--output=json"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = own.folder / name
    path.touch(mode=0o600)
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def install(own: Cluster, checkout: Path) -> None:
    """Install a checkout's manifest without its Deployment, also over an older version."""
    for part in ("namespaces", "access", "policies", "network", "quota"):
        own.kubectl("apply", f"--filename={checkout / 'deploy' / 'base' / part}.yaml")
    own.kubectl("delete", "resourcequota", "--all", f"--namespace={RUNNERS}")  # no quota may limit the operator
    own.kubectl("apply", f"--kustomize={checkout / 'deploy' / 'crds'}")
    # Not `--for=condition`, which fails for a definition that has no conditions yet.
    served = 'jsonpath={.status.conditions[?(@.type=="Established")].status}=True'
    own.kubectl("wait", f"--for={served}", "crd", "--all", f"--timeout={TIMEOUT_S}s")


@contextmanager
def operator(
    where: Place,
    *options: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Operator]:
    """Run an operator like its Deployment, but without the image, until the block ends. It is stopped gracefully.

    Args:
        where: Its cluster.
        options: Further options of `dayfly operator`.
        variables: Further environment variables.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "dayfly", "operator", f"--runner={where.runner}", f"--port={port}", *options]
    # Pods have their account at a fixed path. A private mount puts it there only for this process.
    command = ["unshare", "--mount", "sh", "-ec", _AS_IN_A_POD, "sh", str(where.account), *program]
    host, secure = where.address
    environment = os.environ | variables | {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": secure}
    environment = {name: value for name, value in environment.items() if name != "KUBECONFIG"}
    environment["POD_NAMESPACE"] = SYSTEM
    began = time.monotonic()
    with (where.cluster.folder / "logs" / "operator.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        while not _ready(port):
            if process.poll() is not None or time.monotonic() > began + TIMEOUT_S:
                raise RuntimeError(f"the operator does not start; see {log.name}")
            time.sleep(0.02)
        yield Operator(process.pid, port, time.monotonic() - began)
    finally:
        process.terminate()
        process.wait(timeout=TIMEOUT_S)


def _ready(port: int) -> bool:
    try:
        return _ask(port, "readyz") == "ready\n"
    except OSError:  # the port is not open yet, or the operator is not ready
        return False


def _ask(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
        return str(answer.read().decode())


@asynccontextmanager
async def client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    """Provide a Kubernetes client without rate limits."""
    before = _sockets()
    opened = KubeClient(HttpTransport(await load(kubeconfig)), UNBOUND)
    try:
        yield opened
    finally:
        await opened.close()
        # A watch's connection is closed only after the server's closing handshake. If the event loop ended sooner, the
        # garbage
        # collector would close it and warn.
        for _ in range(CLOSE_TIMEOUT_S * 100):
            if _sockets() <= before:
                break
            await asyncio.sleep(0.01)


def _sockets() -> int:
    """Return the number of open sockets of this process."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            count += str(descriptor.readlink()).startswith("socket:")
    return count
