"""Every reason is in the catalogue once and is used, and no module uses another reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dayfly
from dayfly.plan import reason_catalog
from dayfly.plan.reason_catalog import CATALOGUE, SECTIONS, Severity, Subject
from dayfly.plan.reasons import Reason

SOURCE = Path(dayfly.__file__).parent
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.name not in ("reasons.py", "reason_words.py")]
SAID = {name for path in FILES for name in re.findall(r"\bReason\.(\w+)", path.read_text())}
# Reasons of Kubernetes.
NOT_OURS = {*SECTIONS[Subject.IMAGE]}


def literal(node: ast.AST) -> Iterator[str]:
    """Yield reasons that are written as literals instead of taken from the catalogue."""
    match node:
        case ast.Call(
            func=ast.Name(id="CannotRenderError" | "WaitingError" | "UnitRefusal"),
            args=[ast.Constant(value=str(word)), *_],
        ):
            yield word
        case ast.keyword(arg="reason", value=ast.Constant(value=str(word))) if word:
            yield word
        case ast.Return(value=ast.Tuple(elts=[ast.Constant(value=str(word)), *_])) if word in CATALOGUE:
            yield word


def test_each_reason_has_one_row():
    listed = [reason for rows in SECTIONS.values() for reason in rows]
    assert sorted(listed) == sorted(Reason)
    assert all(entry.meaning.endswith((".", "?")) or "`" in entry.meaning for entry in CATALOGUE.values())


@pytest.mark.parametrize("reason", sorted(set(Reason) - NOT_OURS))
def test_each_reason_is_used(reason):
    """A row without a use is dead."""
    assert Reason(reason).name in SAID


def test_no_module_writes_a_reason_as_a_literal():
    found = {
        (path.name, word) for path in FILES for node in ast.walk(ast.parse(path.read_text())) for word in literal(node)
    }
    assert found == set()


def test_a_reason_of_ones_own_would_be_found():
    """Check the search above."""
    tree = ast.parse(
        'UnitRefusal(reason="Mine")\nCannotRenderError("Mine", "x")\ndef f():\n    return "ResultLost", "x"'
    )
    assert [word for node in ast.walk(tree) for word in literal(node)].count("Mine") == 2
    assert "ResultLost" in [word for node in ast.walk(tree) for word in literal(node)]


def test_advice_can_be_filled_in():
    for entry in CATALOGUE.values():
        assert "{" not in entry.advice.format(look="a", logs="b", sandbox="c").replace("{path", "")


def test_unknown_reason_counts_as_trouble():
    assert reason_catalog.severity("FailedMount") is Severity.TROUBLE
    assert reason_catalog.severity("") is Severity.PROGRESS
    assert reason_catalog.advice("FailedMount") == ""
