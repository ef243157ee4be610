"""The tables of tests/attacks.md name tests that exist, and at least one of each row runs in `make test`."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.docs.conftest import ROOT

# Dayfly has no defence against these attacks; the page states what to do instead.
NOT_COVERED = {
    "N -> a baseline behind a policy that names its route",
    "U -> a state on this machine",
    "U -> a browser's session on this machine",
}
_PATH = re.compile(r"`((?:tests|page)/[^`]+)`")
HEAD = "actor -> asset"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Row(NamedTuple):
    """One attack, and the tests that the page names for it: paths, or paths with `::Class::function`."""

    actor: str
    attack: str
    tests: list[str]
    cell: str


def attack_table(page: str, head: str = HEAD) -> list[Row]:
    """Return the rows of all tables of the page. `head` is the head of their first column."""
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in page.splitlines() if line[:2] == "| "]
    return [Row(actor, attack, _PATH.findall(cell), cell) for actor, attack, _, cell in rows if actor != head]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def is_proof(marks: Sequence[ast.expr]) -> bool:
    """Whether one of these decorators, or of these values of `pytestmark`, is `pytest.mark.proof`."""
    return any(
        isinstance(part, ast.Attribute) and ast.unparse(part) == "pytest.mark.proof"
        for mark in marks
        for part in ast.walk(mark.func if isinstance(mark, ast.Call) else mark)
    )


def file_marks(tree: ast.Module) -> list[ast.expr]:
    return [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]


def declared_tests(body: list[ast.stmt], within: tuple[str, ...], *, proof: bool) -> Iterator[tuple[str, bool]]:
    """Yield each test's name (`Class::function`), and whether `make proof` alone runs it."""
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from declared_tests(node.body, (*within, node.name), proof=proof or is_proof(node.decorator_list))
        elif isinstance(node, _Function) and node.name.startswith("test_"):
            yield "::".join((*within, node.name)), proof or is_proof(node.decorator_list)


def proof_only(name: str, root: Path) -> list[bool]:
    """Return for each test of this name whether `make proof` alone runs it; empty if there is no such test."""
    file, _, wanted = name.partition("::")
    path = root / file
    if path.is_dir():
        files = sorted(path.rglob("test_*.py"))
    elif path.suffix == ".py":
        files = [path] if path.exists() else []
    else:
        return [True] if path.exists() else []  # a test of the page's own suite is not one of pytest's
    return [
        proof
        for each in files
        for test, proof in declared_tests(parsed(each).body, (), proof=is_proof(file_marks(parsed(each))))
        if not wanted or test == wanted or test.startswith(f"{wanted}::")
    ]


def faults(table: list[Row], root: Path) -> list[str]:
    found = []
    for row in table:
        if row.cell == "not covered":
            continue
        named = {test: proof_only(test, root) for test in row.tests}
        found += [f"{row.actor}: {test} does not exist" for test, tests in named.items() if not tests]
        if all(proof for tests in named.values() for proof in tests):
            found.append(f"{row.actor} ({row.attack:.40}): no test of it runs in `make test`")
    return found


def test_each_attack_names_tests_that_make_test_runs():
    table = attack_table((ROOT / "tests" / "attacks.md").read_text())
    assert len(table) > 100
    assert faults(table, ROOT) == []
    assert {row.actor for row in table if row.cell == "not covered"} == NOT_COVERED


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("`tests/test_a.py`", ""),
        ("`tests/more`", ""),
        ("`tests/test_a.py::TestA::test_one`, `tests/test_b.py` (in hours)", ""),
        ("`tests/test_a.py::TestA`", ""),
        ("`tests/test_a.py::TestA::test_other`", "does not exist"),
        ("`tests/test_a.py::test_one`", "does not exist"),
        ("`tests/test_c.py`", "does not exist"),
        ("`tests/test_a.py::test_long`", "runs in `make test`"),
        ("`tests/test_b.py`", "runs in `make test`"),
        ("the same", "runs in `make test`"),
    ],
)
def test_table_check_reports_missing_and_proof_only_tests(tmp_path: Path, cell: str, fault: str):
    (tmp_path / "tests" / "more").mkdir(parents=True)
    (tmp_path / "tests" / "more" / "test_d.py").write_text("def test_three(): ...\n")
    (tmp_path / "tests" / "test_a.py").write_text(
        "import pytest\nclass TestA:\n    def test_one(self): ...\n@pytest.mark.proof\nasync def test_long(): ...\n"
    )
    (tmp_path / "tests" / "test_b.py").write_text(
        "import pytest\npytestmark = [pytest.mark.proof, pytest.mark.slow]\ndef test_two(): ...\n"
    )
    page = (
        f"text\n| actor -> asset | attack | defence | test |\n|---|---|---|---|\n| T -> x | y | z | {cell} |\n\nmore\n"
    )
    found = faults(attack_table(page), tmp_path)
    assert (fault in found[0]) if fault else (found == [])
