"""The page on the protocol says what the code does: its drawings, its table of clocks, its list of reasons."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from dayfly.plan.reasons import Reason
from docs.conftest import ROOT

PAGE = ROOT / "docs" / "how-it-works.md"
SOURCE = ROOT / "src" / "dayfly"
DIAGRAMS = runpy.run_path(str(ROOT / "scripts" / "diagrams.py"))
# What can be said on one machine. The words of pods and nodes are not on this page.
ROOMS = ("plan", "embedded", "execute/process", "execute/receipt.py", "execute/order.py", "control", "spec/wire.py")
# Said only where an attempt is prepared behind a gate before it is claimed: in a cluster.
_GATED = {Reason.FOREIGN, Reason.RECALLED}
_WORD = re.compile(r"[A-Z][A-Za-z]+")


def files() -> Iterator[Path]:
    for room in ROOMS:
        path = SOURCE / room
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


TREES = [ast.parse(path.read_text()) for path in files()]


def rows() -> dict[str, str]:
    """The page's reasons, each with its sentence."""
    section = PAGE.read_text().partition("## Reasons")[2]
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            words, sentence, _ = line.strip("| ").split(" | ")
            found |= dict.fromkeys(re.findall(r"`(\w+)`", words), sentence)
    return found


ROWS = rows()


def spoken() -> set[str]:
    """Every reason that these rooms can give."""
    text = "\n".join(path.read_text() for path in files())
    members = {reason.value for reason in set(Reason) - _GATED if re.search(rf"\bReason\.{reason.name}\b", text)}
    return members | {word for tree in TREES for node in ast.walk(tree) for word in _literal(node)}


def _literal(node: ast.AST) -> Iterator[str]:
    """Reasons that are written where they are given."""
    match node:
        case ast.Call(func=ast.Name(id="CannotRenderError"), args=[ast.Constant(value=str(word)), *_]):
            yield word
        case ast.keyword(arg="reason", value=ast.Constant(value=str(word))) if word:
            yield word
        case ast.Return(value=ast.Tuple(elts=[ast.Constant(value=str(word)), *_])) if _WORD.fullmatch(word):
            yield word
        case ast.Dict(values=values):
            for value in values:
                match value:
                    case ast.Tuple(elts=[ast.Constant(value=str(word)), _]) if _WORD.fullmatch(word):
                        yield word
        case ast.Assign(targets=[ast.Name(id="BASELINE_MISSING" | "PATH_BUSY")], value=ast.Constant(value=str(word))):
            yield word


def sentences() -> list[str]:
    """Every text of these rooms, with … for what is filled in."""
    return [_text(node) for tree in TREES for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.Constant))]


def _text(node: ast.AST) -> str:
    match node:
        case ast.JoinedStr(values=values):
            # `{{name}}` in an f-string is a place that a later `format` fills.
            return re.sub(r"\{\w*\}", "…", "".join(map(_text, values)))
        case ast.Constant(value=str(text)):
            return text if " " not in text or "{path" in text else re.sub(r"\{\w*\}", "…", text)
        case ast.FormattedValue():
            return "…"
        case _:
            return ""


SENTENCES = sentences()


@pytest.mark.parametrize("name", DIAGRAMS["PARTS"])
def test_the_drawings_are_current(name: str):
    assert DIAGRAMS["PARTS"][name]() in PAGE.read_text(), "run .venv/bin/python scripts/diagrams.py"


def test_drawing_again_changes_nothing():
    page = PAGE.read_text()
    assert DIAGRAMS["drawn"](page) == page


@pytest.mark.parametrize("page", ["", "<!-- drawn: units -->\n", "<!-- drawn: units -->\n" * 2 + "<!-- end -->"])
def test_a_page_without_its_marks_is_refused(page: str):
    with pytest.raises(ValueError, match="drawn: units"):
        DIAGRAMS["drawn"](page)


def test_the_search_for_reasons_finds_each_way_to_write_one():
    assert {"ExitCode", "OutputMissing", "InputNotText", "PathBusy", "CannotStart", "Running"} <= spoken()


@pytest.mark.parametrize("reason", sorted(spoken()))
def test_every_reason_is_explained(reason: str):
    assert reason in ROWS


@pytest.mark.parametrize("reason", sorted(ROWS))
def test_every_explained_reason_exists(reason: str):
    assert reason in spoken()


@pytest.mark.parametrize(
    "sentence", sorted({text for text in ROWS.values() if not text.startswith(("that of", "what "))})
)
def test_every_sentence_is_one_that_the_code_speaks(sentence: str):
    wanted = re.escape(sentence).replace("…", ".*")
    assert any(re.search(wanted, said) for said in SENTENCES), sentence
