"""`make cluster`: a newcomer's Dayfly with a real PostgreSQL beside it, and its end with a sandbox still alive."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testcluster import cluster as clusters
from testcluster import host

from cluster.installed import API, ROOT
from cluster.patience import eventually

PSQL = ["exec", "-n", "notes", "deployment/database", "--", "sh", "-c"]


def trial(what: str, record: Path) -> str:
    """What `make cluster` or `make uninstall` runs, with a record of its own; all it says."""
    command = [sys.executable, ROOT / "deploy" / "trial.py", what, "--record", record]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def tried(machine, tmp_path_factory):
    """A cluster as `make cluster` leaves it, where its record is, and what was said."""
    record = tmp_path_factory.mktemp("trial") / "record"
    try:
        said = trial("up", record)
        yield clusters.Cluster(Path(record.read_text().strip()).parent), record, said
    finally:
        if record.exists():
            clusters.down(clusters.Cluster(Path(record.read_text().strip()).parent))


def databases(own: clusters.Cluster) -> list[str]:
    """Databases and roles of sandboxes, asked of the server itself."""
    query = "SELECT datname FROM pg_database UNION ALL SELECT rolname FROM pg_roles"
    said = own.kubectl(*PSQL, f'PGPASSWORD="$POSTGRES_PASSWORD" psql -h 127.0.0.1 -U postgres -XAtc "{query}"')
    return [name for name in said.split() if name.startswith("notes_")]


@pytest.mark.timeout(500, func_only=True)
class TestTrial:
    """In their order: each goes on where the one before has left the cluster."""

    def test_the_example_has_a_database_of_its_own(self, tried):
        own, _, _ = tried
        name, role = databases(own)
        assert name == role
        (resource,) = own.get(f"/apis/{API}/resources")[1]["items"]
        secret = own.get(f"/api/v1/namespaces/notes/secrets/{resource['status']['binding']['name']}")[1]
        assert sorted(secret["data"]) == [
            "provision.name",
            "provision.password",
            "provision.url",
            "schema-and-seed.notes",
        ]
        url = own.kubectl(
            *["get", "secret", "-n", "notes", secret["metadata"]["name"]],
            *["-o", 'go-template={{index .data "provision.url" | base64decode}}'],
        )
        assert "and takes it away" in own.kubectl(*PSQL, f"psql -XAtc 'SELECT text FROM notes' '{url}'")

    def test_what_is_said_can_be_typed(self, tried):
        """The commands that `make cluster` ends with do what it says beside them."""
        own, _, said = tried
        typed = "set -e\n" + "\n".join(re.findall(r"^    (\S.*)$", said, re.MULTILINE))
        before = databases(own)
        ended = subprocess.run(["sh", "-c", typed], cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 0, ended.stderr
        assert "notes-demo" in ended.stdout
        eventually(lambda: len(databases(own)) == 2 and not set(databases(own)) & set(before), "another database")

    def test_make_runs_it(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        for target, what in {"cluster": "up", "uninstall": "down"}.items():
            said = subprocess.check_output(["make", "-n", target], cwd=ROOT, env=env, text=True)
            assert f".venv/bin/python deploy/trial.py {what}\n" in said

    def test_uninstall_drains_a_living_sandbox(self, tried):
        """The sandbox's database goes before Dayfly does; nothing of Dayfly stays but what others were given."""
        own, _, _ = tried
        assert databases(own)
        kubectl = {"KUBECTL": str(own.folder / "bin" / "kubectl"), "KUBECONFIG": str(own.kubeconfig)}
        began = time.monotonic()
        ended = subprocess.run(
            [ROOT / "deploy" / "uninstall.sh"], env=os.environ | kubectl, capture_output=True, text=True, timeout=200
        )
        assert ended.returncode == 0, ended.stderr
        assert "waiting for their cleanup, at most 15m: notes/notes-demo" in ended.stderr
        assert databases(own) == []
        kinds = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,namespace"
        left = own.kubectl("get", kinds, "-o", "name").split()
        assert [name for name in left if "dayfly" in name] == [], f"after {time.monotonic() - began:.0f} s"

    def test_down_ends_the_cluster(self, tried):
        own, record, _ = tried
        said = trial("down", record)
        assert f"{own.name} is down" in said
        assert not own.folder.exists()
        assert host.traces(own.name) == []
        assert "there is no cluster" in trial("down", record)
