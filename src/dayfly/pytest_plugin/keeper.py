"""Stops the server of a test run, once no process of pytest uses it and nothing is left of what they had.

A program of its own, so that it outlives a pytest that is killed: then the leases run out, the server cleans up, and
this one stops it. Its home is in `DAYFLY_HOME`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time

from dayfly.client import Client, DayflyError
from dayfly.client.home import Home
from dayfly.execute.process.files import locked

_LOOK_S = 0.5


def main() -> None:
    """Until the server has been stopped, by us or by somebody else."""
    home = Home.find()
    users = os.open(home.path / "users", os.O_RDWR | os.O_CLOEXEC)
    while True:
        time.sleep(_LOOK_S)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        try:
            with Client(home=home.path) as client:
                has_ended = not client.sandboxes.list()
        except DayflyError:
            if not locked(str(home.path / "lock")):
                return  # it is stopped already
            has_ended = False  # it does not answer now: whoever went away could never stop it
        if has_ended:
            # Whoever begins to use it now waits for our lock, and starts another.
            subprocess.run([sys.executable, "-m", "dayfly", "down"], check=False)
            return
        fcntl.flock(users, fcntl.LOCK_UN)


if __name__ == "__main__":
    main()
