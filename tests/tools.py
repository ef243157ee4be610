"""Build the programs that the tests use and that no registry has.

    python -m tests.tools [NAME ...]

`make test` does this while the first tests run. The first build takes minutes, because Kubernetes is built from source; the
results are kept in ~/.cache/dayfly or $DAYFLY_CACHE. A program that cannot be built is reported here. Tests that need it are
skipped, or fail in CI. The time limit of a test starts after its programs are built (tests/conftest.py).
"""

import contextlib
import functools
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
from deploy.image import layers  # noqa: E402 - the path comes first
from testcluster import build, images  # noqa: E402 - the path comes first
from tests.examples import external_services, servers  # noqa: E402 - the path comes first
from tests.selection import SELECTION  # noqa: E402 - the path comes first
from tests.server import sdk_environment  # noqa: E402 - the path comes first


def kubernetes() -> None:
    """Build the programs of a cluster."""
    build.check_machine()
    build.kubernetes()
    build.kubectl()


def kwok() -> None:
    """Build the simulator of nodes, which only the proof uses."""
    build.check_machine()
    build.kwok()


def helm() -> None:
    """Build Helm."""
    build.check_go("Helm")
    build.helm()


def health() -> None:
    """Build the program that computes the health of objects as GitOps tools do."""
    build.check_go("the health checks of GitOps tools")
    external_services.health()


def image() -> None:
    """Build the operator's image from this checkout."""
    build.check_machine()
    subprocess.run([sys.executable, ROOT / "deploy" / "image.py"], check=True, stdout=subprocess.DEVNULL)


def other_image() -> None:
    """Build Python and the dependencies for the architecture that this machine does not have."""
    for machine in images.ARCHITECTURES.keys() - {platform.machine()}:
        layers(machine)


def runner() -> None:
    """Fetch the C compiler and build the runner for both architectures."""
    with tempfile.TemporaryDirectory() as folder:
        for architecture in ("x86_64", "aarch64"):
            subprocess.run([ROOT / "runner" / "build.sh", Path(folder, architecture), architecture], check=True)


def sdk() -> None:
    """Install the client of the public API, for tests/server."""
    sdk_environment.python()


def page() -> None:
    """Build the page, and install what its browser tests need."""
    script = ROOT / "scripts" / "page.sh"
    subprocess.run([script], check=True)
    subprocess.run([script, "tools"], check=True)


TOOLS: dict[str, Callable[[], object]] = {
    each.__name__: each
    for each in (
        kubernetes,
        kwok,
        helm,
        health,
        runner,
        image,
        other_image,
        sdk,
        page,
        external_services.versitygw,
        external_services.awscli,
        external_services.schemathesis,
        external_services.terraform,
        servers.moto,
        servers.openbao,
    )
}
PROBLEMS = (build.UnavailableError, OSError, subprocess.SubprocessError, pytest.skip.Exception)


def make(name: str) -> None:
    """Build one, or print why that is not possible."""
    try:
        TOOLS[name]()
    except PROBLEMS as problem:
        sys.stderr.write(f"dayfly: {name} for the tests could not be built: {problem}\n")
    except pytest.fail.Exception as problem:
        sys.exit(f"dayfly: {problem}")


@functools.cache
def ready(name: str) -> None:
    """Build it, or wait until another process has built it. A test whose program is missing reports that itself."""
    with contextlib.suppress(*PROBLEMS, pytest.fail.Exception):
        TOOLS[name]()


if __name__ == "__main__":
    usual = [name for name in TOOLS if name != "kwok" or SELECTION.is_complete]
    with ThreadPoolExecutor() as pool:  # one builds while another downloads
        list(pool.map(make, sys.argv[1:] or usual))
