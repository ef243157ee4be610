"""A launcher that is prepared before its order: a step finds the same files as without it."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.runner.attempts import wait_until
from tests.runner.resident_runner import ResidentRunner, order

COARSE = 5  # clock_gettime(2): the clock of file timestamps


def test_prepared_launcher_runs_a_step_like_any_other(attempt, resident: ResidentRunner):
    script = f"ls -a {resident.folders[0]}; cat {resident.folders[1]}/old; set -- /proc/[0-9]*; echo $#; echo $$ $PPID"
    plain, early = (order(attempt, resident, script) for _ in range(2))
    assert resident.launch(plain) > 0
    first = resident.prepare()
    assert resident.launch(early) == first
    assert early.receipt().outcome == plain.receipt().outcome == "exited"
    assert early.log == plain.log
    assert early.marker[1:3] == [str(first)] * 2


def test_new_file_of_a_step_is_private_to_it(attempt, resident: ResidentRunner):
    path = resident.folders[0] / "new"
    first = resident.prepare()
    one = order(attempt, resident, f"echo x > {path}; cat {path}", output=f"it\0{path}")
    assert resident.launch(one) == first
    assert (one.log, one.receipt().outputs["it"][0]) == ("x\n", "present")
    assert not path.exists()


def test_existing_host_file_is_written_through(attempt, resident: ResidentRunner):
    path = resident.folders[0] / "old"
    path.chmod(0o666)
    first = resident.prepare()
    assert resident.launch(order(attempt, resident, f"echo x > {path}")) == first
    assert path.read_text() == "x\n"


CHANGES = {
    "comes": lambda path: path.with_name("another").touch(),
    "goes": lambda path: path.unlink(),
    "is replaced": lambda path: (path.unlink(), path.write_text("new")),  # often with the same inode
    "is renamed over": lambda path: (path.with_name("n").write_text("new"), path.with_name("n").rename(path)),
    "is closed to others": lambda path: path.parent.chmod(0o711),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_after_preparation_is_seen(attempt, resident: ResidentRunner, change: str):
    folder = resident.folders[1]
    script = f"ls {folder} 2>&1; cat {folder}/old 2>&1; stat -c %a {folder}"
    first = resident.prepare()
    CHANGES[change](folder / "old")
    early, plain = (order(attempt, resident, script) for _ in range(2))
    assert resident.launch(early) != first
    assert os.waitpid(first, 0) == (first, 0), "it is no longer needed"
    resident.waiting.remove(first)
    resident.launch(plain)
    assert early.log == plain.log


def test_right_after_a_change_there_is_none(resident: ResidentRunner):
    """A second change in the same tick of the clock could not be detected."""
    answers = set()
    for number in range(100):
        resident.folders[0].joinpath(str(number)).touch()
        if (answer := resident.try_prepare()) > 0:
            resident.waiting.append(answer)
        answers.add(min(answer, 0))
    assert -errno.EAGAIN in answers


def test_preparation_waits_on_a_file_system_with_whole_seconds(resident: ResidentRunner):
    folder = resident.folders[0]
    resident.prepare()
    now = int(time.time())
    os.utime(folder, (now, now))
    wait_until(lambda: folder.stat().st_ctime_ns < time.clock_gettime_ns(COARSE), 30)
    assert resident.try_prepare() == -errno.EAGAIN
    os.utime(folder, (now - 3, now - 3))
    resident.prepare()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_existing_entry_at_an_output_path_is_unchanged(attempt, resident: ResidentRunner, kind: str):
    path = resident.folders[0] / "it"
    make = {"file": path.touch, "folder": path.mkdir, "link": lambda: path.symlink_to("/etc")}
    make.get(kind, lambda: os.mkfifo(path))()
    before = path.lstat()
    first = resident.prepare()
    one = order(attempt, resident, f"ls -d {path} 2>/dev/null || echo own > {path}", output=f"it\0{path}")
    assert resident.launch(one) == first
    after = path.lstat()  # without its access time, which changes when a link is resolved
    assert (*after[:7], after.st_mtime_ns, after.st_ctime_ns) == (*before[:7], before.st_mtime_ns, before.st_ctime_ns)
    assert (one.log, one.receipt().outputs["it"][:2]) == ("", ("present", 4))


def test_a_step_without_private_folders_writes_into_the_hosts(attempt, resident: ResidentRunner):
    path = resident.folders[0] / "it"
    first = resident.prepare()
    assert resident.launch(order(attempt, resident, f"echo x > {path}", private=[])) == first
    assert path.read_text() == "x\n"


@pytest.mark.parametrize("wanted", ["/", "above", "one", "one and below"])
def test_an_order_that_wants_other_folders_has_those(attempt, resident: ResidentRunner, here: Path, wanted: str):
    one, two = resident.folders
    one.joinpath("in").mkdir()
    one.joinpath("in").chmod(0o777)
    private = {"/": ["/"], "above": [here, one, two], "one": [one], "one and below": [one, one / "in", two]}[wanted]
    script = f"ls {one} {two}; echo x > {one}/x; echo x > {one}/in/x; echo x > {two}/x; set -- /proc/[0-9]*; echo $#"
    seen = []
    for early in (False, True):
        first = resident.prepare() if early else 0
        run = order(attempt, resident, script, private=private)
        assert (resident.launch(run) == first) == early
        seen.append((run.log, run.receipt().outcome, [each.exists() for each in (one / "x", one / "in/x", two / "x")]))
        for each in (one / "x", one / "in/x", two / "x"):
            each.unlink(missing_ok=True)
    assert seen[0] == seen[1]


def test_mount_after_preparation_is_seen(attempt, resident: ResidentRunner, here: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    place = here / "mounted"
    place.mkdir()
    first = resident.prepare()
    there = ["nsenter", f"--mount=/proc/{resident.process.pid}/ns/mnt"]
    subprocess.run([*there, "mount", "-t", "tmpfs", "none", place], check=True)
    subprocess.run([*there, "touch", place / "inside"], check=True)
    one = order(attempt, resident, f"ls {place}")
    assert resident.launch(one) != first
    assert one.log == "inside\n"


def test_only_one_waits(resident: ResidentRunner):
    first, second = resident.prepare(), resident.prepare()
    assert os.waitpid(first, 0) == (first, 0)
    resident.waiting.remove(first)
    assert os.waitpid(second, os.WNOHANG) == (0, 0)


def test_released_launcher_ends_without_launching(attempt, resident: ResidentRunner):
    """The server may kill the released launcher if it does not end."""
    first = resident.prepare()
    os.kill(first, signal.SIGSTOP)
    assert resident.request(b"release") == 0
    one = order(attempt, resident, "echo x")
    assert resident.launch(one) != first
    assert one.log == "x\n"
    os.kill(first, signal.SIGCONT)
    assert os.waitpid(first, 0) == (first, 0)
    resident.waiting.remove(first)
    assert resident.request(b"release") == 0, "there is no launcher to release"


@pytest.mark.parametrize("isolated", ["root"], indirect=True)
def test_prepared_launcher_of_another_isolation_is_replaced(attempt, resident: ResidentRunner):
    first = resident.prepare()
    bare = attempt().write("#!/bin/sh\necho x\n", isolation="none")
    assert os.waitpid(resident.request(str(bare.dir).encode()), 0)[0] != first
    assert os.waitpid(first, 0) == (first, 0)
    resident.waiting.remove(first)


@pytest.mark.parametrize("reaped", [True, False])
def test_killed_prepared_launcher_is_replaced(attempt, resident: ResidentRunner, reaped: bool):
    first = resident.prepare()
    os.kill(first, signal.SIGKILL)
    if reaped:
        os.waitpid(first, 0)
        resident.waiting.remove(first)
    else:
        wait_until(lambda: Path(f"/proc/{first}/stat").read_text().split()[2] == "Z", 30)
    one = order(attempt, resident, "echo x")
    assert resident.launch(one) != first
    assert one.log == "x\n"


def test_sigterm_before_the_folder_arrives_voids_the_step(attempt, resident: ResidentRunner):
    first = resident.prepare()
    os.kill(first, signal.SIGTERM)
    one = order(attempt, resident, "echo x")
    assert resident.launch(one) == first
    assert one.receipt().outcome == "void"


def test_prepared_launcher_ends_with_the_resident_runner(resident: ResidentRunner):
    first = resident.prepare()
    resident.process.kill()
    resident.process.wait(30)
    assert resident.ours.recv(4) == b""
    assert os.waitpid(first, 0) == (first, 0)
    resident.waiting.remove(first)


def test_a_folder_that_is_not_there_or_one_too_many_makes_none(resident: ResidentRunner, here: Path):
    assert resident.try_prepare(here / "nowhere") == -errno.ENOENT
    assert resident.try_prepare(*[Path("/usr")] * 5) == -errno.E2BIG
