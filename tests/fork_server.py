"""Runs `dayfly` in processes that are forked from a server, which has already imported the command line.

A started interpreter needs 0.1 to 0.4 seconds of CPU time for its imports, and tests run thousands of commands. A forked
command is a process with its own arguments, environment, folder and standard streams, and runs `python -m dayfly` from
its first line. `tests/cli/test_startup.py` tests the imports with started interpreters.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

COMMAND = (sys.executable, "-m", "dayfly")
PACKAGES = ("dayfly.cli.commands", "dayfly.cli.backends", "dayfly.cli.output", "dayfly.client", "dayfly.compile")
MODULES = ("dayfly.cli.verbs", "dayfly.cli.local.server_process", "dayfly.spec.documents", "dayfly.lint", "h11", "yaml")
# Settings that an interpreter reads when it starts.
_INTERPRETER = ("PYTHON", "LC_", "LANG")
_MAX_REQUEST = 1 << 17
_FDS = 4
_STARTING = threading.Lock()


def run(
    arguments: list[str], *, stdin: bytes, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run `dayfly` with these arguments to its end, as `subprocess.run` does with `capture_output`.

    Raises:
        subprocess.TimeoutExpired: the command, or a process that has its output, still runs; the command is killed.
    """
    request = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
    if len(request) > _MAX_REQUEST or not cwd.is_dir() or _settings(env) != _settings(os.environ):
        command = [*COMMAND, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=env, timeout=timeout)
    with contextlib.ExitStack() as stack:
        streams = [_pipe(stack) for _ in range(3)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(ours)
        with theirs:
            given = [streams[0][0], streams[1][1], streams[2][1], theirs]
            socket.send_fds(_server().control, [request], [each.fileno() for each in given])
            for each in given[:3]:
                each.close()
        try:
            out, err = _communicate(streams[0][1], stdin, [streams[1][0], streams[2][0]], time.monotonic() + timeout)
            ours.settimeout(timeout)
            status = json.loads(ours.recv(64) or _server().fail())
        except TimeoutError:
            raise subprocess.TimeoutExpired([*COMMAND, *arguments], timeout) from None
    _server().cpu_s += status["cpu_s"]
    return subprocess.CompletedProcess(arguments, status["code"], bytes(out), bytes(err))


def cpu_seconds() -> float:
    """Return the CPU time of all forked commands of this process, and of their children that have ended."""
    return _server().cpu_s if _start_server.cache_info().currsize else 0.0


def _settings(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_INTERPRETER)}


def _pipe(stack: contextlib.ExitStack) -> tuple[Any, Any]:
    reads, writes = os.pipe()
    return stack.enter_context(os.fdopen(reads, "rb", 0)), stack.enter_context(os.fdopen(writes, "wb", 0))


def _communicate(stdin: Any, data: bytes, outputs: list[Any], deadline: float) -> list[bytearray]:
    """Write the input and read the outputs to their ends.

    Raises:
        TimeoutError: at the deadline.
    """
    found = {each: bytearray() for each in outputs}
    left = memoryview(data)
    with selectors.DefaultSelector() as selector:
        for each in outputs:
            selector.register(each, selectors.EVENT_READ)
        os.set_blocking(stdin.fileno(), False)
        selector.register(stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            for stream in (key.fileobj for key, _ in ready):
                if stream is stdin:
                    with contextlib.suppress(BrokenPipeError):
                        left = left[os.write(stdin.fileno(), left) :] if left else left
                        if left:
                            continue
                elif new := os.read(stream.fileno(), 1 << 16):
                    found[stream] += new
                    continue
                selector.unregister(stream)
                stream.close()
    return list(found.values())


class _Server:
    """The server of this process. It ends when this process closes its socket."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=Path(__file__).parents[1],
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def fail(self) -> NoReturn:
        _, err = self._process.communicate()
        raise AssertionError(f"the fork server has ended: {err.decode()}")

    def close(self) -> None:
        self.control.close()
        with self._process:
            pass


@functools.cache
def _start_server() -> _Server:
    return _Server()


def _server() -> _Server:
    with _STARTING:
        return _start_server()


# --- the server -------------------------------------------------------------------------------------------------------


def _import_command_line() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for each in pkgutil.iter_modules(package.__path__, f"{name}."):
            with contextlib.suppress(ImportError):  # it needs an extra
                importlib.import_module(each.name)
    gc.collect()
    gc.freeze()


def _serve(control: socket.socket) -> None:
    """Fork a process for each request. Return in the forked process, ready to run its command.

    The reply has the exit code and the CPU time. A client that closes the socket of its reply before kills the command.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            key, _ = selector.select()[0]
            if key.fileobj is control:
                data, fds, _, _ = socket.recv_fds(control, _MAX_REQUEST, _FDS)
                if not data:
                    sys.exit()
                if not (process := os.fork()):
                    for each in selector.get_map().values():
                        os.close(each.fd)
                        if isinstance(each.fileobj, socket.socket):
                            each.fileobj.detach()
                    os.close(fds.pop())
                    return _become(json.loads(data), fds)
                *streams, reply_fd = fds
                for stream in streams:
                    os.close(stream)
                reply = socket.socket(fileno=reply_fd)
                selector.register(reply, selectors.EVENT_READ, process)
                selector.register(os.pidfd_open(process), selectors.EVENT_READ, (process, reply))
            elif isinstance(key.fileobj, socket.socket):
                os.kill(key.data, signal.SIGKILL)
                selector.unregister(key.fileobj)
            else:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                process, reply = key.data
                if reply.fileno() in selector.get_map():
                    selector.unregister(reply)
                _report_end(process, reply)


def _report_end(process: int, reply: socket.socket) -> None:
    _, status, usage = os.wait4(process, 0)
    cpu_s = usage.ru_utime + usage.ru_stime
    with reply, contextlib.suppress(OSError):
        reply.send(json.dumps({"code": os.waitstatus_to_exitcode(status), "cpu_s": cpu_s}).encode())


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Take the arguments, the environment, the folder and the standard streams of a command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ |= request["env"]
    time.tzset()
    sys.argv[1:] = request["arguments"]


def _main() -> NoReturn:
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_command_line()
    _serve(control)
    try:
        runpy.run_module("dayfly", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            if not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()  # noqa: SLF001 # as at the end of an interpreter
        sys.stdout.flush()
        os._exit(int(end.code or 0))  # to free all modules takes three times as long as the command
    raise AssertionError("the command line has not ended with an exit code")


if __name__ == "__main__":
    _main()
