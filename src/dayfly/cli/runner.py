"""Where the program is that starts steps and outlives the server: named, built from our checkout, or come with us."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dayfly.cli import installed
from dayfly.client.errors import DayflyError, Exit


def find() -> str:
    """The runner's path: `$DAYFLY_RUNNER`; else the checkout's, built if older than its sources; else the package's.

    Raises:
        DayflyError: there is none and none can be built.
    """
    if named := os.environ.get("DAYFLY_RUNNER"):
        if not os.access(named, os.X_OK):
            message = f"DAYFLY_RUNNER is {named}, but there is no program there"
            raise DayflyError(Exit.USAGE, message, "build one with: runner/build.sh OUT")
        return str(Path(named).absolute())
    root = installed.checkout()
    if root is None:
        if (packaged := installed.packaged_runner()) is not None:
            return str(packaged)
        message = f"the package has no runner program for this machine ({os.uname().machine})"
        raise DayflyError(
            Exit.FAILED, message, "build it with runner/build.sh of a checkout and name it in DAYFLY_RUNNER"
        )
    build = root / "runner" / "build.sh"
    program = root / ".cache" / "runner" / "dayfly-runner"
    # Its own messages (a compiler is fetched, once) are for whoever started us.
    if subprocess.run([build, program], stdin=subprocess.DEVNULL, check=False).returncode:
        message = f"{build} could not build the runner program"
        raise DayflyError(Exit.FAILED, message, "install a C compiler (Debian: gcc and libc6-dev) and try again")
    return str(program)
