"""The parts of this installation, in a checkout or an installed package, and how to install a missing part."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dayfly.client.errors import DayflyError, Exit

_ROOT = Path(__file__).resolve().parents[3]


def checkout() -> Path | None:
    """Return the checkout from which this program runs; None for an installed package."""
    return _ROOT if (_ROOT / "runner" / "build.sh").is_file() else None


def packaged_runner() -> Path | None:
    """Return the runner program in the package for the architecture of this machine."""
    program = Path(__file__).resolve().parents[1] / "runners" / os.uname().machine
    return program if os.access(program, os.X_OK) else None


def require_linux() -> None:
    """Refuse a command that runs processes of sandboxes on a machine that cannot.

    Raises:
        DayflyError: this is not Linux.
    """
    if sys.platform != "linux":
        message = f"this command runs on Linux only, and this machine has another system ({sys.platform})"
        advice = "use a server (--server) or a cluster (--context), or run Dayfly in a Linux container"
        raise DayflyError(Exit.USAGE, message, advice)


def find_runner() -> str:
    """Return the path of the runner: `$DAYFLY_RUNNER`, or the checkout's, or the package's.

    The checkout's is built first if it is older than its sources.

    Raises:
        DayflyError: there is no runner and it cannot be built.
    """
    if named := os.environ.get("DAYFLY_RUNNER"):
        if not os.access(named, os.X_OK):
            message = f"DAYFLY_RUNNER is {named}, which is not a program"
            raise DayflyError(Exit.USAGE, message, "build one with: runner/build.sh OUT")
        return str(Path(named).absolute())
    import subprocess

    root = checkout()
    if root is None:
        if (packaged := packaged_runner()) is not None:
            return str(packaged)
        message = f"the package has no runner program for this machine ({os.uname().machine})"
        raise DayflyError(
            Exit.FAILED, message, "build it with runner/build.sh in a checkout and set DAYFLY_RUNNER to its path"
        )
    build = root / "runner" / "build.sh"
    program = root / ".cache" / "runner" / "dayfly-runner"
    # Its messages go to the user: the first build may download a compiler.
    if subprocess.run([build, program], stdin=subprocess.DEVNULL, check=False).returncode:
        message = f"{build} could not build the runner program"
        raise DayflyError(Exit.FAILED, message, "install a C compiler (Debian: gcc and libc6-dev) and try again")
    return str(program)


def gallery() -> Path:
    """Return the folder of the examples in the checkout, or its copy in the package."""
    root = checkout()
    return root / "examples" if root else Path(__file__).resolve().parents[1] / "gallery"


def install_advice(extra: str) -> str:
    """Return the advice how to install an extra, for the way in which this Dayfly was installed."""
    root = checkout()
    if root is not None:
        # Only the development environment has Envoy and MCP; the environment for clusters has all other extras.
        return f"install it with: {root}/scripts/setup.sh {'dev' if extra in ('routing', 'mcp') else 'operator'}"
    if not (origin := _origin()):
        return f"install Dayfly with its extra, from its checkout: {_installer()} 'CHECKOUT[{extra}]'"
    return f"install it with: {_installer()} 'dayfly[{extra}] @ {origin}'"


def missing_extra(extra: str, error: ImportError) -> DayflyError:
    """Return the error for a package that an extra would have installed."""
    message = f'the extra "{extra}" is not installed ({error.name} is missing)'
    return DayflyError(Exit.FAILED, message, install_advice(extra))


def _installer() -> str:
    """Return the command that installs packages into the environment of this interpreter."""
    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return "pipx install --force"
    if Path(sys.prefix, "uv-receipt.toml").is_file():
        return "uv tool install --force"
    return "pip install"


def _origin() -> str:
    """Return the URL from which this package was installed; empty if it is not recorded or no longer there.

    A name without a URL may belong to another project on a package index, so it is never a substitute.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        recorded = json.loads(distribution("dayfly").read_text("direct_url.json") or "{}")
        url, source = recorded.get("url", ""), recorded.get("vcs_info")
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        return ""
    if url.startswith("file://"):
        return url if Path(unquote(urlsplit(url).path)).exists() else ""
    return f"{source['vcs']}+{url}@{source['commit_id']}" if source else url
