"""The latest reports of checks that a server has made, and the sequences of their deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.operator.cluster.objects import served_uid
from dayfly.spec.host_errors import HostUnavailableError

if TYPE_CHECKING:
    from dayfly.kube.cache import Cache
    from dayfly.operator.cluster.objects import LeakCheckObject
    from dayfly.operator.leaks.check_store import CheckRecord
    from dayfly.spec.leak_report import LeakReport


class ServedReports:
    """The reports and sequences of the stored records, which are read in each turn of their check.

    The server compares the sequences of all checks of a host, so they rise over all checks.
    """

    def __init__(self, checks: Cache[LeakCheckObject]) -> None:
        self._checks = checks
        self._sequences: dict[str, int] = {}  # by UID of a check: the sequence of its latest deletion
        self._latest = 0
        self._reports: dict[str, tuple[str, LeakReport]] = {}  # by UID: the organisation at the server, and the report

    def reset(self) -> None:
        """Forget all checks."""
        self._sequences.clear()
        self._latest = 0
        self._reports.clear()

    def forget(self, uid: str) -> None:
        """Forget a check that is being deleted."""
        self._sequences.pop(uid, None)
        self._reports.pop(uid, None)

    def drop(self, uid: str) -> None:
        """Forget the report of a check that the server has deleted."""
        self._reports.pop(uid, None)

    def note_record(self, uid: str, record: CheckRecord) -> None:
        """Note the deletions of a record that was read or written."""
        self._sequences[uid] = record.deletions[-1].sequence if record.deletions else 0
        self._latest = max(self._latest, self._sequences[uid])

    def keep(self, uid: str, org: str, report: LeakReport) -> None:
        """Keep the latest report of a check that a server has made for an organisation."""
        self._reports[uid] = org, report

    def next_sequence(self, now: int) -> int:
        """Return the sequence of the next deletion. It is at least the time: a restored record has older ones."""
        self._latest = max(now, self._latest + 1)
        return self._latest

    @property
    def is_complete(self) -> bool:
        """Whether the records of all checks of servers were read since this operator is active."""
        served = (each.metadata for each in self._checks if served_uid(each.metadata))
        return all(meta.uid in self._sequences for meta in served if not meta.deletion_timestamp)

    def reports(self, org: str) -> tuple[LeakReport, ...]:
        """Return the reports of all checks of an organisation, by name.

        Raises:
            HostUnavailableError: some records were not read yet. The server takes a check without report for deleted.
        """
        if not self.is_complete:
            raise HostUnavailableError("the operator has just started, and has not read all leak checks yet")
        found = (report for owner, report in self._reports.values() if owner == org)
        return tuple(sorted(found, key=lambda report: report.name))
