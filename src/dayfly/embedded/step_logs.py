"""The logs of steps and forks, also after the end of their run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dayfly.embedded.ledger import LedgerError
from dayfly.execute.process.run import AttemptFolder, delete_logs, kept_logs, list_logs, list_runs_logged_before
from dayfly.plan.actions import Record
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.execute.process.attempt_storage import AttemptStorage
    from dayfly.spec.log_times import TimeEntry

log = logging.getLogger(__name__)


class StepLogFiles:
    """The log files in the attempt folders of one home."""

    def __init__(self, storage: AttemptStorage, reader: SqliteLedger) -> None:
        self._storage = storage
        self._reader = reader

    def list_logs(self, uid: str, running: set[tuple[str, int]]) -> tuple[LogInfo, ...]:
        """Return all logs of a run by unit and attempt."""
        sizes = dict.fromkeys(self._attempts_without_output(uid) | running, 0)
        for key in list_logs(self._storage, uid):
            if (size := AttemptFolder(self._storage, uid, *key).log_size()) is not None:
                sizes[key] = size
        return tuple(
            LogInfo(unit=unit, attempt=number, size=size, sealed=(unit, number) not in running)
            for (unit, number), size in sorted(sizes.items())
        )

    def read(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Return bytes of one log from `offset`; None if there is no such log."""
        data = AttemptFolder(self._storage, uid, unit, attempt).read_log(offset, limit)
        return b"" if data is None and (unit, attempt) in self._attempts_without_output(uid) else data

    def times(self, uid: str, unit: str, attempt: int) -> Sequence[TimeEntry]:
        """Return the times of the lines of one log."""
        return AttemptFolder(self._storage, uid, unit, attempt).log_times()

    def forget(self, uids: Iterable[str], before: int) -> None:
        """Remove the logs of these runs and of unknown runs: a server may have been killed after it deleted their
        records.

        A restored older ledger does not know the newest runs. So logs of unknown runs stay until the newest of them
        began before `before` (unix milliseconds).
        """
        unknown: set[str] = set()
        try:
            # List the logs first: the ledger knows each run before its first log exists.
            there = list_runs_logged_before(self._storage, before)
            unknown = there - self._reader.known_uids()
        except (LedgerError, OSError) as error:
            log.warning("logs of unknown runs are kept until the next sweep: %s", error)
        for uid in {*uids, *unknown}:
            delete_logs(self._storage, uid)

    def _attempts_without_output(self, uid: str) -> set[tuple[str, int]]:
        """Return attempts that have run and whose logs are kept: an attempt without output has no log file."""
        entries = self._reader.history(uid)
        newest = dict(sorted((entry.unit, entry.attempt) for entry in entries))
        ended = {(entry.unit, entry.attempt) for entry in entries if entry.move == Record.__name__}
        return {(unit, number) for unit, number in ended if number in kept_logs(newest[unit])}


def drop_older_logs(folder: AttemptFolder) -> None:
    """Remove older logs of the unit to save space. A disk that refuses does not delay the step."""
    try:
        folder.drop_older_logs()
    except OSError as error:
        log.warning("cannot remove older logs of %s: %s", folder.path, error)
