"""The scenarios of a plugin, their scripts, and the output of their results."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.runner.test_program import WORDS
from tests.testing.faulty_plugins import AGAIN, CLEAN, LABEL, MAKE, PATH, PLANTED, REMOVE, SECOND, plugin, step

from dayfly.spec.plugin import PluginSpec, check_plugin_spec
from dayfly.testing import (
    DeleteAt,
    Fault,
    Outcome,
    Scenario,
    ScenarioResult,
    as_json,
    as_junit,
    as_line,
    fault_scenarios,
    judge,
    summary,
    undisturbed_scenario,
)
from dayfly.testing.fault_scripts import (
    Moment,
    block_before_work,
    block_in_work,
    command_to_script,
    fail_after_work,
    kill_at,
    parse_durations,
    record_attempts,
)
from dayfly.testing.findings import ScenarioFinding


def spec(written: dict) -> PluginSpec:
    made = msgspec.convert(written, PluginSpec)
    check_plugin_spec(made, ("spec",))
    return made


TWO = spec(plugin(MAKE, REMOVE, LABEL, also=(step("two", SECOND, PATH, retry={"idempotent": True}),)))


def test_each_step_is_harmed_in_each_way():
    names = [scenario.name for scenario in fault_scenarios(TWO, {"root": "/x", "label": "y"}, "/journal", {})]
    assert len(names) == len(set(names))
    assert [name for name in names if name.startswith("make ")] == [
        "make is killed at its start",
        "make is killed in its middle",
        "make is killed at its end",
    ]
    assert "the outputs of make are lost" in names
    assert "the outputs of two are lost" not in names, "it tells nothing"
    assert {
        "the sandbox is deleted before two",
        "the sandbox is deleted while two runs",
        "remove fails after its work and runs again",
    } <= {*names}
    assert [name for name in names if "param" in name] == [
        "the param root is very long",
        "the param root has quotes and a line break",
        "the param label is missing",
        "the param label is very long",
        "the param label has quotes and a line break",
    ]


def test_fixed_param_keeps_its_value_in_all_scenarios():
    address = {"name": "address", "valueFromSandbox": True, "test": "fixed"}
    fixed = spec(plugin(MAKE, REMOVE, address, LABEL))
    given = {"root": "/x", "label": "y", "address": "server"}
    found = list(fault_scenarios(fixed, given, "/journal", {}))
    assert {each.params["address"] for each in found} == {"server"}
    assert "the param label is missing" in [each.name for each in found]


def test_expected_end_depends_on_the_step_declaration():
    delete_at = {scenario.name: scenario.delete_at for scenario in fault_scenarios(TWO, {"root": "/x"}, "/journal", {})}
    assert delete_at["make is killed at its end"] is DeleteAt.FAILED
    assert delete_at["two is killed at its end"] is DeleteAt.READY
    assert delete_at["remove is killed at its end"] is DeleteAt.READY
    assert delete_at["the sandbox is deleted before two"] is DeleteAt.WAITS


def test_each_life_is_a_plugin_that_can_be_played():
    for scenario in (
        undisturbed_scenario(TWO, {}, "/journal"),
        *fault_scenarios(TWO, {"root": "/x"}, "/journal", {"make": 0.5}),
    ):
        check_plugin_spec(scenario.spec, ("spec",))
        assert not scenario.spec.inventory


def test_webhook_fault_needs_a_proxy():
    written = plugin()
    make = {"name": "make", "webhook": {"method": "POST", "url": "https://hooks.example.com/v1"}}
    written["create"] = [make]
    by_name = {
        scenario.name: scenario
        for scenario in fault_scenarios(spec(written), {"root": "/x"}, "/journal", {}, {"make": "http://here/v1"})
    }
    assert [name for name in by_name if "make" in name] == [
        "the response to make is lost",
        "the request of make is lost",
        "the first request of make gets status 500",
        "the sandbox is deleted before make is carried out",
        "the sandbox is deleted before make is answered",
    ]
    assert {scenario.spec.create[0].webhook.url for scenario in by_name.values()} == {"http://here/v1"}
    assert by_name["the response to make is lost"].delete_at is DeleteAt.SETTLED
    assert by_name["the sandbox is deleted before make is answered"].wait_line == "make waits"
    plain = [*fault_scenarios(spec(written), {"root": "/x"}, "/journal", {})]
    assert not [scenario.name for scenario in plain if "make" in scenario.name]
    assert plain[0].spec.create[0] == spec(written).create[0]


def test_only_an_idempotent_request_is_sent_twice(tmp_path: Path):
    twice = "the request of make arrives twice"
    written = plugin()
    for retry in ({}, AGAIN):
        make = {"name": "make", "webhook": {"method": "POST", "url": "https://hooks.example.com/v1"}, **retry}
        names = [
            scenario.name
            for scenario in fault_scenarios(spec({**written, "create": [make]}), {}, "/j", {}, {"make": "http://h/"})
        ]
        assert (twice in names) is bool(retry)


# The expansion of words by Kubernetes; tests/runner/test_program.py tests the runner.
@pytest.mark.parametrize(("word", "made"), WORDS.items())
def test_a_command_is_a_script_that_does_the_same(tmp_path: Path, word: str, made: str):
    script = command_to_script(("printf", "%s", word, "it's"))
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
    plain, wrapped = run(ODD, tmp_path), run(record_attempts(ODD, "make", str(journal)), tmp_path)
    assert (wrapped.returncode, wrapped.stdout, wrapped.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.returncode == 5
    first, last = journal.read_text().splitlines()
    assert (first, list(parse_durations([first, last]))) == ("make begins", ["make"])
    assert 0 < parse_durations([last])["make"] < 60
    assert parse_durations(["make took %N %N", "make waits"]) == {}


@pytest.mark.parametrize(("moment", "done"), [(Moment.START, []), (Moment.MIDDLE, ["1"]), (Moment.END, ["1", "2"])])
def test_first_attempt_is_killed_and_second_is_not(tmp_path: Path, moment: Moment, done: list[str]):
    made = tmp_path / "made"
    script = f"#!/bin/sh\necho 1 >>'{made}'\nsleep 1\necho 2 >>'{made}'\n"
    wrapped = kill_at(script, "make", str(tmp_path / "journal"), moment, 0.4)
    assert run(wrapped, tmp_path).returncode == -signal.SIGKILL
    assert (made.read_text().split() if made.exists() else []) == done
    assert not [*(tmp_path / "nowhere").iterdir()], "no file is left there"
    assert run(wrapped, tmp_path, attempt=2).returncode == 0


def test_work_that_is_done_is_not_believed_the_first_time(tmp_path: Path):
    wrapped = fail_after_work(f"#!/bin/sh\ntouch '{tmp_path}/made'\n", "remove", str(tmp_path / "journal"))
    assert (run(wrapped, tmp_path).returncode, (tmp_path / "made").exists()) == (7, True)
    assert run(wrapped, tmp_path, attempt=2).returncode == 0


@pytest.mark.parametrize("working", [False, True])
def test_step_deleted_while_waiting_has_reported_it(tmp_path: Path, working: bool):
    script, journal = f"#!/bin/sh\ntouch '{tmp_path}/made'\n", tmp_path / "journal"
    path = tmp_path / "wrapped"
    path.write_text(
        block_in_work(script, "make", str(journal), 0.1) if working else block_before_work(script, "make", str(journal))
    )
    path.chmod(0o700)
    with subprocess.Popen([path], start_new_session=True) as waiting:
        while not journal.exists() or "make waits" not in journal.read_text():
            assert waiting.poll() is None
        os.killpg(waiting.pid, signal.SIGTERM)
    assert (tmp_path / "made").exists() is working


GONE = Outcome(reached="ready", listed_after=(), listed_while_ready=("x",), start_counts={"make": 1})


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (GONE, None),
        (GONE._replace(cleanup_ended=False, listed_after=("x",)), Fault.STUCK),
        (GONE._replace(cleanup_ended=False, reached="failed"), Fault.NOT_CREATED),
        (GONE._replace(listed_after=("x",)), Fault.LEFT),
        (GONE._replace(lost_of_twin=("y",)), Fault.OTHERS),
        (GONE._replace(start_counts={"make": 2}), Fault.TWICE),
        (GONE._replace(start_counts={"two": 2}), None),
        (GONE._replace(reached="failed"), Fault.NOT_CREATED),
        (GONE._replace(listed_while_ready=()), Fault.INVENTORY_EMPTY),
        (GONE._replace(inventory_error="it ends with 1"), Fault.INVENTORY_EMPTY),
        (GONE._replace(inventory_error="it ends with 1", reached="failed"), Fault.NOT_CREATED),
        (GONE._replace(listed_while_ready=None, listed_after=None), None),
    ],
)
def test_worst_fault_of_a_scenario_is_reported(outcome: Outcome, fault: Fault | None):
    found = judge(undisturbed_scenario(TWO, {}, "/journal"), outcome, TWO)
    assert (found.fault if found else None) == fault


def test_step_declared_idempotent_must_be_repeatable():
    scenario = next(
        scenario for scenario in fault_scenarios(TWO, {}, "/journal", {}) if scenario.name == "two is killed at its end"
    )
    assert judge(scenario, GONE._replace(reached="failed"), TWO).fault is Fault.NOT_REPEATABLE


def test_two_sandboxes_start_each_step_twice():
    scenario = next(scenario for scenario in fault_scenarios(TWO, {}, "/journal", {}) if scenario.twin)
    assert judge(scenario, GONE._replace(start_counts={"make": 2}), TWO) is None
    assert judge(scenario, GONE._replace(start_counts={"make": 3}), TWO).fault is Fault.TWICE


def told() -> list[ScenarioResult]:
    scenario = Scenario("make is killed", TWO, {}, DeleteAt.FAILED)
    bad = GONE._replace(listed_after=("a", "b", "c", "d"), log=("one\x1b[31m", "two"))
    return [ScenarioResult("it is created", 0.25, None), ScenarioResult(scenario.name, 1.0, judge(scenario, bad, TWO))]


def test_report_has_a_line_and_advice_for_each_scenario():
    well, wrong = (as_line(each, number, 12) for number, each in enumerate(told(), 9))
    assert well == "ok             9 of 12  it is created"
    lines = wrong.splitlines()
    assert lines[0] == "Left          10 of 12  make is killed"
    assert lines[1].strip() == "after the deletion there is still a, b, c and 1 more"
    assert "DAYFLY_RESOURCE_ID" in lines[-1]
    assert summary(told(), inventory=True) == "2 scenarios, 1 finding."
    assert "no inventory" in summary(told()[:1], inventory=False)
    passed = ScenarioResult("the node is lost", 0.0, None, "it needs power")
    assert as_line(passed, 1, 3) == "(skipped)     1 of 3  the node is lost: it needs power"
    assert summary([*told(), passed], inventory=True) == "2 scenarios, 1 finding. 1 more skipped."


def test_programs_read_the_same():
    results = [*told(), ScenarioResult("the node is lost", 0.0, None, "it needs power")]
    data = as_json(results, inventory=True)
    assert [scenario["fault"] for scenario in data["scenarios"]] == ["", "Left"]
    assert data["skipped"] == [{"name": "the node is lost", "why": "it needs power"}]
    root = ET.fromstring(as_junit(results, "p@1.0.0"))
    assert (root.get("tests"), root.get("failures"), root[0].get("skipped")) == ("3", "1", "1")
    assert [each.get("message") for each in root.iter("skipped")] == ["it needs power"]
    (failure,) = root.iter("failure")
    assert failure.get("type") == "Left"
    assert "\x1b" not in failure.text


def test_control_characters_are_replaced_in_junit():
    """The control character is in the reason, which becomes an attribute."""
    found = ScenarioFinding(Fault.LEFT, "there is still \x1b[34mbox", "Remove it.")
    results = [
        ScenarioResult("x is killed", 1, found),
        ScenarioResult("its node is lost", 0, None, "the server says \x00"),
    ]
    root = ET.fromstring(as_junit(results, "p@1.0.0"))
    assert [each.get("message") for each in root.iter("failure")] == ["there is still \N{REPLACEMENT CHARACTER}[34mbox"]
    assert [each.get("message") for each in root.iter("skipped")] == ["the server says \N{REPLACEMENT CHARACTER}"]


def test_the_planted_mistakes_and_the_clean_plugins_are_plugins():
    assert (len(PLANTED) >= 20, len(CLEAN)) == (True, 10)
    for written in (*(each.spec for each in PLANTED.values()), *(each for each, _ in CLEAN.values())):
        spec(written)
