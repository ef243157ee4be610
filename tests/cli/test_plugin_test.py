"""`dayfly plugin test`: it finds each planted mistake in the life that shows it, and nothing in plugins that have none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.command import refused, until
from dayfly.cli import testing_home
from testing.planted import CLEAN, MAKE, PLANTED, plugin

if TYPE_CHECKING:
    from cli.command import Cli, Done


def play(cli: Cli, written: dict, params: dict[str, str], *more: str) -> Done:
    world = cli.folder / "world"
    world.mkdir()
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": written}))
    given = [word for name, value in {"root": str(world), **params}.items() for word in ("-p", f"{name}={value}")]
    done = cli("plugin", "test", "-f", "plugin.json", *given, *more)
    assert not cli.home.exists(), "it has a home of its own"
    return done


@pytest.mark.slow
@pytest.mark.rotates(8)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(cli: Cli, name: str):
    planted = PLANTED[name]
    done = play(
        cli, planted.spec, planted.params, "--only", planted.life or "nothing else", "--timeout", "6s", "-o", "json"
    )
    lives = json.loads(done.out)["lives"]
    assert done.code == 1, done
    assert [life["fault"] for life in lives] == [*([""] if planted.life else []), planted.fault], lives
    assert lives[-1]["message"]
    assert lives[-1]["advice"]


@pytest.mark.slow
@pytest.mark.rotates(8)
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_in_a_clean_plugin(cli: Cli, name: str):
    written, params = CLEAN[name]
    done = play(cli, written, params, "--timeout", "30s")
    assert (done.code, "no findings" in done.err) == (0, True), done
    assert len(done.out.splitlines()) > 8
    assert {line.split()[0] for line in done.out.splitlines()} == {"ok"}
    assert [path.name for path in (cli.folder / "world").iterdir()] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_interrupts_it_is_left_nothing(cli: Cli, number: signal.Signals):
    """What a step has made outside is deleted by the plugin's own delete step, before its server ends."""
    world = cli.folder / "world"
    world.mkdir()
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": plugin(f"{MAKE}; sleep 60")}))
    running = cli.start("plugin", "test", "-f", "plugin.json", "-p", f"root={world}")
    until(lambda: list(world.iterdir()))
    running.send_signal(number)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + number, err
    assert b"removing what was made for the test" in err
    assert list(world.iterdir()) == []


def test_a_report_for_ci_is_junits(cli: Cli):
    done = play(cli, plugin(), {}, "--only", "nothing else", "-o", "junit")
    assert (done.code, done.out.count("<testcase ")) == (0, 1), done
    assert 'classname="planted@1.0.0" name="it is created and deleted"' in done.out


def test_a_wait_that_is_over_before_it_began_is_told_as_one(cli: Cli):
    """Whatever the deletion itself takes, what holds the sandbox is asked for once."""
    done = play(cli, plugin(), {}, "--timeout", "0s", "-o", "json")
    (life,) = json.loads(done.out)["lives"]
    assert (done.code, life["fault"]) == (1, "NotCreated"), done


def test_what_it_needs_is_said_before_anything_is_played(cli: Cli):
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": plugin()}))
    refused(cli("plugin", "test", "-f", "plugin.json"), 2, '"planted" needs the param "root"', "-p root=VALUE")


def test_a_census_that_fails_is_told_as_one(cli: Cli):
    done = play(cli, plugin(look="echo broken >&2; exit 4"), {}, "--only", "nothing else")
    assert done.code == 1
    assert "the census look ends with exit code 4: broken" in done.out


def test_a_census_that_takes_too_long_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(testing_home, "_CENSUS_S", 0.5)
    script = tmp_path / "census"
    script.write_text(f"#!/bin/sh\nsleep 300 & echo $! > {tmp_path}/child\nwait\n")
    script.chmod(0o700)
    with pytest.raises(subprocess.TimeoutExpired):
        testing_home._run_to_its_end(script, {**os.environ})
    child = int((tmp_path / "child").read_text())
    until(lambda: not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text())
