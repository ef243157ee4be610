"""A machine of the test's own, and proof that nothing of it is left."""

import os
import subprocess
from pathlib import Path

import pytest
import pytest_asyncio

from embedded.machine import Machine

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def runner() -> str:
    program = ROOT / ".cache/runner/dayfly-runner"
    subprocess.run([ROOT / "runner/build.sh", program], check=True)
    return str(program)


@pytest_asyncio.fixture
async def machine(tmp_path: Path, runner: str):
    """Its host is up. Afterwards no process, folder or port note of it may be there."""
    found = Machine(tmp_path, runner)
    await found.up()
    yield found
    try:
        if found.host is not None:
            assert not found.host._engine.attempts.busy, "a step still counts as running"
    finally:
        await found.end()
    assert not processes(str(found.journal)), "processes are left"


def processes(mark: str) -> list[int]:
    """Living processes with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended, or is none of ours
    return found
