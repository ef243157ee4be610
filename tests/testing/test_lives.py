"""Which lives a plugin is put through, what its scripts become in them, and what is told of each."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from dayfly.spec.plugin import PluginSpec, check_plugin_spec
from dayfly.testing import (
    DeleteAt,
    Fault,
    Life,
    LifeResult,
    Played,
    as_json,
    as_junit,
    as_line,
    first,
    judge,
    lives,
    summary,
)
from dayfly.testing.fault_scripts import Moment, as_script, at_work, held, killed, noted, refused, took
from dayfly.testing.findings import LifeFinding
from runner.test_program import WORDS
from testing.planted import AGAIN, CLEAN, LABEL, MAKE, PATH, PLANTED, REMOVE, SECOND, plugin, step


def spec(written: dict) -> PluginSpec:
    made = msgspec.convert(written, PluginSpec)
    check_plugin_spec(made, ("spec",))
    return made


TWO = spec(plugin(MAKE, REMOVE, LABEL, also=(step("two", SECOND, PATH, retry={"idempotent": True}),)))


def test_each_step_is_harmed_in_each_way():
    names = [life.name for life in lives(TWO, {"root": "/x", "label": "y"}, "/journal", {})]
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("make ")] == [
        "make is killed at its start",
        "make is killed in its middle",
        "make is killed at its end",
    ]
    assert "what make has made is never told" in names
    assert "what two has made is never told" not in names, "it tells nothing"
    assert {
        "it is deleted before two",
        "it is deleted while two is at work",
        "remove does its work and has to do it again",
    } <= {*names}
    assert [name for name in names if "param" in name] == [
        "the param root is very long",
        "the param root has quotes and a new line",
        "the param label is missing",
        "the param label is very long",
        "the param label has quotes and a new line",
    ]


def test_expected_end_depends_on_the_step_declaration():
    ends = {life.name: life.ends for life in lives(TWO, {"root": "/x"}, "/journal", {})}
    assert ends["make is killed at its end"] is DeleteAt.FAILED
    assert ends["two is killed at its end"] is DeleteAt.READY
    assert ends["remove is killed at its end"] is DeleteAt.READY
    assert ends["it is deleted before two"] is DeleteAt.WAITS


def test_each_life_is_a_plugin_that_can_be_played():
    for life in (first(TWO, {}, "/journal"), *lives(TWO, {"root": "/x"}, "/journal", {"make": 0.5})):
        check_plugin_spec(life.spec, ("spec",))
        assert not life.spec.inventory


def test_webhook_fault_needs_a_proxy():
    written = plugin()
    make = {"name": "make", "webhook": {"method": "POST", "url": "https://hooks.example.com/v1"}}
    written["create"] = [make]
    led = {life.name: life for life in lives(spec(written), {"root": "/x"}, "/journal", {}, {"make": "http://here/v1"})}
    assert [name for name in led if "make" in name] == [
        "the answer to make is lost",
        "the request of make is lost",
        "make is answered 500 at first",
        "it is deleted before make is carried out",
        "it is deleted before make is answered",
    ]
    assert {life.spec.create[0].webhook.url for life in led.values()} == {"http://here/v1"}
    assert led["the answer to make is lost"].ends is DeleteAt.SETTLED
    assert led["it is deleted before make is answered"].waits == "make waits"
    plain = [*lives(spec(written), {"root": "/x"}, "/journal", {})]
    assert not [life.name for life in plain if "make" in life.name]
    assert plain[0].spec.create[0] == spec(written).create[0]


def test_only_an_idempotent_request_is_sent_twice(tmp_path: Path):
    twice = "the request of make comes twice"
    written = plugin()
    for retry in ({}, AGAIN):
        make = {"name": "make", "webhook": {"method": "POST", "url": "https://hooks.example.com/v1"}, **retry}
        names = [life.name for life in lives(spec({**written, "create": [make]}), {}, "/j", {}, {"make": "http://h/"})]
        assert (twice in names) is bool(retry)


# What Kubernetes makes of such words (tests/runner/test_program.py holds the runner to it).
@pytest.mark.parametrize(("word", "made"), WORDS.items())
def test_a_command_is_a_script_that_does_the_same(tmp_path: Path, word: str, made: str):
    script = as_script(("printf", "%s", word, "it's"))
    env = {"A": "one", "B": "two words", "AGAIN": "$(A)", "PATH": os.environ["PATH"]}
    path = tmp_path / "script"
    path.write_text(script)
    path.chmod(0o700)
    assert subprocess.run([path], env=env, capture_output=True, text=True).stdout == f"{made}it's"


ODD = "#!/bin/sh\ncat <<'EOF'\n$HOME `x` 'quoted' \\\\ DAYFLY\nEOF\nprintf %s \"$0\" >/dev/null\nexit 5"


def run(script: str, folder: Path, attempt: int = 1) -> subprocess.CompletedProcess[str]:
    path = folder / "wrapped"
    path.write_text(script)
    path.chmod(0o700)
    nowhere = folder / "nowhere"
    nowhere.mkdir(exist_ok=True)
    env = {**os.environ, "DAYFLY_ATTEMPT": str(attempt), "TMPDIR": str(nowhere)}
    return subprocess.run([path], env=env, capture_output=True, text=True, start_new_session=True)


def test_a_script_that_is_noted_does_and_says_the_same(tmp_path: Path):
    journal = tmp_path / "a journal"
    plain, wrapped = run(ODD, tmp_path), run(noted(ODD, "make", str(journal)), tmp_path)
    assert (wrapped.returncode, wrapped.stdout, wrapped.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.returncode == 5
    first, last = journal.read_text().splitlines()
    assert (first, list(took([first, last]))) == ("make begins", ["make"])
    assert 0 < took([last])["make"] < 60
    assert took(["make took %N %N", "make waits"]) == {}


@pytest.mark.parametrize(("moment", "done"), [(Moment.START, []), (Moment.MIDDLE, ["1"]), (Moment.END, ["1", "2"])])
def test_first_attempt_is_killed_and_second_is_not(tmp_path: Path, moment: Moment, done: list[str]):
    made = tmp_path / "made"
    script = f"#!/bin/sh\necho 1 >>'{made}'\nsleep 1\necho 2 >>'{made}'\n"
    wrapped = killed(script, "make", str(tmp_path / "journal"), moment, 0.4)
    assert run(wrapped, tmp_path).returncode == -signal.SIGKILL
    assert (made.read_text().split() if made.exists() else []) == done
    assert not [*(tmp_path / "nowhere").iterdir()], "nobody would take it away there"
    assert run(wrapped, tmp_path, attempt=2).returncode == 0


def test_work_that_is_done_is_not_believed_the_first_time(tmp_path: Path):
    wrapped = refused(f"#!/bin/sh\ntouch '{tmp_path}/made'\n", "remove", str(tmp_path / "journal"))
    assert (run(wrapped, tmp_path).returncode, (tmp_path / "made").exists()) == (7, True)
    assert run(wrapped, tmp_path, attempt=2).returncode == 0


@pytest.mark.parametrize("working", [False, True])
def test_step_deleted_while_waiting_has_reported_it(tmp_path: Path, working: bool):
    script, journal = f"#!/bin/sh\ntouch '{tmp_path}/made'\n", tmp_path / "journal"
    path = tmp_path / "wrapped"
    path.write_text(at_work(script, "make", str(journal), 0.1) if working else held(script, "make", str(journal)))
    path.chmod(0o700)
    with subprocess.Popen([path], start_new_session=True) as waiting:
        while not journal.exists() or "make waits" not in journal.read_text():
            assert waiting.poll() is None
        os.killpg(waiting.pid, signal.SIGTERM)
    assert (tmp_path / "made").exists() is working


GONE = Played(reached="ready", left=(), there=("x",), begun={"make": 1})


@pytest.mark.parametrize(
    ("played", "fault"),
    [
        (GONE, None),
        (GONE._replace(gone=False, left=("x",)), Fault.STUCK),
        (GONE._replace(gone=False, reached="failed"), Fault.NOT_CREATED),
        (GONE._replace(left=("x",)), Fault.LEFT),
        (GONE._replace(others=("y",)), Fault.OTHERS),
        (GONE._replace(begun={"make": 2}), Fault.TWICE),
        (GONE._replace(begun={"two": 2}), None),
        (GONE._replace(reached="failed"), Fault.NOT_CREATED),
        (GONE._replace(there=()), Fault.BLIND),
        (GONE._replace(blind="it ends with 1"), Fault.BLIND),
        (GONE._replace(blind="it ends with 1", reached="failed"), Fault.NOT_CREATED),
        (GONE._replace(there=None, left=None), None),
    ],
)
def test_worst_fault_of_a_scenario_is_reported(played: Played, fault: Fault | None):
    found = judge(first(TWO, {}, "/journal"), played, TWO)
    assert (found.fault if found else None) == fault


def test_step_declared_idempotent_must_be_repeatable():
    life = next(life for life in lives(TWO, {}, "/journal", {}) if life.name == "two is killed at its end")
    assert judge(life, GONE._replace(reached="failed"), TWO).fault is Fault.NOT_REPEATABLE


def test_two_sandboxes_start_each_step_twice():
    life = next(life for life in lives(TWO, {}, "/journal", {}) if life.twin)
    assert judge(life, GONE._replace(begun={"make": 2}), TWO) is None
    assert judge(life, GONE._replace(begun={"make": 3}), TWO).fault is Fault.TWICE


def told() -> list[LifeResult]:
    life = Life("make is killed", TWO, {}, DeleteAt.FAILED)
    bad = GONE._replace(left=("a", "b", "c", "d"), log=("one\x1b[31m", "two"))
    return [LifeResult("it is created", 0.25, None), LifeResult(life.name, 1.0, judge(life, bad, TWO))]


def test_report_has_a_line_and_advice_for_each_scenario():
    well, wrong = map(as_line, told())
    assert well == "ok            it is created"
    lines = wrong.splitlines()
    assert lines[0] == "Left          make is killed"
    assert lines[1].strip() == "after its end there is still a, b, c and 1 more"
    assert "DAYFLY_RESOURCE_ID" in lines[-1]
    assert summary(told(), inventory=True) == "2 lives, 1 finding."
    assert "no inventory" in summary(told()[:1], inventory=False)
    passed = LifeResult("the node is lost", 0.0, None, "it needs power")
    assert as_line(passed) == "(not played)  the node is lost: it needs power"
    assert summary([*told(), passed], inventory=True) == "2 lives, 1 finding. 1 more could not be played here."


def test_programs_read_the_same():
    tolds = [*told(), LifeResult("the node is lost", 0.0, None, "it needs power")]
    data = as_json(tolds, inventory=True)
    assert [life["fault"] for life in data["lives"]] == ["", "Left"]
    assert data["notPlayed"] == [{"name": "the node is lost", "why": "it needs power"}]
    root = ET.fromstring(as_junit(tolds, "p@1.0.0"))
    assert (root.get("tests"), root.get("failures"), root[0].get("skipped")) == ("3", "1", "1")
    assert [each.get("message") for each in root.iter("skipped")] == ["it needs power"]
    (failure,) = root.iter("failure")
    assert failure.get("type") == "Left"
    assert "\x1b" not in failure.text


def test_control_characters_are_replaced_in_junit():
    """It stands in a sentence, and that in an attribute."""
    found = LifeFinding(Fault.LEFT, "there is still \x1b[34mbox", "Remove it.")
    tolds = [LifeResult("x is killed", 1, found), LifeResult("its node is lost", 0, None, "the server says \x00")]
    root = ET.fromstring(as_junit(tolds, "p@1.0.0"))
    assert [each.get("message") for each in root.iter("failure")] == ["there is still \N{REPLACEMENT CHARACTER}[34mbox"]
    assert [each.get("message") for each in root.iter("skipped")] == ["the server says \N{REPLACEMENT CHARACTER}"]


def test_the_planted_mistakes_and_the_clean_plugins_are_plugins():
    assert (len(PLANTED) >= 20, len(CLEAN)) == (True, 10)
    for written in (*(each.spec for each in PLANTED.values()), *(each for each, _ in CLEAN.values())):
        spec(written)
