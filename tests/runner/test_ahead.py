"""A launcher that is forked ahead of its order: a step finds the same files as without it."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.runner.attempts import wait_until
from tests.runner.resident_runner import Asked, order

COARSE = 5  # clock_gettime(2): the clock of file timestamps


def test_preforked_launcher_runs_a_step_like_any_other(attempt, asked: Asked):
    script = f"ls -a {asked.folders[0]}; cat {asked.folders[1]}/old; set -- /proc/[0-9]*; echo $#; echo $$ $PPID"
    plain, early = (order(attempt, asked, script) for _ in range(2))
    assert asked.launch(plain) > 0
    first = asked.ahead()
    assert asked.launch(early) == first
    assert early.receipt().outcome == plain.receipt().outcome == "exited"
    assert early.log == plain.log
    assert early.marker[1:3] == [str(first)] * 2


def test_new_file_of_a_step_is_private_to_it(attempt, asked: Asked):
    path = asked.folders[0] / "new"
    first = asked.ahead()
    one = order(attempt, asked, f"echo x > {path}; cat {path}", output=f"it\0{path}")
    assert asked.launch(one) == first
    assert (one.log, one.receipt().outputs["it"][0]) == ("x\n", "present")
    assert not path.exists()


def test_existing_host_file_is_written_through(attempt, asked: Asked):
    path = asked.folders[0] / "old"
    path.chmod(0o666)
    first = asked.ahead()
    assert asked.launch(order(attempt, asked, f"echo x > {path}")) == first
    assert path.read_text() == "x\n"


CHANGES = {
    "comes": lambda path: path.with_name("another").touch(),
    "goes": lambda path: path.unlink(),
    "is replaced": lambda path: (path.unlink(), path.write_text("new")),  # often with the same inode
    "is renamed over": lambda path: (path.with_name("n").write_text("new"), path.with_name("n").rename(path)),
    "is closed to others": lambda path: path.parent.chmod(0o711),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_after_the_prefork_is_seen(attempt, asked: Asked, change: str):
    folder = asked.folders[1]
    script = f"ls {folder} 2>&1; cat {folder}/old 2>&1; stat -c %a {folder}"
    first = asked.ahead()
    CHANGES[change](folder / "old")
    early, plain = (order(attempt, asked, script) for _ in range(2))
    assert asked.launch(early) != first
    assert os.waitpid(first, 0) == (first, 0), "it is no longer needed"
    asked.waiting.remove(first)
    asked.launch(plain)
    assert early.log == plain.log


def test_right_after_a_change_there_is_none(asked: Asked):
    """A second change in the same tick of the clock could not be detected."""
    answers = set()
    for number in range(100):
        asked.folders[0].joinpath(str(number)).touch()
        if (answer := asked.answer()) > 0:
            asked.waiting.append(answer)
        answers.add(min(answer, 0))
    assert -errno.EAGAIN in answers


def test_prefork_waits_on_a_file_system_with_whole_seconds(asked: Asked):
    folder = asked.folders[0]
    asked.ahead()
    now = int(time.time())
    os.utime(folder, (now, now))
    wait_until(lambda: folder.stat().st_ctime_ns < time.clock_gettime_ns(COARSE), 30)
    assert asked.answer() == -errno.EAGAIN
    os.utime(folder, (now - 3, now - 3))
    asked.ahead()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_existing_entry_at_an_output_path_is_unchanged(attempt, asked: Asked, kind: str):
    path = asked.folders[0] / "it"
    make = {"file": path.touch, "folder": path.mkdir, "link": lambda: path.symlink_to("/etc")}
    make.get(kind, lambda: os.mkfifo(path))()
    before = path.lstat()
    first = asked.ahead()
    one = order(attempt, asked, f"ls -d {path} 2>/dev/null || echo own > {path}", output=f"it\0{path}")
    assert asked.launch(one) == first
    after = path.lstat()  # without its access time, which changes when a link is resolved
    assert (*after[:7], after.st_mtime_ns, after.st_ctime_ns) == (*before[:7], before.st_mtime_ns, before.st_ctime_ns)
    assert (one.log, one.receipt().outputs["it"][:2]) == ("", ("present", 4))


def test_a_step_without_private_folders_writes_into_the_hosts(attempt, asked: Asked):
    path = asked.folders[0] / "it"
    first = asked.ahead()
    assert asked.launch(order(attempt, asked, f"echo x > {path}", private=[])) == first
    assert path.read_text() == "x\n"


@pytest.mark.parametrize("wanted", ["/", "above", "one", "one and below"])
def test_an_order_that_wants_other_folders_has_those(attempt, asked: Asked, here: Path, wanted: str):
    one, two = asked.folders
    one.joinpath("in").mkdir()
    one.joinpath("in").chmod(0o777)
    private = {"/": ["/"], "above": [here, one, two], "one": [one], "one and below": [one, one / "in", two]}[wanted]
    script = f"ls {one} {two}; echo x > {one}/x; echo x > {one}/in/x; echo x > {two}/x; set -- /proc/[0-9]*; echo $#"
    seen = []
    for early in (False, True):
        first = asked.ahead() if early else 0
        run = order(attempt, asked, script, private=private)
        assert (asked.launch(run) == first) == early
        seen.append((run.log, run.receipt().outcome, [each.exists() for each in (one / "x", one / "in/x", two / "x")]))
        for each in (one / "x", one / "in/x", two / "x"):
            each.unlink(missing_ok=True)
    assert seen[0] == seen[1]


def test_mount_after_the_prefork_is_seen(attempt, asked: Asked, here: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    place = here / "mounted"
    place.mkdir()
    first = asked.ahead()
    there = ["nsenter", f"--mount=/proc/{asked.process.pid}/ns/mnt"]
    subprocess.run([*there, "mount", "-t", "tmpfs", "none", place], check=True)
    subprocess.run([*there, "touch", place / "inside"], check=True)
    one = order(attempt, asked, f"ls {place}")
    assert asked.launch(one) != first
    assert one.log == "inside\n"


def test_only_one_waits(asked: Asked):
    first, second = asked.ahead(), asked.ahead()
    assert os.waitpid(first, 0) == (first, 0)
    asked.waiting.remove(first)
    assert os.waitpid(second, os.WNOHANG) == (0, 0)


def test_released_prefork_ends_without_launching(attempt, asked: Asked):
    """The server may kill the released launcher if it does not end."""
    first = asked.ahead()
    os.kill(first, signal.SIGSTOP)
    assert asked.ask(b"let go") == 0
    one = order(attempt, asked, "echo x")
    assert asked.launch(one) != first
    assert one.log == "x\n"
    os.kill(first, signal.SIGCONT)
    assert os.waitpid(first, 0) == (first, 0)
    asked.waiting.remove(first)
    assert asked.ask(b"let go") == 0, "there is no launcher to release"


@pytest.mark.parametrize("isolated", ["root"], indirect=True)
def test_prefork_of_another_isolation_is_replaced(attempt, asked: Asked):
    first = asked.ahead()
    bare = attempt().write("#!/bin/sh\necho x\n", isolation="none")
    assert os.waitpid(asked.ask(str(bare.dir).encode()), 0)[0] != first
    assert os.waitpid(first, 0) == (first, 0)
    asked.waiting.remove(first)


@pytest.mark.parametrize("reaped", [True, False])
def test_killed_prefork_is_replaced(attempt, asked: Asked, reaped: bool):
    first = asked.ahead()
    os.kill(first, signal.SIGKILL)
    if reaped:
        os.waitpid(first, 0)
        asked.waiting.remove(first)
    else:
        wait_until(lambda: Path(f"/proc/{first}/stat").read_text().split()[2] == "Z", 30)
    one = order(attempt, asked, "echo x")
    assert asked.launch(one) != first
    assert one.log == "x\n"


def test_sigterm_before_the_folder_arrives_voids_the_step(attempt, asked: Asked):
    first = asked.ahead()
    os.kill(first, signal.SIGTERM)
    one = order(attempt, asked, "echo x")
    assert asked.launch(one) == first
    assert one.receipt().outcome == "void"


def test_prefork_ends_with_the_resident_runner(asked: Asked):
    first = asked.ahead()
    asked.process.kill()
    asked.process.wait(30)
    assert asked.ours.recv(4) == b""
    assert os.waitpid(first, 0) == (first, 0)
    asked.waiting.remove(first)


def test_a_folder_that_is_not_there_or_one_too_many_makes_none(asked: Asked, here: Path):
    assert asked.answer(here / "nowhere") == -errno.ENOENT
    assert asked.answer(*[Path("/usr")] * 5) == -errno.E2BIG
