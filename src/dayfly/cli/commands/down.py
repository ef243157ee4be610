"""`dayfly down`: stop the server and its forks. Running steps continue, and the next server adopts them."""

from __future__ import annotations

from dayfly.cli import options
from dayfly.cli.command_classes import verb
from dayfly.cli.local import server_process
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home


@verb("down")
@options.timeout("1m")
def command(timeout: float) -> None:
    """Stop the server of this home and wait until it has stopped.

    Forks stop. Sandboxes are kept, and running steps continue: the next `dayfly up` takes them over.
    """
    home = Home.find()
    pid = home.server_process()
    if pid is None:
        raise DayflyError(Exit.NO_SERVER, f"no server runs in {home.path}", "start one with: dayfly up")
    server_process.stop(home, pid, timeout)
    show.print_message(f"The server (process {pid}) has ended.")
