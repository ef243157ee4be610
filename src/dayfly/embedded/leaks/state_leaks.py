"""The built-in check for Terraform states of this home without a run. It reports, and deletes nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dayfly.embedded import states
from dayfly.lib.clock import now_ms
from dayfly.plan.leaks.states import STATE_CHECK_SPEC, LeftState, sweep_states
from dayfly.plan.leaks.sweep import LeakState, describe_check
from dayfly.spec.identity import resource_id
from dayfly.spec.leak_check import STATE_CHECK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dayfly.embedded.ledger import SqliteLedger
    from dayfly.spec.leak_report import LeakReport


class StateLeaks:
    """The states that are left. They are listed once an hour and on request."""

    def __init__(self, home: Path, reader: SqliteLedger, *, now: Callable[[], int] = now_ms) -> None:
        self._home, self._reader, self._now = home, reader, now
        self._state = LeakState()
        self._has_found = False

    def sweep(self) -> bool:
        """List now; return whether the check is shown."""
        self._state = sweep_states(self._state, self._find(), self._now())
        self._has_found = self._has_found or bool(self._state.findings)
        return self._has_found

    def report(self) -> LeakReport | None:
        """Return what was listed; None if nothing was ever found."""
        age = self._now() - self._state.swept_at if self._state.number else -1
        if not 0 <= age < STATE_CHECK_SPEC.every_ms:
            self.sweep()
        if not self._has_found:
            return None
        return describe_check(STATE_CHECK, STATE_CHECK_SPEC, STATE_CHECK, self._state, is_sweeping=False)

    def _find(self) -> list[LeftState]:
        # The folders are listed before the ledger is read: a run exists before its states do.
        folders = [each for each in sorted(states.folder(self._home).glob("*/*")) if each.is_dir()]
        living = set(self._reader.live_uids())
        left = [each for each in folders if each.parent.name not in living]
        records = self._reader.records.find([resource_id(each.parent.name, each.name) for each in left])
        found = []
        for folder in left:
            id_ = resource_id(folder.parent.name, folder.name)
            record = records.get(id_)
            with contextlib.suppress(FileNotFoundError):  # a person has just deleted it
                changed_at = int(folder.stat().st_mtime * 1000)
                state = LeftState(f"states/{folder.parent.name}/{folder.name}", changed_at, id_)
                found.append(
                    state if record is None else state._replace(plugin=record.plugin, ended_at=record.ended_at)
                )
        return found
