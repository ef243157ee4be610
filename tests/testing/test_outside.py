"""Which lives are played from outside, where steps are pods, and what scripts do until somebody comes to them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dayfly.spec.plugin import check_plugin_spec
from dayfly.testing import DeleteAt, Hand, Lacking, NotPlayed, first_outside, lives_outside
from dayfly.testing.fault_scripts import Moment, listed, listing, paused
from testing.planted import LABEL, MAKE, REMOVE, plugin
from testing.test_lives import run, spec

WEBHOOK = {"name": "call", "webhook": {"method": "POST", "url": "https://hooks.example.com/x"}}
OBJECT = {"name": "thing", "object": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}}}
PLAIN = spec(plugin(MAKE, REMOVE, LABEL))


def played(written, *, took: dict[str, float] | None = None, lacking: Lacking | None = None):
    found = [*lives_outside(written, {"root": "/x"}, took or {}, lacking or Lacking())]
    return {each.name: each for each in found}


def test_each_step_is_met_at_each_moment_and_stays_there():
    lives = played(PLAIN, took={"make": 4.0, "remove": 2.0})
    pods = {name: life for name, life in lives.items() if name.startswith("the pod of ")}
    assert [*pods] == [
        f"the pod of {step} is deleted {when}"
        for step in ("make", "remove")
        for when in ("at its start", "in its middle", "at its end")
    ]
    assert all(life.pod and life.step and "-gt 0" in str(life.spec) for life in pods.values())
    assert [life.after for life in pods.values()] == [0.0, 3.0, 5.0, 0.0, 2.0, 3.0]
    assert [life.ends for life in pods.values()] == [*[DeleteAt.FAILED] * 3, *[DeleteAt.READY] * 3]
    deleted = [life for name, life in lives.items() if name.startswith("it is deleted while make is ")]
    assert [(life.ends, life.pod) for life in deleted] == [(DeleteAt.WAITS, False)] * 3


def test_scripts_kill_themselves_if_pods_cannot_be_deleted():
    lives = played(PLAIN, lacking=Lacking("you may not"))
    refused = [each for each in lives.values() if isinstance(each, NotPlayed) and each.why == "you may not"]
    assert len(refused) == 6
    assert {"make is killed at its start", "remove is killed at its end"} <= {*lives}


def test_common_scenarios_are_also_played_in_a_cluster():
    assert {
        "what make has made is never told",
        "remove does its work and has to do it again",
        "two live at once, and one is deleted",
        "the param root has quotes and a new line",
    } <= {*played(PLAIN)}


def test_step_without_script_is_interrupted_while_it_lasts():
    written = plugin(also=(WEBHOOK,))
    short, long = played(spec(written)), played(spec(written), took={"call": 10.0})
    assert not isinstance(short["the pod of call is deleted at its start"], NotPlayed)
    assert isinstance(short["the pod of call is deleted in its middle"], NotPlayed)
    assert long["the pod of call is deleted in its middle"].after == 5.0
    assert isinstance(long["the pod of call is deleted at its end"], NotPlayed)


def test_an_object_has_no_pod():
    lives = played(spec(plugin(also=(OBJECT,))))
    assert "is an object" in lives["the pod of thing is deleted at its start"].why
    assert lives["it is deleted while thing is at its start"].ends is DeleteAt.WAITS


def test_object_is_edited_and_deleted_if_permitted():
    written = spec(plugin(also=(OBJECT,)))
    lives = played(written)
    edited, deleted = (lives[f"what thing has made is {hand} by somebody"] for hand in Hand)
    assert (edited.hand, deleted.hand, edited.ends, edited.step) == (Hand.EDITS, Hand.DELETES, DeleteAt.READY, "thing")
    refused = played(written, lacking=Lacking(objects={"thing": "you may not patch configmaps"}))
    assert refused["what thing has made is edited by somebody"].why == "you may not patch configmaps"


def test_scenario_that_needs_the_node_is_listed():
    lives = played(PLAIN)
    assert lives["the node of make is lost"] == NotPlayed("the node of make is lost", "it needs power over the node")


def test_each_life_is_a_plugin_that_can_be_played():
    for life in (first_outside(PLAIN, {}), *played(spec(plugin(MAKE, REMOVE, also=(WEBHOOK,)))).values()):
        if not isinstance(life, NotPlayed):
            check_plugin_spec(life.spec, ("spec",))


@pytest.mark.parametrize(("moment", "done"), [(Moment.START, ""), (Moment.MIDDLE, "1\n"), (Moment.END, "1\n2\n")])
def test_a_script_stays_at_its_moment(tmp_path: Path, moment: Moment, done: str):
    """In the middle it stands still: what it does next waits until it is over."""
    made, path = tmp_path / "made", tmp_path / "wrapped"
    made.touch()
    script = f"#!/bin/sh\necho 1 >>'{made}'\nsleep \"${{LONG:-0}}\"\necho 2 >>'{made}'\n"
    path.write_text(paused(script, "make", "/dev/null", moment, 0.2))
    path.chmod(0o700)
    env = {**os.environ, "DAYFLY_ATTEMPT": "1", "LONG": "5" if moment is Moment.MIDDLE else "0"}
    env["TMPDIR"] = str(tmp_path)  # a pod's own, which goes with it
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
    waits = any("(sleep)" in stat for stat in stats)
    return waits and (not stopped or any(stat.rpartition(") ")[2].startswith("T") for stat in stats))


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
    said = run(listing(script, told), tmp_path)
    assert said.returncode == 0, "whether it could look is told, and is no failure of a step"
    assert listed(said.stdout) == (("it's id", "a  b"), "")
    failed = run(listing(script, [*told, ("CODE", "4")]), tmp_path)
    assert listed(failed.stdout)[1] == "ends with exit code 4: warned"


@pytest.mark.parametrize("cut", ["", "/x/1\n/x/2\n", "0x\n"])
def test_a_log_without_its_last_line_is_no_empty_list(cut: str):
    assert listed(cut)[1] == "was not heard to its end"
    assert listed("\n0 \n") == ((), "")


@pytest.mark.parametrize("end", ["50%\r100%", "a\x0bb", "a\x0cb", "a\x85b", "a\u2028b"])
def test_inventory_output_is_read_to_its_exit_code(end: str):
    assert listed(f"box one\r\n\n0 {end}\n") == (("box one",), "")
    assert listed(f"box one\n\n4 {end}\n")[1] == f"ends with exit code 4: {end}"
