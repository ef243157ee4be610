"""The parts of a cluster outside its namespaces: one network link, and control groups.

All of them carry the cluster's name, so that they can be found and removed without a record. The name contains a
number, which determines the addresses and is reused, and random characters, so that a name is never reused. Otherwise a
caller that ends a cluster, or has stored the path of its KUBECONFIG, could affect its successor.
"""

import contextlib
import errno
import fcntl
import ipaddress
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from testcluster import build

PREFIX = "dayfly"  # a link's name has at most 15 characters
MOST = 64  # clusters side by side
CGROUPS = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
# With this much free memory the images of a cluster are in it. Dayfly's image has half a GiB: on a slow disk, loading
# took 17 s and deleting 10 to 20 s; in memory 7 s and none.
ROOM_FOR_IMAGES = 8 << 30
_INTERFACES = Path("/sys/class/net")
_EXITING = 0x4  # among the flags in /proc/PID/stat: PF_EXITING of linux/sched.h


class Network:
    """The addresses of the cluster with this number. 10.N.0.0/16 is divided into link, pods and services."""

    def __init__(self, number: int) -> None:
        self.number = number
        second = 128 + number
        self.whole = f"10.{second}.0.0/16"
        self.host = f"10.{second}.0.1"
        self.node = f"10.{second}.0.2"
        self.pods = f"10.{second}.64.0/18"
        self.services = f"10.{second}.128.0/17"
        self.first_service = f"10.{second}.128.1"
        self.dns = f"10.{second}.128.10"


def new_name(number: int) -> str:
    """Return a unique name for a cluster with these addresses, and for its link and control groups."""
    return f"{PREFIX}{number}-{secrets.token_hex(3)}"


def network_of(name: str) -> Network:
    """Return the addresses of the cluster with this name."""
    return Network(int(name.removeprefix(PREFIX).partition("-")[0]))


def spares_memory() -> bool:
    """Return whether this machine has enough free memory for a cluster's images."""
    kib = next(line.split()[1] for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(kib) << 10 >= ROOM_FOR_IMAGES


@contextlib.contextmanager
def lock() -> Iterator[None]:
    """Hold a lock on this machine, for all caches, from the choice of a number until its addresses exist."""
    folder = os.open(_INTERFACES, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def free_numbers() -> Iterator[int]:
    """Yield the numbers whose addresses no route of this machine covers."""
    routes = json.loads(subprocess.run(["ip", "-j", "route"], check=True, capture_output=True).stdout)
    used = [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
    for number in range(MOST):
        whole = ipaddress.ip_network(Network(number).whole)
        if not any(whole.overlaps(other) for other in used):
            yield number


def connect(name: str, network: Network, pid: int) -> None:
    """Connect a process's network namespace to the host. Pods and Services are then reachable from the host too."""
    _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("address", "add", f"{network.host}/24", "dev", name)
    _ip("link", "set", name, "up")
    _ip("route", "add", network.whole, "via", network.node, "dev", name)


def make_cgroups(name: str) -> None:
    """Create one group for all pods of the cluster, in each hierarchy of the kernel."""
    if (CGROUPS / "cgroup.controllers").exists():  # version 2: one hierarchy
        available = (CGROUPS / "cgroup.controllers").read_text().split()
        group = CGROUPS / name
        group.mkdir(exist_ok=True)
        for folder in (CGROUPS, group):
            try:
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in available))
            except OSError as problem:
                if problem.errno != errno.EBUSY:
                    raise
                raise build.UnavailableError(
                    f"{folder} contains processes, so its controllers cannot be delegated: in a container, "
                    "start a cluster from a machine's own root group (docker: --cgroupns=host)"
                ) from problem
        return
    for hierarchy in CGROUPS.iterdir():
        if (hierarchy / "cgroup.procs").exists() and not hierarchy.is_symlink():
            (hierarchy / name).mkdir(exist_ok=True)
    for parameter in ("cpuset.cpus", "cpuset.mems"):  # a new cpuset is empty, and accepts no process
        if (CGROUPS / "cpuset" / parameter).exists():
            (CGROUPS / "cpuset" / name / parameter).write_text((CGROUPS / "cpuset" / parameter).read_text())


def remove(name: str, *, seconds: float = 20) -> None:
    """Remove link and control groups. The kernel releases the groups of dead processes only after a moment.

    Raises:
        TimeoutError: the message names the groups that are still in use.
    """
    if (_INTERFACES / name).exists():
        # The kernel removes the link with its namespace, perhaps at this moment.
        subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
    deadline = time.monotonic() + seconds
    while left := [group for root in _cgroup_roots(name) for group in _remove_tree(root)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"control groups still in use: {', '.join(map(str, left))}")
        time.sleep(0.05)


def traces(name: str) -> list[str]:
    """Return the remains of a cluster on the host; empty once it is down."""
    found = [str(path) for path in _cgroup_roots(name)]
    if (_INTERFACES / name).exists():
        found.append(f"link {name}")
    return found


def ending(pid: int) -> bool:
    """Return whether a process is exiting but not gone yet. Callers may wait for any of its threads."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is already gone
            state, *rest = stat.read_text().rpartition(") ")[2].split()
            if state not in "XZ" and int(rest[5]) & _EXITING:
                return True
    return False


def _cgroup_roots(name: str) -> list[Path]:
    return [path for path in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if path.is_dir()]


def _remove_tree(root: Path) -> list[Path]:
    """Remove groups from the bottom up. Return those that are still busy."""
    for group, _, _ in os.walk(root, topdown=False):  # skips groups that another process has removed
        with contextlib.suppress(OSError):
            Path(group).rmdir()
    return [root] if root.exists() else []


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
