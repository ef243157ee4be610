"""`scripts/mutants.py` lists the mutants that no test notices, and leaves the checkout as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "mutants.py"
CODE = '''"""Two conditions."""


def is_closed(is_open: bool) -> bool:
    return not is_open


def is_full(count: int) -> bool:
    return count >= 5
'''
TESTS = """from tiny.conditions import is_closed, is_full


def test_both_cases_of_closed():
    assert [is_closed(is_open) for is_open in (True, False)] == [False, True]


def test_full_far_from_its_limit():
    assert [is_full(count) for count in (0, 9)] == [False, True]
"""


def run_mutants(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "conditions.py", f"--root={root}", "--workers=2", *arguments]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "tiny"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "conditions.py").write_text(CODE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_conditions.py").write_text(TESTS)
    return tmp_path


def test_mutants_lists_survivors_of_weak_tests_only(project: Path):
    ran = run_mutants(project)
    assert ran.returncode == 0, ran.stderr
    assert "is_open" not in ran.stdout, "its test notices each change"
    assert "survivor: src/tiny/conditions.py:9 (1 tests reach it)" in ran.stdout
    assert "-    return count >= 5\n+    return (count > 5)\n" in ran.stdout
    assert ran.stdout.endswith("conditions.py: 6 of 6 mutants, 4 noticed, 2 survived\n"), ran.stdout
    assert (project / "src" / "tiny" / "conditions.py").read_text() == CODE


def test_mutants_fails_if_no_test_can_run(project: Path):
    ran = run_mutants(project, "--tests", "tests/missing")
    assert ran.returncode == 1
    assert "the tests could not be run" in ran.stderr
