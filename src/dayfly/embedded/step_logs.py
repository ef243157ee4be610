"""The logs of steps and forks, also after the end of their run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dayfly.embedded.ledger import LedgerError
from dayfly.execute.process.run import Folder, delete_logs, kept_logs, list_logs, list_runs_logged_before
from dayfly.plan.actions import Record
from dayfly.spec.run_data import LogInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.execute.process.attempt_storage import AttemptStorage
    from dayfly.spec.log_times import Entry

log = logging.getLogger(__name__)


class StepLogFiles:
    """Those that lie in the folders of one home."""

    def __init__(self, place: AttemptStorage, reader: SqliteLedger) -> None:
        self._place = place
        self._reader = reader

    def listed(self, uid: str, running: set[tuple[str, int]]) -> tuple[LogInfo, ...]:
        """All of a run, in the order of units and attempts."""
        sizes = dict.fromkeys(self._silent(uid) | running, 0)
        for key in list_logs(self._place, uid):
            if (size := Folder(self._place, uid, *key).log_size()) is not None:
                sizes[key] = size
        return tuple(
            LogInfo(unit=unit, attempt=number, size=size, sealed=(unit, number) not in running)
            for (unit, number), size in sorted(sizes.items())
        )

    def read(self, uid: str, unit: str, attempt: int, *, offset: int, limit: int) -> bytes | None:
        """Bytes of one log from `offset`; None if there is no such log."""
        data = Folder(self._place, uid, unit, attempt).read_log(offset, limit)
        return b"" if data is None and (unit, attempt) in self._silent(uid) else data

    def times(self, uid: str, unit: str, attempt: int) -> Sequence[Entry]:
        """When one log was printed."""
        return Folder(self._place, uid, unit, attempt).log_times()

    def forget(self, uids: Iterable[str], before: int) -> None:
        """Remove those of these runs, and of runs that nobody knows: a server was killed after it had forgotten them.

        Where an older ledger was put back, it does not know the newest runs: their logs stay until the newest of them
        was begun before that moment (unix milliseconds).
        """
        unknown: set[str] = set()
        try:
            # First what there is: of a run that is born meanwhile there is no log before the ledger knows it.
            there = list_runs_logged_before(self._place, before)
            unknown = there - self._reader.known()
        except (LedgerError, OSError) as error:
            log.warning("logs of runs that nobody knows are kept until the next look: %s", error)
        for uid in {*uids, *unknown}:
            delete_logs(self._place, uid)

    def _silent(self, uid: str) -> set[tuple[str, int]]:
        """Attempts that have run and whose logs were not dropped: of one that said nothing there is no file."""
        entries = self._reader.history(uid)
        newest = dict(sorted((entry.unit, entry.attempt) for entry in entries))
        ended = {(entry.unit, entry.attempt) for entry in entries if entry.move == Record.__name__}
        return {(unit, number) for unit, number in ended if number in kept_logs(newest[unit])}


def drop_older_logs(folder: Folder) -> None:
    """Make room for an attempt's log. It is only about room: a step need not wait for a disk that refuses."""
    try:
        folder.drop_older_logs()
    except OSError as error:
        log.warning("older logs of %s are kept: %s", folder.path, error)
