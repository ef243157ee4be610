"""Where the program begins. `--version` is answered before the command line parser is even read."""

from __future__ import annotations

import sys
from typing import NoReturn

from dayfly import __version__


def main() -> NoReturn:
    """Carry out the command line and leave with one of the codes of `exits.Exit`."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        sys.stdout.write(f"dayfly {__version__}\n")
        sys.exit(0)
    from dayfly.cli.verbs import run

    sys.exit(run(arguments))
