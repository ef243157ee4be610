"""The Python SDK of the public API, in a separate environment."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
ENVIRONMENT = CHECKOUT / ".cache" / "signadot-sdk"
PINNED = "signadot-sdk==0.3.6"


def python() -> Path:
    """Return its interpreter. It is separate because the SDK contains packages named `test` and `swagger_client`."""
    found, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / f".{PINNED}"
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    with (ENVIRONMENT.parent / "signadot-sdk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
            command = [found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PINNED]
            subprocess.run(command, check=True, timeout=110)
            stamp.touch()
    return found
