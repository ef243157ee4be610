"""CI runners kill the processes of a job: the server survives that, cleans up, and then ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, until

from dayfly.client import Client
from dayfly.client.home import Home
from dayfly.execute.process.ci_marks import CI_MARKS

if TYPE_CHECKING:
    from collections.abc import Callable

Process = tuple[int, int, int]
"""Parent, process group and session of a process."""


def processes() -> dict[int, Process]:
    """Return every process of the machine by its process ID."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            if words[0] not in "ZX":
                found[int(folder.name)] = int(words[1]), int(words[2]), int(words[3])
    return found


def carries(process: int, mark: str) -> bool:
    """Whether a process was started with this in its environment."""
    with contextlib.suppress(OSError):
        return mark.encode() in Path(f"/proc/{process}/environ").read_bytes()
    return False


def with_descendants(found: set[int]) -> set[int]:
    """As Jenkins and runners that kill a tree of processes."""
    every = processes()
    while more := {each for each, (parent, *_) in every.items() if parent in found and each not in found}:
        found |= more
    return found


def by_mark(_job: int, mark: str) -> set[int]:
    """As GitHub's runner, and as Jenkins, which also kills the descendants of marked processes."""
    return with_descendants({each for each in processes() if each != os.getpid() and carries(each, mark)})


def by_group(job: int, _mark: str) -> set[int]:
    """As GitLab's shell executor and Buildkite."""
    return {each for each, (_, group, _) in processes().items() if group == job}


def by_session(job: int, _mark: str) -> set[int]:
    """As a supervisor that ends a whole session."""
    return {each for each, (_, _, session) in processes().items() if session == job}


def by_tree(job: int, _mark: str) -> set[int]:
    """As a runner that follows parents."""
    return with_descendants({job})


@pytest.mark.parametrize("kind", [by_mark, by_group, by_session, by_tree])
def test_killed_ci_job_leaves_no_resource_and_no_server(cli: Cli, journal: Path, kind: Callable[[int, str], set[int]]):
    mark = f"job-{uuid.uuid4()}"
    plugin = cli.write("p.yaml", sample_specs.plugin(journal, create=f"env >{cli.folder}/env-of-step"))
    environment = cli.environment(**dict.fromkeys(CI_MARKS, mark), KEPT_FOR_STEPS="yes")
    command = "echo $$ $RUNNER_TRACKING_ID >started; setsid sleep 301 & sleep 300"
    job = cli.start("with", "-f", plugin, "--", "sh", "-c", command, env=environment, start_new_session=True)
    until(lambda: (cli.folder / "started").exists() and (cli.folder / "started").read_text().endswith("\n"))
    assert (cli.folder / "started").read_text().split()[1] == mark, "the command belongs to the job"
    of_step = (cli.folder / "env-of-step").read_text()
    assert (mark in of_step, "KEPT_FOR_STEPS=yes" in of_step) == (False, True)
    for each in kind(job.pid, mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    job.wait()
    assert Home(cli.home).server_process() is not None, "the server lives"
    [name] = cli.sandboxes()
    with Client(home=cli.home) as client:
        client.sandboxes.lease(name, 1)  # in place of the 30 seconds that are left
    until(lambda: Home(cli.home).server_process() is None)
    assert journal.read_text().split() == ["provision", "seed", "drop"]
    until(lambda: not [each for each in processes() if carries(each, f"DAYFLY_WITH={name}")])


def test_detached_server_carries_no_mark_and_has_no_parent(cli: Cli):
    mark = f"job-{uuid.uuid4()}"
    done = cli("up", "--detach", "--port", "0", **dict.fromkeys(CI_MARKS, mark))
    assert done.code == 0, done.err
    server = json.loads(cli("status", "-o", "json").out)["process"]
    assert not [each for each in processes() if carries(each, mark)]
    parent, _, session = processes()[server]
    assert session not in {os.getsid(0), server}, "a separate session, without a terminal"
    assert parent not in {os.getpid(), session}
    assert cli("down").code == 0


def test_kept_sandbox_keeps_its_server_until_it_is_deleted(cli: Cli, journal: Path):
    plugin = cli.write("p.yaml", sample_specs.plugin(journal))
    done = cli("with", "-f", plugin, "--reuse", "--", "true")
    assert done.code == 0, done.err
    assert "The server that was started keeps running until its sandboxes have ended" in done.err
    [name] = cli.sandboxes()
    with Client(home=cli.home) as client:
        client.sandboxes.delete(name)
    until(lambda: Home(cli.home).server_process() is None)
    assert journal.read_text().split() == ["provision", "seed", "drop"]


def test_killed_plugin_test_leaves_no_server(cli: Cli, tmp_path: Path):
    gate, homes = tmp_path / "gate", tmp_path / "temporary"
    homes.mkdir()
    plugin = sample_specs.plugin(tmp_path / "journal", create=f"touch {tmp_path}/begun; {sample_specs.waiting(gate)}")
    cli.write("p.yaml", plugin)
    process = cli.start("plugin", "test", "-f", "p.yaml", env=cli.environment(TMPDIR=str(homes)))
    until((tmp_path / "begun").exists)
    process.kill()
    process.wait()
    gate.touch()
    [folder] = homes.glob("dayfly-test-*")
    home = Home(folder / "home")
    with Client(home=home.path) as client:
        for each in client.sandboxes.list():
            client.sandboxes.lease(each.name, 1)  # it has a longer one
    until(lambda: home.server_process() is None)
