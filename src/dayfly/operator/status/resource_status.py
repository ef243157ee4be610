"""Resource objects: one for each resource of a Sandbox, for people to look at, with a Secret of its outputs.

The Secret has the shape of Service Binding's "provisioned service": it lies in the Sandbox's namespace, its keys are
`<step>.<output>`, and `.status.binding.name` of the Resource names it. Both belong to the Run, so they go when it does.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.objects import ObjectMeta, Resource, Slim
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import VERSION, RunObject, WrittenStatus, owned, owner, resource_name
from dayfly.operator.status.status_format import conditions, steady, units_of
from dayfly.operator.status.status_throttle import StatusThrottle
from dayfly.plan.phases import ResourceProgress, resource_progress
from dayfly.plan.reasons import Reason
from dayfly.plan.status import sentence
from dayfly.spec.lifecycle import Lifecycle
from dayfly.spec.report import RunReport
from dayfly.spec.run import Phase


class ResourceObject(Slim, frozen=True):
    """A Resource with what its status says, which a process that begins looks at once, so as not to say it again."""

    metadata: ObjectMeta
    status: WrittenStatus | None = None


RESOURCES = Resource(names.GROUP, VERSION, "resources", "Resource", ResourceObject, namespaced=False)
_BARE = RESOURCES.metadata_only()


# So soon it is looked whether somebody else's Resource of that name is still there; nothing waits for ours.
FOREIGN_AGAIN_S = 30.0


class ResourceMemory:
    """Of one resource: the UID of its object once it is known, and what was said of it."""

    def __init__(self) -> None:
        self.uid = ""
        self.throttle = StatusThrottle()


class ResourceStatusWriter:
    """Says of each resource how it stands, when that has changed."""

    def __init__(self, cluster: ClusterWatches, bind: Callable[[RunObject, Lifecycle], Awaitable[str]]) -> None:
        """`bind` hands the outputs of a resource that is ready to its Sandbox's namespace, and names their Secret."""
        self._cluster = cluster
        self._client = cluster.client
        self._bind = bind

    async def run(self, scene: Scene, run: RunObject, report: RunReport, memory: dict[str, ResourceMemory]) -> float:
        """Say how the resources of one run stand; seconds after which to ask again, 0 if all is said.

        Raises:
            errors.ApiError: not all is said.
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
        reason, message = _words(stands)
        # That a step is placed, pulls and runs is said of the Sandbox; here its end is enough.
        news, rest = (phase, reason), (progress,)
        if (wait := throttle.wait(news, rest, now)) is not None:
            return wait
        if not memory.uid:
            made = await self._make(run, document)
            if not owned(made.metadata, run):
                return FOREIGN_AGAIN_S
            memory.uid = made.metadata.uid
            # Who has spoken knows better than what stands there, which may be anybody's.
            if made.status is not None and not throttle.news:
                spoken = made.status
                throttle = StatusThrottle.found(spoken, (spoken.phase, spoken.reason), (spoken.progress,))
                memory.throttle = throttle
                if (wait := throttle.wait(news, rest, now)) is not None:
                    return wait
        binding = await self._bind(run, document) if ready else ""
        since = throttle.hold(ready, reason, now)
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
            memory.uid = ""  # somebody has taken it away: it is made again with the next news
            return 0.0
        throttle.note(news, rest, now)
        return 0.0

    async def _make(self, run: RunObject, document: Lifecycle) -> ResourceObject:
        """The Resource object: made, or found with what a process before this one has said of it."""
        target = run.ledger.target
        body: dict[str, Any] = {
            "apiVersion": RESOURCES.api_version,
            "kind": RESOURCES.kind,
            "metadata": {
                "name": resource_name(run, document.resource),
                "labels": {names.RUN_LABEL: run.metadata.name},
                "ownerReferences": [owner(run)],
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
        """The name of the sealed document."""
        found = filter(None, (self._cluster.documents.get(pin.name) for pin in run.spec.documents))
        return next((each.metadata.name for each in found if each.spec.resource == document.resource), "")


def _words(stands: ResourceProgress) -> tuple[str, str]:
    """Reason and sentence."""
    worst = stands.worst
    if worst is None:
        creating = stands.phase == "Ready"
        return (Reason.RESOURCE_READY, "all its create steps have succeeded") if creating else (
            "Deleting", "its delete steps have succeeded"
        )  # fmt: skip
    message = sentence(worst, steady(worst))
    return (worst.reason if stands.has_trouble else "") or stands.phase, f"{worst.name}: {message}"
