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
                left = client.sandboxes.list()
        except DayflyError:
            if not _is_held(home):
                return  # it is stopped already
            left = None  # it is, and does not answer now: whoever went away could never stop it
        if left is not None and not left:
            # Whoever begins to use it now waits for our lock, and starts another.
            subprocess.run([sys.executable, "-m", "dayfly", "down"], check=False)
            return
        fcntl.flock(users, fcntl.LOCK_UN)


def _is_held(home: Home) -> bool:
    """Whether a server has the home, by the kernel's lock, whether or not it answers."""
    try:
        descriptor = os.open(home.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


if __name__ == "__main__":
    main()
