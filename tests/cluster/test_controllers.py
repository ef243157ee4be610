"""The example controllers on a real cluster, as processes that are killed, over pods and processes that really run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import ROOT, Installed
from tests.cluster.rights import granted
from tests.cluster.waiting import eventually
from tests.manifests import documents
from tests.selection import SELECTION

FOLDER = ROOT / "examples" / "controllers"
BASIC, MACHINES = (f"/apis/{group}.example.org/v1/namespaces/{TEAM}" for group in ("basic", "machines"))


class Running:
    """Controllers as processes of this machine, each started by the line that its README has."""

    def __init__(self, operator: Installed, folder: str) -> None:
        self._operator, self._folder = operator, FOLDER / folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", name, *arguments, str(self._operator.own.kubeconfig)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.processes[name] = subprocess.Popen(command, cwd=self._folder, env=environment)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """Send SIGTERM to all, and check that each ends in order."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(timeout=30) for name, process in self.processes.items()}
        assert set(codes.values()) <= {0}, codes


@contextlib.contextmanager
def at_work(operator: Installed, folder: str) -> Iterator[Running]:
    running = Running(operator, folder)
    try:
        yield running
    except BaseException:
        for name in list(running.processes):
            running.kill(name)
        raise
    running.end()


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The example's service of processes; its address."""
    process = subprocess.Popen(
        [sys.executable, FOLDER / "machine" / "service.py", "127.0.0.1:0", "key"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


def sample(path: Path) -> list[dict[str, Any]]:
    """Return the example's manifests with an image of this cluster."""
    return documents(path.read_text().replace("busybox:stable", images.SHELL))


def table(operator: Installed, kind: str, name: str) -> list[str]:
    """Return the columns of `kubectl get` for an object, without the age."""
    said = operator.own.kubectl("get", kind, name, "-n", TEAM, "--no-headers")
    return said.split()[:-1]


def pods_of(operator: Installed, label: str) -> list[dict[str, Any]]:
    return operator.items(f"/api/v1/namespaces/{TEAM}/pods?labelSelector={label}")


def a_deployment(operator: Installed) -> None:
    """The controller is killed and restarted; the kubelet runs its pods."""
    [wish] = sample(FOLDER / "basic-deployment" / "deployment.yaml")
    path, label = f"{BASIC}/basicdeployments/web", "basic.example.org/form"

    def ready(replicas: int) -> bool:
        status = (operator.get(path) or {}).get("status", {})
        return bool(status.get("ready")) and len(pods_of(operator, label)) == replicas

    with at_work(operator, "basic-deployment") as running:
        running.start("basic_deployment")
        operator.apply({**wish, "metadata": {"name": "web", "namespace": TEAM}})
        eventually(lambda: pods_of(operator, label), "a pod")
        running.kill("basic_deployment")  # in the midst of it
        running.start("basic_deployment")
        eventually(lambda: ready(3), "three pods")
        first = {pod["metadata"]["uid"] for pod in pods_of(operator, label)}
        assert table(operator, "basicdeployments", "web") == ["web", "3", "true", *["all", "3", "pods", "are", "ready"]]
        assert table(operator, "basicreplicasets", "web") == ["web", "3", "3"]
        fewer = ["--type=merge", "-p", '{"spec":{"replicas":1}}']
        operator.own.kubectl("patch", "basicdeployments", "web", "-n", TEAM, *fewer)
        eventually(lambda: ready(1), "one pod")
        assert {pod["metadata"]["uid"] for pod in pods_of(operator, label)} < first
        missing = {"spec": {"image": "no.such/image:1", "replicas": 1}}
        operator.apply({**wish, "metadata": {"name": "web", "namespace": TEAM}, "spec": missing["spec"]})
        said = eventually(
            lambda: (found := _message(operator, path)) and "no.such/image:1" in found and found, "the kubelet's words"
        )
        assert said.startswith("0 of 1 pods are ready: pod web-0: "), said
        operator.own.kubectl("delete", "basicdeployments", "web", "-n", TEAM, "--timeout=60s")
        eventually(lambda: not pods_of(operator, label), "the last pod to go")
        assert operator.items(f"{BASIC}/basicreplicasets") == []


def _message(operator: Installed, path: str) -> str:
    conditions = (operator.get(path) or {}).get("status", {}).get("conditions", [{}])
    return conditions[0].get("message", "")


def machines(operator: Installed) -> None:
    """Three controllers in three processes, each killed once. A Machine ends with its infrastructure."""
    items = sample(FOLDER / "machine" / "machines.yaml")

    def ready(name: str) -> bool:
        return bool((operator.get(f"{MACHINES}/machines/{name}") or {}).get("status", {}).get("ready"))

    with serving() as server, at_work(operator, "machine") as running:
        commands = {"machine": (), "pod_machine": (), "process_machine": (server, "key")}
        for name, arguments in commands.items():
            running.start(name, *arguments)
        operator.apply(*({**item, "metadata": {**item["metadata"], "namespace": TEAM}} for item in items))
        for name, arguments in commands.items():
            running.kill(name)
            running.start(name, *arguments)
        for name in ("red", "blue"):
            eventually(lambda name=name: ready(name), f"{name} to be ready")
        kind = "machines.machines.example.org"
        assert table(operator, kind, "red") == [
            "red",
            "PodMachine",
            "true",
            *["PodMachine", "red:", "its", "pod", "is", "running"],
        ]
        shown = ["blue", "ProcessMachine", "true", *["ProcessMachine", "blue:", "its", "process", "is", "running"]]
        assert table(operator, kind, "blue") == shown
        [pod] = pods_of(operator, "machines.example.org/pod")
        red = operator.get(f"{MACHINES}/machines/red")
        assert red is not None
        assert red["status"]["address"] == pod["status"]["podIP"]
        blue = operator.get(f"{MACHINES}/machines/blue")
        assert blue is not None
        process = int(blue["status"]["address"].removeprefix("process "))
        os.kill(process, 0)  # it runs
        said = operator.refused(
            "patch", kind, "red", "-n", TEAM, "--type=merge", "-p", '{"spec":{"infrastructureRef":{"name":"x"}}}'
        )
        assert "a Machine stays on its infrastructure" in said
        operator.own.kubectl("delete", kind, "red", "blue", "-n", TEAM, "--timeout=60s")
        assert operator.items(f"{MACHINES}/podmachines") == operator.items(f"{MACHINES}/processmachines") == []
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        eventually(lambda: not pods_of(operator, "machines.example.org/pod"), "the pod to go")


PLUGIN = {
    "apiVersion": "dayfly.dev/v1alpha1",
    "kind": "ResourcePlugin",
    "metadata": {"name": "machine.1.0.0"},
    "spec": {
        "name": "machine@1.0.0",
        "create": [
            {
                "name": "pod",
                "object": {
                    "manifest": {
                        "apiVersion": "machines.example.org/v1",
                        "kind": "PodMachine",
                        "spec": {"image": images.SHELL, "command": ["sleep", "infinity"]},
                    }
                },
                "outputs": [{"name": "name", "valueFromJSONPath": "$.metadata.name"}],
            },
            {
                "name": "machine",
                "inputs": [{"name": "on", "valueFromStep": {"name": "pod", "output": "name"}}],
                "object": {
                    "manifest": {
                        "apiVersion": "machines.example.org/v1",
                        "kind": "Machine",
                        "spec": {
                            "infrastructureRef": {
                                "apiVersion": "machines.example.org/v1",
                                "kind": "PodMachine",
                                "name": "set-below",
                            }
                        },
                    },
                    "set": {"/spec/infrastructureRef/name": {"input": "on"}},
                    "ready": {"contract": True},
                },
                "outputs": [{"name": "address", "valueFromJSONPath": "$.status.address"}],
            },
        ],
    },
}


def a_step(operator: Installed) -> None:
    """Dayfly knows as little of Machines as they of pods: it keeps both objects, and removes them in order."""
    sandbox = {
        "apiVersion": "dayfly.dev/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "on-a-machine", "namespace": TEAM},
        "spec": {"cluster": "local", "resources": [{"name": "m", "plugin": "machine@1.0.0"}]},
    }
    rights = granted(operator, TEAM, "machines.machines.example.org", "podmachines.machines.example.org")
    with at_work(operator, "machine") as running, rights, operator.ending("on-a-machine", TEAM):
        running.start("machine")
        running.start("pod_machine")
        operator.apply(PLUGIN, sandbox)
        operator.wait_ready("on-a-machine", TEAM)
        [machine] = operator.items(f"{MACHINES}/machines")
        [pod] = pods_of(operator, "machines.example.org/pod")
        assert machine["status"]["address"] == pod["status"]["podIP"]
        operator.delete("on-a-machine", TEAM)
        assert operator.items(f"{MACHINES}/machines") == operator.items(f"{MACHINES}/podmachines") == []
    operator.check_nothing_left()


STORIES = {"a deployment": a_deployment, "machines": machines, "a machine as a step": a_step}


@pytest.mark.parametrize("story", SELECTION.sample(STORIES, 6, "example controllers on a real cluster"))
def test_the_controllers_of_an_example_really_work(operator: Installed, played, story: str):
    played("example controllers on a real cluster", 1)
    STORIES[story](operator)
