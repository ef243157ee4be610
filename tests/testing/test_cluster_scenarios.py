"""The scenarios for a cluster, and the scripts that pause for them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.testing.faulty_plugins import LABEL, MAKE, REMOVE, plugin
from tests.testing.test_scenarios import run, spec

from dayfly.spec.plugin import check_plugin_spec
from dayfly.testing import (
    DeleteAt,
    MissingRights,
    SkippedScenario,
    Tampering,
    cluster_fault_scenarios,
    undisturbed_cluster_scenario,
)
from dayfly.testing.fault_scripts import Moment, inventory_script, parse_inventory_log, pause_at

WEBHOOK = {"name": "call", "webhook": {"method": "POST", "url": "https://hooks.example.com/x"}}
OBJECT = {"name": "thing", "object": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}}}
PLAIN = spec(plugin(MAKE, REMOVE, LABEL))


def build(written, *, durations: dict[str, float] | None = None, missing_rights: MissingRights | None = None):
    found = [*cluster_fault_scenarios(written, {"root": "/x"}, durations or {}, missing_rights or MissingRights())]
    return {each.name: each for each in found}


def test_each_step_is_met_at_each_moment_and_stays_there():
    scenarios = build(PLAIN, durations={"make": 4.0, "remove": 2.0})
    pods = {name: scenario for name, scenario in scenarios.items() if name.startswith("the pod of ")}
    assert [*pods] == [
        f"the pod of {step} is deleted {when}"
        for step in ("make", "remove")
        for when in ("at its start", "in its middle", "at its end")
    ]
    assert all(scenario.deletes_pod and scenario.step and "-gt 0" in str(scenario.spec) for scenario in pods.values())
    assert [scenario.delay_s for scenario in pods.values()] == [0.0, 3.0, 5.0, 0.0, 2.0, 3.0]
    assert [scenario.delete_at for scenario in pods.values()] == [*[DeleteAt.FAILED] * 3, *[DeleteAt.READY] * 3]
    deleted = [
        scenario for name, scenario in scenarios.items() if name.startswith("the sandbox is deleted while make is ")
    ]
    assert [(scenario.delete_at, scenario.deletes_pod) for scenario in deleted] == [(DeleteAt.WAITS, False)] * 3


def test_scripts_kill_themselves_if_pods_cannot_be_deleted():
    scenarios = build(PLAIN, missing_rights=MissingRights("you may not"))
    fail_after_work = [
        each for each in scenarios.values() if isinstance(each, SkippedScenario) and each.why == "you may not"
    ]
    assert len(fail_after_work) == 6
    assert {"make is killed at its start", "remove is killed at its end"} <= {*scenarios}


def test_common_scenarios_are_also_played_in_a_cluster():
    assert {
        "the outputs of make are lost",
        "remove fails after its work and runs again",
        "one of two sandboxes is deleted",
        "the param root has quotes and a line break",
    } <= {*build(PLAIN)}


def test_step_without_script_is_interrupted_while_it_lasts():
    written = plugin(also=(WEBHOOK,))
    short, long = build(spec(written)), build(spec(written), durations={"call": 10.0})
    assert not isinstance(short["the pod of call is deleted at its start"], SkippedScenario)
    assert isinstance(short["the pod of call is deleted in its middle"], SkippedScenario)
    assert long["the pod of call is deleted in its middle"].delay_s == 5.0
    assert isinstance(long["the pod of call is deleted at its end"], SkippedScenario)


def test_an_object_has_no_pod():
    scenarios = build(spec(plugin(also=(OBJECT,))))
    assert "is an object" in scenarios["the pod of thing is deleted at its start"].why
    assert scenarios["the sandbox is deleted while thing is at its start"].delete_at is DeleteAt.WAITS


def test_object_is_edited_and_deleted_if_permitted():
    written = spec(plugin(also=(OBJECT,)))
    scenarios = build(written)
    edited, deleted = (scenarios[f"the object of thing is {tampering} from outside"] for tampering in Tampering)
    assert (edited.tampering, deleted.tampering, edited.delete_at, edited.step) == (
        Tampering.EDITS,
        Tampering.DELETES,
        DeleteAt.READY,
        "thing",
    )
    fail_after_work = build(written, missing_rights=MissingRights(objects={"thing": "you may not patch configmaps"}))
    assert fail_after_work["the object of thing is edited from outside"].why == "you may not patch configmaps"


def test_scenario_that_needs_the_node_is_listed():
    scenarios = build(PLAIN)
    assert scenarios["the node of make is lost"] == SkippedScenario(
        "the node of make is lost", "the test has no access to nodes"
    )


def test_each_life_is_a_plugin_that_can_be_played():
    for scenario in (
        undisturbed_cluster_scenario(PLAIN, {}),
        *build(spec(plugin(MAKE, REMOVE, also=(WEBHOOK,)))).values(),
    ):
        if not isinstance(scenario, SkippedScenario):
            check_plugin_spec(scenario.spec, ("spec",))


@pytest.mark.parametrize(("moment", "done"), [(Moment.START, ""), (Moment.MIDDLE, "1\n"), (Moment.END, "1\n2\n")])
def test_a_script_stays_at_its_moment(tmp_path: Path, moment: Moment, done: str):
    """A script that is paused in its middle does not continue."""
    made, path = tmp_path / "made", tmp_path / "wrapped"
    made.touch()
    script = f"#!/bin/sh\necho 1 >>'{made}'\nsleep \"${{LONG:-0}}\"\necho 2 >>'{made}'\n"
    path.write_text(pause_at(script, "make", "/dev/null", moment, 0.2))
    path.chmod(0o700)
    env = {**os.environ, "DAYFLY_ATTEMPT": "1", "LONG": "5" if moment is Moment.MIDDLE else "0"}
    env["TMPDIR"] = str(tmp_path)  # as in a pod
    with subprocess.Popen([path], env=env, start_new_session=True) as staying:
        until(lambda: _stays(staying.pid, stopped=moment is Moment.MIDDLE))
        assert made.read_text() == done
        os.killpg(staying.pid, signal.SIGKILL)
    assert run(path.read_text(), tmp_path, attempt=2).returncode == 0
    assert made.read_text() == done + "1\n2\n", "a second attempt does its work"


def _stays(pid: int, *, stopped: bool) -> bool:
    """Whether it waits for a second to be over, and (or) its script stands still."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    stats = [Path(f"/proc/{child}/stat").read_text() for child in children]
    wait_line = any("(sleep)" in stat for stat in stats)
    return wait_line and (not stopped or any(stat.rpartition(") ")[2].startswith("T") for stat in stats))


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            if check():
                return
        except (FileNotFoundError, ProcessLookupError):
            pass  # a process has just ended: before its file is opened, or between that and the reading
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_inventory_in_a_cluster_receives_its_variables(tmp_path: Path):
    script = '#!/bin/sh\necho "$DAYFLY_RESOURCE_ID"\nprintf "a  b"\necho warned >&2\nexit "$CODE"\n'
    told = [("DAYFLY_RESOURCE_ID", "it's id"), ("CODE", "0")]
    said = run(inventory_script(script, told), tmp_path)
    assert said.returncode == 0, "a failed inventory is reported in the log, not by the step"
    assert parse_inventory_log(said.stdout) == ("it's id\na  b", "")
    failed = run(inventory_script(script, [*told, ("CODE", "4")]), tmp_path)
    assert parse_inventory_log(failed.stdout)[1] == "failed with exit code 4: warned"


@pytest.mark.parametrize("cut", ["", "/x/1\n/x/2\n", "0x\n"])
def test_a_log_without_its_last_line_is_no_empty_list(cut: str):
    assert parse_inventory_log(cut)[1] == "has an incomplete log"
    assert parse_inventory_log("\n0 \n") == ("", "")


@pytest.mark.parametrize("end", ["50%\r100%", "a\x0bb", "a\x0cb", "a\x85b", "a\u2028b"])
def test_inventory_output_is_read_to_its_exit_code(end: str):
    assert parse_inventory_log(f"box one\r\n\n0 {end}\n") == ("box one\n", "")
    assert parse_inventory_log(f"box one\n\n4 {end}\n")[1] == f"failed with exit code 4: {end}"
