"""The start of a server on this machine: takes the lock of the home, opens its ledger and probes the kernel."""

import contextlib
import fcntl
import logging
import os
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from dayfly.embedded.ledger import Hook, LedgerError, SqliteLedger

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 5


class HomeBusyError(Exception):
    """Another server uses this home."""


def lock_home(home: Path) -> int:
    """Take the kernel lock of the home. The kernel frees it when the process ends.

    Raises:
        HomeBusyError: another server holds the lock.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + LOCK_TIMEOUT_S
    while not _try_flock(descriptor, fcntl.LOCK_EX):
        # A client that checks for a server shares the lock for microseconds; a server's lock is exclusive.
        if not _try_flock(descriptor, fcntl.LOCK_SH) or time.monotonic() > end:
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


def _try_flock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class OpenLedgers(NamedTuple):
    """The ledger of a home for writing and reading, the number of this server, and whether leases are unextended."""

    ledger: SqliteLedger
    reader: SqliteLedger
    life: int
    leases_unextended: bool


def count_living_runs(home: Path) -> int:
    """Return the number of living runs in a home, including those of pool members and shared parents.

    Its server may run.
    """
    file = home / "ledger.db"
    if not file.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        found: int = db.execute("SELECT COUNT(*) FROM run").fetchone()[0]
    return found


def open_ledgers(home: Path, hook: Hook | None, now: int, grace_ms: int) -> OpenLedgers:
    """Open the ledger of a home; extend its leases by at least `grace_ms` from now.

    Raises:
        LedgerError: the ledger cannot be used.
    """
    ledger = SqliteLedger(home / "ledger.db", hook=hook)
    leases_unextended = not renew_leases(ledger, now + grace_ms)
    life = begin_life(ledger, now)
    return OpenLedgers(ledger, SqliteLedger(home / "ledger.db"), life, leases_unextended)


def renew_leases(ledger: SqliteLedger, until: int) -> bool:
    """Extend the leases that expire before `until`: no client could renew one while there was no server.

    Return False if the disk refused. No run may be judged by its lease before the extension has succeeded.
    """
    if ledger.has_lease_before(until):
        try:
            with ledger.transaction("leases"):
                ledger.extend_leases(until)
        except LedgerError as error:
            # The server starts nevertheless, so that it can report the state of its runs.
            log.warning("leases cannot be extended yet: %s", error)
            return False
    return True


def begin_life(ledger: SqliteLedger, now: int) -> int:
    """Return a number higher than that of every earlier server of this home; on a full disk, the time `now`."""
    try:
        return ledger.begin_life(now)
    except LedgerError as error:
        log.warning("versions of reports start at the current time: %s", error)
        return now


def isolation(runner: str) -> str:
    """Return the isolation that the kernel grants: `root`, `user` or `none`."""
    answer = subprocess.run([runner, "probe"], check=True, capture_output=True, text=True, timeout=10)
    for line in answer.stdout.split():
        if line.startswith("isolation="):
            return line.removeprefix("isolation=")
    raise AssertionError(f"the runner's probe printed {answer.stdout!r}")
