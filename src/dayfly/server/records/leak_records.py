"""Leak checks as their hosts have last reported them, and who has applied them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.server.db.tables import leak_checks as table
from dayfly.spec.leak_report import LeakReport

if TYPE_CHECKING:
    from sqlalchemy import Row

    from dayfly.server.db.rows import Rows
    from dayfly.spec.leak_report import LeakFinding

_DIGEST_LENGTH = 16
_decode_report = msgspec.json.Decoder(LeakReport).decode
_decode_leaks = msgspec.json.Decoder(tuple[str, ...]).decode


class LeakRecord(NamedTuple):
    """A leak check. Times are Unix milliseconds.

    Attributes:
        org: Its organisation.
        cluster: The cluster of its host.
        name: Its name.
        created_at: When the server first knew it.
        report: The last report as JSON, without findings; empty before the first.
        leaks: The digests of the leaks of that report, as JSON.
        leaks_since: Since when it has leaks or fails to list; 0 if neither.
        deletions: The number of deletions that are in the audit log.
        last_deletion: The sequence of the last of them.
        applied_key: The ID of the key that last applied the check; empty if it was not applied at this server.
        applied_name: The name of that key.
        plan: The digest of the plan that was last applied.
        plan_key: The ID of the key that applied it.
        plan_name: The name of that key.
    """

    org: str
    cluster: str
    name: str
    created_at: int
    report: str = ""
    leaks: str = "[]"
    leaks_since: int = 0
    deletions: int = 0
    last_deletion: int = 0
    applied_key: str = ""
    applied_name: str = ""
    plan: str = ""
    plan_key: str = ""
    plan_name: str = ""

    @property
    def decoded_report(self) -> LeakReport | None:
        """The last report; None before the first, and if an older server cannot read it."""
        try:
            return _decode_report(self.report) if self.report else None
        except msgspec.DecodeError:
            return None

    @property
    def known_leaks(self) -> frozenset[str]:
        """The digests of the leaks of the last report."""
        return frozenset(_decode_leaks(self.leaks))


def encode_report(report: LeakReport) -> str:
    """Return the stored form of a report, without its findings and deletions."""
    stored = msgspec.structs.replace(report, findings=(), deletions=(), deleted=(), is_sweeping=False)
    return msgspec.json.encode(stored).decode()


def digest_leak(finding: LeakFinding) -> str:
    """Return a short digest by which a leak is recognised in later lists."""
    text = f"{finding.verdict}\n{finding.id}\n{finding.name}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]


def read_all(rows: Rows) -> list[LeakRecord]:
    """Return the checks of an organisation, or of all."""
    query = rows.select(table).order_by(table.c.org, table.c.cluster, table.c.name)
    return [_record(row) for row in rows.execute(query)]


def find(rows: Rows, cluster: str, name: str) -> LeakRecord | None:
    """Return a check; None if it is not known."""
    row = rows.find(table, cluster=cluster, name=name)
    return _record(row) if row is not None else None


def save(rows: Rows, record: LeakRecord) -> None:
    """Insert a check, or replace it."""
    delete(rows, record.cluster, record.name)
    rows.insert(table, record._asdict())


def delete(rows: Rows, cluster: str, name: str) -> None:
    """Delete the record of a check."""
    rows.execute(rows.delete(table).where(table.c.cluster == cluster, table.c.name == name))


class Author(NamedTuple):
    """The ID and the name of the key that has applied something."""

    key: str
    name: str


def apply(rows: Rows, cluster: str, name: str, who: Author, now: int, *, is_new: bool) -> None:
    """Record the author of a check. A new one has none of the state of a deleted check with its name.

    Its host may still have the deletions of that check, so `last_deletion` never becomes lower.
    """
    found = find(rows, cluster, name)
    record = found or LeakRecord(rows.org, cluster, name, now)
    if is_new:
        record = LeakRecord(rows.org, cluster, name, now, last_deletion=record.last_deletion)
    save(rows, record._replace(applied_key=who.key, applied_name=who.name))


def apply_plan(rows: Rows, cluster: str, name: str, who: Author, plan: str, now: int) -> None:
    """Record the author of a plan."""
    record = find(rows, cluster, name) or LeakRecord(rows.org, cluster, name, now)
    save(rows, record._replace(plan=plan, plan_key=who.key, plan_name=who.name))


def _record(row: Row[tuple[object, ...]]) -> LeakRecord:
    return LeakRecord(**{name: getattr(row, name) for name in LeakRecord._fields})
