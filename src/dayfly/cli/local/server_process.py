"""Servers as processes of this machine: start one in the background, stop it, and open its listening socket."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
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
from dayfly.spec.scalars import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dayfly.client.home import Home

_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 10
_MESSAGE_PREFIX = "dayfly: "
_SIGNAL_BASE = 128


def start(home: Home, arguments: Sequence[str]) -> ServerClient:
    """Run `dayfly up` with these arguments in a new session and wait until it answers.

    It outlives a CI job that starts it: its environment has no mark of the job, and its parent ends when it answers.

    Raises:
        DayflyError: the server ended, with its last message, or it does not answer in time. Or this is not Linux.
    """
    installed.require_linux()
    home.make()
    installed.find_runner()  # may build the runner, which takes time and prints messages
    with home.log.open("ab") as log:
        offset = log.tell()
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
        code = child.wait(_START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _give_up(child)
        message = f"the server does not answer after {_START_TIMEOUT_S} s"
        raise DayflyError(Exit.TIMED_OUT, message, f"see {home.log}") from None
    except BaseException:  # as Ctrl-C
        _give_up(child)
        raise
    # Only a server that answered ends its parent with 0. It may have been stopped since.
    if code == 0 and home.server_process() is not None and (client := connect_if_answering(home)):
        return client
    with home.log.open("rb") as log:
        log.seek(offset)
        lines = log.read().decode(errors="replace").splitlines()
    # Another, quicker server writes to the same log. Only a server that ends starts a line with "dayfly: ".
    messages = [line.removeprefix(_MESSAGE_PREFIX) for line in lines if line.startswith(_MESSAGE_PREFIX)]
    message = messages[-1] if messages else f"the server ended at once with code {code}"
    given = Exit(code) if code and code in set(Exit) else Exit.FAILED
    raise DayflyError(given, message, "" if messages else f"see {home.log}")


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGINT, SIGTERM or SIGHUP sets. Ignored signals (nohup) stay ignored."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def log_warnings() -> None:
    """Log warnings of this process on stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")


def _give_up(child: subprocess.Popen[bytes]) -> None:
    """End a server that does not answer, and its parent. Steps continue, and the next server adopts them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.returncode is None:  # not reaped, so its process ID is still valid
            os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_STOP_TIMEOUT_S)


def _environment(home: Home) -> dict[str, str]:
    """Return the environment without the marks by which CI runners and `dayfly with` find processes to end."""
    kept = {name: value for name, value in without_ci_marks(os.environ).items() if name != MARK}
    return {**kept, "DAYFLY_HOME": str(home.path)}


def stop(home: Home, pid: int, seconds: float) -> None:
    """Stop the server and wait until it has ended.

    Raises:
        DayflyError: another user owns the server, or it takes too long.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if home.server_process() != pid:  # it ended, and another process may have its ID
            return
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], seconds)[0]:
            message = f"the server (process {pid}) is still running after {seconds:g} s"
            raise DayflyError(Exit.TIMED_OUT, message, f"see {home.log}")
    except ProcessLookupError:
        return
    except PermissionError:
        message = f"the server (process {pid}) belongs to another user"
        raise DayflyError(Exit.DENIED, message, "stop it as its owner") from None
    finally:
        os.close(handle)


def connect_if_answering(home: Home) -> ServerClient | None:
    """Return a client of the home's server if it answers."""
    url = home.read(home.url)
    if not url:
        return None
    client = ServerClient(Address(url, home.read(home.key)))
    with contextlib.suppress(DayflyError):
        client.health()
        return client
    return None


def continue_in_background() -> Callable[[], None]:
    """Continue in a child process; return a function that reports that the child is ready.

    A server in the background has no parent: CI runners also kill the children of a job's processes.

    The parent ends with code 0 once the child is ready, or with the child's code if the child ends before that.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started this process may block signals
    parent_end, child_end = socket.socketpair()
    if child := os.fork():
        child_end.close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # both receive it; the parent ends after the child
        os._exit(0 if parent_end.recv(1) else _exit_code(child))
    parent_end.close()

    def report_ready() -> None:
        child_end.send(b".")
        child_end.close()

    return report_ready


def _exit_code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else _SIGNAL_BASE - code


def parse_address(listen: str, option: str) -> tuple[str, int]:
    """Return the host and port of an option.

    Raises:
        DayflyError: it has another form.
    """
    host, colon, written = listen.rpartition(":")
    port = numbers.parse_whole(written, numbers.MAX_PORT)
    if not (colon and host) or port is None:
        raise DayflyError(Exit.USAGE, f"{listen!r} is not an address to listen on", f"write {option} HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), port


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextlib.contextmanager
def listen_on(host: str, port: int, advice: str, *, called: str = "") -> Iterator[socket.socket]:
    """Open a listening socket while the context lasts. Port 0 uses a free one.

    Connections wait until the socket is served. `called` replaces the address in errors.

    Raises:
        DayflyError: the address cannot be used; `advice` says how to choose another.
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
