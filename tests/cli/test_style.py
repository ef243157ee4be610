"""Colours on a terminal."""

from __future__ import annotations

import sys

import pytest

from dayfly.cli.output import show, style


def _connect_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a terminal that has colours."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def _table() -> None:
    show.print_table(("NAME", "PHASE"), [("a", "Ready"), ("Ready", "Failed")])


def test_table_colours_only_states(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    _connect_terminal(monkeypatch)
    _table()
    assert capsys.readouterr().out.splitlines() == [
        "NAME    PHASE",
        "a       \x1b[32mReady\x1b[0m",
        "Ready   \x1b[31m\x1b[1mFailed\x1b[0m",
    ]


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_terminal_without_colours_gets_plain_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
):
    _connect_terminal(monkeypatch)
    monkeypatch.setenv(name, value)
    _table()
    show.print_facts([("Phase", "Ready")])
    show.print_difference("+ line")
    assert "\x1b" not in capsys.readouterr().out


def test_pipe_gets_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("TERM", "xterm")
    _table()
    assert "\x1b" not in capsys.readouterr().out


def test_difference_colours_added_and_removed_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    _connect_terminal(monkeypatch)
    for line in ("+ new\x1b[2J", "- old", "  same"):
        show.print_difference(line)
    added, removed, same = capsys.readouterr().out.splitlines()
    assert (added, removed, same) == ("\x1b[32m+ new\\x1b[2J\x1b[0m", "\x1b[31m- old\x1b[0m", "  same")


def test_state_keeps_its_details(monkeypatch: pytest.MonkeyPatch):
    _connect_terminal(monkeypatch)
    assert style.apply_to_state("ResourceFailed: db/make") == "\x1b[31m\x1b[1mResourceFailed: db/make\x1b[0m"
    assert style.apply_to_state("something else") == "something else"
