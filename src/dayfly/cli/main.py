"""Where the program begins. `--version` is answered before the command line parser is even read."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from dayfly import __version__

_STDERR = 2


def main() -> NoReturn:
    """Carry out the command line and leave with one of the codes of `dayfly.client.errors.Exit`."""
    arguments = sys.argv[1:]
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_what_is_closed()
    if arguments == ["--version"]:
        try:
            os.write(sys.stdout.fileno(), f"dayfly {__version__}\n".encode())
            sys.exit(0)
        except OSError:
            pass  # nobody takes it; the long way has the words and the code for that
    from dayfly.cli.verbs import run

    sys.exit(run(arguments))


def _open_what_is_closed() -> None:
    """Whoever closes a standard stream (`>&-`) wants silence; no file of ours may come to lie in its place."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(free)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 # open as long as we live
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 # as stdin
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 # as stdin
