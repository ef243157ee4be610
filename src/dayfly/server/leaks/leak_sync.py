"""Store the reports of hosts about leak checks, and write their deletions to the audit log.

The page, metrics and events read the stored reports, so they need no host. One server does this work; the others are
on standby.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Final

from dayfly.lib.clock import now_ms
from dayfly.link import wire
from dayfly.link.server_end import HostFailedError
from dayfly.plan.leaks.verdict import LEAKS
from dayfly.server.admin import audit
from dayfly.server.admin.audit import Actor
from dayfly.server.cpu_timer import run_round
from dayfly.server.db.store import StoreError, WriteConflictError
from dayfly.server.db.tables import clusters
from dayfly.server.events import event_rows, leak_events
from dayfly.server.leaks.leak_forms import with_cluster
from dayfly.server.records import leak_records
from dayfly.server.records.leak_records import LeakRecord
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dayfly.link.server_end import Link, Links
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.events.cloud_event_publisher import EventReceiver
    from dayfly.server.events.event_rows import NewEvent
    from dayfly.spec.leak_report import LeakDeletion, LeakFinding, LeakReport

ROUND_INTERVAL_S: Final = 10.0
# A host in another process is queried less often, and if no check of it is known, much less often.
REMOTE_INTERVAL_MS: Final = 60_000
DISCOVERY_INTERVAL_MS: Final = 600_000
# A check that was applied at this server is known to its host after this time.
SETTLE_MS: Final = 60_000
ANSWER_TIMEOUT_S: Final = 10.0
LEASE_NAME: Final = "leak-checks"
LEASE_MS: Final = 30_000
# A host cannot delay others with more checks, or fill the audit log faster than this.
MAX_REPORTS: Final = 100
MAX_DELETIONS: Final = 100
# A host keeps 1,000 deletions of a check. The last query returns what has begun since the first one.
MAX_QUERIES: Final = 11
_NAME_LENGTH: Final = 63
_SHOWN_LENGTH: Final = 200

log = logging.getLogger(__name__)


class LeakSync:
    """Queries the leak checks of all hosts in rounds."""

    def __init__(
        self, store: Store, links: Links, receiver: EventReceiver | None = None, *, now: Callable[[], int] = now_ms
    ) -> None:
        self._store, self._links, self._receiver, self._now = store, links, receiver, now
        self._name = uuid.uuid4().hex
        self._queried_at: dict[Link, int] = {}

    async def run(self) -> None:
        """Query in rounds until cancelled."""
        while True:
            await run_round(self.run_round(), "a round of leak checks", log)
            await asyncio.sleep(ROUND_INTERVAL_S)

    async def run_round(self) -> None:
        """Query each host that is due, and store what has changed."""
        if not await self._has_duty():
            return
        records = await self._store.all_orgs().read(leak_records.read_all)
        now, links = self._now(), self._links.each()
        known: dict[Link, list[LeakRecord]] = {link: [] for link in links}
        for record in records:
            link = self._links.get(record.org, record.cluster)
            if link is None:
                await self._delete(record, if_removed=True)
            else:
                known[link].append(record)
        self._queried_at = {link: at for link, at in self._queried_at.items() if link in links}
        due = [link for link in links if self._queried_at.get(link, 0) + _interval_ms(link, known[link]) <= now]
        await asyncio.gather(*(self._try(link, known[link]) for link in due))

    async def sync(self, link: Link) -> None:
        """Query one host now, until all deletions that it keeps are in the audit log.

        A host that does not answer is skipped.
        """
        for _ in range(MAX_QUERIES):
            records = await self._store.for_org(link.org).read(leak_records.read_all)
            own = [each for each in records if self._links.get(link.org, each.cluster) is link]
            if not await self._try(link, own):
                return
        log.warning("a host of %s has new deletions after each of %d queries", link.org, MAX_QUERIES)

    async def _has_duty(self) -> bool:
        now = self._now()
        try:
            return self._store.is_sqlite or await self._store.all_orgs().write(
                lambda rows: event_rows.acquire_lease(rows, LEASE_NAME, self._name, now, now + LEASE_MS)
            )
        except WriteConflictError:
            return False  # another server has acquired it

    async def _try(self, link: Link, records: Sequence[LeakRecord]) -> bool:
        """Query a host; return whether it has more deletions. A failure concerns only this host."""
        self._queried_at[link] = self._now()
        try:
            return await self._sync(link, records)
        except (HostUnavailableError, HostFailedError, DocumentsRefusedError, WriteConflictError) as fault:
            log.debug("leak checks of a host are not known now: %s", fault)
        except StoreError:
            raise
        except Exception:
            log.exception("the leak checks of a host cannot be stored")
        return False

    async def _sync(self, link: Link, records: Sequence[LeakRecord]) -> bool:
        after = min((each.last_deletion for each in records), default=0)
        found = await self._query(link, wire.LeaksQuery(brief=True, after=after))
        known = {(each.cluster, each.name): each for each in records}
        with_leaks = [each for each in found if _may_have_new_leaks(each, known.get((each.spec.cluster, each.name)))]
        findings: dict[str, Sequence[LeakFinding]] = {}
        if with_leaks:
            names = tuple(each.name for each in with_leaks)
            # The host may have listed again since then. So its new reports replace the first ones.
            full = await self._query(link, wire.LeaksQuery(names=names, after=after))
            found = [*(each for each in found if each.name not in names), *full]
            findings = {each.name: each.findings for each in full}
        new = {each.name: _new_deletions(each, known.get((each.spec.cluster, each.name))) for each in found}
        is_incomplete = any(len(each) > MAX_DELETIONS for each in new.values())
        # An earlier query has returned this sequence, so these reports have all deletions up to it, of each check.
        last = 0 if is_incomplete else max((each.last_deletion for each in records), default=0)
        for report in found:
            before = known.pop((report.spec.cluster, report.name), None)
            part = new[report.name][:MAX_DELETIONS]
            await self._store_report(link.org, before, report, findings.get(report.name), part, last)
        for gone in known.values():
            if gone.report or self._now() - gone.created_at > SETTLE_MS:  # its host may not have the order yet
                await self._delete(gone)
        return is_incomplete

    async def _query(self, link: Link, query: wire.LeaksQuery) -> list[LeakReport]:
        """Return the reports of a host about checks in its own clusters."""
        reports = (await link.query(query, wire.Leaks, ANSWER_TIMEOUT_S)).reports
        clusters = sorted(each for each in self._links.clusters(link.org) if self._links.get(link.org, each) is link)
        named = [with_cluster(each, clusters[0]) for each in reports] if clusters else []
        own = (each for each in named if self._links.get(link.org, each.spec.cluster) is link)
        return [each for each in own if 0 < len(each.name) <= _NAME_LENGTH][:MAX_REPORTS]

    async def _store_report(
        self,
        org: str,
        before: LeakRecord | None,
        report: LeakReport,
        findings: Sequence[LeakFinding] | None,
        new: Sequence[LeakDeletion],
        last: int,
    ) -> None:
        now = self._now()
        record = before or LeakRecord(org, report.spec.cluster, report.name, now)
        leaks = leak_digests(findings) if findings is not None else record.known_leaks if has_leaks(report) else set()
        since = (record.leaks_since or now) if leaks or report.error else 0
        after = record._replace(
            report=leak_records.encode_report(report),
            leaks=encode_digests(leaks),
            leaks_since=since,
            deletions=record.deletions + len(new),
            last_deletion=max(last, new[-1].sequence if new else record.last_deletion),
        )
        if after == before:
            return
        source = self._receiver.source_of(org, record.cluster) if self._receiver is not None else ""
        events = leak_events.new_events(record, report, findings or (), leaks, new, source, now) if source else []
        await self._store.for_org(org).write(lambda rows: _save(rows, before, after, new, events))

    async def _delete(self, record: LeakRecord, *, if_removed: bool = False) -> None:
        """Forget a check. With `if_removed`, keep it if its cluster exists, whose link may not have been added yet."""

        def work(rows: Rows) -> None:
            query = rows.select(clusters.c.name).where(clusters.c.name == record.cluster, clusters.c.agent)
            if if_removed and rows.execute(query).first() is not None:
                return
            # It may have been applied again since it was read.
            if leak_records.find(rows, record.cluster, record.name) == record:
                leak_records.delete(rows, record.cluster, record.name)

        await self._store.for_org(record.org).write(work)


def _interval_ms(link: Link, records: Sequence[LeakRecord]) -> int:
    """Return how often a host is queried."""
    return (REMOTE_INTERVAL_MS if records else DISCOVERY_INTERVAL_MS) if link.shared else 0


def _new_deletions(report: LeakReport, record: LeakRecord | None) -> list[LeakDeletion]:
    """Return the deletions of a report that are not in the audit log."""
    return [each for each in report.deletions if each.sequence > (record.last_deletion if record is not None else 0)]


def has_leaks(report: LeakReport) -> bool:
    """Return whether a report has orphans or missing resources."""
    return any(report.counts.get(verdict, 0) for verdict in LEAKS)


def leak_digests(findings: Iterable[LeakFinding]) -> set[str]:
    """Return a short digest of each leak."""
    return {leak_records.digest_leak(each) for each in findings if each.verdict in LEAKS}


def encode_digests(digests: Iterable[str]) -> str:
    """Return the stored form of digests."""
    return "[" + ",".join(f'"{each}"' for each in sorted(digests)) + "]"


def _may_have_new_leaks(report: LeakReport, record: LeakRecord | None) -> bool:
    """Return whether the findings of a report are needed: it has leaks, and is not the report of the record."""
    return has_leaks(report) and (record is None or record.report != leak_records.encode_report(report))


def _save(
    rows: Rows,
    before: LeakRecord | None,
    after: LeakRecord,
    new: Sequence[LeakDeletion],
    events: Sequence[NewEvent],
) -> None:
    """Store a record, its events and the entries of its deletions, unless the record has changed since it was read."""
    if leak_records.find(rows, after.cluster, after.name) != before:
        return
    if events and event_rows.count_pending(rows) >= event_rows.MAX_PENDING:
        # The leaks stay unreported, so that the next list has an event if they still exist.
        after = after._replace(leaks=before.leaks if before is not None else "[]")
    elif events:
        event_rows.save(rows, events)
    leak_records.save(rows, after)
    for each in new:
        by_plan = each.plan == after.plan
        who = Actor(
            rows.org,
            (after.plan_key if by_plan else "") if each.plan else after.applied_key,
            (after.plan_name if by_plan else "") if each.plan else after.applied_name,
            f"leak check {after.name}{' (by plan)' if each.plan else ''}",
        )
        audit.append(rows, who, "delete-leak", f"leakchecks/{after.name}/{_show(each.id)}/{_show(each.plugin)}")


def _show(text: str) -> str:
    """Return a text of a host for the audit log."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN_LENGTH])
