"""Programs of a cluster, with their options and files.

All paths are paths inside the cluster's namespaces, where its folder is mounted at HOME.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testcluster import build, host, pki

HOME = "/run/testcluster"
# In addition to Kubernetes' programs: nsenter, under the name of its log.
WAY_OUT = "way-out"
PROGRAMS = {WAY_OUT: "nsenter"}
# The address for the node's own programs. Pods cannot reach it.
WAY_OUT_ADDRESS = ("127.0.0.1", 3128)
NODE = "node"
PAUSE_IMAGE = "dayfly.test/pause:1"
CONTAINERD_SOCKET = f"{HOME}/containerd.sock"
CONTAINERD_ROOT = f"{HOME}/containerd"
_CERTIFICATES = f"{HOME}/pki"
_HASTE = ["--kube-api-qps=500", "--kube-api-burst=1000"]  # the usual 20 a second cost five seconds of each start

AUDIT_LOG = "logs/audit.log"
_AUDITING = [
    f"--audit-policy-file={HOME}/audit.json",
    f"--audit-log-path={HOME}/{AUDIT_LOG}",
    "--audit-log-maxsize=2000",  # megabytes; large enough that the log is not rotated
]

# The kubelet sets these for the whole machine. In the cluster's namespaces, files with the expected values replace
# them.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a cluster: its name (which determines its addresses), and the kind of its nodes."""

    name: str
    kubelet: bool = True
    kwok_nodes: int = 0
    audited: bool = False
    without: Sequence[str] = ()
    way_out: bool = False
    images_in_memory: bool = False

    @property
    def network(self) -> host.Network:
        return host.network_of(self.name)

    @property
    def schedules(self) -> bool:
        return self.kubelet or self.kwok_nodes > 0


def write_files(folder: Path, shape: Shape, *, stages: str = "", audit: dict[str, Any] | None = None) -> None:
    """Write the files of all programs to the cluster's folder on the host. For `stages` and `audit` see `up`."""
    network = shape.network
    pki.make(folder / "pki", node=NODE, addresses=[network.node], service_address=network.first_service)
    server = f"https://{network.node}:6443"
    for user in pki.USERS:
        _private(folder / "pki" / f"{user}.kubeconfig", pki.kubeconfig(folder / "pki", user, server))
    _private(folder / "pki" / "kubelet.kubeconfig", pki.kubeconfig(folder / "pki", "kubelet", server))
    _private(folder / "kubeconfig", pki.kubeconfig(folder / "pki", "admin", server))
    (folder / "resolv.conf").touch()
    (folder / "containerd.toml").write_text(_CONTAINERD)
    (folder / "cni").mkdir()
    (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_cni(network), indent=2))
    usual = (build.HERE / "kwok" / "stages.yaml").read_text()
    (folder / "kwok.yaml").write_text(f"{usual}---\n{stages}" if stages else usual)
    (folder / "audit.json").write_text(json.dumps(audit, indent=2))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(shape), indent=2))


def commands(shape: Shape) -> tuple[list[list[str]], list[list[str]]]:
    """Return two lists of commands: those to start immediately, and those to start when the API server is ready."""
    audit = _AUDITING if shape.audited else []
    first, then = [_etcd(), [*_apiserver(shape.network), *audit]], [_controller_manager(shape)]
    if shape.schedules:
        then.append(["kube-scheduler", f"--kubeconfig={_user('kube-scheduler')}", "--leader-elect=false", *_HASTE])
    if shape.kubelet:
        first.append(["containerd", f"--config={HOME}/containerd.toml"])
        then += [_kubelet_command(shape.network), _proxy(shape.network)]
    if shape.kwok_nodes:
        then.append(["kwok", f"--kubeconfig={_user('kwok')}", f"--config={HOME}/kwok.yaml", "--manage-all-nodes=true"])
    return first, then


def way_out(listening: int, network: int, mounts: int) -> list[str]:
    """Return the proxy's command: it serves the open socket `listening` from the machine's namespaces."""
    enter = [WAY_OUT, f"--net=/proc/self/fd/{network}", f"--mount=/proc/self/fd/{mounts}", "--"]
    return [*enter, sys.executable, "-m", "testcluster.way_out", str(listening)]


def environment(shape: Shape, name: str) -> dict[str, str]:
    """Return the environment of a program, without PATH and HOME."""
    if name == WAY_OUT:
        return dict(os.environ)  # the caller's proxies and module path
    # Less garbage collection saves a sixth of the CPU time of a start and later work, for 200 MB more memory.
    seldom = {"GOGC": "400"}
    if name == "containerd" and shape.way_out:
        return seldom | {"HTTPS_PROXY": "http://{}:{}".format(*WAY_OUT_ADDRESS)}
    return seldom


def _user(name: str) -> str:
    return f"{_CERTIFICATES}/{name}.kubeconfig"


def _etcd() -> list[str]:
    return [
        "etcd",
        f"--data-dir={HOME}/etcd",
        "--unsafe-no-fsync",  # its data is deleted with the cluster
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--log-level=warn",
    ]


def _apiserver(network: host.Network) -> list[str]:
    return [
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={network.node}",
        "--secure-port=6443",
        f"--service-cluster-ip-range={network.services}",
        f"--client-ca-file={_CERTIFICATES}/ca.crt",
        f"--tls-cert-file={_CERTIFICATES}/apiserver.crt",
        f"--tls-private-key-file={_CERTIFICATES}/apiserver.key",
        f"--kubelet-client-certificate={_CERTIFICATES}/apiserver.crt",
        f"--kubelet-client-key={_CERTIFICATES}/apiserver.key",
        f"--kubelet-certificate-authority={_CERTIFICATES}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={_CERTIFICATES}/accounts.pub",
        f"--service-account-signing-key-file={_CERTIFICATES}/accounts.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
    ]


def _controller_manager(shape: Shape) -> list[str]:
    network = shape.network
    return [
        "kube-controller-manager",
        f"--kubeconfig={_user('kube-controller-manager')}",
        "--leader-elect=false",
        *_HASTE,
        f"--controllers={','.join(('*', *(f'-{name}' for name in shape.without)))}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={_CERTIFICATES}/accounts.key",
        f"--root-ca-file={_CERTIFICATES}/ca.crt",
        f"--cluster-cidr={network.pods}",
        f"--service-cluster-ip-range={network.services}",
    ]


def _kubelet_command(network: host.Network) -> list[str]:
    return [
        "kubelet",
        f"--config={HOME}/kubelet.json",
        f"--kubeconfig={_user('kubelet')}",
        f"--root-dir={HOME}/kubelet",
        f"--hostname-override={NODE}",
        f"--node-ip={network.node}",
    ]


def _proxy(network: host.Network) -> list[str]:
    return [
        "kube-proxy",
        f"--kubeconfig={_user('kube-proxy')}",
        f"--hostname-override={NODE}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={network.pods}",
        # These apply to the whole machine; 0 leaves them unchanged.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def _kubelet(shape: Shape) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{_CERTIFICATES}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{_CERTIFICATES}/kubelet.crt",
        "tlsPrivateKeyFile": f"{_CERTIFICATES}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{shape.name}",
        "failCgroupV1": False,
        # As in version 1: the kernel kills only the largest process, not all of its container.
        "singleProcessOOMKill": True,
        "failSwapOn": False,
        "podLogsDir": f"{HOME}/pods",
        "volumePluginDir": f"{HOME}/volume-plugins",
        "resolvConf": f"{HOME}/resolv.conf",
        # Only `dns.names` answers at this address. Without a value each pod gets a warning event.
        "clusterDNS": [shape.network.dns],
        "clusterDomain": "cluster.local",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "maxPods": 250,
        # Ignore a full disk of the machine: deleted images could not be pulled again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    }


def _cni(network: host.Network) -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": False,  # the host has a route back to the pods
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{HOME}/addresses",
            "ranges": [[{"subnet": network.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "testcluster", "plugins": [bridge, ports]}


_CONTAINERD = f"""\
version = 2
root = "{CONTAINERD_ROOT}"
state = "{HOME}/containerd-state"

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{HOME}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE a container cannot get a lower score than ours, and runc would die of it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{HOME}/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{build.CNI}"
    conf_dir = "{HOME}/cni"
"""


def _private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
