"""Events of leak checks: one for each list with new leaks, and one for each sweep that has deleted something.

If several sweeps have ended between two queries of the host, one event has the deletions of all.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from dayfly.plan import cloud_events
from dayfly.plan.cloud_events import DELETED, FOUND
from dayfly.server.events.event_rows import NewEvent
from dayfly.server.records.leak_records import digest_leak

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from dayfly.server.records.leak_records import LeakRecord
    from dayfly.spec.leak_report import LeakDeletion, LeakFinding, LeakReport

_UID_LENGTH = 32


def new_events(
    record: LeakRecord,
    report: LeakReport,
    findings: Sequence[LeakFinding],
    leaks: Collection[str],
    deletions: Sequence[LeakDeletion],
    source: str,
    now: int,
) -> list[NewEvent]:
    """Return the events of a report that its record does not have.

    Args:
        record: The record before the report.
        report: The report.
        findings: Its findings; empty if they have not changed.
        leaks: The digests of its leaks.
        deletions: Its deletions that the record does not have.
        source: The source of the events.
        now: The current time, in Unix milliseconds.
    """
    before = record.decoded_report
    new = set(leaks) - record.known_leaks
    found = [
        {"verdict": each.verdict, "id": each.id, "name": each.name, "plugin": each.plugin, "reason": each.reason}
        for each in findings
        if digest_leak(each) in new
    ]
    has_new_sweep = before is None or before.number != report.number
    has_missed_sweep = before is not None and report.number > before.number + 1
    missed = [each.id for each in deletions if each.done] if has_missed_sweep else []
    deleted = dict.fromkeys([*missed, *report.deleted]) if has_new_sweep else ()
    items = {FOUND: found, DELETED: [{"id": each} for each in deleted]}
    return list(_events(record, report, items, source, now))


def _events(
    record: LeakRecord,
    report: LeakReport,
    items: Mapping[str, Sequence[Mapping[str, str]]],
    source: str,
    now: int,
) -> Iterator[NewEvent]:
    text = f"{record.cluster}\n{record.name}\n{record.created_at}"
    uid = hashlib.sha256(text.encode()).hexdigest()[:_UID_LENGTH]
    for number, (kind, part) in enumerate(items.items()):
        if part:
            id_ = cloud_events.event_id(uid, report.number, kind)
            event = cloud_events.leak_cloud_event(kind, id_, report, part, source=source)
            yield NewEvent(id_, uid, report.swept_at, now + number, json.dumps(event))
