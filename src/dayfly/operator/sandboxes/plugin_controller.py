"""The controller of ResourcePlugins: the condition Accepted reports problems that the schema cannot detect.

A published plugin never changes, so its condition is final; each process writes it once. It is only for people: a
sandbox that uses the plugin checks it again.
"""

from dayfly import compile as compiler
from dayfly.execute.pod import pod_precheck
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PLUGINS, PluginObject
from dayfly.operator.status.status_format import conditions, readiness
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError


class PluginController:
    """Validates plugins when they are published."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._reported: dict[str, str] = {}

    def reset(self) -> None:
        """Forget all plugins: another replica reports them now."""
        self._reported.clear()

    async def reconcile(self, name: str) -> None:
        """Report whether one plugin can be used.

        Raises:
            errors.ApiError: it is not reported yet.
        """
        seen = self._cluster.plugins.get(name)
        if seen is None:
            self._reported.pop(name, None)
            return
        meta = seen.metadata
        if self._reported.get(name) == meta.uid:
            return
        problem = _problem(seen)
        accepted, reason = not problem, Reason.REFUSED if problem else Reason.ACCEPTED
        message, born = problem or "sandboxes can use it", meta.creation_timestamp or ""
        status = {
            "observedGeneration": meta.generation,
            "accepted": accepted,
            "reason": reason,
            "message": message,
            "conditions": [
                *conditions(accepted, reason, message, meta.generation, born, name="Accepted"),
                *readiness(accepted, reason, message, meta.generation, born),
            ],
        }
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._cluster.client.patch(PLUGINS.metadata_only(), patch, name, subresource="status")
        except (errors.NotFound, errors.Conflict):
            return  # it was deleted or replaced, which queues it again
        self._reported[name] = meta.uid


def _problem(seen: PluginObject) -> str:
    try:
        found = pod_precheck.objections(compiler.check_plugin(seen.parsed()))
    except SpecError as error:
        return str(error)
    return f"{found[0]}; change spec.runner.podTemplateOverlay" if found else ""
