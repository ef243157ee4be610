"""The server as a process of this machine: starting one apart from the terminal, and stopping it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from dayfly.cli import lock, runner
from dayfly.cli.client import Address, Client
from dayfly.cli.exits import CliError, Exit
from dayfly.cli.guard import MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.client.home import Home

_ANSWERS_WITHIN = 60
_ENDS_WITHIN = 10
_POLL = 0.02
_SAID = "dayfly: "


def start(home: Home, arguments: Sequence[str]) -> Client:
    """Run `dayfly up` with these arguments in a session of its own and wait until it answers.

    Raises:
        CliError: it ended instead, with what it said last; or it does not answer in time.
    """
    home.make()
    left_behind = _identity(home)
    runner.find()  # may build it, which takes its time and has something to say
    with home.log.open("ab") as log:
        began = log.tell()
        child = subprocess.Popen(  # the server outlives us; nobody waits for it here
            [sys.executable, "-m", "dayfly", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.path,
            env=_environment(home),
            start_new_session=True,
        )
    deadline = time.monotonic() + _ANSWERS_WITHIN
    while time.monotonic() < deadline:
        if (code := child.poll()) is not None:
            with home.log.open("rb") as log:
                log.seek(began)
                lines = log.read().decode(errors="replace").splitlines()
            # One that was quicker writes there as well; only who ends begins a line with "dayfly: ".
            said = [line.removeprefix(_SAID) for line in lines if line.startswith(_SAID)]
            message = said[-1] if said else f"the server ended at once with code {code}"
            # 0 is what it returns when somebody stops it, and not ours: what we were to do has not been done.
            given = Exit(code) if code and code in set(Exit) else Exit.FAILED
            raise CliError(given, message, "" if said else f"see {home.log}")
        # It holds the home before it says where it is: until then a killed one's address leads to whoever is there now.
        ours = lock.process(home) == child.pid and _identity(home) != left_behind
        if ours and (client := answering(home)):
            child.returncode = 0  # keeps the interpreter from complaining about a child that still runs
            return client
        time.sleep(_POLL)
    _give_up(child)
    raise CliError(Exit.TIMED_OUT, f"the server does not answer after {_ANSWERS_WITHIN} s", f"see {home.log}")


def _give_up(child: subprocess.Popen[bytes]) -> None:
    """End a server that was started and does not answer: nobody would ever stop it. What it runs is adopted later."""
    child.terminate()
    try:
        child.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _environment(home: Home) -> dict[str, str]:
    """Ours without the mark of a `with` that we run in: what carries it is ended with it."""
    return {**{name: value for name, value in os.environ.items() if name != MARK}, "DAYFLY_HOME": str(home.path)}


def stop(home: Home, pid: int, seconds: float) -> None:
    """Ask the server to end and wait until it has.

    Raises:
        CliError: it may not be asked, or takes too long.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if lock.process(home) != pid:  # it ended, and its number may be somebody else's by now
            return
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], seconds)[0]:
            message = f"the server (process {pid}) still runs after {seconds:g} s"
            raise CliError(Exit.TIMED_OUT, message, f"see {home.log}")
    except ProcessLookupError:
        return
    except PermissionError:
        message = f"the server (process {pid}) belongs to somebody else"
        raise CliError(Exit.DENIED, message, "stop it as its owner") from None
    finally:
        os.close(handle)


def answering(home: Home) -> Client | None:
    """A client of the home's server if it answers."""
    url = home.read(home.url)
    if not url:
        return None
    client = Client(Address(url, home.read(home.key)))
    with contextlib.suppress(CliError):
        client.health()
        return client
    return None


def _identity(home: Home) -> tuple[int, int] | None:
    """Tells the file with the address from the next one of its name."""
    try:
        found = home.url.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
