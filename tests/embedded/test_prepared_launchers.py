"""A launcher is prepared for the next step. If there is no next step, nothing of it is left."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.embedded.machine import until

from dayfly.execute.process.attempt_storage import AttemptStorage
from dayfly.execute.process.resident import Resident, UnansweredError
from dayfly.execute.process.run import AttemptFolder

COARSE = 5  # clock_gettime(2): the coarse clock of file timestamps


@pytest.fixture
def isolation(runner):
    said = subprocess.run([runner, "probe"], capture_output=True, check=True, text=True).stdout
    found = said.splitlines()[0].removeprefix("isolation=")
    if found == "none":
        pytest.skip("this machine grants no namespaces")
    return found


@pytest.fixture
def private(tmp_path):
    """A private folder instead of /tmp, which other programs change."""
    path = tmp_path / "private"
    path.mkdir()
    while path.stat().st_ctime_ns >= time.clock_gettime_ns(COARSE):
        time.sleep(0.001)
    return path


@pytest.fixture
def resident_of(runner, private, tmp_path):
    """A private mount namespace if root runs the tests, as other programs mount at any moment."""
    program = tmp_path / "program"
    quiet = "unshare --mount " if os.geteuid() == 0 else ""
    program.write_text(f'#!/bin/sh\nexec {quiet}{runner} "$@"\n')
    program.chmod(0o755)
    return lambda timeout_s=60: Resident(
        str(program), dict(os.environ), lambda: (str(private),), prepared_timeout_s=timeout_s
    )


@pytest.fixture
def folders(tmp_path):
    place = AttemptStorage(str(tmp_path), str(tmp_path), "boot", "boot", str(tmp_path))
    found = [AttemptFolder(place, "run", "a", number) for number in range(40)]
    for each in found:
        each.write_order(b"not an order")
    return found


def children():
    """Return our children, including zombies."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def refused(folder):
    """Return whether its launcher has read that there is no order."""
    return "refused" in Path(folder.path, "receipt").read_text()


def reaped(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def servant(before):
    """Return the process ID of the resident runner."""
    found = [each for each in children() - before if b"\0serve" in Path(f"/proc/{each}/cmdline").read_bytes()]
    return min(map(int, found))


async def one_waits(before):
    """Wait for a child other than the resident runner: a prepared launcher."""
    await until(lambda: len(children() - before) == 2, "one that waits")


async def test_steps_that_follow_each_other_have_it(resident_of, isolation, folders):
    before, resident, used = children(), resident_of(), 0
    for folder in folders:
        waiting = children()
        child = await resident.fork(folder.path, isolation)
        used += str(child) in waiting
        reaped(child)
        assert refused(folder)
        await asyncio.sleep(0.02)  # the next one is forked until then
        if used == 3:
            break
    assert used == 3
    resident.close()
    assert children() == before


async def test_failed_preparation_pauses_preparation_for_a_while(resident_of, isolation, folders, private):
    """The environment has changed, so the launcher must be replaced."""
    before, resident = children(), resident_of()
    reaped(await resident.fork(folders[0].path, isolation))
    await one_waits(before)
    private.joinpath("new").touch()
    used = []
    for folder in folders[1:30]:
        waiting = children()
        child = await resident.fork(folder.path, isolation)
        used.append(str(child) in waiting)
        reaped(child)
        await asyncio.sleep(0.02)  # the next one is forked until then
    assert used[0] is False
    assert used[2:17] == [False] * 15, "except one that was requested before"
    assert any(used[18:]), "a new one is forked"
    resident.close()


async def test_unused_prepared_launcher_ends_after_a_while(resident_of, isolation, folders):
    before, resident = children(), resident_of(timeout_s=0.1)
    reaped(await resident.fork(folders[0].path, isolation))
    await one_waits(before)
    await until(lambda: len(children() - before) == 1, "the resident runner alone to be left")
    reaped(await resident.fork(folders[1].path, isolation))
    resident.close()
    assert children() == before


async def test_resident_runner_stays_while_an_answer_is_pending(resident_of, isolation, folders):
    """The process may have become the launcher of a step."""
    before, resident = children(), resident_of(timeout_s=0.001)
    reaped(await resident.fork(folders[0].path, isolation))
    process = servant(before)
    os.kill(process, signal.SIGSTOP)
    asked = asyncio.ensure_future(resident.fork(folders[1].path, isolation))
    await asyncio.sleep(0.05)
    os.kill(process, signal.SIGCONT)
    reaped(await asked)
    assert refused(folders[1])
    resident.close()


async def test_many_at_once_are_all_run(resident_of, isolation, folders):
    before, resident = children(), resident_of()
    found = await asyncio.gather(*(resident.fork(each.path, isolation) for each in folders))
    for child in found:
        reaped(child)
    assert len(set(found)) == len(folders)
    assert all(refused(each) for each in folders)
    resident.close()
    assert children() == before


async def test_a_resident_runner_that_is_killed_takes_it_along(resident_of, isolation, folders):
    before, resident = children(), resident_of()
    reaped(await resident.fork(folders[0].path, isolation))
    await one_waits(before)
    os.kill(servant(before), signal.SIGKILL)
    await until(lambda: children() == before, "its end to be noticed")
    reaped(await resident.fork(folders[1].path, isolation))
    resident.close()


async def test_no_launcher_is_prepared_without_namespaces(resident_of, folders):
    before, resident = children(), resident_of()
    reaped(await resident.fork(folders[0].path, "none"))
    assert len(children() - before) == 1
    resident.close()


async def test_runner_that_ends_when_queried_is_unanswered(tmp_path, isolation):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nhead -c 1 >/dev/null\n")
    program.chmod(0o755)
    resident = Resident(str(program), {})
    with pytest.raises(UnansweredError):
        await resident.fork("/folder", isolation)
    resident.close()
