"""How results are laid out on terminals of every kind."""

from __future__ import annotations

import os
import sys

import pytest

from dayfly.cli import show

WORDS = "a sentence that says what is the matter"


@pytest.mark.parametrize(("columns", "shown"), [(200, WORDS), (30, "a sentence that s..."), (0, WORDS)])
def test_a_column_is_cut_only_where_the_terminal_is_known_to_be_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, shown: str
):
    """A terminal of which nobody has told how wide it is (`docker exec -t`, expect) has no columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 0)))
    show.table(("SANDBOX", "MESSAGE"), [("demo", WORDS)], elastic="MESSAGE")
    assert capsys.readouterr().out.splitlines()[1] == f"demo      {shown}"
