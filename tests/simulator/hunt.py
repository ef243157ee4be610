"""Search for seeded bugs: each in a separate copy of the package and a separate process."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.simulator.bugs import Bug

import dayfly

SOURCE = Path(dayfly.__file__).parent
TESTS = Path(__file__).parents[1]
ROOMS = ("spec", "plan", "execute", "embedded", "lib", "link", "compile", "kube")
SCHEDULES = 4_000  # the number of schedules per host in which a bug must be found
POOL_SCHEDULES = 300  # the same for bugs of holds


class StaleError(AssertionError):
    """A bug's old text does not occur exactly once: the code has moved on, the list has not."""


def plant(bug: Bug, home: Path) -> None:
    """Copy the package into a folder and seed the bug there."""
    texts = edited(bug)
    package = home / "dayfly"
    package.mkdir(parents=True)
    shutil.copy(SOURCE / "__init__.py", package)
    for room in ROOMS:
        shutil.copytree(SOURCE / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in texts.items():
        (package / file).write_text(text)


def edited(bug: Bug) -> dict[str, str]:
    """The files that the bug is in, with it."""
    texts: dict[str, str] = {}
    for file, old, new in bug.edits:
        text = texts.get(file) or (SOURCE / file).read_text()
        if text.count(old) != 1:
            raise StaleError(f"{bug.name}: {old!r} occurs {text.count(old)} times in {file}")
        texts[file] = text.replace(old, new)
    return texts


def hunt(bug: Bug, home: Path) -> str:
    """Return the simulator's output for the seeded bug; empty if it finds nothing."""
    plant(bug, home)
    hosts = sorted(("machine", "cluster"), key=lambda host: host != bug.host) if bug.host != "pools" else ["pools"]
    count = str(POOL_SCHEDULES if bug.host == "pools" else SCHEDULES)
    for host in hosts:
        answer = subprocess.run(
            [sys.executable, "-B", "-m", "tests.simulator", "--host", host, "--count", count],
            env={"PYTHONPATH": f"{home}:{TESTS.parent}", "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        if answer.returncode:
            return answer.stdout + answer.stderr[-2_000:]
    return ""
