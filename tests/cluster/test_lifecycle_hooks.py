"""Example volume-backup: a deleted machine is archived completely first, with and without its controller."""

import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, ROOT, Installed
from tests.cluster.volumes import claimed
from tests.cluster.waiting import eventually
from tests.selection import SELECTION

EXAMPLE = ROOT / "examples" / "volume-backup"
MACHINES = f"/apis/cluster.example.org/v1/namespaces/{TEAM}/machines"
OURS, THEIRS, WITNESS = "lifecycle.dayfly.dev/volume-backup", "cluster.example.org/volume", "example.org/witness"
HOLD = "cluster.example.org/hold"
MANY = 200 if SELECTION.is_complete else 20


class Folders(NamedTuple):
    """The folders of the machines' volumes and of their archives."""

    disks: Path
    backups: Path

    def volume(self, name: str) -> Path:
        return self.disks / TEAM / name

    def fill(self, name: str, seed: int, size: int) -> None:
        """A volume with all that a tar may stumble over."""
        folder = self.volume(name)
        (folder / "deep" / "er").mkdir(parents=True, exist_ok=True)
        (folder / "data").write_bytes(random.Random(seed).randbytes(size))
        (folder / "deep" / "er" / "with a space").write_text(name)
        (folder / "empty").write_bytes(b"")
        (folder / "link").symlink_to("deep/er/with a space")

    def archive(self, machine: dict[str, Any]) -> Path:
        meta = machine["metadata"]
        return self.backups / f"{TEAM}.{meta['name']}.{meta['uid']}.tar"

    def check(self, machine: dict[str, Any], kept: Path, scratch: Path) -> None:
        """The archive of a machine, restored, is what its volume was."""
        restored = scratch / machine["metadata"]["uid"]
        with tarfile.open(self.archive(machine)) as archive:
            archive.extractall(restored, filter="data")
        assert told(restored) == told(kept)
        shutil.rmtree(restored)


def told(folder: Path) -> dict[str, str]:
    """Return the content of a folder: the path of each entry, and its type or digest."""
    return {str(path.relative_to(folder)): _what(path) for path in sorted(folder.rglob("*"))}


def _what(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    return "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def folders(operator: Installed, tmp_path: Path) -> Iterator[Folders]:
    """The claims and the kind of the example; machines and hooks that a test leaves are removed."""
    operator.own.kubectl("apply", "-f", str(EXAMPLE / "machines.yaml"))
    operator.own.kubectl("wait", "--for=condition=Established", "crd/machines.cluster.example.org", "--timeout=60s")
    reader = "hook:volume-backup"
    with (
        claimed(operator, "machine-disks", reader, tmp_path / "disks") as disks,
        claimed(operator, "machine-backups", reader, tmp_path / "backups") as backups,
    ):
        yield Folders(disks, backups)
        for kind in ("machines.cluster.example.org", "lifecyclehook"):
            operator.own.kubectl("delete", kind, "--all", *(["-n", TEAM] if kind[0] == "m" else []), "--timeout=120s")
    operator.own.kubectl("delete", "-f", str(EXAMPLE / "machines.yaml"))
    operator.check_nothing_left()


@contextmanager
def controller(operator: Installed, folders: Folders) -> Iterator[None]:
    """The machines' own controller, as a process of this machine."""
    environment = {**os.environ, "KUBECONFIG": str(operator.own.kubeconfig)}
    process = subprocess.Popen([sys.executable, EXAMPLE / "controller.py", folders.disks], env=environment)
    try:
        yield
        assert process.poll() is None, "the controller of Machines has ended"
    finally:
        process.kill()
        process.wait()


def hook(operator: Installed) -> dict[str, Any]:
    """The hook as it stands."""
    found = operator.get(f"/apis/{API}/lifecyclehooks/volume-backup")
    assert found is not None, "the hook is there"
    return found


def hook_up(operator: Installed) -> None:
    """Apply the example's hook with this cluster's image, and run the command from its condition."""
    wish = yaml.safe_load((EXAMPLE / "hook.yaml").read_text())
    wish["spec"]["runner"]["image"] = images.SHELL
    operator.apply(wish)

    def judged() -> dict[str, Any] | None:
        status = hook(operator).get("status", {})
        return status if status.get("reason") in ("TargetsNotGranted", "HookActive") else None

    status = eventually(judged, "a request for the grant, unless it exists")
    if not status["ready"]:
        for command in status["message"].rpartition("can run: ")[2].split(" && "):
            kubectl, *words = shlex.split(command)
            assert kubectl == "kubectl"
            operator.own.kubectl(*words)
    eventually(lambda: hook(operator)["status"]["ready"], "the operator to accept the hook")


@pytest.fixture
def granted(operator: Installed) -> Iterator[None]:
    yield
    operator.own.kubectl("delete", "clusterrole", "-l", "dayfly.dev/targets=true", "--ignore-not-found")


def wished(name: str, volume: str, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.example.org/v1",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": TEAM, **meta},
        "spec": {"volume": volume} if volume else {},
    }


def machine(operator: Installed, name: str) -> dict[str, Any] | None:
    return operator.get(f"{MACHINES}/{name}")


def held(operator: Installed, name: str) -> dict[str, Any]:
    """Return the machine once it has the hold and finalizer of the hook."""

    def found() -> dict[str, Any] | None:
        item = machine(operator, name)
        assert item is not None, f"{name} is there"
        meta = item["metadata"]
        return item if OURS in meta.get("finalizers", ()) and HOLD in meta.get("annotations", {}) else None

    return eventually(found, f"finalizer and hold on {name}")


def let_go(operator: Installed, name: str) -> None:
    """The witness has seen enough."""
    patch = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": WITNESS},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    words = ["--type=json", "-p", json.dumps(patch)]
    operator.own.kubectl("patch", "machines.cluster.example.org", name, "-n", TEAM, *words)


def units(operator: Installed, item: dict[str, Any]) -> dict[str, Any]:
    """Return the units of a machine's ledger."""
    every = operator.items(f"/apis/{API}/runs")
    [run] = [each for each in every if each["ledger"]["target"]["uid"] == item["metadata"]["uid"]]
    return run["ledger"].get("units", {})


def test_machine_is_archived_before_its_volume_is_destroyed(operator, folders, granted, tmp_path):
    """A witness of the test's own holds the machine as the last: until it goes, nothing has stopped."""
    hook_up(operator)
    with controller(operator, folders):
        operator.apply(wished("m1", "data-1", finalizers=[WITNESS]))
        item = held(operator, "m1")
        eventually(lambda: (machine(operator, "m1") or {}).get("status", {}).get("phase") == "Running", "m1 to run")
        folders.fill("data-1", 1, 8 << 20)
        shutil.copytree(folders.volume("data-1"), tmp_path / "kept", symlinks=True)
        operator.own.kubectl("delete", "machines.cluster.example.org", "m1", "-n", TEAM, "--wait=false")
        eventually(lambda: not folders.volume("data-1").exists(), "the controller to destroy the volume")
        folders.check(item, tmp_path / "kept", tmp_path)  # it did not, before the archive was whole

        def alone() -> bool:
            found = machine(operator, "m1")
            assert found is not None, "m1 is held"
            assert HOLD not in found["metadata"].get("annotations", {})
            return sorted(found["metadata"]["finalizers"]) == sorted([OURS, WITNESS])

        eventually(alone, "the controller's finalizer to go")
        known = units(operator, item)
        assert known["backup"]["outcome"] == "succeeded"
        assert "verify" not in known, "the witness still holds it, so it has not stopped"
        let_go(operator, "m1")
        eventually(lambda: machine(operator, "m1") is None, "the end of m1")

        # Under the same name again it is another machine, with another archive.
        operator.apply(wished("m1", "data-2"))
        again = held(operator, "m1")
        assert again["metadata"]["uid"] != item["metadata"]["uid"]
        eventually(lambda: folders.volume("data-2").exists(), "its volume")
        folders.fill("data-2", 2, 1000)
        shutil.copytree(folders.volume("data-2"), tmp_path / "second", symlinks=True)
        operator.own.kubectl("delete", "machines.cluster.example.org", "m1", "-n", TEAM, "--timeout=120s")
        folders.check(again, tmp_path / "second", tmp_path)
        assert folders.archive(item) != folders.archive(again)
        folders.check(item, tmp_path / "kept", tmp_path)


def test_deleted_hook_finishes_backups_and_releases_machines(operator, folders, granted, tmp_path):
    """A living machine has nothing to undo, so its hold and finalizer are removed with the hook."""
    hook_up(operator)
    folders.fill("leaving", 3, 1000)
    shutil.copytree(folders.volume("leaving"), tmp_path / "kept", symlinks=True)
    operator.apply(wished("living", "data"), wished("leaving", "leaving", finalizers=[WITNESS]))
    living, leaving = held(operator, "living"), held(operator, "leaving")
    operator.own.kubectl("delete", "machines.cluster.example.org", "leaving", "-n", TEAM, "--wait=false")
    eventually(lambda: units(operator, leaving), "the operator to see the deletion")
    operator.own.kubectl("delete", "lifecyclehook", "volume-backup", "--wait=false")

    def freed() -> bool:
        found = machine(operator, "living")
        assert found is not None
        assert found["metadata"]["uid"] == living["metadata"]["uid"]
        return "finalizers" not in found["metadata"] and HOLD not in found["metadata"].get("annotations", {})

    eventually(freed, "the machine that lives on to be free")
    eventually(lambda: units(operator, leaving).get("backup", {}).get("outcome") == "succeeded", "the required backup")
    assert hook(operator)["metadata"]["deletionTimestamp"]
    let_go(operator, "leaving")
    eventually(lambda: machine(operator, "leaving") is None, "the end of the other machine")
    operator.own.kubectl("wait", "--for=delete", "lifecyclehook/volume-backup", "--timeout=120s")
    folders.check(leaving, tmp_path / "kept", tmp_path)
    assert list(folders.backups.iterdir()) == [folders.archive(leaving)]


@pytest.mark.timeout(1800 if SELECTION.is_complete else 300, func_only=True)
def test_many_at_once_without_a_controller(operator, folders, granted, tmp_path):
    """Only the hook holds the machines, and each is deleted only after its volume is in its own archive."""
    hook_up(operator)
    kept = {f"many-{number}": tmp_path / "kept" / f"many-{number}" for number in range(MANY)}
    for number, (name, copy) in enumerate(kept.items()):
        folders.fill(name, number, 10_000)
        shutil.copytree(folders.volume(name), copy, symlinks=True)
    # One is without a volume, which is no fault.
    operator.apply(*(wished(name, name) for name in kept), wished("bare", ""))
    found = {name: held(operator, name) for name in [*kept, "bare"]}
    operator.own.kubectl("delete", "machines.cluster.example.org", "--all", "-n", TEAM, "--wait=false")
    within = 1500 if SELECTION.is_complete else 240
    eventually(lambda: operator.items(MACHINES) == [], "the end of all machines", seconds=within)
    for name, copy in kept.items():
        folders.check(found[name], copy, tmp_path)
    assert len(list(folders.backups.iterdir())) == MANY
