#!/usr/bin/env python3
"""Report which small changes of the code no test notices: `make mutants PACKAGE=plan SAMPLE=50 SEED=1`.

A mutant is one change in the syntax tree of one function, for instance `<` for `<=`. The tests that reach its statement
run against a temporary package: links to all files, and the mutant's text for one. The checkout stays as it is. If all
these tests pass, the mutant is printed as a survivor. That is a hint: some changes have no effect.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import difflib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MARKS = "not cluster and not proof and not slow and not heavy"
MAX_TESTS, MAX_TESTS_S = 400, 60.0  # for each mutant, as they took without it
START_S, SLOWDOWN = 60.0, 10.0  # a mutant has hung after START_S + SLOWDOWN * its tests' time
_BOTH_WAYS = "Eq NotEq, Is IsNot, In NotIn, Lt LtE, Gt GtE, Add Sub, Mult FloorDiv, BitAnd BitOr"
_PAIRS = [[getattr(ast, name) for name in pair.split()] for pair in _BOTH_WAYS.split(", ")]
SWAPPED = {one: other for pair in _PAIRS for one, other in (pair, reversed(pair))} | {ast.Div: ast.Mult}
# Left out: texts for people, and what only type checkers or importers read.
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "bases", "keywords", "type_params"}
SKIPPED_CALLS = ("log.", "logger.", "warnings.")
PRECONDITIONS = {"uid", "resource_version", "grace", "propagation", "timeout"}  # arguments to leave out


class Mutant(NamedTuple):
    """One change of one file of the package."""

    file: str
    lines: tuple[int, int]  # of its statement, without the bodies of that
    source: str
    text: str

    def diff(self) -> str:
        before, after = self.source.splitlines(), self.text.splitlines()
        return "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=1))[2:])


def mutants_of(file: str, source: str) -> list[Mutant]:
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for statement, node, new in _changes(ast.parse(source), None, in_function=False):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = (source.encode()[:begin] + new.encode() + source.encode()[end:]).decode()
        body = getattr(statement, "body", None)
        last = max(statement.lineno, body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno)
        found[text] = Mutant(file, (statement.lineno, last), source, text)
    return list(found.values())


def _changes(node: ast.AST, statement: Any, *, in_function: bool) -> Iterator[tuple[Any, Any, str]]:
    """Yield a statement, the node in it to replace, and its new text."""
    if isinstance(node, ast.JoinedStr) or _is_message(node):
        return
    statement = node if isinstance(node, ast.stmt) else statement
    if in_function:
        yield from ((statement, *change) for change in (*_of_expression(node), *_of_statement(node)))
    in_function |= isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    for field, value in ast.iter_fields(node):
        if field not in SKIPPED_FIELDS or (field == "keywords" and isinstance(node, ast.Call)):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _changes(child, statement, in_function=in_function)


def _is_message(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or ast.unparse(node.value).startswith(SKIPPED_CALLS)
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _of_expression(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:  # noqa: C901, PLR0912 - a table
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPPED:
            yield node, _text(node, ops=[SWAPPED[type(op)]()])
            if isinstance(op, (ast.Lt, ast.Gt, ast.LtE, ast.GtE)):
                yield node, _text(node, left=right, comparators=[left])
        case ast.BoolOp(values=values):
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                yield node, _text(node, values=rest) if len(rest) > 1 else f"({ast.unparse(rest[0])})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(op=op) if type(op) in SWAPPED and not (_is_sequence(node.left) or _is_sequence(node.right)):
            yield node, _text(node, op=SWAPPED[type(op)]())
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.comprehension(ifs=ifs):
            yield from ((each, "True") for each in ifs)
        case ast.Call(keywords=keywords):
            for at, keyword in enumerate(keywords):
                if keyword.arg in PRECONDITIONS:
                    yield node, _text(node, keywords=keywords[:at] + keywords[at + 1 :])
        case ast.match_case(guard=ast.expr() as guard):
            yield guard, "True"


def _of_statement(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)):
                yield test, f"(not {ast.unparse(test)})"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.Break():
            yield node, "continue"


def _text(node: ast.AST, **changed: Any) -> str:
    return f"({ast.unparse(type(node)(**dict(ast.iter_fields(node)) | changed))})"


def _is_sequence(node: ast.AST) -> bool:
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple)) or isinstance(getattr(node, "value", 0), (str, bytes))


class Recorder:
    """A pytest plugin that records how long each passed test takes, and names the tests in the coverage data."""

    def __init__(self, data: Any) -> None:
        self._coverage, self.failed, self.seconds = data, set[str](), Counter[str]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        self.failed |= set() if report.passed else {report.nodeid}


class Project:
    """A checkout with one package in `src`, and its tests in `tests`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        [self.source] = [path.parent for path in (self.root / "src").glob("*/__init__.py")]
        self._seconds: dict[str, float] = {}
        self._reached: dict[str, dict[int, set[str]]] = {}

    def mutants(self, targets: Sequence[str]) -> list[Mutant]:
        places = [self.source / target for target in targets]
        files = [file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
        return [each for file in files for each in mutants_of(str(file.relative_to(self.source)), file.read_text())]

    def learn(self, tests: Sequence[str], marks: str) -> None:
        """Run these tests once to see what each reaches. Tests that fail are left out."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as home:
            out = Path(home) / "learnt.json"
            command = [sys.executable, __file__, f"--learn={out}", f"--root={self.root}", f"--marks={marks}", *tests]
            environment = self._environment(self.root / "src")
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if not out.exists():
                raise SystemExit(f"the tests could not be run: {ran.stdout[-3000:]}{ran.stderr[-3000:]}")
            learnt = json.loads(out.read_text())
        self._seconds = learnt["seconds"]
        for file, lines in learnt["reached"].items():
            self._reached[file] = {int(line): self._seconds.keys() & tests for line, tests in lines.items()}

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the statement, the quick ones first; if it runs at import, those of its file."""
        lines = self._reached.get(mutant.file, {})
        there = [lines[line] for line in range(mutant.lines[0], mutant.lines[1] + 1) if line in lines]
        found = set().union(*there) or (set().union(*lines.values()) if there else set())
        chosen = sorted(found, key=lambda test: (self._seconds[test], test))[:MAX_TESTS]
        totals = list(itertools.accumulate(self._seconds[test] for test in chosen))
        return [test for test, total in zip(chosen, totals, strict=True) if total <= MAX_TESTS_S or test == chosen[0]]

    def is_noticed(self, mutant: Mutant | None, tests: Sequence[str]) -> bool:
        """Run the tests against the mutant, or against the package as it is."""
        if not tests:
            return False
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as home:
            _overlay(self.source, Path(home) / self.source.name, tuple(mutant.file.split("/")) if mutant else ())
            if mutant:
                (Path(home) / self.source.name / mutant.file).write_text(mutant.text)
            options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", f"--basetemp={home}/scratch"]
            command = [sys.executable, "-m", "pytest", *options, *tests]
            where = {"cwd": self.root, "env": self._environment(Path(home)), "start_new_session": True}
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **where)
            try:
                return process.wait(START_S + SLOWDOWN * sum(self._seconds[test] for test in tests)) != 0
            except subprocess.TimeoutExpired:
                return True
            finally:
                _end(process.pid, home)
                process.wait()

    def _environment(self, package: Path) -> dict[str, str]:
        path = os.pathsep.join((str(package), str(self.root)))
        return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _overlay(source: Path, target: Path, changed: tuple[str, ...]) -> None:
    """Link a folder's files but the changed one, whose folders are copied without their bytecode."""
    target.mkdir()
    for entry in source.iterdir():
        if not changed or entry.name not in (changed[0], "__pycache__"):
            (target / entry.name).symlink_to(entry)
    if len(changed) > 1:
        _overlay(source / changed[0], target / changed[0], changed[1:])


def _end(group: int, mark: str) -> None:
    """Kill what a run has left: its process group, and processes elsewhere with its folder in their environment."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def record(project: Project, tests: Sequence[str], marks: str, out: Path) -> None:
    """Run the tests, and write how long each takes and which lines it reaches."""
    import coverage  # noqa: PLC0415 - only this process needs these two
    import pytest  # noqa: PLC0415

    os.chdir(project.root)
    measured = coverage.Coverage(data_file=None, config_file=False, source=[str(project.source)])
    measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
    recorder, reached = Recorder(measured), {}
    with measured.collect():
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", marks, *tests], plugins=[recorder])
    data = measured.get_data()
    for file in data.measured_files():
        reached[str(Path(file).relative_to(project.source))] = data.contexts_by_lineno(file)
    passed = {test: took for test, took in recorder.seconds.items() if test not in recorder.failed}
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        out.write_text(json.dumps({"seconds": passed, "reached": reached}))


def report(project: Project, mutants: list[Mutant], chosen: list[Mutant], workers: int) -> None:
    tests = [project.tests_for(mutant) for mutant in chosen]
    if any(tests) and project.is_noticed(None, next(filter(None, tests))):
        raise SystemExit("the tests fail without any mutant, so they show nothing")
    whole, noticed = (Counter(mutant.file.split("/")[0] for mutant in each) for each in (mutants, ()))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        results = pool.map(project.is_noticed, chosen, tests)
        for mutant, its_tests, is_noticed in zip(chosen, tests, results, strict=True):
            noticed[mutant.file.split("/")[0]] += is_noticed
            if not is_noticed:
                place = f"src/{project.source.name}/{mutant.file}:{mutant.lines[0]}"
                print(f"survivor: {place} ({len(its_tests)} tests reach it)\n{mutant.diff()}\n", flush=True)
    for name, played in Counter(mutant.file.split("/")[0] for mutant in chosen).items():
        print(f"{name}: {played} of {whole[name]} mutants, {noticed[name]} noticed, {played - noticed[name]} survived")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="+", help="packages or files: plan, operator/effects.py")
    parser.add_argument("--sample", type=int, default=0, help="how many mutants to play, at random; default: all")
    parser.add_argument("--seed", default=str(random.randrange(1_000_000)), help="of the sample")
    parser.add_argument("--tests", nargs="*", help="files or folders of tests; default: the packages' folders in tests")
    parser.add_argument("--marks", default=MARKS, help="which of the tests, as pytest's -m; default: %(default)s")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--learn", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    project = Project(options.root)
    if options.learn:
        record(project, options.targets, options.marks, options.learn)
        return 0
    mutants = project.mutants(options.targets)
    size = min(options.sample or len(mutants), len(mutants))
    chosen = [mutants[at] for at in sorted(random.Random(options.seed).sample(range(len(mutants)), size))]
    folders = {f"tests/{target.partition('/')[0]}" for target in options.targets}
    found = [folder for folder in sorted(folders) if (project.root / folder).is_dir()]
    project.learn(options.tests or found or ["tests"], options.marks)
    print(f"{size} mutants, seed {options.seed}", flush=True)
    report(project, mutants, chosen, options.workers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
