"""The guard recognises its command by the start time, in every process state."""

import array
import fcntl
import signal
import subprocess
import sys
import termios
from pathlib import Path

from tests.cli.command import until

from dayfly.cli.local import guard


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def _unread(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_a_command_is_known_again_in_another_state():
    """Regression: a command that slept when `with` was killed was taken for another process with the same ID."""
    # Without the mark in its environment, only the process ID identifies the command.
    bare = {"PATH": "/usr/bin:/bin"}
    with (
        subprocess.Popen(["sh", "-c", "kill -STOP $$; exec sleep 300"], env=bare) as command,
        subprocess.Popen([sys.executable, "-I", "-S", guard.__file__, "mark"], stdin=subprocess.PIPE) as watcher,
    ):
        try:
            until(lambda: _state(command.pid) == "T")
            assert watcher.stdin is not None
            watcher.stdin.write(f"{command.pid}\n".encode())
            watcher.stdin.flush()
            until(lambda: not _unread(watcher.stdin.fileno()) and _state(watcher.pid) == "S")
            command.send_signal(signal.SIGCONT)
            until(lambda: _state(command.pid) == "S")
            watcher.stdin.close()
            assert command.wait(60) < 0
            assert watcher.wait(60) == 0
        finally:
            command.kill()
            watcher.kill()
