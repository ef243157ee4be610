"""A home folder with the checkout, in which tests type the commands of pages."""

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
# Prefixes of variables that would change Dayfly or `make` for a new user.
_CONFIGURING = ("DAYFLY_", "XDG_STATE_HOME", "MAKE", "MFLAGS", "PYTHONUNBUFFERED")


class Person(NamedTuple):
    """A new user with a separate home folder."""

    home: Path
    environment: dict[str, str]

    def follow(self, page: Path) -> list[str]:
        """Type the commands of a page. Return a description of each difference between output and page."""
        typed = follow(page, self.home, self.environment, {str(self.home): "/home/ada"})
        return [found for command, printed in typed if (found := differences(command, printed))]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the timeout of tests that type a page: `follow` ends a page without output earlier."""
    for item in items:
        if "person" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture
def person() -> Iterator[Person]:
    # pytest's folders have long paths, and a plan shortens long values.
    home = Path(tempfile.mkdtemp(prefix="ada-"))
    (home / "dayfly").symlink_to(ROOT)
    machine = {name: value for name, value in os.environ.items() if not name.startswith(_CONFIGURING)}
    found = Person(home, {**machine, "HOME": str(home), "LOGNAME": "ada", "NO_COLOR": "1"})
    yield found
    left = (home / ".local" / "state" / "dayfly" / "url").exists()
    if left:
        subprocess.run([ROOT / "dayfly", "down"], env=found.environment, capture_output=True, timeout=60)
    shutil.rmtree(home)
    assert not left, "the page left its server running"
