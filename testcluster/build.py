"""Build the programs of a cluster once into a cache, and install tools from Debian packages."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
CNI = Path("/usr/lib/cni")
_KUBERNETES, _KUBECTL = HERE / "go", "./kubectl"
_QUICKLY = "all=-l -dwarf=false"
_OLDEST_GO = (1, 21)  # newer ones download the version that a module requires
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")

# A file or command, and the Debian package that contains it.
TOOLS = {
    "ip": "iproute2",
    "openssl": "openssl",
    "unshare": "util-linux",
}
NODE_TOOLS = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "cc": "gcc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/bin/busybox": "busybox-static",
    "/usr/include/stdio.h": "libc6-dev",
}


class UnavailableError(Exception):
    """An error for a machine that cannot run a test cluster. The message has the reason and a remedy."""


def cache() -> Path:
    """Return the cache folder. It is outside the checkout, so that a fresh clone does not build again."""
    home = os.environ.get("DAYFLY_CACHE")
    return (Path(home) if home else Path.home() / ".cache" / "dayfly") / "testcluster"


def check_machine(*, kubelet: bool = True) -> None:
    """Refuse a machine that cannot run a cluster, before anything is built or installed.

    Raises:
        UnavailableError: with the first reason found.
    """
    if platform.system() != "Linux":
        raise UnavailableError(f"needs Linux, this is {platform.system()}")
    if os.geteuid() != 0:
        raise UnavailableError("needs root, for namespaces and containers")
    if not has_kubernetes():
        check_go("Kubernetes")
    missing = _missing(TOOLS | NODE_TOOLS if kubelet else TOOLS)
    if missing and not shutil.which("apt-get"):
        raise UnavailableError(f"needs the Debian packages {' '.join(missing)}, and there is no apt-get")
    if "util-linux" not in missing:
        trial = subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
        )
        if trial.returncode:
            raise UnavailableError(f"needs the right to make namespaces: {trial.stderr.strip()}")


def has_kubernetes() -> bool:
    """Return whether the program that contains all components is already built."""
    return _program("kube", _KUBERNETES).exists() and _program("kubectl", _KUBERNETES, _KUBECTL).exists()


def check_go(what: str) -> None:
    """Refuse a machine whose Go is missing or too old to build this.

    Raises:
        UnavailableError: with a remedy.
    """
    if not shutil.which("go"):
        raise UnavailableError(f"needs Go to build {what}; no `go` on PATH and no earlier build in the cache")
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found and (int(found[1]), int(found[2])) < _OLDEST_GO:
        oldest = ".".join(map(str, _OLDEST_GO))
        raise UnavailableError(f"needs Go {oldest} or newer to build {what}; `go` on PATH is {said.strip()}")


def module(folder: Path, name: str) -> Path:
    """Return the folder of a Go module, in the version that the module in `folder` requires. Download it if necessary.

    Raises:
        UnavailableError: with the last output of the failed command.
    """
    command = ["go", "mod", "download", "-json", name]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise UnavailableError(f"`{' '.join(command)}` failed: {ended.stdout}{ended.stderr}")
    return Path(json.loads(ended.stdout)["Dir"])


def install_tools(*, kubelet: bool = True) -> None:
    """Install missing tools with apt-get. Usually there is nothing to do.

    Raises:
        UnavailableError: with the last output of the failed command.
    """
    install(TOOLS | NODE_TOOLS if kubelet else TOOLS)
    if kubelet and not _BRIDGED.exists():
        # Without it, responses of a Service on the same bridge bypass the address translation, and the client drops
        # them.
        if modprobe := shutil.which("modprobe"):
            subprocess.run([modprobe, "--quiet", "br_netfilter"], check=False)
        if not _BRIDGED.exists():
            raise UnavailableError(
                "needs the kernel module br_netfilter, or pods would not reach Services, and "
                f"{'modprobe could not load it' if modprobe else 'there is no modprobe (Debian package kmod)'}"
            )


def install(wanted: Mapping[str, str]) -> None:
    """Install the Debian packages of missing files and commands.

    Raises:
        UnavailableError: with the last output of the failed command.
    """
    if missing := _missing(wanted):
        _run([str(HERE.parent / "scripts" / "debian.sh"), *missing])


def kubernetes() -> Path:
    """Return the program that contains all components except kubectl. It is built at the first call (minutes) and
    cached.

    The build takes a third less time without inlining and debug tables. Earlier builds that have them are equally good.
    """
    return _build("kube", _KUBERNETES, ".", _versioned(), compiler=_QUICKLY)


def kubectl() -> Path:
    """Return kubectl, built at the first call. After `kubernetes` that takes seconds, because both share packages."""
    return _build("kubectl", _KUBERNETES, _KUBECTL, _versioned(), compiler=_QUICKLY)


def _versioned() -> str:
    """Return linker flags that set the Kubernetes version of the programs."""
    found = re.search(r"k8s\.io/kubernetes v((\d+)\.(\d+)\.\S+)", (_KUBERNETES / "go.mod").read_text())
    assert found, "go.mod has no version of k8s.io/kubernetes"
    stamp = "k8s.io/component-base/version.git"
    return f"-s -w -X {stamp}Version=v{found[1]} -X {stamp}Major={found[2]} -X {stamp}Minor={found[3]}"


def kwok() -> Path:
    """Return KWOK, which simulates the kubelets of any number of nodes; built at the first call."""
    return _build("kwok", HERE / "kwok", "sigs.k8s.io/kwok/cmd/kwok", "-s -w")


def envoy_gateway() -> Path:
    """Return Envoy Gateway, which configures Envoy by the Gateway API; built at the first call."""
    package = "github.com/envoyproxy/gateway/cmd/envoy-gateway"
    return _build("envoy-gateway", HERE / "gateway", package, "-s -w", compiler=_QUICKLY)


def istiod() -> Path:
    """Return Istio's control plane; built at the first call."""
    return _build("pilot-discovery", HERE / "istio", "istio.io/istio/pilot/cmd/pilot-discovery", "-s -w")


def helm() -> Path:
    """Return Helm, built at the first call."""
    return _build("helm", HERE / "helm", "helm.sh/helm/v3/cmd/helm", "-s -w", compiler=_QUICKLY)


def pause() -> Path:
    """Return the program of a pod's own container, which waits for SIGTERM."""
    source = HERE / "pause.c"
    target = cache() / f"pause-{_digest(source)}"
    if target.exists():
        return target
    with lock("pause"):
        if not target.exists():
            part = target.with_suffix(".part")
            _run(["cc", "-static", "-Os", "-s", "-o", str(part), str(source)])
            part.rename(target)
    return target


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock on this machine, for callers that share a cache."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """Print a message for the user to standard error; standard output is for results."""
    sys.stderr.write(f"testcluster: {text}\n")


def _missing(wanted: Mapping[str, str]) -> list[str]:
    return [package for tool, package in wanted.items() if not shutil.which(tool) and not Path(tool).exists()]


def _build(name: str, folder: Path, package: str, ldflags: str, *, compiler: str = "") -> Path:
    target = _program(name, folder, package)
    if target.exists():
        return target
    with lock(name):
        if target.exists():  # another process built it while this one waited
            return target
        say(f"building {name}, once: this takes minutes (into {target})")
        began = time.monotonic()
        part = target.with_suffix(".part")
        flags = ["-trimpath", "-buildvcs=false", f"-gcflags={compiler}", "-ldflags", ldflags]
        _run(
            ["nice", "go", "build", *flags, "-o", str(part), package],
            cwd=folder,
            env=os.environ | {"CGO_ENABLED": "0"},
        )
        part.rename(target)
        say(f"built {name} in {time.monotonic() - began:.0f} s")
    return target


def _program(name: str, folder: Path, package: str = ".") -> Path:
    """Return the path in the cache. Its key is a hash of the module and of our own sources, if the module has any."""
    found = {*folder.iterdir(), *(folder / package).glob("*")}
    sources = [path for path in sorted(found) if path.suffix in {".go", ".mod", ".sum"}]
    return cache() / f"{name}-{_digest(*sources)}"


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    ended = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        raise UnavailableError(f"`{' '.join(command[:3])} ...` failed with {ended.returncode}:\n{ended.stdout[-4000:]}")
