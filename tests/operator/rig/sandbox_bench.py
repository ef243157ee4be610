"""The controller of Sandboxes without other controllers, with one Sandbox."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
from tests.operator.rig.run_creation import Bench
from tests.operator.rig.scenes import CHAIN

from dayfly.execute.pod import names
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import PluginObject, RunObject, SandboxObject
from dayfly.operator.sandboxes.sandbox_controller import SandboxController
from dayfly.operator.status.sandbox_status import AppliedSpec, SandboxNotReadyError
from dayfly.spec.kinds import RunSpec
from dayfly.spec.lifecycle import Target, Unit
from dayfly.spec.run import EndRequest, Run

BOX = Key("shop", "box")


class SandboxBench(Bench):
    """A controller with one cached Sandbox and published plugins."""

    def __init__(self, **box) -> None:
        super().__init__(**box)
        self.marked: list[str] = []
        self.doubts: list[str] = []
        self.looked: list[object] = []
        self.later: list[float] = []
        self.clock = 9_000
        self.caches.now = lambda: self.clock
        self.caches.queue = SimpleNamespace(add=self._add)
        self.caches.sandbox_queue = SimpleNamespace(add=self._add)
        self.restart()
        self.replaced: list[RunObject] = []
        self.written = True
        self.version = 100

    def restart(self) -> None:
        """Take over from another process: only the cluster's state is known."""
        in_use = SimpleNamespace(label_used=self._mark)
        self.front = SandboxController(self.caches, in_use, lambda _seen, sentence: self.doubts.append(sentence))

    def applied_spec(self) -> AppliedSpec:
        """Return the generation of the Sandbox that its run uses."""
        return self.front.applied_spec(self.caches.sandboxes.get("box", "shop"))

    def _add(self, key, after=0.0, **_):
        self.looked.append(key)
        self.later.append(after)

    async def _mark(self, sandbox):
        self.marked.append(sandbox.metadata.name)

    async def _replace(self, _before, after):
        self.replaced.append(after)
        return self.written

    def set_spec(self, spec: dict, *, generation: int = 1, status: dict | None = None, **meta) -> SandboxObject:
        """Store the Sandbox with this spec, also in the cache."""
        body = {**self.box, "spec": {"cluster": "c", **spec}, **({"status": status} if status else {})}
        self.version += 1
        newer = {"generation": generation, "resourceVersion": str(self.version)}
        body["metadata"] = {**self.box["metadata"], **newer, **meta}
        found = msgspec.convert(body, SandboxObject)
        self.caches.sandboxes.put(found)
        self.looked.clear()
        return found

    def cache_run(self, forks: tuple[Unit, ...] = (), *, closed: bool = False, **spec) -> RunObject:
        """Create its run, also in the cache; replacements are recorded."""
        target = Target(kind="Sandbox", namespace="shop", name="box", uid=self.uid)
        request = EndRequest(at=1, reason="Deleted") if closed else None
        self.version += 1
        meta = AnnotatedMeta(name=names.run_name("box", self.uid), uid="r", resource_version=str(self.version))
        ledger = Run(uid=self.uid, target=target, plan="", closed=request)
        found = RunObject(metadata=meta, ledger=ledger, spec=RunSpec(forks=forks, **spec))
        self.caches.runs.put(found)
        self.caches.ledger.replace = self._replace
        self.looked.clear()
        return found

    def publish_plugin(self, name: str, spec: dict = CHAIN, uid: str = "p") -> list[object]:
        """Publish a plugin. Return the keys that are queued for it."""
        self.looked.clear()
        body = {"metadata": {"name": name.replace("@", "."), "uid": f"{uid}-{name}"}, "spec": {"name": name, **spec}}
        self.caches.plugins.put(msgspec.convert(body, PluginObject))
        queued = list(self.looked)
        self.looked.clear()
        return queued

    async def look(self) -> SandboxNotReadyError | None:
        return await self.front.reconcile(BOX)

    @property
    def run_name(self) -> str:
        return names.run_name("box", self.uid)
