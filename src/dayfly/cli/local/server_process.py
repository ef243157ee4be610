"""Servers as processes of this machine: start one apart from the terminal, stop it, go to the background, listen."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from dayfly.cli import installed
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.local.guard import MARK
from dayfly.client.address import Address
from dayfly.client.errors import DayflyError, Exit
from dayfly.execute.process.ci_marks import without_ci_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dayfly.client.home import Home

_ANSWERS_WITHIN = 60
_ENDS_WITHIN = 10
_SAID = "dayfly: "
_SIGNALLED = 128


def start(home: Home, arguments: Sequence[str]) -> ServerClient:
    """Run `dayfly up` with these arguments in a session of its own and wait until it answers.

    It outlives a CI job that starts it: its environment has no mark of the job, and its parent ends once it answers.

    Raises:
        DayflyError: it ended instead, with what it said last; or it does not answer in time.
    """
    home.make()
    installed.find_runner()  # may build it, which takes its time and has something to say
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


def answering(home: Home) -> ServerClient | None:
    """A client of the home's server if it answers."""
    url = home.read(home.url)
    if not url:
        return None
    client = ServerClient(Address(url, home.read(home.key)))
    with contextlib.suppress(DayflyError):
        client.health()
        return client
    return None


def fork() -> Callable[[], None]:
    """Continue in a child process; return a function that reports that the child is ready.

    A server in the background has no parent: CI runners also kill the children of a job's processes.

    The parent ends with code 0 once the child is ready, or with the child's code if the child ends before that.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # it may have been started by a thread that blocks some
    ours, childs = socket.socketpair()
    if child := os.fork():
        childs.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to both; the parent ends after the child
        os._exit(0 if ours.recv(1) else _code(child))
    ours.close()

    def report_ready() -> None:
        childs.send(b".")
        childs.close()

    return report_ready


def _code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else _SIGNALLED - code


@contextlib.contextmanager
def listening(host: str, port: int, advice: str, *, called: str = "") -> Iterator[socket.socket]:
    """A socket that is bound and listens while the context lasts; port 0 takes a free one.

    Who connects waits until somebody serves there. `called` is what a refusal calls the address, if not by itself.

    Raises:
        DayflyError: that address cannot be had; `advice` says how to name another.
    """
    with contextlib.ExitStack() as opened:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = opened.enter_context(socket.socket(family, kind, protocol))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(128)
        except OSError as fault:
            reason = (fault.strerror or "cannot be used").lower()
            raise DayflyError(Exit.FAILED, f"{called or f'{host}:{port}'}: {reason}", advice) from None
        yield sock
