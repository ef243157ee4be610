"""The test cluster itself: pods, Services and logs are real, and it leaves nothing behind."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from testcluster import build, components, host, images
from testcluster import cluster as clusters
from tests.cluster.waiting import eventually
from tests.selection import SELECTION

TESTCLUSTER = build.HERE


def pod(name: str, image: str, script: str, **more) -> str:
    """A pod as JSON that runs a shell script once."""
    container = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more}, "spec": spec})


class TestPods:
    def test_script_runs_and_speaks(self, cluster, namespace):
        """A script's termination message and its log come back through the API server."""
        script = "echo to the log; printf 'the result' > /dev/termination-log; exit 3"
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=pod("step", cluster.shell_image, script))
        cluster.kubectl("wait", "-n", namespace, "pod/step", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
        status = json.loads(cluster.kubectl("get", "-n", namespace, "pod/step", "-o", "json"))["status"]
        ended = status["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["message"]) == (3, "the result")
        assert cluster.kubectl("logs", "-n", namespace, "step") == "to the log\n"

    def test_service_answers(self, cluster, namespace):
        """A Service's cluster IP leads to its pod: from another pod, and from this machine if the cluster is ours."""
        serve = "while true; do echo hello | nc -l -p 8080; done"
        server = pod("server", cluster.shell_image, serve, labels={"app": "server"})
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=server)
        cluster.kubectl("create", "-n", namespace, "service", "clusterip", "server", "--tcp=80:8080")
        cluster.kubectl("wait", "-n", namespace, "pod/server", "--for=condition=Ready", "--timeout=60s")
        address = cluster.kubectl("get", "-n", namespace, "service/server", "-o", "jsonpath={.spec.clusterIP}")
        ask = f"for i in $(seq 50); do nc -w 2 {address} 80 && exit; sleep 0.2; done; exit 1"
        assert cluster.kubectl("exec", "-n", namespace, "server", "--", "sh", "-c", ask) == "hello\n"
        if cluster.own:

            def answer() -> bytes:
                with socket.create_connection((address, 80), timeout=2) as connection:
                    return connection.recv(100)

            assert eventually(answer) == b"hello\n"

    def test_pod_reaches_this_machine(self, cluster, namespace):
        """A server that a test runs on this machine is reached by pods, as a server must be."""
        if not cluster.own:
            pytest.skip("a cluster that is not ours need not reach this machine")
        with socket.create_server((cluster.own.network.host, 0)) as server:
            server.settimeout(60)
            script = f"echo knock | nc -w 5 {cluster.own.network.host} {server.getsockname()[1]}"
            cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=pod("client", cluster.shell_image, script))
            connection, _ = server.accept()
            with connection:
                assert connection.recv(100) == b"knock\n"

    def test_image_from_folders(self, cluster, namespace, tmp_path):
        """An image made of layers runs with its entry point, environment, user and folder; upper layers win."""
        for layer, text in {"lower": "below", "upper": "above"}.items():
            (tmp_path / layer / "data").mkdir(parents=True)
            (tmp_path / layer / "data" / "file").write_text(text)
            (tmp_path / layer / "data" / layer).write_text(layer)
        (tmp_path / "lower" / "bin").mkdir()
        (tmp_path / "lower" / "bin" / "busybox").write_bytes(Path("/bin/busybox").read_bytes())
        (tmp_path / "lower" / "bin" / "busybox").chmod(0o755)
        settings = images.Settings(
            entrypoint=["/bin/busybox", "sh", "-c", 'echo "$WORD $(busybox id -u) $(busybox cat file lower upper)"'],
            environment={"WORD": "said", "PATH": "/bin"},
            user="1234",
            folder="/data",
        )
        layers = [tmp_path / "lower", tmp_path / "upper"]
        archive = images.build("dayfly.test/layers:1", layers, settings, to=tmp_path / "layers.tar")
        cluster.load(archive)
        cluster.kubectl("run", "-n", namespace, "layers", "--image=dayfly.test/layers:1", "--restart=Never")
        done = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("wait", "-n", namespace, "pod/layers", done, "--timeout=60s")
        assert cluster.kubectl("logs", "-n", namespace, "layers") == "said 1234 abovelowerupper\n"
        again = images.build("dayfly.test/layers:1", layers, settings, to=tmp_path / "again.tar")
        assert archive.stat().st_size == again.stat().st_size

    @pytest.mark.parametrize(("free", "there"), [(host.ROOM_FOR_IMAGES, True), (host.ROOM_FOR_IMAGES - 1024, False)])
    def test_images_lie_in_memory_where_there_is_enough(self, free, there, monkeypatch, tmp_path):
        monkeypatch.setattr(host, "MEMINFO", tmp_path / "meminfo")
        host.MEMINFO.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {free >> 10} kB\n")
        assert host.spares_memory() == there

    def test_images_are_in_memory_if_there_is_enough(self, cluster):
        """Only the cluster sees the images: its folder contains none if the machine has enough memory."""
        said = cluster.own.run_inside(["stat", "--file-system", "--format=%T", components.CONTAINERD_ROOT])
        seen = list((cluster.own.folder / "containerd").iterdir())
        assert (said.strip() == "tmpfs") == (not seen)


class TestLife:
    @pytest.fixture(autouse=True)
    def _machine(self, machine):
        """Each of these tests starts a separate cluster."""

    @pytest.mark.parametrize(
        "killed", ["nothing", *SELECTION.sample(["containerd", "kubelet", "unshare", "node"], 4, "killed")]
    )
    def test_down_leaves_nothing(self, killed):
        """No process, mount, interface, packet rule, control group, kernel setting or file stays, whatever was killed."""
        before = machine_state()
        own = clusters.up()
        try:
            own.kubectl("create", "-f", "-", stdin=pod("stay", images.SHELL, "sleep 1000"))
            own.kubectl("wait", "pod/stay", "--for=condition=Ready", "--timeout=60s")
            family = processes_of(own)
            assert {"kubelet", "containerd-shim", "sleep", "etcd"} <= set(family.values())
            for process, name in family.items():
                if name.startswith(killed) and "shim" not in name:
                    os.kill(process.pid, signal.SIGKILL)
        finally:
            clusters.down(own)
        assert not {process: name for process, name in family.items() if lives(process)}
        assert not own.folder.exists()
        assert host.traces(own.name) == []
        assert before == machine_state()

    def test_several_side_by_side(self, cluster):
        """Two clusters, here without nodes, use the same ports and know nothing of each other."""
        one = clusters.up(kubelet=False)
        try:
            two = clusters.up(kubelet=False)
            try:
                one.kubectl("create", "namespace", "mine")
                assert "mine" in one.kubectl("get", "namespaces")
                assert "mine" not in two.kubectl("get", "namespaces")
                assert one.network.node != two.network.node
            finally:
                clusters.down(two)
            assert one.answers("/readyz")
        finally:
            clusters.down(one)

    def test_no_name_is_used_again(self):
        """The addresses are; but who still holds the name of a cluster that has ended must not mean its successor."""
        names = {host.new_name(host.MOST - 1) for _ in range(20)}
        assert len(names) == 20
        assert {host.network_of(name).number for name in names} == {host.MOST - 1}
        assert max(map(len, names)) <= 15, "the kernel's bound for the name of a link"

    def test_ends_with_its_owner(self):
        """A cluster tied to a process ends with it, and what it left is swept away."""
        owner = subprocess.Popen(["sleep", "1000"])
        try:
            own = start("--no-kubelet", "--while", str(owner.pid))
        finally:
            owner.kill()
            owner.wait()
        eventually(lambda: not own.alive())
        clusters.sweep()
        assert not own.folder.exists()
        assert host.traces(own.name) == []

    def test_lives_as_long_as_a_process_of_it(self):
        """Process 1 and its parent have released the lock, but other processes of the namespaces still exist."""
        own = clusters.up(kubelet=False)
        first = int((own.folder / "pid").read_text())
        inside = subprocess.Popen(["nsenter", f"--target={first}", "--pid", "sleep", "1000"])
        try:
            eventually(lambda: "sleep" in processes_of(own, inside.pid).values())
            inside.send_signal(signal.SIGSTOP)  # it cannot notice the end of its child
            os.kill(int(stat_of(first)[1][1]), signal.SIGKILL)
            with (own.folder / "lock").open() as lock:
                eventually(lambda: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) is None)
            assert own.alive()
        finally:
            inside.kill()
            inside.wait()
            clusters.down(own)

    def test_killed_component_is_started_again(self):
        """The API server comes back after a kill, with all objects: a client can be tested for it."""
        own = clusters.up(kubelet=False)
        try:
            own.kubectl("create", "namespace", "kept")
            (server,) = [process for process, name in processes_of(own).items() if name == "kube-apiserver"]
            os.kill(server.pid, signal.SIGKILL)
            eventually(lambda: not lives(server))
            eventually(lambda: own.answers("/api/v1/namespaces/kept"))
        finally:
            clusters.down(own)

    @pytest.mark.parametrize("seconds", SELECTION.sample([0, 0.05, 0.1, 0.2, 0.5, 2], 6, "killed starts"))
    def test_killed_start_can_be_ended(self, seconds, monkeypatch, tmp_path):
        """`up` killed at any moment after it began a cluster leaves nothing that `down` does not remove."""
        (tmp_path / "testcluster").mkdir()
        programs = [shutil.copy(made(), tmp_path / "testcluster") for made in (build.kubernetes, build.kubectl)]
        monkeypatch.setenv("DAYFLY_CACHE", str(tmp_path))  # away from clusters that other tests start
        starting = subprocess.Popen([TESTCLUSTER / "up", "--no-kubelet"], stdout=subprocess.DEVNULL)
        (left,) = eventually(clusters.all_known)
        time.sleep(seconds)
        starting.kill()
        starting.wait()
        clusters.down(left)
        assert not left.folder.exists()
        assert host.traces(left.name) == []
        assert clusters.all_known() == []
        for program in programs:
            Path(program).unlink()  # pytest keeps its folders for a while, and they are large

    @pytest.mark.proof
    @pytest.mark.builds("kwok")
    def test_kwok_plays_nodes(self):
        """With KWOK, pods are scheduled and end with the message they were given, and nothing runs."""
        own = clusters.up(kubelet=False, kwok_nodes=2)
        try:
            note = {"testcluster/termination-message": 'a "quoted" message'}
            own.kubectl("create", "-f", "-", stdin=pod("step", "no.such/image:1", "", annotations=note))
            done = "--for=jsonpath={.status.phase}=Succeeded"
            own.kubectl("wait", "pod/step", done, "--timeout=60s")
            states = own.kubectl("get", "pod/step", "-o", "jsonpath={.status.containerStatuses[*].state}")
            assert json.loads(states)["terminated"]["message"] == 'a "quoted" message'
        finally:
            clusters.down(own)


class TestCommands:
    def test_up_and_down(self, machine):
        """`up` ends with the path of a KUBECONFIG that works, and `down` takes that path."""
        own = start("--no-kubelet")
        try:
            kubectl = [own.folder / "bin" / "kubectl", f"--kubeconfig={own.kubeconfig}"]
            version = json.loads(subprocess.check_output([*kubectl, "version", "-o", "json"]))
            assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"]
        finally:
            said = subprocess.check_output([TESTCLUSTER / "down", own.kubeconfig], text=True)
        assert f"{own.name} is down\n" == said
        assert not own.folder.exists()

    def test_down_refuses_unknown_names(self):
        """An unknown name is an error that lists the existing names; nothing is ended."""
        ended = subprocess.run([TESTCLUSTER / "down", "nobody"], capture_output=True, text=True)
        assert ended.returncode == 1
        assert "no cluster nobody; there is: " in ended.stderr


class TestMachine:
    def test_refuses_without_root(self, monkeypatch):
        """Without root the reason is reported before anything is built."""
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(build.UnavailableError, match="needs root"):
            build.check_machine()

    def test_refuses_without_go(self, monkeypatch, tmp_path):
        """Without Go and without an earlier build there is no cluster."""
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setenv("DAYFLY_CACHE", str(tmp_path))
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(build.UnavailableError, match="needs Go"):
            build.check_machine()

    def test_refuses_a_go_that_cannot_fetch_the_one_it_needs(self, monkeypatch, tmp_path):
        """Debian 12 has such a Go. Its error about go.mod would not help the user."""
        old = tmp_path / "go"
        old.write_text("#!/bin/sh\necho go1.19.8\n")
        old.chmod(0o755)
        monkeypatch.setenv("DAYFLY_CACHE", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with pytest.raises(build.UnavailableError, match=r"needs Go 1\.21 or newer to build Kubernetes.*is go1\.19\.8"):
            build.check_machine()

    def test_skip_is_loud_and_fails_in_ci(self, tmp_path):
        """A session without a cluster reports the number of skipped tests and the reason; in CI it fails."""
        root = TESTCLUSTER.parent
        path = f"{root}/tests/cluster/test_testcluster.py::TestPods"
        for ci, code in {"false": 0, "true": 1}.items():
            # Whichever of them this commit would play.
            env = os.environ | {"CI": ci, "PATH": "/nowhere", "DAYFLY_CACHE": str(tmp_path), "DAYFLY_TEST_SLICE": "all"}
            env.pop("DAYFLY_TEST_KUBECONFIG", None)
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", path]
            ended = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
            assert code == ended.returncode, ended.stdout
            assert "5 CLUSTER TESTS SKIPPED: needs " in ended.stdout


def start(*options: str) -> clusters.Cluster:
    """A cluster started by the command, as a person would."""
    said = subprocess.check_output([TESTCLUSTER / "up", *options], text=True)
    return clusters.Cluster(Path(said.splitlines()[-1]).parent)


class Process(NamedTuple):
    """A process, identified also by its start time, because process IDs are reused."""

    pid: int
    began: int


def processes_of(own: clusters.Cluster, *besides: int) -> dict[Process, str]:
    """Return all processes of a cluster by name, including its pods', as this machine sees them.

    `besides` are other processes whose children are included.
    """
    parents, names, known = {}, {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = stat_of(int(entry.name))
        except OSError:  # ended since
            continue
        pid = int(entry.name)
        parents[pid], names[pid], known[pid] = int(rest[1]), name, Process(pid, int(rest[19]))
    node = int((own.folder / "pid").read_text())
    family = {parents[node]: "unshare", node: "node"} | {pid: names[pid] for pid in besides}
    while more := {pid: names[pid] for pid, parent in parents.items() if parent in family and pid not in family}:
        family |= more
    return {known[pid]: name for pid, name in family.items()}


def lives(process: Process) -> bool:
    """Return whether a process still exists, and is not a zombie.

    A process that the kernel is taking down does not count either: it has already released its files, and so the lock
    of the cluster, which `down` waits for. On a busy machine that state can last a while.
    """
    if host.ending(process.pid):
        return False
    try:
        _, rest = stat_of(process.pid)
    except OSError:
        return False
    return rest[0] != "Z" and int(rest[19]) == process.began


def stat_of(pid: int) -> tuple[str, list[str]]:
    """A process's name, and the fields of its /proc/PID/stat from the state on."""
    name, rest = Path(f"/proc/{pid}/stat").read_text().split(" (", 1)[1].rsplit(") ", 1)
    return name, rest.split()


def machine_state() -> dict[str, object]:
    """Return the settings of this machine that a cluster might change.

    Links of other clusters and mounts below the temporary folder are left out, because other tests change them.
    """
    settings = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"]
    rules = ["iptables", "-S"], ["iptables", "-t", "nat", "-S"], ["ip", "-o", "-br", "link"], ["ip", "route"]
    folders = ["/opt", "/var/lib", "/var/log", "/etc", "/run", "/mnt"]
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    said = {" ".join(rule): subprocess.check_output(rule, text=True).splitlines() for rule in rules}
    return {
        "settings": {name: Path("/proc/sys", name).read_text() for name in settings},
        "mounts": sorted(mount for mount in mounts if not mount.startswith(f"{tempfile.gettempdir()}/")),
        "folders": {folder: sorted(entry.name for entry in Path(folder).iterdir()) for folder in folders},
        "rules": {rule: [line for line in lines if host.PREFIX not in line] for rule, lines in said.items()},
    }
