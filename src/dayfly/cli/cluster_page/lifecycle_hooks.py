"""LifecycleHooks that need attention: rejected, not granted, or with a blocked object.

They are cluster-scoped. Users who may not list them see none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.kube import errors
from dayfly.kube.objects import KubeStruct, ObjectMeta
from dayfly.operator.cluster.objects import HOOKS, StoredStatus
from dayfly.plan import reason_catalog
from dayfly.plan.reason_catalog import Severity
from dayfly.server.attention import Concern

if TYPE_CHECKING:
    from dayfly.kube.client import KubeClient


class _Status(StoredStatus, frozen=True):
    troubled: int = 0


class _HookObject(KubeStruct, frozen=True):
    metadata: ObjectMeta
    status: _Status | None = None


_HOOKS = HOOKS.read_as(_HookObject)


async def find_concerns(client: KubeClient) -> list[Concern]:
    """Return the concerns of all hooks of the cluster.

    Raises:
        errors.ApiError: the hooks cannot be read.
    """
    try:
        found = await client.list_all(_HOOKS)
    except (errors.Forbidden, errors.NotServed):  # a cluster may have Dayfly without LifecycleHooks
        return []
    return [_concern(each, each.status) for each in found.items if each.status and _needs_attention(each.status)]


def _needs_attention(status: _Status) -> bool:
    return status.troubled > 0 or reason_catalog.severity(status.reason) >= Severity.WARNING


def _concern(hook: _HookObject, status: _Status) -> Concern:
    since = next((each.last_transition_time for each in status.conditions if each.type == "Ready"), "")
    return Concern(
        kind="held",
        subject=f"lifecycle hook {hook.metadata.name}",
        reason=status.reason,
        message=status.message,
        # The status does not have the time since which an object is blocked.
        since=0 if status.ready else milliseconds(since),
        next=f"see `kubectl describe lifecyclehook {hook.metadata.name}`"
        if status.ready
        else reason_catalog.advice(status.reason),
    )
