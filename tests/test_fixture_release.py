"""A worker tears down its cluster, and the fixtures that use it, before it continues with tests that need none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIXTURES = """
import pytest

def note(word):
    with open("noted", "a") as noted:
        noted.write(word + "\\n")

@pytest.fixture(scope="session")
def cluster():
    note("up")
    yield
    note("down")

@pytest.fixture(scope="session")
def operator(cluster):
    yield
    note("operator gone")

@pytest.fixture(scope="module")
def sandbox(operator):
    yield
    note("sandbox gone")
"""
TESTS = {
    "cluster/test_a.py": "def test_a(cluster): note('a')\n",
    "cluster/test_b.py": "def test_b(sandbox): note('b')\n",
    "spec/test_c.py": "def test_c(): note('c')\n",
    "spec/test_d.py": "def test_d(cluster): note('d')\n",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "noted"),
    [
        (["-n", "1"], "up a b|sandbox gone|operator gone|down|c up d down"),
        ([], "up a b|sandbox gone|c d|operator gone|down"),
    ],
    ids=["worker", "one process"],
)
def test_cluster_ends_when_its_worker_needs_it_no_longer(tmp_path: Path, more: list[str], noted: str):
    """A later test that needs a cluster gets a new one. In one process tests have any order, so the cluster stays."""
    place = tmp_path / "tests"
    for path in (ROOT / "tests").glob("*.py"):
        if not path.name.startswith("test_"):
            (place / path.name).parent.mkdir(exist_ok=True)
            (place / path.name).write_text(path.read_text())
    with (place / "conftest.py").open("a") as file:
        file.write(FIXTURES)
    for name, test in TESTS.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(f"from tests.conftest import note\n{test}")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *more]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " ".join((tmp_path / "noted").read_text().splitlines()) == noted.replace("|", " ")
