"""A resident runner that forks launchers: on request, or ahead of their orders."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.runner.attempts import Attempt, wait_until

# The calls, by their numbers on the processors that we have, in which one waits for a message.
RECEIVING = ("45", "47", "207", "212")


class Asked:
    """A resident runner that can fork a waiting launcher, and launchers with an order."""

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes], isolation: str, here: Path) -> None:
        self.ours, self.process, self.isolation = ours, process, isolation
        self.waiting: list[int] = []
        self.folders = [here / "one", here / "two"]
        for each in self.folders:
            each.mkdir()
            each.chmod(0o777)
            each.joinpath("old").write_text("old")

    def ask(self, packet: bytes) -> int:
        """Send a packet and return the number in the answer: a process ID, 0, or a negative errno."""
        self.ours.send(packet)
        return int.from_bytes(self.ours.recv(4), sys.byteorder, signed=True)

    def answer(self, *folders: Path) -> int:
        return self.ask(f"ahead {self.isolation} ".encode() + b"\0".join(map(bytes, folders or self.folders)))

    def ahead(self, *folders: Path) -> int:
        """Return the process ID of a waiting launcher. Directly after a change of a folder there is none."""
        while (pid := self.answer(*folders)) == -errno.EAGAIN:
            pass
        assert pid > 0, os.strerror(-pid)
        self.waiting.append(pid)
        wait_until(lambda: stands(pid), 30)
        return pid

    def launch(self, one: Attempt) -> int:
        """The process id of its launcher, which has ended."""
        pid = self.ask(f"{self.isolation} {one.dir}".encode())
        os.waitpid(pid, 0)
        if pid in self.waiting:
            self.waiting.remove(pid)
        return pid


def stands(pid: int) -> bool:
    """Whether it waits for a packet."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in RECEIVING


def order(attempt, asked: Asked, script: str, **keys: object) -> Attempt:
    private = keys.pop("private", asked.folders)
    return attempt().write(f"#!/bin/sh\n{script}\n", isolation=asked.isolation, private=private, **keys)
