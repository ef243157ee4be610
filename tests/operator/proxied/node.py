"""A node with simulated scheduler, kubelet and runners: real requests with real permissions, and no containers.

It keeps the promises of `rig.kubelet`: a gated pod is never bound, a deleted pod is not started, and a script starts
once for each pod. A deleted pod is released only when its script has ended.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tests.operator.proxied.recorder import Object
from tests.operator.rig import runner
from tests.operator.rig.cloud import Cloud
from tests.operator.rig.kubelet import Script

from dayfly.execute.fork.render import FORK_LABEL
from dayfly.execute.pod import names
from dayfly.execute.pod.read import is_gated
from dayfly.kube import errors
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import LEASES, PODS, SECRETS, Pod, untyped_resource
from dayfly.kube.reflector import Reflector

NODE = "node"
_WHOLE = PODS.read_as(dict[str, Any])
_NODES = untyped_resource("v1", "Node", "nodes", namespaced=False)
_SECRETS = SECRETS.read_as(dict[str, Any])
_BEAT_S = 10.0
_KNOWN_S = 60.0
_FORK_STARTS_S, _FORK_ENDS_S = 0.05, 0.2


@dataclasses.dataclass
class Stage:
    """The scripts of one run, with their behaviour and log, and the latest version of the Run."""

    scripts: Callable[[str], Script]
    cloud: Cloud
    runs: list[Object]
    alive: set[str] = dataclasses.field(default_factory=set)
    held: tuple[str, str, int, str] | None = None

    def joins(self, pod: str) -> None:
        """Record the start of a fork's pod. A fork lives from the start of its first pod to the end of its last one."""
        if not self.alive:
            found = ((item["ledger"]["uid"], each) for item in self.runs for each in item["ledger"]["units"].items())
            claims = ((run, unit, held["attempt"], held["ref"]) for run, (unit, held) in found if _claims(unit, held))
            self.held = next(claims, None)
            if self.held is None:
                self.cloud.broken(f"unclaimed: a fork's pod {pod} starts, its ledger is {self.runs}")
                return
            self.cloud.knows(self.held[1], creates=True, once=False, reads={})
            self.cloud.start(*self.held, {})
        self.alive.add(pod)

    def leaves(self, pod: str) -> None:
        """Record its end, if it has started."""
        if pod in self.alive:
            self.alive.discard(pod)
            if not self.alive and self.held is not None:
                self.cloud.end(*self.held, "ended")


@dataclasses.dataclass
class _Box:
    """One pod on the node."""

    name: str
    namespace: str
    uid: str
    run: str
    stop: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class Node:
    """`stage` finds the stage of a run by its name; `ledger` reads the current Run."""

    def __init__(
        self,
        scheduler: KubeClient,
        kubelet: KubeClient,
        *,
        stage: Callable[[str], Stage],
        ledger: Callable[[str], Awaitable[list[Object]]],
    ) -> None:
        self._scheduler, self._kubelet = scheduler, kubelet
        self._stage, self._ledger = stage, ledger
        self._bound: set[str] = set()
        self._boxes: dict[str, _Box] = {}
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Run until cancelled; a bug in the simulation ends it."""
        unplaced: Cache[Pod] = Cache()
        placed: Cache[Pod] = Cache()
        unplaced.listen(self._unplaced)
        placed.listen(self._placed)
        await self._register()
        async with asyncio.TaskGroup() as self._tasks:
            for client, cache, where in ((self._scheduler, unplaced, ""), (self._kubelet, placed, NODE)):
                reflector = Reflector(client, PODS, cache, fields=f"spec.nodeName={where}")
                self._tasks.create_task(reflector.run())
            self._tasks.create_task(self._beat())

    async def _register(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
        await self._kubelet.create(_NODES, node)
        await self._kubelet.patch(_NODES, {"status": {"conditions": [ready]}}, NODE, subresource="status")

    async def _beat(self) -> None:
        """Renew the node's Lease, without which the node and its pods would be evicted."""
        lease = LEASES.read_as(dict[str, Any])
        body = {"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40}}
        await self._ask(lambda: self._kubelet.create(lease, body, "kube-node-lease"))
        while True:
            beat = {"spec": {"renewTime": _now(micro=True)}}
            await self._ask(lambda beat=beat: self._kubelet.patch(lease, beat, NODE, "kube-node-lease"))
            await asyncio.sleep(_BEAT_S)

    # --- the scheduler ----------------------------------------------------------------------------------------------

    def _unplaced(self, change: ObjectChange[Pod]) -> None:
        pod = change.new
        if pod is None or is_gated(pod) or pod.metadata.deletion_timestamp or pod.metadata.uid in self._bound:
            return
        self._bound.add(pod.metadata.uid)
        self._tasks.create_task(self._bind(pod))

    async def _bind(self, pod: Pod) -> None:
        binding = untyped_resource("v1", "Binding", "bindings")
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid}}
        body["target"] = {"kind": "Node", "name": NODE}
        await self._ask(lambda: self._scheduler.create(binding, body, pod.metadata.namespace))

    # --- the kubelet ------------------------------------------------------------------------------------------------

    def _placed(self, change: ObjectChange[Pod]) -> None:
        pod = change.new or change.old
        assert pod is not None, "a change is of something"
        meta = pod.metadata
        box = self._boxes.get(meta.uid)
        if box is None:
            run = (meta.labels or {}).get(names.RUN_LABEL, "")
            box = self._boxes[meta.uid] = _Box(meta.name, meta.namespace, meta.uid, run)
            self._tasks.create_task(self._play(box))
        if change.new is None or meta.deletion_timestamp:
            box.stop.set()

    async def _play(self, box: _Box) -> None:
        pod = await self._ask(lambda: self._kubelet.get(_WHOLE, box.name, box.namespace))
        if pod is None or pod["metadata"]["uid"] != box.uid:
            return
        if FORK_LABEL in pod["metadata"]["labels"]:
            await self._serve(box, pod)
            return
        stage, unit = self._stage(box.run), pod["metadata"]["annotations"][names.UNIT_ANNOTATION]
        script, order = stage.scripts(unit), runner.order(pod)
        secrets = await self._pull(box, pod, script)
        if secrets is None:
            await self._finish(box, {"phase": "Failed", "reason": "Deleted"})
            return
        stage.runs[:] = await self._ledger(box.run)
        run = stage.runs[0]["ledger"]["uid"] if stage.runs else f"no run {box.run}"
        fields, started, began = runner.fields(order), _ms(), _now()
        attempt = int(fields["attempt"])
        stage.cloud.start(run, unit, attempt, box.uid, runner.inputs(pod, order, secrets.__getitem__))
        status = {
            "phase": "Running",
            "startTime": began,
            "containerStatuses": [_main({"running": {"startedAt": began}})],
        }
        await self._say(box, status)
        outcome, code = await self._live(box, script, stage.cloud.starts(unit, run))
        stage.cloud.end(run, unit, attempt, box.uid, f"{outcome} {code}")
        outputs = script.outputs if (outcome, code) == ("exited", 0) else {}
        receipt = runner.Receipt(box.uid, fields, outputs, outcome, code, started, _ms())
        await asyncio.sleep(script.lag)
        said = {"exitCode": receipt.exit_code, "message": receipt.message(), "startedAt": began, "finishedAt": _now()}
        phase = "Failed" if receipt.exit_code else "Succeeded"
        await self._finish(box, {"phase": phase, "containerStatuses": [_main({"terminated": said})]})

    async def _serve(self, box: _Box, pod: Object) -> None:
        """Run a fork's pod: it is ready from its start until it is deleted."""
        stage = self._stage(box.run)
        await asyncio.sleep(_FORK_STARTS_S)
        if not box.stop.is_set():
            for item in pod["spec"]["containers"][0].get("env", []):
                if "valueFrom" in item and await self._value(box, item["valueFrom"]["secretKeyRef"]) is None:
                    stage.cloud.broken(f"(7) pod {box.name} starts, and {item} is not there")
            stage.runs[:] = await self._ledger(box.run)
            stage.joins(box.uid)
            began, ready = _now(), {"type": "Ready", "status": "True"}
            running = [_main({"running": {"startedAt": began}})]
            said = {"phase": "Running", "startTime": began, "conditions": [ready], "containerStatuses": running}
            await self._say(box, said)
        await box.stop.wait()
        await asyncio.sleep(_FORK_ENDS_S)
        stage.leaves(box.uid)
        await self._ask(lambda: self._kubelet.delete(PODS, box.name, box.namespace, uid=box.uid, grace=0))

    async def _value(self, box: _Box, of: Object) -> str | None:
        """Return the content of a Secret, as a kubelet reads it."""
        secret = await self._ask(lambda: self._kubelet.get(_SECRETS, of["name"], box.namespace))
        found: str | None = None if secret is None else secret["data"].get(of["key"])
        return found

    async def _pull(self, box: _Box, pod: Object, script: Script) -> dict[str, dict[str, bytes]] | None:
        """Return the mounted Secrets when all exist; None if the pod is deleted before it starts."""
        await asyncio.sleep(script.pull)
        found: dict[str, dict[str, bytes]] = {}
        for name in (each["name"] for each in runner.mounted(pod)):
            while not box.stop.is_set() and name not in found:
                secret = await self._ask(lambda name=name: self._kubelet.get(_SECRETS, name, box.namespace))
                if secret is None:
                    await asyncio.sleep(0.1)
                else:
                    found[name] = {key: base64.b64decode(value) for key, value in secret["data"].items()}
        return None if box.stop.is_set() else found

    async def _live(self, box: _Box, script: Script, start: int) -> tuple[str, int]:
        try:
            async with asyncio.timeout(script.runs):
                await box.stop.wait()
        except TimeoutError:
            return "exited", 1 if start <= script.fails else 0
        return "cancelled", 15

    async def _finish(self, box: _Box, status: Object) -> None:
        """Write the last status, and confirm a requested deletion."""
        await self._say(box, status)
        await box.stop.wait()
        await self._ask(lambda: self._kubelet.delete(PODS, box.name, box.namespace, uid=box.uid, grace=0))

    async def _say(self, box: _Box, status: Object) -> None:
        patch = {"metadata": {"uid": box.uid}, "status": status}
        await self._ask(lambda: self._kubelet.patch(_WHOLE, patch, box.name, box.namespace, subresource="status"))

    async def _ask(self, request: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Send a request as the node. The server may refuse it for a moment, until it knows that the pod is on the node.

        Requests with an unknown outcome are repeated, as real kubelets do.
        """
        async with asyncio.timeout(_KNOWN_S):
            while True:
                try:
                    return await _unless_gone(request())
                except (errors.Forbidden, errors.ServerError, errors.Throttled, errors.OutcomeUnknown):
                    await asyncio.sleep(0.05)


async def _unless_gone(request: Coroutine[Any, Any, Any]) -> Any:
    """Return the answer; None if the object is gone, was replaced, or is already in the desired state."""
    try:
        return await request
    except (errors.NotFound, errors.Conflict):
        return None


def _claims(unit: str, record: Object) -> bool:
    return unit.startswith("fork:") and record["state"] in ("claimed", "unknown")


def _main(state: Object) -> Object:
    return {
        "name": "main", "state": state, "ready": False, "restartCount": 0, "image": "busybox:1", "imageID": "",
    }  # fmt: skip


def _ms() -> int:
    return time.time_ns() // 1_000_000


def _now(*, micro: bool = False) -> str:
    stamp = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds" if micro else "seconds")
    return stamp.replace("+00:00", "Z")
