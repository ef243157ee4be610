"""The scripts of example volume-backup with malicious volume names and broken archives."""

import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.examples.kinds import FOLDER

from dayfly.spec import documents
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.parsing import text

HOOK = documents.load(text.parse_one((FOLDER / "volume-backup" / "hook.yaml").read_text(), file="hook.yaml"))
TARGET = {"DAYFLY_TARGET_NAMESPACE": "shop", "DAYFLY_TARGET_NAME": "m1", "DAYFLY_TARGET_UID": "u1"}
ARCHIVE = "shop.m1.u1.tar"


class Machine:
    """The folders that the claims would be, with one volume in them and a secret beside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("disks/shop/data", "disks/bank/vault", "backups", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "disks/shop/data/file").write_text("kept")
        (root / "disks/bank/vault/file").write_text("not shop's")

    def run(self, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """One of the hook's scripts, with its folders below `root`."""
        assert isinstance(HOOK, LifecycleHook)
        [script] = [step.script for step in (*HOOK.spec.pre_stop, *HOOK.spec.post_stop) if step.name == name]
        assert script is not None
        command = ["/bin/sh", "-c", re.sub(r"(?=/(?:disks|backups|tmp)/)", str(self.root), script)]
        environment = {"PATH": "/usr/bin:/bin", **TARGET, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def backups(self) -> list[str]:
        return sorted(path.name for path in (self.root / "backups").iterdir())

    def outputs(self) -> dict[str, str]:
        return {name.upper(): (self.root / "tmp" / name).read_text() for name in ("archive", "digest")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_volume_is_archived_and_verified(machine: Machine):
    assert machine.run("backup", VOLUME="data").returncode == 0
    assert machine.backups() == [ARCHIVE]
    with tarfile.open(machine.root / "backups" / ARCHIVE) as archive:
        assert archive.getnames() == [".", "./file"]
    done = machine.run("verify", **machine.outputs())
    assert (done.returncode, done.stdout) == (0, f"{ARCHIVE} holds 2 names\n")


@pytest.mark.parametrize(
    "name", ["../bank/vault", "..", ".", "/etc", "data/../../bank", ".hidden", "a/b", "$(id)", "-x", "no"]
)
def test_no_name_leads_to_other_folders(machine: Machine, name: str):
    """A name that is not a volume of this namespace fails, and leaves no file that could be taken for an archive."""
    assert machine.run("backup", VOLUME=name).returncode != 0
    assert ARCHIVE not in machine.backups()


def test_a_machine_without_a_volume_goes(machine: Machine):
    done = machine.run("backup", VOLUME="")
    assert (done.returncode, done.stdout) == (0, "this machine has no volume\n")
    assert machine.backups() == []
    assert machine.run("verify", **machine.outputs()).returncode == 0


def test_verify_succeeds_without_an_archive(machine: Machine):
    """Five attempts of `backup` have failed and the step was skipped, so its outputs are missing."""
    assert machine.run("verify", ARCHIVE="", DIGEST="").returncode == 0


def test_repeated_backup_makes_the_same_archive(machine: Machine):
    (machine.root / "backups" / f".{ARCHIVE}").write_text("half a tar")
    assert machine.run("backup", VOLUME="data").returncode == 0
    assert machine.run("backup", VOLUME="data").returncode == 0
    assert machine.backups() == [ARCHIVE]
    assert machine.run("verify", **machine.outputs()).returncode == 0


def _changed(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes().replace(b"kept", b"lost"))


@pytest.mark.parametrize("damage", [_changed, Path.unlink])
def test_an_archive_that_broke_keeps_the_machine(machine: Machine, damage: Callable[[Path], None]):
    assert machine.run("backup", VOLUME="data").returncode == 0
    damage(machine.root / "backups" / ARCHIVE)
    assert machine.run("verify", **machine.outputs()).returncode != 0
