"""Completes the stored orders of a server for leak checks, whatever has interrupted them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from dayfly.execute.pod.read import parse_time
from dayfly.kube import errors
from dayfly.kube.forms import Style
from dayfly.operator.cluster.objects import LEAK_CHECKS, served_uid
from dayfly.operator.leaks.check_source import has_ordered_spec
from dayfly.operator.leaks.check_store import ORDERED

if TYPE_CHECKING:
    from dayfly.operator.cluster.caches import ClusterWatches
    from dayfly.operator.cluster.objects import LeakCheckObject
    from dayfly.operator.leaks.check_store import CheckRecord, ServedCheck
    from dayfly.operator.leaks.served_reports import ServedReports

# Time after the creation of a server's check in which its order is stored.
ORDER_DELAY_MS: Final = 30_000
WRITTEN_S: Final = 0.1
WAIT_S: Final = 60.0


class ServedOrders:
    """The objects of a server's checks: they get the ordered spec, and go when the server has deleted the check."""

    def __init__(self, cluster: ClusterWatches, reports: ServedReports) -> None:
        self._cluster = cluster
        self._reports = reports

    async def complete(self, seen: LeakCheckObject, record: CheckRecord, served: ServedCheck | None) -> float | None:
        """Complete the latest order of a check. Return the seconds until its next turn; None if nothing was left.

        Raises:
            errors.ApiError: the API server failed.
        """
        meta = seen.metadata
        if served is None:
            is_new = self._cluster.now() < parse_time(meta.creation_timestamp) + ORDER_DELAY_MS
            return WAIT_S if served_uid(meta) and is_new else None
        if served.is_dropped:
            self._reports.drop(meta.uid)
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._cluster.client.delete(LEAK_CHECKS, meta.name, uid=meta.uid)
            return WAIT_S
        if record.generation != ORDERED or has_ordered_spec(seen, served):
            return None
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "add", "path": "/spec", "value": msgspec.to_builtins(served.put.spec)},
        ]
        await self._cluster.client.patch(LEAK_CHECKS, patch, meta.name, style=Style.JSON)
        return WRITTEN_S
