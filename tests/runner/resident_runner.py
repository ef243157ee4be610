"""A resident runner that forks launchers on request, or prepares them before their orders."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.runner.attempts import Attempt, wait_until

# Numbers of the system calls that receive a message, for each supported architecture.
RECEIVING = ("45", "47", "207", "212")


class ResidentRunner:
    """A resident runner that prepares a launcher, and forks launchers with an order."""

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes], isolation: str, here: Path) -> None:
        self.ours, self.process, self.isolation = ours, process, isolation
        self.waiting: list[int] = []
        self.folders = [here / "one", here / "two"]
        for each in self.folders:
            each.mkdir()
            each.chmod(0o777)
            each.joinpath("old").write_text("old")

    def request(self, packet: bytes) -> int:
        """Send a packet and return the number in the answer: a process ID, 0, or a negative errno."""
        self.ours.send(packet)
        return int.from_bytes(self.ours.recv(4), sys.byteorder, signed=True)

    def try_prepare(self, *folders: Path) -> int:
        return self.request(f"prepare {self.isolation} ".encode() + b"\0".join(map(bytes, folders or self.folders)))

    def prepare(self, *folders: Path) -> int:
        """Return the process ID of a waiting launcher. Directly after a change of a folder there is none."""
        while (pid := self.try_prepare(*folders)) == -errno.EAGAIN:
            pass
        assert pid > 0, os.strerror(-pid)
        self.waiting.append(pid)
        wait_until(lambda: is_receiving(pid), 30)
        return pid

    def launch(self, one: Attempt) -> int:
        """Return the process ID of its launcher, which has ended."""
        pid = self.request(f"{self.isolation} {one.dir}".encode())
        os.waitpid(pid, 0)
        if pid in self.waiting:
            self.waiting.remove(pid)
        return pid


def is_receiving(pid: int) -> bool:
    """Return whether the process waits for a packet."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in RECEIVING


def order(attempt, resident: ResidentRunner, script: str, **keys: object) -> Attempt:
    private = keys.pop("private", resident.folders)
    return attempt().write(f"#!/bin/sh\n{script}\n", isolation=resident.isolation, private=private, **keys)
