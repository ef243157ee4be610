"""Commands that start and remove containers of steps."""

import asyncio
import os
import subprocess

import pytest
from tests.embedded.machine import until
from tests.execute.fake_resident import resident

from dayfly.execute.process import podman_monitors
from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.launch import ContainerStarter, ProcessStarter
from dayfly.execute.process.resident import UnansweredError
from dayfly.execute.process.run import AttemptFolder
from dayfly.spec.lifecycle import Exec, Unit

STEP = Unit(name="make", kind="exec", exec=Exec(script="#!/bin/sh\n", image="x:1"))


@pytest.fixture
def folder(tmp_path):
    for name in ("work", "logs", "steps"):
        (tmp_path / name).mkdir(mode=0o700)
    place = AttemptStorage(str(tmp_path / "work"), str(tmp_path / "logs"), "boot", "boot 1", str(tmp_path / "steps"))
    folder = AttemptFolder(place, "run", "db/make", 2)
    folder.write_order(b"")
    return folder


def engine(tmp_path, name, runner="/runner"):
    """Write a program that records its arguments and prints a message."""
    path = tmp_path / name
    path.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\ncut -d" " -f6 /proc/$$/stat > {tmp_path}/session\n'
        "echo out; echo err >&2\n"
    )
    path.chmod(0o700)
    return ContainerStarter(str(path), runner, ProcessStarter("/runner", "full", {}))


@pytest.mark.parametrize(("name", "user"), [("podman", "0:0"), ("docker", "1001:1002")])
async def test_step_starts_in_a_container_of_its_image(tmp_path, folder, monkeypatch, name, user):
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(os, "getegid", lambda: 1002)
    containers = engine(tmp_path, name)
    child = await containers.start(folder, STEP)
    await asyncio.to_thread(os.waitpid, child, 0)
    called = (tmp_path / "called").read_text().splitlines()
    runner = called[called.index("--entrypoint") + 1]
    assert called == [
        *("run", "--rm", "--name", "dayfly-run.db.make.2", "--user", user),
        *("--network=host", "--pid=host", "--entrypoint", runner),
        *("--mount", f"type=bind,src=/runner,dst={runner},readonly=true"),
        *("--mount", f"type=bind,src={folder.path},dst={folder.path}"),
        *("--mount", f"type=bind,src={folder.logs},dst={folder.logs}"),
        *("--mount", f"type=bind,src={folder.step_folder},dst={folder.step_folder}"),
        *("x:1", "host", folder.path),
    ]
    assert folder.starter_error() == "err"
    assert int((tmp_path / "session").read_text()) == child, "signals of the terminal must not reach it"
    assert (containers.isolation, containers.fork_isolation, containers.isolates_paths) == ("none", "full", True)


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/a:b c", "type=bind,src=/a:b c,dst=/dayfly/runner,readonly=true"),
        ("/a,b", 'type=bind,"src=/a,b",dst=/dayfly/runner,readonly=true'),
        ('/a"b', 'type=bind,"src=/a""b",dst=/dayfly/runner,readonly=true'),
    ],
)
async def test_paths_with_special_characters_are_mounted(tmp_path, folder, path, written):
    child = await engine(tmp_path, "docker", path).start(folder, STEP)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert written in (tmp_path / "called").read_text().splitlines()


@pytest.mark.parametrize("engine", ["", "podman"])
async def test_receipts_are_reported_before_the_end(tmp_path, folder, engine):
    """With an engine, only forks and webhooks run as processes. Their notifications are delivered."""
    told, processes = [], ProcessStarter(resident(tmp_path, {folder.path: 8}, sealed={folder.path: 7}), "none", {})
    starter = ContainerStarter(engine, "/runner", processes) if engine else processes
    starter.set_sealed_callback(told.append)
    assert await starter.start(folder, Unit(name="make", kind="webhook")) == 8
    await until(lambda: told == [7], "the report")
    starter.close()


async def test_webhook_runs_as_a_process_under_any_engine(tmp_path, folder, monkeypatch):
    """A webhook always runs as a process."""
    begun = []

    async def start(self, *what):
        begun.append(what)
        return 7

    monkeypatch.setattr(ProcessStarter, "start", start)
    webhook = Unit(name="make", kind="webhook")
    assert await engine(tmp_path, "podman").start(folder, webhook) == 7
    assert begun == [(folder, webhook)]
    assert not (tmp_path / "called").exists()


async def test_container_does_not_read_the_server_terminal(tmp_path, folder):
    containers = engine(tmp_path, "podman")
    (tmp_path / "podman").write_text(f"#!/bin/sh\ncat > {tmp_path}/typed\n")
    ours, typed = os.pipe()
    os.write(typed, b"secret")
    os.close(typed)
    before = os.dup(0)
    os.dup2(ours, 0)
    try:
        child = await containers.start(folder, STEP)
        await asyncio.to_thread(os.waitpid, child, 0)
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(ours)
    assert (tmp_path / "typed").read_bytes() == b""


@pytest.mark.parametrize(("name", "at_once"), [("podman", ["--time", "0"]), ("docker", [])])
def test_container_is_removed_by_its_name(tmp_path, folder, name, at_once):
    engine(tmp_path, name).clear(folder)
    assert (tmp_path / "called").read_text().splitlines() == ["rm", "--force", *at_once, "dayfly-run.db.make.2"]


@pytest.mark.parametrize(("name", "ended"), [("podman", ["dayfly-run.db.make.2"]), ("docker", [])])
def test_monitors_of_a_killed_podman_are_ended(tmp_path, folder, monkeypatch, name, ended):
    found = []
    monkeypatch.setattr(podman_monitors, "end_monitors", lambda container, path: found.append((container, path)))
    engine(tmp_path, name).clear(folder)
    assert found == [(each, folder.path) for each in ended]


def test_clearing_a_missing_container_prints_nothing(tmp_path, folder, capfd):
    containers = engine(tmp_path, "docker")
    (tmp_path / "docker").write_text("#!/bin/sh\necho done; echo no such container >&2; exit 1\n")
    containers.clear(folder)
    assert capfd.readouterr() == ("", "")


def test_removal_by_a_hanging_engine_times_out(tmp_path, folder, monkeypatch):
    def waits(command, *, timeout, **_more):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", waits)
    with pytest.raises(TimeoutError, match=r"docker did not remove the container dayfly-run\.db\.make\.2"):
        engine(tmp_path, "docker").clear(folder)


async def test_sender_of_webhooks_ends_with_its_engine(tmp_path, folder):
    containers = ContainerStarter("podman", "/runner", ProcessStarter(resident(tmp_path), "none", {}))
    question = asyncio.ensure_future(containers.start(folder, Unit(name="make", kind="webhook")))
    await asyncio.sleep(0)
    containers.close()
    with pytest.raises(UnansweredError):
        await question


@pytest.mark.parametrize(("isolation", "apart"), [("full", True), ("none", False)])
def test_isolated_processes_do_not_share_paths(isolation, apart):
    processes = ProcessStarter("/runner", isolation, {})
    assert (processes.isolation, processes.fork_isolation, processes.isolates_paths) == (isolation, isolation, apart)
