"""The progress display of a run at fixed times and sizes."""

from __future__ import annotations

from typing import Any

import pytest

from dayfly.cli.output.frame import frame, ordered

NOW = 1_000_000


def unit(name: str, state: str, **more: Any) -> dict[str, Any]:
    event = {"event": "preStart", "kind": "exec"}
    return {"id": name, "resource": "", "name": name, **event, "state": state, **more}


def report(*units: dict[str, Any], **more: Any) -> dict[str, Any]:
    done = sum(each["state"] == "succeeded" for each in units)
    plain = {"phase": "open", "reason": "ResourcesPending", "message": "", "done": done, "total": len(units)}
    return {**plain, "bornAt": NOW - 62_000, "units": list(units), **more}


def draw(given: dict[str, Any], width: int = 78, height: int = 20, *, unicode: bool = True) -> str:
    lines = frame("demo", given, NOW, width=width, height=height, unicode=unicode)
    assert len(lines) <= height
    assert all(len(line.text) <= width for line in lines)
    return "\n".join(line.text for line in lines)


MIXED = report(
    unit("db/seed", "running", reads=["db/provision"], startedAt=NOW - 2_000, message="attempt 1 runs"),
    unit("db/provision", "succeeded", startedAt=NOW - 9_000, endedAt=NOW - 2_500),
    unit("db/grant", "waiting", reads=["db/seed"], message="needs an output of db/seed"),
    unit("q/make", "retrying", startedAt=NOW - 900, endedAt=NOW - 400, message="tries again in 5 s"),
    unit("fork:default/web", "waiting", event="start", kind="fork", message="comes after db/grant"),
    unit("db/drop", "waiting", event="postStop"),
)


def test_frame_orders_units_and_hides_waiting_cleanups():
    assert draw(MIXED) == (
        "demo   ResourcesPending   1/6   1 min 2 s\n"
        "✓ succeeded  db/provision         6 s\n"
        "● running    db/seed              2 s  attempt 1 runs\n"
        "○ waiting    db/grant                  needs an output of db/seed\n"
        "↻ retrying   q/make            500 ms  tries again in 5 s\n"
        "○ waiting    fork:default/web          comes after db/grant"
    )


def test_without_unicode_the_signs_are_ascii_and_the_words_stay():
    text = draw(MIXED, unicode=False)
    assert text.isascii()
    assert "* running    db/seed" in text


def test_a_narrow_terminal_cuts_lines_and_never_wraps():
    assert draw(MIXED, width=30).splitlines()[:3] == [
        "demo   ResourcesPending   1...",
        "✓ succeeded  db/provision  ...",
        "● running    db/seed       ...",
    ]
    assert draw(MIXED, width=8).splitlines()[1] == "✓ suc..."


def test_frame_cuts_wide_characters_at_the_terminal_width():
    failed = unit("db/make", "failed", reason="ExitCode", message="数据库连接被拒绝请稍后再试")
    assert draw(report(failed), width=42).splitlines()[1] == "✗ failed     db/make  ExitCode: 数据库 ..."


def test_no_room_folds_the_healthy_and_shows_trouble_first():
    units = [unit(f"a{n}/make", "succeeded", startedAt=1, endedAt=2) for n in range(40)]
    units += [unit(f"b{n}/make", "waiting") for n in range(40)]
    units += [unit("c/make", "running"), unit("d/make", "failed", message="exit code 3")]
    assert draw(report(*units), height=6) == (
        "demo   ResourcesPending   40/82   1 min 2 s\n"
        "✗ failed     d/make  exit code 3\n"
        "● running    c/make\n"
        "○ waiting    40 units: b0/make, b1/make, b2/make, b3/make, b4/make, b5/make...\n"
        "✓ succeeded  40 units: a0/make, a1/make, a2/make, a3/make, a4/make, a5/make..."
    )


def test_frame_with_little_height_keeps_failed_units():
    units = [unit(f"a{n}/make", "failed", message="no") for n in range(9)] + [unit("b/make", "running")]
    assert draw(report(*units), height=2).splitlines()[1].startswith("✗ failed     9 units: a0/make")


def test_frame_of_deletion_shows_cleanups_and_running_units():
    closing = report(
        unit("db/provision", "succeeded"),
        unit("db/seed", "running", startedAt=NOW - 1_000),
        unit("fork:default/web", "stopped", event="start", kind="fork"),
        unit("db/drop", "waiting", event="postStop", message="comes after db/seed"),
        unit("bye", "succeeded", event="preStop"),
        phase="closed",
        reason="Deleting",
        closed={"at": NOW - 3_000, "reason": "Deleted"},
    )
    assert draw(closing).splitlines()[0].endswith("3 s")
    assert [each["id"] for each in ordered(closing)] == ["db/seed", "fork:default/web", "bye", "db/drop"]


@pytest.mark.parametrize("height", [2, 24])
def test_frame_escapes_names_reasons_and_messages(height: int):
    """An agent controls parts of a report, and the display is written to the terminal unescaped."""
    units = [unit(f"a{number}\x1b]0;title\x07", "failed", message="\x1b[2Jgone\r\n") for number in range(3)]
    text = draw(report(*units, reason="Ready\x1b[2J"), height=height)
    assert "Ready\\x1b[2J" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("count", [0, 1, 5, 256])
@pytest.mark.parametrize("height", [2, 3, 24])
def test_any_run_fits_any_terminal(count: int, height: int):
    states = ("waiting", "running", "succeeded", "failed", "retrying", "unknown", "stopped", "skipped")
    units = [unit(f"r{n}/s", states[n % len(states)]) for n in range(count)]
    text = draw(report(*units), width=40, height=height)
    assert text.startswith("demo")
    if 0 < count <= height - 1:
        assert all(each["id"] in text for each in units)
