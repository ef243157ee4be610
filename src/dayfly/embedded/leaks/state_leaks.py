"""The built-in check for Terraform states of this home without a run. It reports, and deletes nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from dayfly.embedded import states
from dayfly.lib.clock import now_ms
from dayfly.plan.leaks.sweep import make_report
from dayfly.plan.leaks.verdict import ItemFinding, LeakVerdict
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_check import STATE_CHECK, LeakCheckSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.plan.leaks.records import ResourceRecord
    from dayfly.spec.leak_report import LeakReport

_SPEC: Final = LeakCheckSpec(plugin=STATE_CHECK, every="1h", grace="1h")
_LEFT: Final = "its run has ended, but not its cleanup: compare `dayfly state list` with the account"
_YOUNG: Final = "it is not older than the grace period"


class StateLeaks:
    """The states that are left. They are listed once an hour and on request."""

    def __init__(self, home: Path, reader: SqliteLedger, *, now: Callable[[], int] = now_ms) -> None:
        self._home, self._reader, self._now = home, reader, now
        self._report: LeakReport | None = None
        self._has_found = False

    def sweep(self) -> bool:
        """List now; return whether the check is shown."""
        now, number = self._now(), self._report.number + 1 if self._report is not None else 1
        findings = self._find(now)
        self._has_found = self._has_found or bool(findings)
        self._report = make_report(
            STATE_CHECK, _SPEC, STATE_CHECK, findings, number=number, swept_at=now, listed_at=now
        )
        return self._has_found

    def report(self) -> LeakReport | None:
        """Return what was listed; None if nothing was ever found."""
        age = self._now() - self._report.swept_at if self._report is not None else -1
        if not 0 <= age < _SPEC.every_ms:
            self.sweep()
        return self._report if self._has_found else None

    def _find(self, now: int) -> list[ItemFinding]:
        # The folders are listed before the ledger is read: a run exists before its states do.
        folders = [each for each in sorted(states.folder(self._home).glob("*/*")) if each.is_dir()]
        living = set(self._reader.live_uids())
        left = [each for each in folders if each.parent.name not in living]
        records = self._reader.records.find([resource_id(each.parent.name, each.name) for each in left])
        found = []
        for folder in left:
            with contextlib.suppress(FileNotFoundError):  # a person has just deleted it
                found.append(_finding(folder, records, now, int(folder.stat().st_mtime * 1000)))
        return found


def _finding(folder: Path, records: Mapping[str, ResourceRecord], now: int, changed_at: int) -> ItemFinding:
    id_ = resource_id(folder.parent.name, folder.name)
    record = records.get(id_)
    since = max(changed_at, record.ended_at if record is not None else 0)
    verdict, reason = (LeakVerdict.ORPHAN, _LEFT) if now - since > _SPEC.grace_ms else (LeakVerdict.UNKNOWN, _YOUNG)
    plugin = record.plugin if record is not None else ""
    return ItemFinding(verdict, id_, f"states/{folder.parent.name}/{folder.name}", reason, plugin, changed_at)
