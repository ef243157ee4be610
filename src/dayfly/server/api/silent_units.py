"""The units whose ended log is empty, so that advice does not point to empty logs.

The logs of an attempt are queried once, because an ended log does not change. Slow hosts do not delay an answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from dayfly.link.server_end import NO_ANSWER
from dayfly.plan.why import ended_attempts_with_logs, units_without_output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dayfly.spec.report import RunReport
    from dayfly.spec.run_data import LogInfo

    QueryLogs = Callable[[], Awaitable[Iterable[LogInfo]]]
    """Returns all logs of a run."""

# A request waits no longer for hosts. A later request queries the missing logs.
QUERY_TIMEOUT_S = 1.0
# Runs that are queried for one request.
MAX_QUERIES = 50
# Runs of an organisation that are remembered.
MAX_REMEMBERED = 1000


class _KnownAttempts(NamedTuple):
    """The attempts whose logs were queried, and their units with an empty log."""

    attempts: dict[str, int]
    units_without_output: set[str]


class MuteUnits:
    """The units with empty logs by organisation. All keys of an organisation share the results."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _KnownAttempts]] = {}

    async def find(self, org: str, runs: Iterable[tuple[RunReport, QueryLogs]]) -> dict[str, set[str]]:
        """Return by UID the units with an empty log, as far as they are known in time."""
        known, uids = self._known.setdefault(org, {}), set[str]()
        unknown = []
        for report, query_logs in runs:
            if not (attempts := ended_attempts_with_logs(report)):
                continue
            uids.add(report.uid)
            if report.uid not in known or known[report.uid].attempts != attempts:
                known.pop(report.uid, None)
                unknown.append((report.uid, query_logs, attempts))
        await asyncio.gather(*(_query(known, *each) for each in unknown[:MAX_QUERIES]))
        found = {uid: known[uid].units_without_output for uid in uids if uid in known}
        for uid in list(known)[: max(len(known) - MAX_REMEMBERED, 0)]:
            del known[uid]
        return found


async def _query(known: dict[str, _KnownAttempts], uid: str, query_logs: QueryLogs, attempts: dict[str, int]) -> None:
    """Query the logs; remember the result if the logs of all attempts have ended."""
    try:
        async with asyncio.timeout(QUERY_TIMEOUT_S):
            logs = list(await query_logs())
    except (TimeoutError, *NO_ANSWER):
        return
    newest = {info.unit: info.attempt for info in logs if info.sealed}
    if attempts.items() <= newest.items():
        known[uid] = _KnownAttempts(attempts, units_without_output(logs))
