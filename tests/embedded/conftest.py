"""Fixtures: a machine for one test, and checks that nothing of it is left."""

import collections
import contextlib
import logging
import subprocess
import time
from pathlib import Path

import pytest
import pytest_asyncio
from tests.embedded.machine import Machine, until
from tests.processes import processes

from dayfly.lib.queue import WorkQueue
from dayfly.link.wire import PoolAction
from dayfly.spec.host_errors import HostUnavailableError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def runner() -> str:
    program = ROOT / ".cache/runner/dayfly-runner"
    subprocess.run([ROOT / "runner/build.sh", program], check=True)
    return str(program)


@pytest_asyncio.fixture
async def machine(tmp_path: Path, runner: str):
    """A machine with a started host. After the test, no process, folder or port note of it may be left."""
    found = Machine(tmp_path, runner)
    await found.up()
    yield found
    await found.end()
    assert not processes(str(found.journal)), "processes are left"


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture):
    """Check that no turn failed: the engine repeats it, so that the test would only be slow."""
    yield
    found = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not found, found[:3]


@pytest_asyncio.fixture
async def resting_pools(machine: Machine):
    """Stop the refill of all pools after the test, so that no step has just been started when the machine ends."""
    yield
    with contextlib.suppress(HostUnavailableError):  # the row of a pool is damaged
        for uid in machine.host.living_runs():
            await machine.host.control_pool(uid, PoolAction.PAUSE, "the test")
        await until(lambda: not list(_active_members(machine)), lambda: list(_active_members(machine)))


def _active_members(machine: Machine):
    for report in map(machine.report, machine.host.living_runs()):
        yield from (unit for unit in report.units if unit.kind == "member" and unit.state in ("running", "stopped"))


# The maximum number of turns of a run in a second. A loop without a pause takes hundreds.
TURNS, SECONDS = 100, 1.0


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch):
    """Check that no host of this process takes turns for a run in a busy loop."""
    taken: dict[tuple[int, object], collections.deque[float]] = {}
    found: list[str] = []
    take = WorkQueue.take

    async def counted(queue):
        key = await take(queue)
        times = taken.setdefault((id(queue), key), collections.deque(maxlen=TURNS))
        times.append(time.monotonic())
        if len(times) == TURNS and times[-1] < times[0] + SECONDS:
            found.append(f"{key} has had {TURNS} turns within {times[-1] - times[0]:.2f} s")
            times.clear()
        return key

    monkeypatch.setattr(WorkQueue, "take", counted)
    yield
    assert not found, found[:3]
