"""A person's home folder with the checkout in it, as the pages describe it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.docs.transcript import differences, follow

ROOT = Path(__file__).resolve().parents[2]
# What would make somebody's Dayfly another one than a newcomer's, and what `make test` tells a `make` below it.
_STEERS = ("DAYFLY_", "XDG_STATE_HOME", "MAKE", "MFLAGS", "PYTHONUNBUFFERED")


class Person(NamedTuple):
    """Somebody who types what pages say, in a home folder of their own."""

    home: Path
    environment: dict[str, str]

    def follow(self, page: Path) -> list[str]:
        """Type a page's commands; how each that prints other than the page shows differs from it."""
        typed = follow(page, self.home, self.environment, {str(self.home): "/home/ada"})
        return [found for command, printed in typed if (found := differences(command, printed))]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who types a page is given up by `follow` once nothing happens any more, and not before."""
    for item in items:
        if "person" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture
def person() -> Iterator[Person]:
    # Not in pytest's folder: a plan cuts long values, and a home's path is not as long as that.
    home = Path(tempfile.mkdtemp(prefix="ada-"))
    (home / "dayfly").symlink_to(ROOT)
    machine = {name: value for name, value in os.environ.items() if not name.startswith(_STEERS)}
    found = Person(home, {**machine, "HOME": str(home), "NO_COLOR": "1"})
    yield found
    left = (home / ".local" / "state" / "dayfly" / "url").exists()
    if left:
        subprocess.run([ROOT / "dayfly", "down"], env=found.environment, capture_output=True, timeout=60)
    shutil.rmtree(home)
    assert not left, "the page left its server running"
