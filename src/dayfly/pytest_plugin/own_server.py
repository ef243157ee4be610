"""The server of a test run. The first process starts it, and it stops itself after the last process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from dayfly.client import Client, DayflyError, Exit
from dayfly.client.errors import UnreachableError
from dayfly.client.home import Home
from dayfly.client.retry import RetryPolicy

if TYPE_CHECKING:
    from pathlib import Path

_OTHER_SERVER = ("DAYFLY_URL", "DAYFLY_API_KEY")


class OwnServer:
    """The server of a test run. This process uses it while it holds a shared lock on `Home.users`.

    The kernel releases the lock at the end of the process.

    Attributes:
        home: The home of the server.
        client: A client of the server.

    Raises:
        DayflyError: the server does not start.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        Home.of(home).check()  # before anything is opened in it
        home.chmod(0o700)
        self._users = os.open(Home.of(home).users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._users, fcntl.LOCK_SH)
        self.ensure_running()
        self.client = Client(home=home)

    def close(self) -> None:
        """Release the lock: this process no longer uses the server."""
        os.close(self._users)

    def ensure_running(self) -> None:
        """Start the server if it is not running, or if it was killed.

        Raises:
            DayflyError: the server does not start or does not answer.
        """
        starting = os.open(self.home / "starting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(starting, fcntl.LOCK_EX)  # the other workers wait until it runs
            if not self._answers():
                self._start()
                if not self._answers():
                    log = self.home / "server.log"
                    raise DayflyError(Exit.NO_SERVER, f"the server in {self.home} does not answer", f"see {log}")
        finally:
            os.close(starting)

    def revive(self) -> None:
        """Start the server again if it was killed."""
        if Home.of(self.home).server_process() is None:
            with contextlib.suppress(DayflyError):  # the next request reports the error
                self.ensure_running()

    def _answers(self) -> bool:
        if Home.of(self.home).server_process() is None:
            return False  # another program may answer at the address of a killed server
        try:
            with Client(home=self.home, retries=RetryPolicy(patience=0)) as client:
                client.sandboxes.list()
        except UnreachableError:
            return False
        return True

    def _start(self) -> None:
        """Start the server. It stops itself once no process uses it and no sandbox exists.

        Raises:
            DayflyError: the server does not start; the message has the reason.
        """
        kept = {name: value for name, value in os.environ.items() if name not in _OTHER_SERVER}
        environment = {**kept, "DAYFLY_HOME": str(Home.of(self.home).path)}
        up = [sys.executable, "-m", "dayfly", "up", "--detach", "--while-used", "--port", "0"]
        done = subprocess.run(
            up, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DayflyError(Exit.NO_SERVER, f"no server for the tests: {done.stderr.strip()}")
