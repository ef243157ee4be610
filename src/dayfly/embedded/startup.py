"""What a server of this machine does first: it takes its home, and finds out where it stands."""

import contextlib
import fcntl
import logging
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from dayfly.embedded.ledger import Hook, LedgerError, SqliteLedger

log = logging.getLogger(__name__)

LOOK_MOST_S = 5


class HomeBusyError(Exception):
    """Another server uses this home."""


def take(home: Path) -> int:
    """The kernel's lock on the home; it is freed when the process ends, however it ends.

    Raises:
        HomeBusyError: another server has it.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + LOOK_MOST_S
    while not _flocked(descriptor, fcntl.LOCK_EX):
        # Who only looks whether a server is there shares the lock, for microseconds; a server's cannot be shared.
        if not _flocked(descriptor, fcntl.LOCK_SH) or time.monotonic() > end:
            with contextlib.suppress(OSError):
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise HomeBusyError(
                f"another dayfly (process {holder}) uses {home}; stop it with `dayfly down`, or set DAYFLY_HOME"
            )
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(0.001)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _flocked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Opened(NamedTuple):
    """The ledger of a home, to write and to read, and its life's number; `owes_leases` if they wait to be renewed."""

    ledger: SqliteLedger
    reader: SqliteLedger
    life: int
    owes_leases: bool


def open_ledgers(home: Path, hook: Hook | None, now: int, grace_ms: int) -> Opened:
    """Open the ledger of a home; leases hold for `grace_ms` more at least.

    Raises:
        LedgerError: it cannot be used.
    """
    ledger = SqliteLedger(home / "ledger.db", hook=hook)
    owes_leases = not renew_leases(ledger, now + grace_ms)
    life = begin_life(ledger, now)
    return Opened(ledger, SqliteLedger(home / "ledger.db"), life, owes_leases)


def renew_leases(ledger: SqliteLedger, until: int) -> bool:
    """Let no lease end before that moment: nobody could renew one while there was no server. False if the disk refused:
    no run may be judged by its lease before it has been done.
    """
    if ledger.lapsing(until):
        try:
            with ledger.transaction("leases"):
                ledger.extend_leases(until)
        except LedgerError as error:
            # A server that did not begin could not even say how its runs stand.
            log.warning("leases wait to begin anew: %s", error)
            return False
    return True


def begin_life(ledger: SqliteLedger, now: int) -> int:
    """A number higher than any server of this home has had; on a disk that is full, as high as the clock."""
    try:
        return ledger.begin_life(now)
    except LedgerError as error:
        log.warning("versions of reports rise only as the clock does: %s", error)
        return now


def isolation(runner: str) -> str:
    """What the kernel grants: `root`, `user` or `none`."""
    answer = subprocess.run([runner, "probe"], check=True, capture_output=True, text=True, timeout=10)
    for line in answer.stdout.split():
        if line.startswith("isolation="):
            return line.removeprefix("isolation=")
    raise AssertionError(f"the runner's probe says {answer.stdout!r}")
