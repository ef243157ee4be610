"""LifecycleHooks that need somebody: refused, not granted, or with an object that does not go on.

They are the cluster's, so an administrator sees them; whoever may not list them is told of none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.kube import errors
from dayfly.kube.objects import ObjectMeta, Slim
from dayfly.operator.cluster.objects import HOOKS, WrittenStatus
from dayfly.plan import reason_catalog
from dayfly.plan.reason_catalog import Severity
from dayfly.server.attention import Concern

if TYPE_CHECKING:
    from dayfly.kube.client import Client


class _Status(WrittenStatus, frozen=True):
    troubled: int = 0


class _Told(Slim, frozen=True):
    metadata: ObjectMeta
    status: _Status | None = None


_TOLD = HOOKS.read_as(_Told)


async def concerns(client: Client) -> list[Concern]:
    """Of all hooks of the cluster.

    Raises:
        errors.ApiError: they cannot be read now.
    """
    try:
        found = await client.list_all(_TOLD)
    except (errors.Forbidden, errors.NotServed):  # a cluster may have Dayfly without its hooks
        return []
    return [_concern(each, each.status) for each in found.items if each.status and _needs(each.status)]


def _needs(status: _Status) -> bool:
    return status.troubled > 0 or reason_catalog.severity(status.reason) >= Severity.WARNING


def _concern(told: _Told, status: _Status) -> Concern:
    since = next((each.last_transition_time for each in status.conditions if each.type == "Ready"), "")
    return Concern(
        kind="held",
        subject=f"lifecycle hook {told.metadata.name}",
        reason=status.reason,
        message=status.message,
        # Since when an object of it is in trouble the hook does not tell.
        since=0 if status.ready else milliseconds(since),
        next=f"see `kubectl describe lifecyclehook {told.metadata.name}`"
        if status.ready
        else reason_catalog.advice(status.reason),
    )
