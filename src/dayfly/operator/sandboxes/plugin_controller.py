"""Says of each published plugin whether sandboxes can use it: what no schema sees, its condition Accepted tells.

A published plugin never changes, and so does not what is said of it: it holds from the plugin's first moment, and is
said again only by a new process. Nothing rests on it; a sandbox that names the plugin is checked by itself.
"""

from dayfly import compile as compiler
from dayfly.execute.pod import pod_precheck
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import PLUGINS, PluginObject
from dayfly.operator.status.status_format import conditions
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError


class PluginController:
    """Judges plugins as they are published."""

    def __init__(self, cluster: ClusterWatches) -> None:
        self._cluster = cluster
        self._said: dict[str, str] = {}

    def reset(self) -> None:
        """Forget all plugins: another process judges them from now on."""
        self._said.clear()

    async def reconcile(self, name: str) -> None:
        """Say of one plugin whether it can be used.

        Raises:
            errors.ApiError: it is not said yet.
        """
        seen = self._cluster.plugins.get(name)
        if seen is None:
            self._said.pop(name, None)
            return
        meta = seen.metadata
        if self._said.get(name) == meta.uid:
            return
        problem = _problem(seen)
        accepted, reason = not problem, Reason.REFUSED if problem else Reason.ACCEPTED
        message, born = problem or "sandboxes can use it", meta.creation_timestamp or ""
        status = {
            "observedGeneration": meta.generation,
            "accepted": accepted,
            "reason": reason,
            "message": message,
            "conditions": conditions(accepted, reason, message, meta.generation, born, name="Accepted"),
        }
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._cluster.client.patch(PLUGINS.metadata_only(), patch, name, subresource="status")
        except (errors.NotFound, errors.Conflict):
            return  # it is another one by now, and heard of
        self._said[name] = meta.uid


def _problem(seen: PluginObject) -> str:
    try:
        found = pod_precheck.objections(compiler.check_plugin(seen.parsed()))
    except SpecError as error:
        return str(error)
    return f"{found[0]}; change spec.runner.podTemplateOverlay" if found else ""
