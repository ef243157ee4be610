"""`dayfly down`: the server ends, and its forks; steps that are running go on and are taken over by the next one."""

from __future__ import annotations

import click

from dayfly.cli import options
from dayfly.cli.local import server_process
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home


@click.command("down")
@options.timeout("1m")
def command(timeout: float) -> None:
    """Stop the server of this home and wait until it has ended.

    Forks stop. Sandboxes stay as they are, and running steps continue: the next `dayfly up` takes them over.
    """
    home = Home.find()
    pid = home.server_process()
    if pid is None:
        raise DayflyError(Exit.NO_SERVER, f"no server runs in {home.path}", "start one with: dayfly up")
    server_process.stop(home, pid, timeout)
    show.talk(f"The server (process {pid}) has ended.")
