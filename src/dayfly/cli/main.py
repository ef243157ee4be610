"""The entry point of the program. `--version` is answered without importing the command line parser or `typing`."""

from __future__ import annotations

import gc
import os
import sys

from dayfly import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

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
    gc.disable()  # imports leave no garbage, and `verbs` enables it before it invokes the verb
    from dayfly.cli.verbs import run

    code = run(arguments)
    if "asyncio" not in sys.modules and "concurrent.futures" not in sys.modules:
        # A verb without servers and threads has nothing to end. `run` has flushed its output, and deletion of all
        # objects takes as long as a request.
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open closed standard streams (`>&-`) as /dev/null, so that no other file gets their numbers."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(free)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 # open until the process ends
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 # as stdin
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 # as stdin
