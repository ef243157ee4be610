"""Examples with pools: sandboxes take ready members, and at the end neither a member nor a sandbox leaves anything."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.conftest import client
from tests.examples.external_services import S3
from tests.examples.home import ROOT, Home, until
from tests.examples.kinds import FOLDER, Example
from tests.examples.leaks import delete_orphan, similar, write_check

POOL = ("-f", str(FOLDER / "pooled-bucket" / "pool"))


@pytest.mark.parametrize("example", ["pooled-bucket"], indirect=True)
def test_bucket_of_a_pool_gets_a_prefix_for_its_sandbox(example: Example, home: Home, s3: S3):
    home.dayfly("apply", *example.arguments(FOLDER / "pooled-bucket" / "plugin.yaml"), *POOL)
    ready = set(example.left())
    assert len(ready) == 2
    home.dayfly("apply", *example.arguments())
    outputs = home.outputs("bucket-demo")
    bucket, prefix = outputs["files/provision.bucket"], outputs["files/prefix.prefix"]
    assert bucket in ready
    assert prefix == "sandboxes/bucket-demo/"
    there = client(s3).get_object(Bucket=bucket, Key=f"{prefix}catalogue.json")
    assert there["Body"].read() == (FOLDER / "pooled-bucket" / "seed" / "catalogue.json").read_bytes()
    assert home.json("pool", "get", "buckets")["status"]["hits"] == 1
    home.dayfly("sandbox", "delete", "bucket-demo")
    assert bucket not in example.left()
    assert f"delete: s3://{bucket}/{prefix}catalogue.json" in home.dayfly("logs", "bucket-demo", "files", "clear")
    until(lambda: len(example.left()) == 2, "the pool has replaced the bucket")
    home.dayfly("pool", "delete", "buckets")
    assert example.left() == []


def test_each_test_function_gets_its_own_member(tmp_path: Path):
    project = shutil.copytree(FOLDER / "pytest-pool", tmp_path / "project")
    home = Home(tmp_path / "dayfly", {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")})
    home.up()
    try:
        home.dayfly("apply", "-f", str(project / "plugin.yaml"), "-f", str(project / "pool.yaml"))
        command = [sys.executable, "-m", "pytest", "-p", "dayfly.pytest_plugin", "-p", "no:asyncio"]
        environment = {name: value for name, value in home.environment.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
        assert "3 passed" in done.stdout, done.stdout + done.stderr
        status = home.json("pool", "get", "shop-dbs")["status"]
        assert (status["hits"], status["misses"], status["counts"]["held"]) == (3, 0, 0)
        home.dayfly("pool", "delete", "shop-dbs")
        assert home.json("sandbox", "list") == []
        assert list((tmp_path / ".cache" / "shop-db").iterdir()) == []
    finally:
        home.down()


@pytest.mark.proof
def test_orphan_of_pytest_pool_is_deleted_without_its_neighbour(tmp_path: Path):
    folder = tmp_path / ".cache" / "shop-db"
    sandbox = {"name": "shop", "spec": {"cluster": "local", "resources": [{"name": "db", "plugin": "shop-db@1.0.0"}]}}
    (tmp_path / "sandbox.json").write_text(json.dumps(sandbox))
    home = Home(tmp_path / "dayfly", {"HOME": str(tmp_path)})
    home.up()
    try:
        home.dayfly("apply", "-f", str(FOLDER / "pytest-pool" / "plugin.yaml"), "-f", str(tmp_path / "sandbox.json"))
        (made,) = folder.iterdir()
        neighbour = folder / f"{similar(made.stem)}.db"
        neighbour.touch()
        delete_orphan(home, "shop", write_check(tmp_path, "shop-db", {}), made.stem)
        assert list(folder.iterdir()) == [neighbour]
    finally:
        home.down()
