"""Which units have printed nothing, asked once of each attempt: a log that has ended stays as it is.

So that of many sandboxes nobody is sent to an empty log, and nobody waits for a host that is far away or silent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from dayfly.link.server_end import NO_ANSWER
from dayfly.plan.why import ended_logs, units_without_output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dayfly.spec.report import RunReport
    from dayfly.spec.run_data import LogInfo

    Ask = Callable[[], Awaitable[Iterable[LogInfo]]]
    """All logs of a run there are."""

# Whoever asks what needs attention does not wait longer for it. Which logs are empty is known the next time.
PATIENCE_S = 1.0
# So many runs are asked about for one answer; the others with the next.
AT_ONCE = 50
# Of so many runs of an organisation it is remembered.
KEPT = 1000


class _KnownAttempts(NamedTuple):
    """The attempts whose logs were asked for, and which of their units have printed nothing."""

    attempts: dict[str, int]
    units_without_output: set[str]


class Mute:
    """What is known of the runs of each organisation, whoever of it has asked: their keys may see different ones."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _KnownAttempts]] = {}

    async def among(self, org: str, runs: Iterable[tuple[RunReport, Ask]]) -> dict[str, set[str]]:
        """By uid the units that have printed nothing, of all the runs of the organisation."""
        known, ours = self._known.setdefault(org, {}), set[str]()
        asked = []
        for report, ask in runs:
            if not (attempts := ended_logs(report)):
                continue
            ours.add(report.uid)
            if report.uid not in known or known[report.uid].attempts != attempts:
                known.pop(report.uid, None)
                asked.append((report.uid, ask, attempts))
        await asyncio.gather(*(_learn(known, *each) for each in asked[:AT_ONCE]))
        found = {uid: known[uid].units_without_output for uid in ours if uid in known}
        for uid in list(known)[: max(len(known) - KEPT, 0)]:
            del known[uid]
        return found


async def _learn(known: dict[str, _KnownAttempts], uid: str, ask: Ask, attempts: dict[str, int]) -> None:
    """Ask, and keep the answer if all the attempts' logs have ended in it."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            logs = list(await ask())
    except (TimeoutError, *NO_ANSWER):
        return
    newest = {info.unit: info.attempt for info in logs if info.sealed}
    if attempts.items() <= newest.items():
        known[uid] = _KnownAttempts(attempts, units_without_output(logs))
