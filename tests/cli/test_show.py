"""The output of results on different terminals."""

from __future__ import annotations

import ast
import json
import os
import pty
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import yaml
from tests.cli import sample_specs
from tests.cli.command import COMMAND, Cli
from tests.cli.fake_server import Fake, serving

from dayfly.cli.output import show

ROOM = Path(show.__file__).parents[1]

WORDS = "a sentence that says what is the matter"


@pytest.mark.parametrize(("columns", "shown"), [(200, WORDS), (30, "a sentence that s..."), (0, WORDS)])
def test_column_is_cut_only_if_terminal_width_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, shown: str
):
    """A terminal of unknown size (`docker exec -t`, expect) has 0 columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 0)))
    show.print_table(("SANDBOX", "MESSAGE"), [("demo", WORDS)], elastic="MESSAGE")
    assert capsys.readouterr().out.splitlines()[1] == f"demo      {shown}"


def test_columns_align_with_wide_and_combining_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Chinese characters and emoji take two cells of a terminal, combining accents none."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((23, 0)))
    rows = [("支付", "数据库连接被拒绝", "1m"), ("🚀", "cafe\u0301 is closed", "2m"), ("demo", "made", "3m")]
    show.print_table(("NAME", "MESSAGE", "AGE"), rows, elastic="MESSAGE")
    assert capsys.readouterr().out.splitlines() == [
        "NAME   MESSAGE      AGE",
        "支付   数据库 ...   1m",
        "🚀     cafe\u0301 is...   2m",
        "demo   made         3m",
    ]


@pytest.mark.parametrize(
    ("width", "shown"), [(8, "数据库接"), (7, "数据..."), (6, "数 ..."), (5, "数..."), (2, ".."), (0, "")]
)
def test_a_text_is_cut_to_the_cells_there_are(width: int, shown: str):
    assert show.truncate("数据库接", width) == shown
    assert show.display_width(shown) <= width


EVIL = "\x1b]0;title\x07\x1b[2J\x1b[31mred\r\x9b5n\x7f\u202edesrever\u2066"
"""Escape sequences: title, clear screen, colours, overwrite, query, and text direction."""


def _dangerous(data: bytes) -> list[str]:
    """Return the control characters in it, without the terminal's line ends."""
    text = data.decode().replace("\r\n", "\n")
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char not in "\n\t"]


def _seen(cli: Cli, *words: str, **more: str) -> bytes:
    """Return the bytes that a command writes to its terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=cli.folder,
        env=cli.environment(TERM="dumb", **more),
    )
    os.close(theirs)
    said = b""
    try:
        while new := os.read(ours, 65536):
            said += new
    except OSError:
        pass  # it has ended
    os.close(ours)
    process.wait(60)
    return said


def _answers() -> Fake:
    """A server with escape sequences in all free text."""
    at, unit = "2026-01-01T00:00:00Z", "db/make"
    fake = Fake()
    sandbox = {
        "name": "box",
        "routingKey": EVIL,
        "createdAt": at,
        "spec": {"cluster": EVIL, "description": EVIL, "resources": []},
        "status": {"ready": False, "reason": EVIL, "message": EVIL},
        "endpoints": [{"name": EVIL, "routeType": EVIL, "url": EVIL}],
    }
    report = {
        "uid": "u",
        "version": 1,
        "phase": "open",
        "reason": "Starting",
        "message": EVIL,
        "done": 0,
        "total": 1,
        "bornAt": 1,
        "units": [
            {
                "id": unit,
                "resource": "db",
                "name": "make",
                "event": "preStart",
                "kind": "exec",
                "state": "failed",
                "attempt": 1,
                "reason": "ExitCode",
                "message": EVIL,
            }
        ],
    }
    plugin = {
        "name": "p@1.0.0",
        "createdAt": at,
        "spec": {"description": EVIL, "runner": {"image": EVIL}},
        "status": {"resources": []},
    }
    fake.say("GET", "sandboxes", [sandbox])
    fake.say("GET", "sandboxes/box", sandbox)
    fake.say("GET", "sandboxes/box/report", report)
    fake.say(
        "GET", "sandboxes/box/why", {"subject": "box", "reason": "x", "message": EVIL, "next": EVIL, "because": []}
    )
    fake.say(
        "GET",
        "sandboxes/box/attempts",
        [{"unit": unit, "attempt": 1, "size": len(EVIL.encode()), "sealed": True, "cut": 0}],
    )
    place, size = {"unit": unit, "attempt": 1, "sealed": True, "encoding": "utf-8"}, len(EVIL.encode())
    fake.say(
        "GET",
        "sandboxes/box/log",
        {**place, "offset": 0, "next": size, "data": EVIL},
        {**place, "offset": size, "next": size, "data": ""},
    )
    fake.say(
        "GET",
        "sandboxes/box/outputs",
        [{"resource": "db", "step": "make", "output": "o", "value": EVIL, "encoding": "utf-8"}],
    )
    fake.say("GET", "resource-plugins", [plugin])
    fake.say("GET", "resource-plugins/p", plugin)
    fake.say("GET", "sandboxes/worse", {"error": f"not that way: {EVIL}"}, status=400)
    return fake


@pytest.mark.parametrize(
    "words",
    ["sandbox list", "sandbox get box", "sandbox get worse", "get", "get sandbox box", "get resources", "why box", "env box",
     "logs box", "plugin list", "plugin get p", "status", "get -o json", "sandbox get box -o yaml", "env box -o json"],
)  # fmt: skip
def test_nothing_that_others_wrote_drives_a_terminal(cli: Cli, words: str):
    with serving(_answers()) as url:
        said = _seen(cli, *words.split(), DAYFLY_URL=url, DAYFLY_API_KEY="k")
    assert said, words
    assert b"internal error" not in said
    assert _dangerous(said) == []


def test_a_plan_drives_no_terminal_either(cli: Cli, journal: Path):
    cli.write("p.yaml", sample_specs.plugin(journal))
    cli.write("s.yaml", sample_specs.sandbox().replace("owner: me", 'owner: "\\e[2J\\x9b5n\\u202e"'))
    said = _seen(cli, "plan", "-f", ".")
    assert b"delete, stage 1" in said
    assert _dangerous(said) == []


def test_a_file_or_a_pipe_gets_logs_and_values_as_they_are(cli: Cli):
    with serving(_answers()) as url:
        more = {"DAYFLY_URL": url, "DAYFLY_API_KEY": "k"}
        piped = subprocess.run(
            [*COMMAND, "logs", "box"], capture_output=True, cwd=cli.folder, env=cli.environment(**more)
        )
        assert piped.stdout == EVIL.encode()
        assert EVIL in cli("env", "box", **more).out
        # Data is escaped in its own way, so it means the same.
        assert json.loads(cli("sandbox", "get", "box", "-o", "json", **more).out)["routingKey"] == EVIL
        assert yaml.safe_load(cli("sandbox", "get", "box", "-o", "yaml", **more).out)["routingKey"] == EVIL


def test_bytes_in_pieces_are_decoded_as_a_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    screen = show.TerminalWriter()
    data = "grün\r\nno\rway 無\u3000語\tend\x1b[1m".encode() + b"\xff\xe7"
    for number in range(len(data)):
        screen.put(data[number : number + 1])
    screen.put(b"", final=True)
    assert capsys.readouterr().out == "grün\nno\\x0dway 無\u3000語\tend\\x1b[1m\\xff\\xe7"


def test_there_is_one_place_of_output():
    """Other code must not write to stdout directly, because terminals interpret control characters."""
    found = [
        f"{file.name}: {ast.unparse(node.func)}"
        for file in sorted(set(ROOM.rglob("*.py")) - {ROOM / "output" / "show.py"})
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _WRITERS
    ]
    assert found == [
        "guard.py: os.write",  # a pipe to its parent
        "main.py: os.write",  # the version
        "verbs.py: sys.stderr.write",  # click's own help
        "verbs.py: sys.stderr.write",  # the last line, made plain there
    ]


_WRITERS = {
    "print", "click.echo", "click.secho", "os.write", "sys.stderr.write", "sys.stderr.buffer.write",
    "sys.stdout.buffer.write", "sys.stdout.write",
}  # fmt: skip


def test_messages_follow_earlier_output_in_a_shared_log(cli: Cli):
    """If both streams go to one file, as in CI, the order of messages and results is kept."""
    cli.write("plugin.yaml", "name: a\nspec: {runner: {image: a}, create: [{name: b, script: '#!/bin/sh'}]}\n")
    environment = cli.environment()
    environment.pop("PYTHONUNBUFFERED", None)
    lint = cli.start("plugin", "lint", stderr=subprocess.STDOUT, env=environment)
    said = lint.communicate(timeout=60)[0].decode().splitlines()
    assert said[0].startswith("plugin.yaml:2: DF601"), said
    assert said[2] == "1 mistake found.", said
