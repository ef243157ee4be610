"""Where the program is that starts steps and outlives the server: named, or built from the checkout we run from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from dayfly.cli.exits import CliError, Exit

_CHECKOUT = Path(__file__).resolve().parents[3]


def find() -> str:
    """The runner's path: `$DAYFLY_RUNNER`, else the checkout's, built if it is older than its sources.

    Raises:
        CliError: there is none and none can be built.
    """
    if named := os.environ.get("DAYFLY_RUNNER"):
        if not os.access(named, os.X_OK):
            message = f"DAYFLY_RUNNER is {named}, and no program is there"
            raise CliError(Exit.USAGE, message, "build one with: runner/build.sh OUT")
        return str(Path(named).absolute())
    build = _CHECKOUT / "runner" / "build.sh"
    if not build.is_file():
        message = "the runner program that starts steps is not there"
        raise CliError(Exit.FAILED, message, "build it with runner/build.sh of a checkout and name it in DAYFLY_RUNNER")
    program = _CHECKOUT / ".cache" / "runner" / "dayfly-runner"
    # Its own messages (a compiler is fetched, once) are for whoever started us.
    if subprocess.run([build, program], stdin=subprocess.DEVNULL, check=False).returncode:
        message = f"{build} could not build the runner program"
        raise CliError(Exit.FAILED, message, "install a C compiler (Debian: gcc and libc6-dev) and try again")
    return str(program)
