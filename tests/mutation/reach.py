"""Which tests reach which lines, and how long they take: learnt once for each file of tests, and kept."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import coverage

from mutation.mutants import Mutant
from mutation.plant import ROOT, SOURCE, End
from mutation.player import Player

KEPT = ROOT / ".cache" / "mutation"
BROKEN = "broken"  # what is kept of a test that fails by itself

# Lines are kept by the function they are in and their distance from its begin, so that other changes of a file do no harm.
Lines = dict[str, dict[int, set[str]]]


@dataclasses.dataclass
class Reach:
    """What the tests reach."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    lines: Lines = dataclasses.field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    at_import: set[str] = dataclasses.field(default_factory=set)

    def tests(self, mutant: Mutant) -> set[str]:
        """Those that come to the statement; if it is new, those that come to its function.

        Where none comes there in this process, it works while the package is loaded or in one that a test starts: then
        those that come to its file, or whose own file names it.
        """
        where, start = _enclosing(mutant.file, mutant.line)
        known = self.lines.get(_name(mutant.file, where), {})
        there = [known.get(line - start, set()) for line in range(mutant.span[0], mutant.span[1] + 1)]
        return set().union(*there) or set().union(*known.values()) or self._around(mutant.file)

    def _around(self, file: str) -> set[str]:
        of_file = [
            tests for name, lines in self.lines.items() if name.startswith(f"{file}:") for tests in lines.values()
        ]
        naming = re.compile(rf"\b{Path(file).stem}\b")
        files = {test.partition("::")[0] for test in self.seconds}
        named = {each for each in files if naming.search((ROOT / each).read_text())}
        return set().union(*of_file) | {test for test in self.seconds if test.partition("::")[0] in named}

    def loaded(self, mutant: Mutant) -> bool:
        """Whether its function, or one around it, works while the package or the tests are loaded: changed later, it

        has made already what others use.
        """
        names = _enclosing(mutant.file, mutant.line)[0].split(".")
        return any(_name(mutant.file, ".".join(names[:end])) in self.at_import for end in range(1, len(names) + 1))


def learnt(player: Player, loading: coverage.Coverage) -> Reach:
    """What is known of all collected tests; what is not is learnt now."""
    files: dict[str, list[str]] = defaultdict(list)
    for name in player.items:
        files[name.partition("::")[0]].append(name)
    found = Reach()
    loading.stop()
    data = loading.get_data()
    for file in data.measured_files():
        found.at_import |= {name for name, _ in _placed(file, data.lines(file) or [])}
    for file, tests in files.items():
        kept = KEPT / f"{file.replace('/', '-')}.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        if known.get("digest") != digest(file) or not known["seconds"].keys() >= set(tests):
            began = time.monotonic()
            _learn(player, tests, kept)
            print(f"learnt {file} in {time.monotonic() - began:.0f} s", flush=True)
            known = json.loads(kept.read_text())
        for test, seconds in known["seconds"].items():
            if test in player.items and seconds != BROKEN:
                found.seconds[test] = seconds
        names = list(known["seconds"])
        for name, offsets in known["lines"].items():
            for offset, reached in offsets.items():
                found.lines[name][int(offset)] |= {names[at] for at in reached} & found.seconds.keys()
    return found


def digest(file: str) -> str:
    """Of a file's text."""
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def _learn(player: Player, tests: list[str], kept: Path) -> None:
    """In a child for each round: one that fails is left out of the next."""
    KEPT.mkdir(parents=True, exist_ok=True)
    broken: dict[str, str] = {}
    while left := [test for test in tests if test not in broken]:
        player.recorder = Recorder(kept, broken)
        verdict = player.play(left, dict.fromkeys(left, 60.0), player.recorder.begin)
        player.recorder = None
        if verdict.end is End.SURVIVED:
            return
        print(f"fails by itself, so it is not asked: {verdict.test}", flush=True)
        broken[verdict.test] = BROKEN
    kept.write_text(json.dumps({"digest": digest(tests[0].partition("::")[0]), "seconds": broken, "lines": {}}))


class Recorder:
    """In the child: notes for each test what it reaches."""

    def __init__(self, kept: Path, broken: dict[str, str]) -> None:
        self._kept, self._broken = kept, broken
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(data_file=None, config_file=False, source=[str(SOURCE)])
        # Some files' tests do all that they do in processes of their own.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])

    def begin(self, _home: Path) -> None:
        """Called where the child begins."""
        self._coverage.start()

    def test(self, name: str, took: float | None = None) -> None:
        """It begins; or it has ended."""
        if took is None:
            self._coverage.switch_context(name)
        else:
            self._seconds[name] = round(took, 3)

    def end(self, file: str) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        numbers = {name: at for at, name in enumerate(self._seconds)}
        lines: dict[str, dict[int, list[int]]] = defaultdict(dict)
        for path in data.measured_files():
            contexts = data.contexts_by_lineno(path)
            for name, line in _placed(path, contexts):
                start = _enclosing(str(Path(path).relative_to(SOURCE)), line)[1]
                lines[name][line - start] = [numbers[each] for each in contexts[line] if each in numbers]
        known = {"digest": digest(file), "seconds": self._seconds | self._broken, "lines": lines}
        self._kept.write_text(json.dumps(known))


def _placed(path: str, lines: Iterable[int]) -> list[tuple[str, int]]:
    """These lines of a file, as far as they are in a function's body, with the name that they are kept by."""
    file = str(Path(path).relative_to(SOURCE))
    placed = ((line, *_enclosing(file, line)) for line in lines)
    return [(_name(file, where), line) for line, where, start in placed if where and line > start]


def _name(file: str, where: str) -> str:
    return f"{file}:{where}"


@functools.cache
def _functions(file: str) -> dict[int, tuple[str, int]]:
    """For each line the innermost function, and the line of its `def`."""
    found: dict[int, tuple[str, int]] = {}

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            below = path
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                below = f"{path}.{child.name}" if path else child.name
                if not isinstance(child, ast.ClassDef):
                    found.update(dict.fromkeys(range(child.lineno, (child.end_lineno or 0) + 1), (below, child.lineno)))
            visit(child, below)

    visit(ast.parse((SOURCE / file).read_text()), "")
    return found


def _enclosing(file: str, line: int) -> tuple[str, int]:
    return _functions(file).get(line, ("", 0))
