"""The server as a process of this machine: starting one apart from the terminal, and stopping it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from dayfly.cli import runner
from dayfly.cli.guard import MARK
from dayfly.cli.target_server import Client
from dayfly.client.address import Address
from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.process.ci_marks import without_ci_marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.client.home import Home

_ANSWERS_WITHIN = 60
_ENDS_WITHIN = 10
_SAID = "dayfly: "


def start(home: Home, arguments: Sequence[str]) -> Client:
    """Run `dayfly up` with these arguments in a session of its own and wait until it answers.

    It outlives a CI job that starts it: its environment has no mark of the job, and its parent ends once it answers.

    Raises:
        DayflyError: it ended instead, with what it said last; or it does not answer in time.
    """
    home.make()
    runner.find()  # may build it, which takes its time and has something to say
    with home.log.open("ab") as log:
        began = log.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "dayfly", "up", "--background", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.path,
            env=_environment(home),
            start_new_session=True,
        )
    try:
        code = child.wait(_ANSWERS_WITHIN)
    except subprocess.TimeoutExpired:
        _give_up(child)
        message = f"the server does not answer after {_ANSWERS_WITHIN} s"
        raise DayflyError(Exit.TIMED_OUT, message, f"see {home.log}") from None
    except BaseException:  # as Ctrl-C
        _give_up(child)
        raise
    # Only a server that answered ends its parent with 0. It may have been stopped since.
    if code == 0 and home.server_process() is not None and (client := answering(home)):
        return client
    with home.log.open("rb") as log:
        log.seek(began)
        lines = log.read().decode(errors="replace").splitlines()
    # Another server that was quicker writes there as well; only a server that ends begins a line with "dayfly: ".
    said = [line.removeprefix(_SAID) for line in lines if line.startswith(_SAID)]
    message = said[-1] if said else f"the server ended at once with code {code}"
    given = Exit(code) if code and code in set(Exit) else Exit.FAILED
    raise DayflyError(given, message, "" if said else f"see {home.log}")


def _give_up(child: subprocess.Popen[bytes]) -> None:
    """End a server that does not answer, and its parent. Steps continue, and the next server adopts them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.returncode is None:  # then it is not reaped, and the number is still its own
            os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_ENDS_WITHIN)


def _environment(home: Home) -> dict[str, str]:
    """Our environment without the marks by which CI runners, and a `dayfly with` that we run in, find what they end."""
    kept = {name: value for name, value in without_ci_marks(os.environ).items() if name != MARK}
    return {**kept, "DAYFLY_HOME": str(home.path)}


def stop(home: Home, pid: int, seconds: float) -> None:
    """Ask the server to end and wait until it has.

    Raises:
        DayflyError: it may not be asked, or takes too long.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if home.server_process() != pid:  # it ended, and its number may be somebody else's by now
            return
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], seconds)[0]:
            message = f"the server (process {pid}) still runs after {seconds:g} s"
            raise DayflyError(Exit.TIMED_OUT, message, f"see {home.log}")
    except ProcessLookupError:
        return
    except PermissionError:
        message = f"the server (process {pid}) belongs to somebody else"
        raise DayflyError(Exit.DENIED, message, "stop it as its owner") from None
    finally:
        os.close(handle)


def answering(home: Home) -> Client | None:
    """A client of the home's server if it answers."""
    url = home.read(home.url)
    if not url:
        return None
    client = Client(Address(url, home.read(home.key)))
    with contextlib.suppress(DayflyError):
        client.health()
        return client
    return None
