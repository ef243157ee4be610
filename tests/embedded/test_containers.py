"""Steps in containers, with the real podman of Debian: `dayfly up --engine podman`, as the user who runs the tests.

If that is root, `test_rootless.py` also runs these tests as an unprivileged user.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import pytest_asyncio
from tests.embedded import documents as doc
from tests.embedded.machine import Machine, until
from tests.processes import processes

from dayfly.execute.process.files import is_locked
from dayfly.spec.host_errors import DocumentsRefusedError

IMAGE = "localhost/busybox:1"
SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "{0}/tmp"
"""
STORAGE = """
[storage]
driver = "vfs"
graphroot = "{0}/root"
runroot = "{0}/run"
"""

pytestmark = pytest.mark.timeout(120)


def missing():
    if not shutil.which("podman"):
        return "podman is not installed (apt-get install podman)"
    if not shutil.which("runc"):
        return "runc is not installed (apt-get install runc; crun refuses machines with both cgroup versions)"
    if os.geteuid() != 0 and not shutil.which("newuidmap"):
        return "podman without root needs newuidmap (apt-get install uidmap)"
    if not Path("/bin/busybox").exists():
        return "the image is made of /bin/busybox, which is not there (apt-get install busybox-static)"
    return ""


def podman(*arguments, **more):
    return subprocess.run(["podman", *arguments], capture_output=True, check=True, text=True, **more).stdout


def containers():
    """Return the existing containers; podman cannot list them while it removes one."""
    listed = subprocess.run(["podman", "ps", "--all", "--quiet"], capture_output=True, text=True)
    return listed.stdout or listed.stderr


def engines():
    """Return the process IDs of engine programs that this process has started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"podman\0run\0")]


def monitors(folder):
    """Return the processes that use containers in the folder, after the short-lived ones have ended.

    Without root, one podman process stays, which holds the user namespace.
    """
    deadline = time.monotonic() + 20
    while (left := conmons(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def conmons(folder):
    """Return the process IDs and commands of all container monitors in the folder."""
    found = {}
    for pid in processes(f"{folder}/"):
        with contextlib.suppress(OSError):
            called = Path(f"/proc/{pid}/cmdline").read_bytes()
            if Path(called.split(b"\0")[0].decode()).name == "conmon":
                found[pid] = called
    return found


@pytest.fixture(scope="module")
def store():
    """A podman for the tests with one image; the skip reason if it cannot run a container on this kernel.

    Its folder has a short name: with a long one, podman 4.3 waits for 20 s before it notices that a container has
    ended.
    """
    if reason := missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="podman-") as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place)
        for name, text in (("CONTAINERS_CONF", SETTINGS), ("CONTAINERS_STORAGE_CONF", STORAGE)):
            (folder / name).write_text(text.format(folder))
            patch.setenv(name, str(folder / name))
        tree = folder / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / "tmp").mkdir(mode=0o1777)
        shutil.copy("/bin/busybox", tree / "bin/busybox")
        for applet in ("sh", "sleep", "cat", "printf", "echo", "env", "ls", "true", "rm", "id", "test", "cut", "grep"):
            (tree / "bin" / applet).symlink_to("busybox")
        archive = folder / "tree.tar"
        subprocess.run(["tar", "-C", tree, "-cf", archive, "."], check=True)
        podman("import", "--change", "ENV FLAVOUR=vanilla", archive, IMAGE)
        tried = subprocess.run(
            ["podman", "run", "--rm", "--network=host", IMAGE, "/bin/true"], capture_output=True, text=True
        )
        if tried.returncode:
            pytest.skip(f"podman cannot run a container on this machine: {tried.stderr.strip()}")
        yield folder
        left = monitors(folder)
        for _ in range(20):  # podman refuses while it removes a container
            if not subprocess.run(["podman", "system", "reset", "--force"], capture_output=True).returncode:
                break
            time.sleep(0.5)
        else:
            podman("system", "reset", "--force")
    assert not left, f"a podman that was killed as it started a container has left its monitor: {left}"


@pytest_asyncio.fixture
async def machine(store, tmp_path, runner):
    found = Machine(tmp_path, runner)
    found.options = {"engine": "podman"}
    await found.up()
    yield found
    await found.end()
    await until(lambda: not containers(), "no containers")
    assert not processes(str(tmp_path)), "processes are left"


def step(name, script="true", *, image=IMAGE, **more):
    return doc.step(name, script, image=image, **more)


def file_of(machine):
    """The log of the step is in a folder that the container sees, so one path is both inside and outside."""
    return machine.home / "logs/u/journal"


def go(machine):
    Path(f"{file_of(machine)}.go").touch()


def slow(machine, name="a", **limits):
    script = (
        f"echo + >> {file_of(machine)}; while [ ! -e {file_of(machine)}.go ]; do sleep 0.05; done; printf v > /tmp/v"
    )
    return step(name, script, outputs=[("v", "/tmp/v")], **limits)


async def test_a_step_runs_in_its_image_with_its_environment(machine):
    make = step(
        "a",
        'printf "$FLAVOUR $PATH $SIZE $(cat /in/file)" > /out; ls / > /ls; id -u',
        inputs=[doc.constant("size", "big"), doc.constant("file", "content", path="/in/file")],
        outputs=[("out", "/out"), ("ls", "/ls")],
    )
    drop = step("z", '[ "$OUT" ] && echo "$OUT"', inputs=["out=a.out"])
    await machine.host.offer(doc.offer(doc.resource("r", [make], [drop])))
    await machine.ready()
    values = machine.values()
    assert values["r/a.out"].split()[0] == b"vanilla"
    assert values["r/a.out"].endswith(b"/bin big content")
    assert b"home" not in values["r/a.ls"].split(), "that is the machine's root"
    assert machine.log("r/a") == b"0\n"
    await machine.finish()
    assert machine.log("r/z") == values["r/a.out"] + b"\n"


@pytest.mark.parametrize("name", ["a:b", 'a,"b c'])
async def test_a_home_may_have_any_name(machine, tmp_path, name):
    await machine.down()
    machine.home = tmp_path / name
    await machine.up()
    await machine.host.offer(doc.offer(doc.resource("r", [step("a", "echo said")])))
    await machine.ready()
    assert machine.log("r/a") == b"said\n"
    await machine.finish()


async def test_steps_that_use_one_path_run_at_once(machine):
    wait = f"while [ ! -e {file_of(machine)}.go ]; do sleep 0.05; done"
    steps = [step(f"s{n}", f"printf {n} > /x; {wait}", outputs=[("x", "/x")]) for n in range(2)]
    await machine.host.offer(doc.offer(doc.resource("r", steps)))
    await until(lambda: all(unit.reason == "Running" for unit in machine.report().units), machine.report)
    go(machine)
    await machine.ready()
    assert machine.values() == {"r/s0.x": b"0", "r/s1.x": b"1"}


async def test_an_image_that_is_not_there_is_said_soon(machine):
    wish = step("a", image="127.0.0.1:9/no/such:1")
    await machine.host.offer(doc.offer(doc.resource("r", [wish])))
    await until(lambda: machine.unit("r/a").reason in ("WaitingToRetry", "CannotStart"), "a reason", 10)
    message = machine.unit("r/a").message
    assert "podman ended" in message
    assert "127.0.0.1:9" in message
    await machine.finish()


async def test_a_killed_server_s_container_is_adopted(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [slow(machine)])))
    await machine.said("r/a", "Running")
    await machine.down()
    await machine.up()
    await machine.said("r/a", "Running")
    go(machine)
    await machine.ready()
    assert machine.values() == {"r/a.v": b"v"}
    assert file_of(machine).read_text() == "+\n"


async def test_delete_ends_a_container(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [slow(machine, grace_ms=500)])))
    await machine.said("r/a", "Running")
    await machine.finish()
    assert ("Record", "r/a", 1, "Cancelled") in machine.history()


async def test_container_ends_with_its_killed_runner(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [slow(machine)])))
    await machine.said("r/a", "Running")
    [marker] = machine.work.glob("*/marker")
    os.kill(int(marker.read_text().split("\n")[1]), signal.SIGKILL)
    await machine.reason("ResourceFailed")
    assert machine.unit("r/a").reason == "ResultLost"
    await machine.finish()


async def test_a_killed_podman_is_not_the_end_of_its_container(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [slow(machine)])))
    await machine.said("r/a", "Running")
    [engine] = engines()
    os.kill(engine, signal.SIGKILL)
    await asyncio.sleep(0.3)
    assert machine.unit("r/a").reason == "Running"
    go(machine)
    await machine.ready()
    await machine.finish()


@pytest.mark.parametrize("later", ["the same server", "the next server"])
async def test_container_left_by_an_engine_is_removed_when_possible(machine, tmp_path, monkeypatch, later):
    """The engine dies between create and start of the container, and refuses its removal until the test permits it."""
    monkeypatch.setattr("dayfly.embedded.attempt_sweeper.CLEANUP_RETRY_S", 0.05)
    broken = tmp_path / "broken" / "podman"
    broken.parent.mkdir()
    made = f'if [ "$1" = run ]; then podman create --name "$4" {IMAGE} true >/dev/null; kill -KILL $$; fi'
    refused = f"[ -e {tmp_path}/now ] || {{ echo out of order >&2; exit 1; }}"
    broken.write_text(f'#!/bin/sh\n{made}\n{refused}\nexec podman "$@"\n')
    broken.chmod(0o755)
    await machine.down()
    await machine.up(engine=str(broken))
    await machine.host.offer(doc.offer(doc.resource("r", [step("a", backoff_ms=3_600_000)])))
    await machine.said("r/a", "WaitingToRetry")
    assert containers()
    if later == "the next server":
        await machine.down()
    (tmp_path / "now").touch()
    if later == "the next server":
        await machine.up()
    await until(lambda: not containers(), "no containers")
    await until(lambda: not machine.folders(), machine.folders)
    await machine.finish()


async def test_container_of_a_killed_engine_is_ended(machine, tmp_path, store):
    """Otherwise its monitor and the first process of the container would wait forever for a message."""
    broken = tmp_path / "broken" / "podman"
    broken.parent.mkdir()
    # Stopped before it can notify a monitor, and killed once there is one.
    monitor, real = broken.with_name("monitor"), shutil.which("conmon") or "/usr/bin/conmon"
    monitor.write_text(f'#!/bin/sh\n[ "$1" = --version ] || kill -STOP $PPID\nexec {real} "$@"\n')
    # The command line of podman also contains the path of a monitor and the name of the container, but not -n.
    begun = (
        f'until grep -aqs "^{real}[^|]*-n[^|]$4" /proc/[0-9]*/cmdline; do :; done; echo >$0.met; kill -KILL $child $$'
    )
    broken.write_text(
        f'#!/bin/sh\n[ "$1" = run ] || exec podman "$@"\npodman --conmon={monitor} "$@" & child=$!\n{begun}\n'
    )
    for each in (broken, monitor):
        each.chmod(0o755)
    await machine.down()
    await machine.up(engine=str(broken))
    await machine.host.offer(doc.offer(doc.resource("r", [step("a", backoff_ms=3_600_000)])))
    # The engine may report the end after the monitor is gone.
    await until(broken.with_name("podman.met").exists, "a monitor")
    await machine.said("r/a", "WaitingToRetry")
    # The server deletes the folder after it has ended the monitor. Before that, a look may miss a monitor that forks.
    await until(lambda: not machine.folders(), machine.folders)
    assert not conmons(store)
    await machine.finish()


async def test_the_lock_holds_between_container_and_machine(machine):
    await machine.host.offer(doc.offer(doc.resource("r", [slow(machine)])))
    await machine.said("r/a", "Running")
    [folder] = machine.folders()
    assert is_locked(f"{folder}/lock")
    go(machine)
    await machine.ready()


async def test_attempt_fenced_during_image_pull_never_starts(machine, tmp_path, store):
    """A slow podman: the delete comes before the container."""
    late = tmp_path / "late" / "podman"
    late.parent.mkdir()
    late.write_text(
        f'#!/bin/sh\n[ "$1" = rm ] || while [ ! -e {tmp_path}/now ]; do sleep 0.05; done\nexec podman "$@"\n'
    )
    late.chmod(0o755)
    await machine.down()
    await machine.up(engine=str(late))
    await machine.host.offer(doc.offer(doc.resource("r", [slow(machine)])))
    await machine.said("r/a", "Starting")
    await machine.finish()
    (tmp_path / "now").touch()
    await asyncio.sleep(0.5)
    assert not file_of(machine).exists()


async def test_a_step_without_an_image_is_refused(machine):
    with pytest.raises(DocumentsRefusedError, match=r"r/a: .*the step has no image"):
        machine.host.admit((doc.resource("r", [step("a", image="")]),), ())
    machine.host.admit((doc.resource("r", [step("a")]),), ())


async def test_files_of_a_step_are_private_to_the_server_user(machine):
    make = step(
        "a",
        f"ls -ln /in/file | cut -c 1-10 > /mode; echo + > {file_of(machine)}",
        inputs=[doc.constant("file", "content", path="/in/file")],
        outputs=[("mode", "/mode")],
    )
    await machine.host.offer(doc.offer(doc.resource("r", [make])))
    await machine.ready()
    assert machine.values()["r/a.mode"].strip() in (b"-r--------", b"-rw-------")
    assert file_of(machine).stat().st_uid == os.geteuid()
    await machine.finish()


async def test_docker_s_command_line_is_taken_by_podman_in_its_place(machine, tmp_path):
    """As with Debian's podman-docker. Docker's own daemon is not tested."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\nexec podman "$@"\n')
    docker.chmod(0o755)
    await machine.down()
    await machine.up(engine=str(docker))
    make = step("a", "printf $FLAVOUR > /out", outputs=[("out", "/out")])
    await machine.host.offer(doc.offer(doc.resource("r", [make, slow(machine, "b", grace_ms=500)])))
    await machine.said("r/b", "Running")
    await machine.finish()
    assert ("Record", "r/b", 1, "Cancelled") in machine.history()
