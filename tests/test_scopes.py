"""The scheduler assigns tests to workers, and no test starts before its programs are built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import scopes

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
def test_related_tests_share_a_scope(one: str, other: str, together: bool):
    assert (scopes.scope(one) == scopes.scope(other)) is together


def test_all_that_need_a_bare_server_are_known():
    uses = re.compile(r"^def \w+\(.*\b(api|installed|served)\b", re.MULTILINE)
    files = [path for room in ("deploy", "policy") for path in (ROOT / "tests" / room).glob("test_*.py")]
    named = {path.relative_to(ROOT).as_posix() for path in files if uses.search(path.read_text())}
    assert {scopes.scope(f"{name}::test_a") for name in named} - {"tests/deploy/test_istiod.py"} == set(scopes.SERVERS)


def test_every_file_that_is_named_is_there():
    named = [*scopes.SPREAD, *scopes.SERVERS, *scopes.LONGEST, *(name for files in scopes.TOGETHER for name in files)]
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_longest_scopes_run_first():
    files = ["tests/spec/test_names.py", *reversed(scopes.LONGEST)]
    assert sorted(files, key=scopes.rank) == [*scopes.LONGEST, "tests/spec/test_names.py"]


NOTHING, SERVER, CLUSTER = scopes.Need.NOTHING, scopes.Need.SERVER, scopes.Need.CLUSTER


@pytest.mark.parametrize(
    ("index", "built", "needs"),
    [
        (0, True, (CLUSTER, NOTHING, SERVER)),
        (1, True, (CLUSTER, NOTHING, SERVER)),
        (2, True, (NOTHING, SERVER)),
        (3, True, (SERVER, NOTHING)),
        (0, False, (NOTHING, CLUSTER, SERVER)),
        (3, False, (NOTHING, SERVER)),
    ],
)
def test_worker_prefers_its_assigned_needs(index: int, built: bool, needs: tuple[scopes.Need, ...]):
    """With four workers, two have clusters, one has the API server, and the last has other work."""
    assert scopes.preferred(index, 4, built=built) == needs


def test_two_workers_accept_every_need():
    assert {scopes.preferred(index, 2, built=True) for index in range(2)} == {(CLUSTER, NOTHING, SERVER)}


A, B, C = "tests/spec/a.py", "tests/deploy/test_istio.py", "tests/cluster/c.py"


@pytest.mark.parametrize(
    ("waiting", "needs", "chosen"),
    [
        ([A, B, C, "tests/cluster/d.py"], (CLUSTER, NOTHING), C),
        ([C, B, A], (NOTHING, CLUSTER), A),
        ([C, A, B], (SERVER, NOTHING), B),
        ([C, A], (SERVER, NOTHING), A),
        ([C], (NOTHING, SERVER), None),
        ([], (NOTHING, SERVER, CLUSTER), None),
    ],
)
def test_worker_chooses_the_next_scope_by_its_needs(
    waiting: list[str], needs: tuple[scopes.Need, ...], chosen: str | None
):
    assert scopes.choose(waiting, needs) == chosen


PROBE = """
import signal, pytest
from tests import tools

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
def test_built_fixtures_are_ready_before_the_timeout_starts(tmp_path: Path):
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
    ended = subprocess.run(
        [*command, "--rootdir", ROOT, "-p", "tests.conftest", probe],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert "1 passed" in ended.stdout, ended.stdout
