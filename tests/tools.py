"""Makes what the tests drive and no registry has ready: once, before or while the first tests run (`make test`).

The first time takes minutes, for Kubernetes is built from source; then all of it is found in ~/.cache/dayfly, or in
$DAYFLY_CACHE. With names it makes only those. What cannot be made here is said; the tests that need it then say so
too, and fail where CI is set. Tests that need one of these wait for it before their clocks run (tests/conftest.py).
"""

import contextlib
import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from testcluster import build  # noqa: E402 - the path comes first

from examples import outside, servers  # noqa: E402 - the path comes first
from selection import SELECTION  # noqa: E402 - the path comes first
from server import sdk_environment  # noqa: E402 - the path comes first


def kubernetes() -> None:
    """The programs of a cluster."""
    build.check_machine()
    build.kubernetes()
    build.kubectl()


def kwok() -> None:
    """What plays the nodes of a cluster; only the proof has any."""
    build.check_machine()
    build.kwok()


def image() -> None:
    """The operator's image, of this checkout."""
    build.check_machine()
    subprocess.run([sys.executable, ROOT / "deploy" / "image.py"], check=True, stdout=subprocess.DEVNULL)


def runner() -> None:
    """The compiler for both architectures, and what it makes."""
    with tempfile.TemporaryDirectory() as folder:
        for architecture in ("x86_64", "aarch64"):
            subprocess.run([ROOT / "runner" / "build.sh", Path(folder, architecture), architecture], check=True)


def sdk() -> None:
    """The client of the public API, for tests/server."""
    sdk_environment.python()


def page() -> None:
    """The page, and what its tests in the browser need."""
    script = ROOT / "scripts" / "page.sh"
    subprocess.run([script], check=True)
    subprocess.run([script, "tools"], check=True)


TOOLS: dict[str, Callable[[], object]] = {
    each.__name__: each
    for each in (
        kubernetes,
        kwok,
        runner,
        image,
        sdk,
        page,
        outside.versitygw,
        outside.awscli,
        outside.schemathesis,
        outside.terraform,
        servers.moto,
        servers.openbao,
    )
}
PROBLEMS = (build.UnavailableError, OSError, subprocess.SubprocessError, pytest.skip.Exception)


def make(name: str) -> None:
    """One of them, or a line that says why not."""
    try:
        TOOLS[name]()
    except PROBLEMS as problem:
        sys.stderr.write(f"dayfly: {name} for the tests could not be made: {problem}\n")
    except pytest.fail.Exception as problem:
        sys.exit(f"dayfly: {problem}")


@functools.cache
def ready(name: str) -> None:
    """Make it, or wait for whoever does. The test that cannot have it says so itself."""
    with contextlib.suppress(*PROBLEMS, pytest.fail.Exception):
        TOOLS[name]()


if __name__ == "__main__":
    usual = [name for name in TOOLS if name != "kwok" or SELECTION.is_complete]
    with ThreadPoolExecutor() as pool:  # one builds while another downloads
        list(pool.map(make, sys.argv[1:] or usual))
