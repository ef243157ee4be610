"""`dayfly plugin test`: it finds each planted mistake in the life that shows it, and nothing in plugins that have none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import refused, until
from tests.selection import SELECTION
from tests.testing.faulty_plugins import CLEAN, LOOK, MAKE, OWN, PLANTED, REMOVE, plugin, step

from dayfly.cli.local.child import run_group
from dayfly.cli.plugin_test import session
from dayfly.cli.plugin_test.workers import StopRequest
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.plugin import Plugin, PluginSpec
from dayfly.testing import DeleteAt, Outcome, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.command import Cli, Done


def run_plugin_test(cli: Cli, written: dict, params: dict[str, str], *more: str) -> Done:
    world = cli.folder / "world"
    world.mkdir()
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": written}))
    given = [word for name, value in {"root": str(world), **params}.items() for word in ("-p", f"{name}={value}")]
    done = cli("plugin", "test", "-f", "plugin.json", *given, *more)
    assert not cli.home.exists(), "the test uses a separate home"
    return done


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTION.sample(PLANTED, 8, "planted mistakes"))
def test_a_planted_mistake_is_found(cli: Cli, name: str):
    planted = PLANTED[name]
    done = run_plugin_test(
        cli, planted.spec, planted.params, "--only", planted.scenario or "nothing else", "--timeout", "6s", "-o", "json"
    )
    scenarios = json.loads(done.out)["scenarios"]
    assert done.code == 1, done
    assert [scenario["fault"] for scenario in scenarios] == [*([""] if planted.scenario else []), planted.fault], (
        scenarios
    )
    assert scenarios[-1]["message"]
    assert scenarios[-1]["advice"]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["1", "3"])
@pytest.mark.parametrize("name", SELECTION.sample(CLEAN, 8, "clean plugins"))
def test_nothing_is_found_in_a_clean_plugin(cli: Cli, name: str, parallel: str):
    written, params = CLEAN[name]
    done = run_plugin_test(cli, written, params, "--timeout", "30s", "-j", parallel)
    assert (done.code, "no findings" in done.err) == (0, True), done
    assert len(done.out.splitlines()) > 8
    assert {line.split()[0] for line in done.out.splitlines()} == {"ok"}
    assert [path.name for path in (cli.folder / "world").iterdir()] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_plugin_test_leaves_nothing(cli: Cli, number: signal.Signals):
    """The plugin's delete step removes external resources before the server of the test stops."""
    world = cli.folder / "world"
    world.mkdir()
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": plugin(f"{MAKE}; sleep 60")}))
    running = cli.start("plugin", "test", "-f", "plugin.json", "-p", f"root={world}")
    until(lambda: list(world.iterdir()))
    running.send_signal(number)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + number, err
    assert b"deleting what the test has created" in err
    assert list(world.iterdir()) == []


def test_interrupted_parallel_runs_leave_nothing(cli: Cli):
    world = cli.folder / "world"
    world.mkdir()
    written = plugin(f'{MAKE}; [ ! -e "$ROOT.later" ] || sleep 300')
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": written}))
    running = cli.start("plugin", "test", "-f", "plugin.json", "-p", f"root={world}", "-j", "3", "--skip", "of two")
    assert running.stdout is not None
    running.stdout.readline()  # the first scenario has ended
    (cli.folder / "world.later").touch()
    until(lambda: len(list(world.iterdir())) == 3)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGINT, err
    assert list(world.iterdir()) == []


def test_parallel_runs_stop_at_the_first_finding(cli: Cli):
    label = {"name": "label", "valueFromSandbox": True}
    make = f"{MAKE}; LABEL=${{LABEL-}}; [ ${{#LABEL}} -lt 100 ] || sleep 300"
    remove = f'{REMOVE}; [ -n "${{LABEL-}}" ] || touch "$ROOT/left-$DAYFLY_RESOURCE_ID"'
    given = ("-j", "2", "--fail-fast", "--only", "label is missing", "--only", "label is very long", "-o", "json")
    done = run_plugin_test(cli, plugin(make, remove, label), {"label": "x"}, *given)
    assert [scenario["fault"] for scenario in json.loads(done.out)["scenarios"]] == ["", "Left"], done
    assert [path.name[:5] for path in (cli.folder / "world").iterdir()] == ["left-"]


def test_plugin_that_cannot_exist_twice_has_no_parallel_runs(cli: Cli):
    planted = PLANTED["one name for all, refused the second time"]
    done = run_plugin_test(cli, planted.spec, {}, "-j", "3", "--only", "of", "--skip", "quotes", "-o", "json")
    found = {scenario["name"]: scenario["fault"] for scenario in json.loads(done.out)["scenarios"]}
    assert found.pop("one of two sandboxes is deleted") == planted.fault
    assert {*found.values()} == {""}, found
    assert "no parallel runs" in done.err


def test_a_report_for_ci_is_junits(cli: Cli):
    done = run_plugin_test(cli, plugin(), {}, "--only", "nothing else", "-o", "junit")
    assert (done.code, done.out.count("<testcase ")) == (0, 1), done
    assert 'classname="planted@1.0.0" name="the sandbox is created and deleted"' in done.out


def test_plugin_test_with_zero_timeout_reports_not_created(cli: Cli):
    """Even with a timeout of 0, the report of the deletion is read once."""
    done = run_plugin_test(cli, plugin(), {}, "--timeout", "0s", "-o", "json")
    (scenario,) = json.loads(done.out)["scenarios"]
    assert (done.code, scenario["fault"]) == (1, "NotCreated"), done


def test_plugin_test_names_missing_params_first(cli: Cli):
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": plugin()}))
    refused(cli("plugin", "test", "-f", "plugin.json"), 2, '"planted" needs the param "root"', "-p root=VALUE")


def test_plugin_test_reports_a_failed_inventory(cli: Cli):
    done = run_plugin_test(cli, plugin(look="echo broken >&2; exit 4"), {}, "--only", "nothing else")
    assert done.code == 1
    assert "the inventory look failed with exit code 4: broken" in done.out


def test_program_group_is_killed_at_its_time_limit(tmp_path: Path):
    script = tmp_path / "inventory"
    script.write_text(f"#!/bin/sh\nsleep 300 & echo $! > {tmp_path}/child\nwait\n")
    script.chmod(0o700)
    with pytest.raises(subprocess.TimeoutExpired):
        run_group(script, {**os.environ}, 0.5)
    child = int((tmp_path / "child").read_text())
    until(lambda: not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text())


PW = {"name": "pw", "valueFromSandbox": True, "secret": True}
MADE = f'{MAKE}; [ -n "$PW" ]'
IN_A_FILE = PW | {"as": {"path": "/tmp/pw"}}
PLAIN = {"name": "pw", "valueFromSandbox": True}
KEEP_STATE = (
    """curl -sf -u "$TF_HTTP_USERNAME:$TF_HTTP_PASSWORD" -d '{"version":4,"serial":1,"lineage":"a","resources":[]}' """
    '"$TF_HTTP_ADDRESS"'
)
READ_STATE = 'curl -sf -u "$TF_HTTP_USERNAME:$TF_HTTP_PASSWORD" "$TF_HTTP_ADDRESS" >/dev/null'
DECLARED = {
    "secret": (plugin(MADE, REMOVE, PW), True),
    "secret in a file": (plugin(f"{MAKE}; [ -s /tmp/pw ]", REMOVE, IN_A_FILE), True),
    "secret of the delete step alone": (plugin(removes=(PW,)), True),
    "secret of a command": (
        {**plugin(), "create": [step("make", MAKE), {"name": "say", "inputs": [PW], "command": ["echo", "$(PW)"]}]},
        True,
    ),
    "secret of an inventory": (
        {**plugin(MAKE, REMOVE, PW), "inventory": [step("look", f'[ -n "$PW" ] || exit 3; {LOOK}', PLAIN)]},
        True,
    ),
    "secret with a state": ({**plugin(f"{MADE}; {KEEP_STATE}", f"{READ_STATE}; {REMOVE}", PW), "state": True}, True),
    "param with a default": (plugin(MADE, REMOVE, PLAIN | {"default": "d"}), False),
    "param that is required, in a file": (
        plugin(f"{MAKE}; [ -s /tmp/pw ]", REMOVE, PLAIN | {"required": True, "as": {"path": "/tmp/pw"}}),
        False,
    ),
}


@pytest.mark.parametrize("name", SELECTION.sample(DECLARED, 4, "declarations of params"))
def test_every_declaration_of_a_param_can_be_tested(cli: Cli, name: str):
    written, secret = DECLARED[name]
    (cli.folder / cli.write("secrets", "pw=hunter2\n")).chmod(0o600)
    given = ("--secrets-file", "secrets") if secret else ("-p", "pw=hunter2")
    done = run_plugin_test(cli, written, {}, *given, "--only", "the param pw", "--timeout", "30s", "-o", "json")
    scenarios = [scenario["name"] for scenario in json.loads(done.out)["scenarios"]]
    assert done.code == 0, done
    assert {"the param pw is very long", "the param pw has quotes and a line break"} <= set(scenarios)
    assert "hunter2" not in done.out + done.err


def test_mistake_with_an_odd_secret_is_found(cli: Cli):
    (cli.folder / cli.write("secrets", "pw=hunter2\n")).chmod(0o600)
    written = plugin(f'touch {OWN}-"$(echo $PW | cut -c1-9)"; {MAKE}', f"{REMOVE} {OWN}-hunter2", PW)
    given = ("--secrets-file", "secrets", "--only", "has quotes", "--timeout", "6s", "-o", "json")
    done = run_plugin_test(cli, written, {}, *given)
    assert [scenario["fault"] for scenario in json.loads(done.out)["scenarios"]] == ["", "", "Left"], done


class Refusing:
    """A bench that raises an error with each of `codes`; `Exit.OK` raises none."""

    def __init__(self, *codes: Exit) -> None:
        self.codes = list(codes)
        self.count = len(codes)

    def undisturbed_scenario(self, _params: object) -> Scenario:
        return Scenario("scenario 0", PluginSpec(), {}, DeleteAt.READY)

    def fault_scenarios(self, _params: object) -> Iterator[Scenario]:
        for number in range(1, self.count):
            yield Scenario(f"scenario {number}", PluginSpec(), {}, DeleteAt.READY)

    def create(self, _scenario: Scenario) -> str:
        if code := self.codes.pop(0):
            raise DayflyError(code, "no such value")
        return "box"

    def wait_until_done(self, _scenario: Scenario, _box: str) -> Outcome:
        return Outcome(reached="ready")

    def delete(self, _scenario: Scenario, _box: str) -> None:
        return None

    def inventory(self, _scenario: Scenario, _box: str) -> None:
        return None

    def complete(self, _scenario: Scenario, outcome: Outcome) -> Outcome:
        return outcome


def run_scenarios(*benches: Refusing, chosen: session.Selection | None = None, output: str | None = None) -> int:
    workers = contextlib.nullcontext(session.Workers(benches, StopRequest()))
    return session.run_scenarios(PLANTED_PLUGIN, {}, workers, chosen=chosen or session.Selection(), output=output)


PLANTED_PLUGIN = Plugin(name="planted", version="1.0.0", spec=PluginSpec())


def test_rejected_scenario_does_not_end_the_test(capsys: pytest.CaptureFixture[str]):
    bench = Refusing(Exit.OK, Exit.USAGE, Exit.OK)
    assert run_scenarios(bench) == Exit.OK
    shown = capsys.readouterr()
    assert "(skipped)     2 of 3  scenario 1: rejected before anything runs: no such value" in shown.out
    assert "2 scenarios, no findings. 1 more skipped." in shown.err


@pytest.mark.parametrize(
    ("output", "form"), [(None, "ok            1 of 2  scenario 0"), ("json", '"scenarios"'), ("junit", "<testcase")]
)
def test_aborted_plugin_test_prints_finished_scenarios(
    capsys: pytest.CaptureFixture[str], output: str | None, form: str
):
    with pytest.raises(DayflyError, match="no such value"):
        run_scenarios(Refusing(Exit.OK, Exit.FAILED), output=output)
    shown = capsys.readouterr()
    assert form in shown.out
    assert "Aborted after 1 scenario, no findings." in shown.err


def test_test_that_ran_nothing_prints_no_summary(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(DayflyError, match="no such value"):
        run_scenarios(Refusing(Exit.USAGE))
    assert capsys.readouterr() == ("", "")


def test_scenarios_are_selected_by_several_texts():
    chosen = session.Selection(only=("killed", "quotes"), skip=("make",))
    names = ("drop is killed", "make is killed", "a param has quotes", "two sandboxes")
    assert [name for name in names if chosen.selects(name)] == ["drop is killed", "a param has quotes"]


class LeavesThings(Refusing):
    """A bench on which each scenario leaves something behind."""

    def inventory(self, _scenario: Scenario, _box: str) -> tuple[str, ...]:
        return ("leftover",)


@pytest.mark.parametrize(("fail_fast", "count"), [(False, 3), (True, 1)])
def test_fail_fast_stops_after_the_first_finding(capsys: pytest.CaptureFixture[str], fail_fast: bool, count: int):
    bench = LeavesThings(Exit.OK, Exit.OK, Exit.OK)
    chosen = session.Selection(fail_fast=fail_fast)
    assert run_scenarios(bench, chosen=chosen, output="json") == Exit.FAILED
    assert len(json.loads(capsys.readouterr().out)["scenarios"]) == count


class Meeting(Refusing):
    """A bench whose scenarios after the first wait for those of other workers."""

    def __init__(self, barrier: threading.Barrier, count: int) -> None:
        super().__init__(*[Exit.OK] * count)
        self.barrier = barrier

    def wait_until_done(self, scenario: Scenario, _box: str) -> Outcome:
        if scenario.name != "scenario 0":
            self.barrier.wait(60)
        return Outcome(reached="ready")


def test_each_worker_runs_a_scenario_at_the_same_time(capsys: pytest.CaptureFixture[str]):
    barrier = threading.Barrier(3)
    assert run_scenarios(*(Meeting(barrier, 7) for _ in range(3)), output="json") == Exit.OK
    names = [scenario["name"] for scenario in json.loads(capsys.readouterr().out)["scenarios"]]
    assert names == [f"scenario {number}" for number in range(7)], "the order is that of one worker"


@pytest.mark.parametrize(
    ("units", "failed"),
    [
        ([("db/make", "succeeded", 1), ("db/seed", "failed", 2)], ("db/seed", 2)),
        ([("db/make", "retrying", 3)], ("db/make", 3)),
        ([("db/make", "running", 3)], ("db/make", 2)),
        ([("db/make", "running", 1)], None),
        ([("db/make", "waiting", 0)], None),
    ],
)
def test_last_failed_attempt_is_before_the_running_one(
    units: list[tuple[str, str, int]], failed: tuple[str, int] | None
):
    assert session.find_failed_attempt(units) == failed


def test_slow_creation_shows_the_log_of_its_last_failed_attempt(cli: Cli):
    make = '[ "$DAYFLY_ATTEMPT" -gt 1 ] || { echo "no such server"; exit 3; }; sleep 60'
    written = plugin(make, retry={"idempotent": True, "backoff": "1s"})
    done = run_plugin_test(cli, written, {}, "--only", "nothing else", "--timeout", "5s", "-o", "json")
    (scenario,) = json.loads(done.out)["scenarios"]
    assert (scenario["fault"], scenario["log"]) == ("NotCreated", ["no such server"]), scenario


def test_plugin_test_reads_params_from_files(cli: Cli):
    text = {"name": "text", "valueFromSandbox": True, "required": True}
    written = plugin(f'{MAKE}; [ "$TEXT" = "from a file" ]', REMOVE, text)
    cli.write("text", "from a file")
    done = run_plugin_test(cli, written, {}, "--param-file", "text=text", "--only", "nothing else")
    assert done.code == 0, done


def test_missing_variable_of_the_pod_template_names_this_command(cli: Cli):
    overlay = "spec: {containers: [{name: main, env: [{name: PGX, valueFrom: {secretKeyRef: {name: x, key: h}}}]}]}"
    done = run_plugin_test(cli, {**plugin(), "runner": {"podTemplateOverlay": overlay}}, {})
    refused(done, 2, "PGX=... dayfly plugin test")
