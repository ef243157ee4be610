"""An attempt directory as a server would make it, and what the real program leaves in it."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dayfly.spec import frames

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NOBODY = 65534


@dataclass(frozen=True)
class Receipt:
    fields: dict[str, str]
    outputs: dict[str, tuple[str, int, str]]  # name -> state, size, SHA-256

    @property
    def outcome(self) -> str:
        return self.fields["outcome"]

    @property
    def code(self) -> int:
        return int(self.fields["code"])

    @property
    def detail(self) -> str:
        return self.fields.get("detail", "")


def read_receipt(data: bytes) -> Receipt:
    plain: dict[str, str] = {}
    outputs: dict[str, tuple[str, int, str]] = {}
    for key, value in frames.decode("dayfly-receipt", data):
        if key == "output":
            name, state, size, digest = value.decode().split("\0")
            outputs[name] = (state, int(size), digest)
        else:
            assert key not in plain
            plain[key] = value.decode()
    return Receipt(plain, outputs)


def order(script: str | bytes | None = None, **keys: object) -> bytes:
    """A work order. Keyword names are keys with `_` for `-`; a list repeats its key."""
    records: list[tuple[str, bytes]] = [("nonce", b"n-1"), ("attempt", b"1"), ("env", f"PATH={PATH}".encode())]
    if script is not None:
        records.append(("script", script.encode() if isinstance(script, str) else script))
    for name, value in keys.items():
        for item in value if isinstance(value, list) else [value]:
            raw = item if isinstance(item, bytes) else str(item).encode()
            records.append((name.replace("_", "-"), raw))
    return frames.encode("dayfly-order", records)


@dataclass
class Attempt:
    runner: Path
    dir: Path
    user: int | None = None  # run as this user, without groups
    prefix: list[str] = field(default_factory=list)

    def write(self, script: str | bytes | None = None, **keys: object) -> "Attempt":
        return self.write_order(order(script, **keys))

    def write_order(self, data: bytes) -> "Attempt":
        (self.dir / "order").write_bytes(data)
        return self

    def start(self, **popen: object) -> subprocess.Popen[bytes]:
        command = [*self.prefix, str(self.runner), "host", str(self.dir)]
        if self.user is not None:
            ids = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            command = ["setpriv", *ids, *command]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **popen)

    def run(
        self, script: str | bytes | None = None, *, expect: int = 0, timeout: float = 30, **keys: object
    ) -> Receipt:
        if script is not None or keys:
            self.write(script, **keys)
        assert self.start().wait(timeout) == expect
        return self.receipt()

    def receipt(self) -> Receipt:
        return read_receipt((self.dir / "receipt").read_bytes())

    @property
    def has_receipt(self) -> bool:
        return (self.dir / "receipt").exists()

    def is_free(self) -> bool:
        """Return whether the lock is free, which means that no process of the step is alive."""
        with (self.dir / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    @property
    def log(self) -> str:
        return (self.dir / "log").read_text()

    @property
    def marker(self) -> list[str]:
        return (self.dir / "marker").read_text().split("\n")

    def output(self, name: str) -> bytes:
        return (self.dir / f"out.{name}").read_bytes()

    def wait_for_log(self, text: str, seconds: float = 60) -> None:
        wait_until(lambda: (self.dir / "log").exists() and text in self.log, seconds)


def patience(milliseconds: int) -> Iterator[int]:
    """Yield deadlines to try in turn, for a script that must write its output before the deadline."""
    yield from (milliseconds, 5 * milliseconds, 50 * milliseconds)


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.005)


def processes_with(mark: str) -> list[int]:
    """Living processes that carry MARK in their environment or command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            said = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if state not in "ZX" and mark.encode() in said:
                found.append(int(entry.name))
    return found


def end_all(mark: str) -> None:
    """Clears up after a test that failed."""
    for pid in processes_with(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
