"""Statuses of Resource objects: one for each resource of a Sandbox.

A Resource names its Secret of outputs in `.status.binding.name`, as Service Binding's "provisioned service" does. Both
objects belong to the Run and are deleted with it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import ApiResource, KubeStruct, ObjectMeta
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import (
    VERSION,
    RunObject,
    StoredStatus,
    is_owned_by,
    resource_name,
    run_owner_reference,
    secret_name,
)
from dayfly.operator.status.status_format import conditions, units_of, with_fixed_times
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.plan.phases import ResourceProgress, resource_progress
from dayfly.plan.reasons import Reason
from dayfly.plan.status import describe_unit
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase


class _Binding(KubeStruct, frozen=True):
    name: str = ""


class _StoredStatus(StoredStatus, frozen=True):
    binding: _Binding | None = None


class ResourceObject(KubeStruct, frozen=True):
    """A Resource with its status, which a new process compares once, to avoid writing it again."""

    metadata: ObjectMeta
    status: _StoredStatus | None = None


RESOURCES = ApiResource(names.GROUP, VERSION, "resources", "Resource", ResourceObject, namespaced=False)
_BARE = RESOURCES.metadata_only()


# Interval at which another program's Resource of the same name is checked again. Nothing else waits for it.
CONFLICT_RECHECK_S = 30.0


class ResourceMemory:
    """One resource: the UID of its object, if known, and the latest written status."""

    def __init__(self) -> None:
        self.uid = ""
        self.throttle = StatusThrottle()


class ResourceStatusWriter:
    """Writes the statuses of Resource objects when they have changed."""

    def __init__(self, cluster: ClusterWatches, bind: Callable[[RunObject, Lifecycle], Awaitable[str]]) -> None:
        """`bind` writes the outputs of a ready resource to its Sandbox's namespace. It returns the Secret's name."""
        self._cluster = cluster
        self._client = cluster.client
        self._bind = bind

    async def write_due(
        self, scene: Scene, run: RunObject, report: RunReport, memory: dict[str, ResourceMemory]
    ) -> float:
        """Write the statuses of a run's resources that are due. Return the seconds until the next one is; 0 if none is.

        Raises:
            errors.ApiError: a status was not written.
        """
        if run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED):
            return 0.0
        named = [document for document in scene.plan.documents if document.resource]
        again = []
        for document in named:
            known = memory.setdefault(document.resource, ResourceMemory())
            again.append(await self._resource(run, document, report, scene.now, known))
        return min(filter(None, again), default=0.0)

    async def _resource(
        self, run: RunObject, document: Lifecycle, report: RunReport, now: int, memory: ResourceMemory
    ) -> float:
        throttle = memory.throttle
        units = [unit for unit in report.units if unit.resource == document.resource]
        stands = resource_progress(units, document.resource, closed=report.closed is not None)
        phase, ready, progress = stands.phase, stands.phase == "Ready", f"{stands.done}/{stands.total}"
        reason, message = _reason_and_message(stands)
        # The Sandbox's status has the details of running steps; a Resource only has their results.
        name = resource_name(run, document.resource)
        # The name of the Secret gets another suffix with each reset of the resource.
        urgent, deferred = (phase, reason, secret_name(run, document).removeprefix(name)), (progress,)
        if (wait := throttle.delay(urgent, deferred, now)) is not None:
            return wait
        if not memory.uid:
            made = await self._make(run, document)
            if not is_owned_by(made.metadata, run):
                return CONFLICT_RECHECK_S
            memory.uid = made.metadata.uid
            # What this process has written is more reliable than the stored status, which any program may change.
            if made.status is not None and not throttle.urgent:
                stored = made.status
                secret = stored.binding.name if stored.binding is not None else name
                suffix = secret.removeprefix(name) if secret.startswith(name) else ""
                throttle = StatusThrottle.from_status(stored, (stored.phase, stored.reason, suffix), (stored.progress,))
                memory.throttle = throttle
                if (wait := throttle.delay(urgent, deferred, now)) is not None:
                    return wait
        binding = await self._bind(run, document) if ready else ""
        since = throttle.transition_time(ready, reason, now)
        status = {
            "observedGeneration": 1,
            "phase": phase,
            "ready": ready,
            "reason": reason,
            "message": message,
            "progress": progress,
            "run": run.metadata.name,
            "binding": {"name": binding} if binding else None,
            "conditions": conditions(ready, reason, message, 1, since),
            "units": units_of(units, {}),
        }
        patch = {"metadata": {"uid": memory.uid}, "status": status}
        try:
            await self._client.patch(_BARE, patch, resource_name(run, document.resource), subresource="status")
        except (*errors.ABSENT, errors.Conflict):
            memory.uid = ""  # the object was deleted; it is created again with the next change
            return 0.0
        throttle.record_write(urgent, deferred, now)
        return 0.0

    async def _make(self, run: RunObject, document: Lifecycle) -> ResourceObject:
        """Create the Resource object, or return the existing one with its status."""
        target = run.ledger.target
        body: dict[str, Any] = {
            "apiVersion": RESOURCES.api_version,
            "kind": RESOURCES.kind,
            "metadata": {
                "name": resource_name(run, document.resource),
                "labels": {names.RUN_LABEL: run.metadata.name},
                "ownerReferences": [run_owner_reference(run)],
            },
            "spec": {
                "name": document.resource,
                "sandbox": {"namespace": target.namespace, "name": target.name, "uid": target.uid},
                "plugin": self._plugin(run, document.resource),
                "document": self._document(run, document),
                "outputNamespaces": [target.namespace],
            },
        }
        try:
            return await self._client.create(RESOURCES, body)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            return await self._client.get(RESOURCES, body["metadata"]["name"])

    def _plugin(self, run: RunObject, resource: str) -> str:
        target = run.ledger.target
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        wishes = seen.spec.get("resources") or [] if seen else []
        return next((str(wish.get("plugin", "")) for wish in wishes if wish.get("name") == resource), "")

    def _document(self, run: RunObject, document: Lifecycle) -> str:
        """Return the name of the resource's sealed document."""
        found = filter(None, (self._cluster.documents.get(pin.name) for pin in run.spec.documents))
        return next((each.metadata.name for each in found if each.spec.resource == document.resource), "")


def _reason_and_message(stands: ResourceProgress) -> tuple[str, str]:
    """Return reason and message."""
    worst = stands.worst
    if worst is None:
        creating = stands.phase == "Ready"
        return (Reason.RESOURCE_READY, "all its create steps have succeeded") if creating else (
            "Deleting", "its delete steps have succeeded"
        )  # fmt: skip
    message = describe_unit(worst, with_fixed_times(worst))
    return (worst.reason if stands.has_trouble else "") or stands.phase, f"{worst.name}: {message}"
