"""The attempt's folder: the only place where processes are started, fenced, cancelled and looked at."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
from pathlib import Path

from dayfly.execute.process import read
from dayfly.plan.world import Ended, NeverRan, Running, Stalled, Unclear
from dayfly.spec.lifecycle import Unit
from dayfly.spec.run import UnitRecord

Seen = Ended | NeverRan | Running | Stalled | Unclear
_BULK = ("order", "script", "marker.tmp", "receipt.tmp", "lock")


class Folder:
    """One attempt's folder below the home. Names are derived, so finding it again needs no index."""

    def __init__(self, attempts: Path, run: str, unit: str, number: int) -> None:
        self.path = f"{attempts}/{run}/{slug(unit)}/{number}"

    def write_order(self, order: bytes) -> None:
        """Make the folder with its work order.

        Raises:
            OSError: the disk refuses; nothing can start from what was written.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        with open(f"{self.path}/order", "xb", opener=_private) as file:
            file.write(order)

    def note(self, name: str, text: str) -> None:
        """Keep a small fact beside the order, such as a port."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        with open(f"{self.path}/{name}", "w", encoding="utf-8", opener=_private) as file:
            file.write(text)

    def noted(self, name: str) -> str:
        """What `note` kept, or nothing."""
        return _slurp(f"{self.path}/{name}").decode()

    def spawn(self, runner: str) -> int:
        """Start the runner on this folder; returns its process id. It outlives us."""
        return os.posix_spawn(
            runner,
            [runner, "host", self.path],
            {},
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD),
        )

    def fence(self) -> bool:
        """Link `void` into the marker's place; false if the step was first. After true it can never start."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        draft = f"{self.path}/void.tmp"
        with open(draft, "wb", opener=_private) as file:
            file.write(b"void\n")
        try:
            os.link(draft, f"{self.path}/marker")
        except FileExistsError:
            return _slurp(f"{self.path}/marker").startswith(b"void")
        finally:
            os.unlink(draft)
        return True

    def observe(self, record: UnitRecord, *, unit: Unit, nonce: str, boot: str, now: int) -> Seen:
        """Look at an attempt that the ledger believes alive, whoever started it."""
        for _ in range(2):
            if data := _slurp(f"{self.path}/receipt"):
                return read.receipt(data, nonce=nonce, unit=unit)
            marker = _slurp(f"{self.path}/marker").decode(errors="replace").split("\n")
            if marker[0] == "void":
                return NeverRan(reason="Void", message="it was fenced before it started")
            if marker[0] != "started":
                return self._unmarked(record, boot, now)
            if self.locked():
                return Running(since=int(marker[4] or 0) or record.claimed_at)
            # The receipt is written before the lock is freed: look for it once more.
        return read.lost("its runner ended without a receipt", started_at=record.claimed_at, ended_at=now)

    def _unmarked(self, record: UnitRecord, boot: str, now: int) -> Seen:
        if record.ref == boot:
            return Stalled(since=record.claimed_at)
        # What the last boot wrote without fsync may be gone: that there is no marker proves nothing.
        return Unclear(
            since=record.claimed_at, reason="MachineRestarted", message="the machine was restarted", dead_by=now
        )

    def locked(self) -> bool:
        """Whether anything of the step may still live."""
        try:
            descriptor = os.open(f"{self.path}/lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def watch(self) -> int | None:
        """A pidfd of the runner that holds the lock, ready to read once it has ended; None if none does."""
        marker = _slurp(f"{self.path}/marker").decode(errors="replace").split("\n")
        if marker[0] != "started":
            return None
        try:
            descriptor = os.pidfd_open(int(marker[1]))
        except (ProcessLookupError, ValueError):
            return None
        # The id could be another process's by now, but not while the lock is held.
        if not self.locked():
            os.close(descriptor)
            return None
        return descriptor

    def kill_holders(self) -> None:
        """Kill whatever still holds the lock: the processes of a step whose runner was killed."""
        lock = os.path.realpath(f"{self.path}/lock")
        for process in os.listdir("/proc"):
            if not process.isdigit():
                continue
            with contextlib.suppress(OSError):
                held = any(os.readlink(entry.path) == lock for entry in os.scandir(f"/proc/{process}/fd"))
                if held and int(process) != os.getpid():
                    os.kill(int(process), signal.SIGKILL)

    def value(self, output: str, digest: str) -> bytes:
        """An output's bytes.

        Raises:
            ValueError: they are not those that the receipt was sealed over.
        """
        data = _slurp(f"{self.path}/out.{output}")
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise ValueError(f"the bytes of output {output} differ from those in the receipt")
        return data

    def release(self) -> None:
        """Remove everything but the log: the ledger has the rest."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.path):
                if entry.name in _BULK or entry.name.startswith("out."):
                    os.unlink(entry.path)

    def log_size(self) -> int | None:
        """Bytes in the log; None if there is none."""
        try:
            return os.stat(f"{self.path}/log").st_size
        except FileNotFoundError:
            return None

    def read_log(self, offset: int, limit: int) -> bytes | None:
        """Bytes of the log from `offset`; None if there is none."""
        try:
            with open(f"{self.path}/log", "rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return None


def slug(unit: str) -> str:
    """A unit's name as one folder name: `db/seed` is `db.seed`, `fork:demo/app` is `fork@demo.app`; none collide."""
    return unit.replace("/", ".").replace(":", "@")


def unslug(name: str) -> str:
    """The unit a folder is named after."""
    return name.replace("@", ":").replace(".", "/", 1)


def forget(attempts: Path, run: str) -> None:
    """Remove all that is left of a run."""
    shutil.rmtree(attempts / run, ignore_errors=True)


def private_directories(unit: Unit) -> tuple[str, ...]:
    """The folders in which a step's new entries must be its own: the usual ones, and for each declared path the nearest
    that exists above it.
    """
    declared = [output.path for output in unit.outputs] + [item.as_.path for item in unit.inputs if item.as_.path]
    found = {"/tmp", "/var/tmp"}  # noqa: S108 - these are the folders that become private
    for path in declared:
        parent = os.path.dirname(path)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        found.add(parent)
    return tuple(sorted(path for path in found if os.path.isdir(path)))


def declared_paths(unit: Unit) -> frozenset[str]:
    """Absolute paths that the unit writes or is given: without isolation two steps cannot share one at once."""
    return frozenset(
        [output.path for output in unit.outputs] + [item.as_.path for item in unit.inputs if item.as_.path]
    )


def boot_id() -> str:
    """Names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _slurp(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
