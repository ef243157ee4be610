"""Who plays what: which tests stay with one worker, and that none runs before what it drives is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import scopes

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("tests/spec/test_names.py::test_a", "tests/spec/test_names.py::TestB::test_b", True),
        ("tests/spec/test_names.py::test_a", "tests/spec/test_text.py::test_a", False),
        ("tests/operator/test_matrix.py::test_a[x::y]", "tests/operator/test_matrix.py::test_a[x]", False),
        ("tests/kube/test_auth.py::test_a", "tests/kube/test_strategic.py::test_a", True),
        ("tests/kube/test_auth.py::test_a", "tests/kube/test_queue.py::test_a", False),
        ("tests/deploy/test_access.py::test_a", "tests/deploy/test_crds.py::test_a", True),
        ("tests/deploy/test_access.py::test_a", "tests/deploy/test_object_access.py::test_a", False),
        ("tests/deploy/test_gateway_api.py::test_a", "tests/deploy/test_object_access.py::test_a", True),
        ("tests/cluster/test_faults.py::TestA::test_a", "tests/cluster/test_faults.py::TestA::test_b[x]", True),
        ("tests/cluster/test_faults.py::TestA::test_a", "tests/cluster/test_faults.py::TestB::test_a", False),
        ("tests/cluster/test_cli.py::test_a", "tests/cluster/test_cli.py::test_b[x]", True),
    ],
)
def test_what_one_worker_plays(one: str, other: str, together: bool):
    assert (scopes.scope(one) == scopes.scope(other)) is together


def test_every_file_that_is_named_is_there():
    named = [*scopes.SPREAD, *(name for files in scopes.TOGETHER for name in files)]
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("waiting", "has_cluster", "built", "chosen"),
    [
        (["tests/spec/a.py", "tests/cluster/b.py", "tests/cluster/c.py"], True, True, "tests/cluster/b.py"),
        (["tests/spec/a.py", "tests/cluster/b.py"], True, False, "tests/spec/a.py"),
        (["tests/cluster/b.py"], True, False, "tests/cluster/b.py"),
        (["tests/spec/a.py", "tests/spec/b.py"], True, True, "tests/spec/a.py"),
        (["tests/cluster/b.py", "tests/spec/a.py"], False, True, "tests/spec/a.py"),
        (["tests/cluster/b.py"], False, True, None),
        ([], True, True, None),
    ],
)
def test_who_plays_what_needs_a_cluster(waiting: list[str], has_cluster: bool, built: bool, chosen: str | None):
    assert scopes.choose(waiting, has_cluster=has_cluster, built=built) == chosen


PROBE = """
import signal, pytest, tools

def ticks():
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0

@pytest.mark.builds("slowly")
@pytest.mark.timeout(60)
def test_that_needs_it():
    assert built == [False] and ticks()

built = []
tools.TOOLS["slowly"] = lambda: built.append(ticks())
"""


@pytest.mark.slow
def test_what_is_built_is_waited_for_before_the_clock_runs(tmp_path: Path):
    """Its time is its own."""
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
    ended = subprocess.run(
        [*command, "--rootdir", ROOT, "-p", "conftest", probe],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert "1 passed" in ended.stdout, ended.stdout
