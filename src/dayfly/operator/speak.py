"""What the operator says of a Sandbox: its status, patched when it has changed, and never read back."""

import datetime as dt
from typing import Any

from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.operator.cluster import Cluster
from dayfly.operator.objects import SANDBOXES, SandboxObject
from dayfly.operator.sandboxes import WaitingError, conditions, routing_key
from dayfly.plan.decide import decide
from dayfly.plan.status import Report, describe


class Speaker:
    """Keeps what it said last, so that the same is not written twice; after a restart it says everything once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, tuple[Any, ...]] = {}
        self._since: dict[str, tuple[bool, str, str]] = {}

    async def run(self, scene: Scene) -> None:
        """Say how the run of a Sandbox stands."""
        target = scene.world.run.target
        seen = self._cluster.sandboxes.get(target.name, target.namespace)
        if seen is None or seen.metadata.uid != target.uid:
            self._said.pop(target.uid, None)
            return
        report = describe(scene.plan, scene.world, decide(scene.plan, scene.world, scene.now))
        await self._say(seen, report.ready, report.reason, report.message, report)

    async def waiting(self, seen: SandboxObject, why: WaitingError) -> None:
        """Say why a Sandbox has no run."""
        await self._say(seen, False, why.reason, str(why), None)

    async def _say(self, seen: SandboxObject, ready: bool, reason: str, message: str, report: Report | None) -> None:
        meta = seen.metadata
        progress = f"{report.done}/{report.total}" if report else "0/0"
        phase = _phase(report, ready)
        said = (ready, reason, steady(message), progress, phase, meta.generation)
        if self._said.get(meta.uid) == said:
            return
        before = self._since.get(meta.uid)
        if before is None or before[:2] != (ready, reason):
            stamp = dt.datetime.fromtimestamp(self._cluster.now() / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            before = self._since[meta.uid] = (ready, reason, stamp)
        status = {
            "observedGeneration": meta.generation,
            "phase": phase,
            "ready": ready,
            "reason": reason,
            "message": message,
            "progress": progress,
            "routingKey": routing_key(meta.uid),
            "conditions": conditions(ready, reason, message, meta.generation, before[2]),
        }
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._cluster.client.patch(SANDBOXES, patch, meta.name, meta.namespace, subresource="status")
        except (errors.NotFound, errors.Conflict):
            return
        self._said[meta.uid] = said


def steady(message: str) -> str:
    """The message without its running clock: time alone is no news."""
    return message.split(" has been running for ", maxsplit=1)[0]


def _phase(report: Report | None, ready: bool) -> str:
    if report is None:
        return "Pending"
    if report.closed is not None:
        return "Deleting"
    if ready:
        return "Ready"
    return "Failed" if report.reason in ("ResourceFailed", "HookFailed") else "Creating"
