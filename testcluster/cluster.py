"""Start, find and end clusters."""

import contextlib
import dataclasses
import fcntl
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from testcluster import api_requests, build, components, host, images

START_SECONDS = 60  # generous, because the machine may be loaded


class StartError(Exception):
    """The cluster did not start. The message has the last output of its components."""


class CommandError(Exception):
    """A command in or to a cluster failed."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A started cluster, identified only by its folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def network(self) -> host.Network:
        """Addresses: `host` is this machine as pods see it, `node` that of the API server and the kubelet."""
        return host.network_of(self.name)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """A log with one JSON event per line, if the cluster was started with `audit`."""
        return self.folder / components.AUDIT_LOG

    def alive(self) -> bool:
        """Return whether any process of the cluster is left. Process 1 and its parent hold a lock on a file in the
        folder.

        If both are killed, they release it before the kernel has killed the other processes. Process 1 is the last to
        end.
        """
        try:
            with (self.folder / "lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return host.ending(int((self.folder / "pid").read_text()))
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as an administrator and return its standard output.

        Raises:
            CommandError: kubectl failed; the message has its output.
        """
        command = [str(self.folder / "bin" / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        env = os.environ | {"KUBERC": "off", "HOME": str(self.folder)}  # no settings of the user
        env |= {"GOGC": "off", "GOMEMLIMIT": "512MiB"}  # garbage collection took a third of its time
        return _output(subprocess.run(command, input=stdin, env=env, check=False, capture_output=True, text=True))

    def load(self, archive: Path) -> None:
        """Load an image archive (see `images.build`) on the node. Pods use it by its name."""
        command = ["ctr", f"--address={components.CONTAINERD_SOCKET}", "--namespace=k8s.io", "images", "import", "-"]
        self.run_inside(command, stdin=archive)

    def run_inside(self, command: Sequence[str], *, stdin: Path = Path(os.devnull)) -> str:
        """Run a command of this machine inside the cluster's namespaces and return its standard output.

        Raises:
            CommandError: it failed; the message has its output.
        """
        pid = (self.folder / "pid").read_text()
        enter = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", *command]
        with stdin.open("rb") as source:
            return _output(subprocess.run(enter, stdin=source, check=False, capture_output=True, text=True))

    def answers(self, path: str) -> bool:
        """Return whether a GET of this path succeeds now."""
        return self.get(path)[0] == http.HTTPStatus.OK

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and body (parsed JSON, else text) of a GET to the API server, as an administrator."""
        return api_requests.get(self.folder, self.network.node, path)


def up(
    *,
    kubelet: bool = True,
    kwok_nodes: int = 0,
    stages: str = "",
    audit: dict[str, Any] | None = None,
    owner: int | None = None,
    without: Sequence[str] = (),
    way_out: bool = False,
) -> Cluster:
    """Build missing programs, start a cluster and wait until it accepts pods.

    Args:
        kubelet: run a real node. Without it, only the API server, its controllers and etcd run.
        kwok_nodes: the number of nodes simulated by KWOK, whose pods have no processes.
        stages: additional KWOK stages, as YAML. If two match a pod, the one with a weight is used.
        audit: an audit policy for `Cluster.audit_log`. Without one there is no audit log.
        owner: a process whose end also ends the cluster.
        without: names of controllers of the controller-manager that do not run.
        way_out: the node can pull images from every registry that this machine reaches. Its pods remain isolated.

    Raises:
        build.UnavailableError: this machine cannot run a cluster.
        StartError: it did not start, and was removed.
    """
    build.check_machine(kubelet=kubelet)
    build.install_tools(kubelet=kubelet)
    programs = dict.fromkeys(build.COMPONENTS, build.kubernetes()) | {"kubectl": build.kubectl()}
    if kwok_nodes:
        programs["kwok"] = build.kwok()
    archives = [images.pause(), images.shell()] if kubelet else []
    with host.lock():
        _sweep()
        cluster, lock = _reserve()
        in_memory = kubelet and not way_out and host.spares_memory()  # the size of pulled images is unknown
        shape = components.Shape(
            cluster.name, kubelet, kwok_nodes, audit is not None, tuple(without), way_out, images_in_memory=in_memory
        )
        outside = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("net", "mnt")] if way_out else []
        try:
            with contextlib.ExitStack() as ours:  # these close here; the started processes keep their copies
                for number in (lock, *outside):
                    ours.callback(os.close, number)
                (cluster.folder / "bin").mkdir()
                for name, program in programs.items():
                    (cluster.folder / "bin" / name).hardlink_to(program)
                components.write_files(cluster.folder, shape, stages=stages, audit=audit)
                kept = [lock, *outside] if owner is None else [lock, *outside, owner]
                order = _start(cluster, kept)
            numbers = {"lock": lock, "owner": owner, "outside": outside}
            _connect(cluster, order, {"shape": dataclasses.asdict(shape), **numbers})
        except BaseException:
            down(cluster)
            raise
    try:
        _wait_ready(cluster, shape, archives)
    except BaseException:
        down(cluster)
        raise
    return cluster


def down(cluster: Cluster) -> None:
    """End a cluster and remove everything of it, in any state.

    Raises:
        TimeoutError: something could not be removed, and the message names it. Calling again continues.
    """
    deadline = time.monotonic() + 30
    while cluster.alive():  # more than once: it may be killed at any point of its start
        _kill_process_one(cluster)
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"processes of {cluster.name} do not end; find the process that holds {cluster.folder / 'lock'}"
            )
        time.sleep(0.02)
    api_requests.close(cluster.folder)
    host.remove(cluster.name)
    _remove_folder(cluster.folder)


def all_known() -> list[Cluster]:
    """Return all clusters of this cache, including dead ones that are not completely removed."""
    return [Cluster(folder) for folder in sorted(_home().glob(f"{host.PREFIX}*"))]


def sweep() -> None:
    """Remove the remains of clusters whose processes are gone, because their owner ended or they were killed."""
    with host.lock():
        _sweep()


def _sweep() -> None:
    for cluster in all_known():
        if not cluster.alive():
            down(cluster)


def _output(ended: subprocess.CompletedProcess[str]) -> str:
    if ended.returncode:
        command = " ".join(map(str, ended.args))
        raise CommandError(
            f"`{command}` failed with {ended.returncode}: {ended.stderr.strip() or ended.stdout.strip()}"
        )
    return ended.stdout


def _home() -> Path:
    return build.cache() / "clusters"


def _reserve() -> tuple[Cluster, int]:
    """Return a new cluster folder and its held lock. The processes that inherit the lock keep it."""
    _home().mkdir(parents=True, exist_ok=True)
    number = next(host.free_numbers(), None)
    if number is None:
        raise StartError(f"no free addresses: {host.MOST} clusters run, or routes of this machine cover 10.128-191")
    cluster = Cluster(_home() / host.new_name(number))
    cluster.folder.mkdir(mode=0o700)
    lock = os.open(cluster.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return cluster, lock


def _start(cluster: Cluster, kept: Sequence[int]) -> IO[bytes]:
    """Start process 1 of new namespaces with these open files. Return the pipe from which it reads its order."""
    (cluster.folder / "logs").mkdir()
    command = ["setsid", "--fork", "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    command += [sys.executable, "-m", "testcluster.node", str(cluster.folder)]
    env = os.environ | {"PYTHONPATH": str(build.HERE.parent)}
    with (cluster.folder / "logs" / "node.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=kept, env=env)
    assert process.stdin
    process.wait()  # setsid has ended; its child is now independent and outlives this process
    return process.stdin


def _connect(cluster: Cluster, order: IO[bytes], settings: dict[str, Any]) -> None:
    """Connect the new namespaces to the host, then send the order to start."""
    try:
        with order:
            _wait(cluster, (cluster.folder / "pid").exists, "its first process")
            host.connect(cluster.name, cluster.network, int((cluster.folder / "pid").read_text()))
            host.make_cgroups(cluster.name)
            order.write(json.dumps(settings).encode() + b"\n")
    except (OSError, subprocess.CalledProcessError) as problem:
        said = getattr(problem, "stderr", None) or problem
        raise StartError(f"{cluster.name} could not be connected to this machine: {said}") from problem


def _wait_ready(cluster: Cluster, shape: components.Shape, archives: list[Path]) -> None:
    if shape.kubelet:
        _wait(cluster, (cluster.folder / "containerd.sock").exists, "containerd")
        for archive in archives:
            cluster.load(archive)
    _wait(cluster, lambda: cluster.answers("/readyz"), "the API server")
    if shape.kwok_nodes:
        _make_kwok_nodes(cluster, shape.kwok_nodes)
    # Without the default service account the first pod is refused.
    _wait(cluster, lambda: cluster.answers("/api/v1/namespaces/default/serviceaccounts/default"), "the ServiceAccount")
    nodes = 1 if shape.kubelet else shape.kwok_nodes
    _wait(cluster, lambda: _ready_nodes(cluster) == nodes, f"{nodes} ready nodes")


def _ready_nodes(cluster: Cluster) -> int:
    _, nodes = cluster.get("/api/v1/nodes")
    conditions = [each for node in nodes["items"] for each in node["status"].get("conditions", [])]
    return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _make_kwok_nodes(cluster: Cluster, count: int) -> None:
    """Create the nodes for KWOK, which then manages them."""
    room = {"cpu": "1000", "memory": "4Ti", "pods": "10000"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"kwok-{number}"},
            "status": {"allocatable": room, "capacity": room},
        }
        for number in range(count)
    ]
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))


def _wait(cluster: Cluster, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return
        if not cluster.alive():
            raise StartError(f"{cluster.name} ended while waiting for {what}\n{_last_words(cluster)}")
        if time.monotonic() > deadline:
            raise StartError(f"{cluster.name}: {what} did not happen within {START_SECONDS} s\n{_last_words(cluster)}")
        time.sleep(0.05)


def _last_words(cluster: Cluster) -> str:
    logs = sorted((cluster.folder / "logs").glob("*.log"))
    return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)


def _kill_process_one(cluster: Cluster) -> None:
    """Kill process 1, so that the kernel kills all others. A process id reused by another process is ignored."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        pid = int((cluster.folder / "pid").read_text())
        if str(cluster.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)


def _remove_folder(folder: Path) -> None:
    """Remove the folder. Images have many files, and another process that starts a cluster may be removing it too."""

    def unless_gone(_: Callable[..., Any], __: str, problem: tuple[Any, BaseException, Any]) -> None:
        if not isinstance(problem[1], FileNotFoundError):
            raise problem[1]

    deadline = time.monotonic() + 30
    while folder.exists():
        try:
            shutil.rmtree(folder, onerror=unless_gone)
        except OSError:  # the last process may still be ending, and write files
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
