"""The entry point of the program. `--version` is answered without importing the command line parser."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from dayfly import __version__

_STDERR = 2


def main() -> NoReturn:
    """Run the command line and exit with one of the codes of `dayfly.client.errors.Exit`."""
    arguments = sys.argv[1:]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_closed_streams()
    if arguments == ["--version"]:
        try:
            os.write(sys.stdout.fileno(), f"dayfly {__version__}\n".encode())
            sys.exit(0)
        except OSError:
            pass  # stdout cannot be written; `run` reports that
    from dayfly.cli.verbs import run

    sys.exit(run(arguments))


def _open_closed_streams() -> None:
    """Open closed standard streams (`>&-`) as /dev/null, so that no other file gets their numbers."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(free)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 # open until the process ends
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 # as stdin
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 # as stdin
