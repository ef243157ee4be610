"""Simulates scheduler, kubelet and runner on a fake API server: pods are bound, pull images, run and end.

It keeps the promises of the real ones: a gated or deleted pod is never bound. A script starts once for each pod. Its
receipt is in the log first, and in the status after a delay. The pod's object is deleted when its finalizers are gone.
It uses a separate connection, so that faults for operators do not affect it.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime as dt
import functools
from typing import Any

import msgspec
from tests.kube.fake import FakeCluster
from tests.operator.rig import runner
from tests.operator.rig.cloud import Cloud, Object

from dayfly.execute.pod import names
from dayfly.kube.objects import Key
from dayfly.kube.transport import KubeRequest

EPOCH_MS = 1_767_225_600_000  # 2026-01-01, as the fake server's


@dataclasses.dataclass
class Script:
    """The behaviour of one unit. Times are in seconds."""

    runs: float = 2.0
    fails: int = 0  # number of first starts that fail
    codes: tuple[int, ...] = ()  # exit codes of its starts in order; the last one repeats
    outputs: dict[str, bytes] = dataclasses.field(default_factory=dict)
    prints: bytes = b"a line of its own\n"
    in_log: bool = False  # its outputs are too large for the message
    deaf: bool = False  # ignores SIGTERM
    oom: bool = False  # killed without a receipt
    broken: str = ""  # why its program cannot be executed
    lag: float = 0.5  # delay of the status after the log
    bind: float = 0.05
    pull: float = 0.2
    unschedulable: str = ""
    image_missing: str = ""
    config_missing: str = ""  # the reason why its container cannot be created
    spare_missing: bool = False  # the image of a recall is missing
    mount_missing: str = ""  # reported in an Event only
    hangs: bool = False  # the image's registry does not answer: an Event reports the pull, and nothing follows
    turns: bool = False  # it stops pulling as soon as the pod is changed
    mute: int = 0  # seconds before the Event
    withholds: int = 0  # seconds before the status is written
    silent: bool = False  # its node is disconnected: no log and no status
    logless: bool = False  # its log cannot be read
    no_such_pods: bool = False  # never bound, as in a cluster without nodes


@dataclasses.dataclass
class _Box:
    """The processes of one pod, which outlive its object."""

    key: Key
    uid: str
    stop: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    marker: str = ""  # content of its state volume
    recalled: list[Object] = dataclasses.field(default_factory=list)  # statuses of containers of recalls
    status: Object = dataclasses.field(default_factory=dict)


class Kubelet:
    """One node with unlimited room."""

    def __init__(self, cluster: FakeCluster, cloud: Cloud) -> None:
        self.scripts: dict[str, Script] = {}
        self.keys: dict[str, set[str]] = {}  # of the newest order of each unit
        self.held: set[str] = set()  # names of pods that the test controls
        self.ahead = 0.0  # lead of the node's clock in seconds
        self._events = 0
        self._cluster = cluster
        self._cloud = cloud
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._boxes: dict[str, _Box] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                change = asyncio.ensure_future(self._cluster.store.change())
                await asyncio.sleep(0)  # from now on it waits for the next write
                for pod in self._cluster.objects("pods"):
                    self._look(pod)
                gone = set(self._boxes) - {pod["metadata"]["uid"] for pod in self._cluster.objects("pods")}
                for uid in gone:
                    self._boxes[uid].stop.set()
                await change
        finally:
            tasks = [*self._tasks.values(), change]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def raise_faults(self) -> None:
        """Report a bug in this simulation, so that it is not taken for the operator's."""
        for task in self._tasks.values():
            if task.done() and not task.cancelled() and (fault := task.exception()):
                raise fault

    def _look(self, pod: Object) -> None:
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        if pod["spec"].get("schedulingGates") or meta["name"] in self.held:
            return
        if names.UNIT_ANNOTATION not in meta.get("annotations", {}):
            return  # a pod of a Deployment: `forks` simulates it
        if uid not in self._boxes:
            box = self._boxes[uid] = _Box(Key(meta["namespace"], meta["name"]), uid)
            self._tasks[uid] = asyncio.create_task(self._play(box))
        box = self._boxes[uid]
        if meta.get("deletionTimestamp"):
            box.stop.set()

    def _pod(self, box: _Box) -> Object | None:
        pod = self._cluster.store.get(self._cluster.kind("pods"), box.key)
        return pod if pod is not None and pod["metadata"]["uid"] == box.uid else None

    async def _play(self, box: _Box) -> None:
        pod = self._pod(box)
        if pod is None:
            return
        unit = pod["metadata"]["annotations"][names.UNIT_ANNOTATION]
        script = self.scripts[unit]
        if not await self._bind(box, script):
            return
        if not await self._start(box, script):
            # For a pod that was deleted before its container existed, the kubelet reports the same as for any container that its
            # runtime does not know.
            said = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
            said |= {"message": "The container could not be located when the pod was terminated"}
            self._finish(box, {"phase": "Failed", "containerStatuses": [_main({"terminated": said})]})
            return
        pod = self._pod(box)
        if pod is None:
            return
        order = runner.order(pod)
        self.keys[unit] = {key for key, _ in order}
        fields, started = runner.fields(order), self._ms()
        if box.marker or started >= int(fields.get("start-before-ms", 1 << 60)):
            self._end(box, script, runner.Receipt(box.uid, fields, {}, "void", 0, 0, started))
            return
        if script.broken:
            said = runner.Receipt(box.uid, fields, {}, "not-executable", 127, started, started, script.broken)
            self._end(box, script, said)
            return
        box.marker = "started"
        run = pod["metadata"]["ownerReferences"][0]["uid"]
        run = self._ledger(run)
        attempt = int(fields["attempt"])
        data = functools.partial(self._data, pod)
        self._cloud.start(run, unit, attempt, box.uid, runner.inputs(pod, order, data))
        if not script.silent:
            self._status(
                box, {"phase": "Running", "containerStatuses": [_main({"running": {"startedAt": self._now()}})]}
            )
        outcome, code = await self._live(box, script, self._cloud.starts(unit, run))
        self._cloud.end(run, unit, attempt, box.uid, f"{outcome} {code}")
        outputs = script.outputs if outcome == "exited" and code == 0 else {}
        if script.silent:
            return
        receipt = runner.Receipt(box.uid, fields, outputs, outcome, code, started, self._ms())
        await self._tell(box, script, receipt)

    async def _bind(self, box: _Box, script: Script) -> bool:
        await asyncio.sleep(script.bind)
        if script.unschedulable or script.no_such_pods:
            if script.unschedulable:
                said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                said |= {"message": script.unschedulable, "lastTransitionTime": self._now()}
                self._status(box, {"phase": "Pending", "conditions": [said]})
            while script.unschedulable or script.no_such_pods:
                if box.stop.is_set():
                    return False
                await asyncio.sleep(1)
        pod = self._pod(box)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return False
        body = {"target": {"name": "node"}}
        self._ask("POST", box, body, "binding")
        return True

    async def _start(self, box: _Box, script: Script) -> bool:
        """Pull the image and wait for mounted Secrets. Return false if the pod was deleted before it started."""
        began, pulling = self._now(), False
        await asyncio.sleep(script.pull)
        while not box.stop.is_set():
            pod = self._pod(box)
            if pod is None:
                return False
            self._recall(box, script, pod)
            if script.hangs and not (script.turns and _recalled(pod)):
                if script.withholds:
                    script.withholds -= 1
                else:
                    main = _main({"waiting": {"reason": "ContainerCreating"}})
                    self._status(box, {"phase": "Pending", "startTime": began, "containerStatuses": [main]})
                if script.mute:
                    script.mute -= 1
                elif not pulling:
                    pulling = self._say(box, "Normal", "Pulling", 'Pulling image "busybox:1"')
            elif script.config_missing:
                waiting = {"reason": "CreateContainerConfigError", "message": script.config_missing}
                main = _main({"waiting": waiting})
                self._status(box, {"phase": "Pending", "startTime": began, "containerStatuses": [main]})
            elif script.image_missing:
                if not pulling:
                    pulling = self._say(box, "Normal", "Pulling", 'Pulling image "busybox:1"')
                    self._say(box, "Warning", "Failed", f"Failed to pull: {script.image_missing}")
                    self._say(box, "Warning", "Failed", "Error: ErrImagePull")
                waiting = {"reason": "ImagePullBackOff", "message": script.image_missing}
                self._status(
                    box,
                    {"phase": "Pending", "startTime": began, "containerStatuses": [_main({"waiting": waiting})]},
                )
            elif script.mount_missing:
                waiting = {"reason": "ContainerCreating"}
                self._status(
                    box,
                    {"phase": "Pending", "startTime": began, "containerStatuses": [_main({"waiting": waiting})]},
                )
                self._say(box, "Warning", "FailedMount", script.mount_missing)
            elif missing := self._missing(pod):
                waiting = {"reason": "ContainerCreating", "message": f"secret {missing} not found"}
                self._status(
                    box,
                    {"phase": "Pending", "startTime": began, "containerStatuses": [_main({"waiting": waiting})]},
                )
            else:
                return True
            await asyncio.sleep(1)
        return False

    def _recall(self, box: _Box, script: Script, pod: Object) -> None:
        """Run the container of a recall with another image, next to the step's state."""
        if box.recalled or (script.hangs and not script.turns) or not (added := _recalled(pod)):
            return
        if script.spare_missing:
            self._tell_recall(box, {"name": added, "state": {"waiting": {"reason": "ErrImagePull"}}})
            return
        fields = runner.fields(runner.order(pod))
        box.marker = box.marker or "void"
        outcome = "void" if box.marker == "void" else "lost"
        said = runner.Receipt(box.uid, fields, {}, outcome, 0, 0, self._ms())
        state = {"exitCode": 125, "message": said.message(), "startedAt": self._now(), "finishedAt": self._now()}
        box.recalled = [{"name": added, "state": {"terminated": state}}]
        self._tell_recall(box, *box.recalled)

    def _tell_recall(self, box: _Box, told: Object) -> None:
        self._status(box, box.status | {"ephemeralContainerStatuses": [told]})

    async def _live(self, box: _Box, script: Script, start: int) -> tuple[str, int]:
        try:
            async with asyncio.timeout(script.runs):
                await box.stop.wait()
        except TimeoutError:
            if script.oom:
                return "oom", 137
            if script.codes:
                return "exited", script.codes[min(start, len(script.codes)) - 1]
            return "exited", 1 if start <= script.fails else 0
        await asyncio.sleep(10 if script.deaf else 0.1)
        return "cancelled", 15

    async def _tell(self, box: _Box, script: Script, receipt: runner.Receipt) -> None:
        """Write the receipt to the log, and after a delay to the status, also if the pod was deleted."""
        if receipt.outcome == "oom":
            said = {"exitCode": 137, "reason": "OOMKilled", "startedAt": self._now(), "finishedAt": self._now()}
            await asyncio.sleep(script.lag)
            self._finish(box, {"phase": "Failed", "containerStatuses": [_main({"terminated": said})]})
            return
        if not script.logless:
            log = self._cluster.log_of(box.key.name, box.key.namespace)
            log.write(script.prints + receipt.log(), ended=True)
        await asyncio.sleep(script.lag)
        self._end(box, script, receipt)

    def _end(self, box: _Box, script: Script, receipt: runner.Receipt) -> None:
        said = {"exitCode": receipt.exit_code, "message": receipt.message(in_log=script.in_log)}
        said |= {"startedAt": self._now(), "finishedAt": self._now()}
        phase = "Failed" if receipt.exit_code else "Succeeded"
        self._finish(box, {"phase": phase, "containerStatuses": [_main({"terminated": said})]})

    def _finish(self, box: _Box, status: Object) -> None:
        """Write the last status, and confirm a requested deletion."""
        self._status(box, status)
        pod = self._pod(box)
        if pod is not None and pod["metadata"].get("deletionTimestamp"):
            self._ask("DELETE", box, {"gracePeriodSeconds": 0, "preconditions": {"uid": box.uid}})

    def _status(self, box: _Box, status: Object) -> None:
        if box.recalled:
            status = status | {"ephemeralContainerStatuses": box.recalled}
        if self._pod(box) is not None and box.status != status:
            box.status = status
            self._ask(
                "PATCH", box, {"metadata": {"uid": box.uid}, "status": status}, "status", "application/merge-patch+json"
            )

    def _say(self, box: _Box, kind: str, reason: str, note: str) -> bool:
        """Write an Event about the pod, as a kubelet does."""
        self._events += 1
        regarding = {"kind": "Pod", "namespace": box.key.namespace, "name": box.key.name, "uid": box.uid}
        event = {
            "metadata": {"name": f"warning-{self._events}"},
            "type": kind,
            "reason": reason,
            "note": note,
        }
        event |= {"regarding": regarding, "eventTime": self._now()}
        path = f"/apis/events.k8s.io/v1/namespaces/{box.key.namespace}/events"
        answer = self._cluster.answer(KubeRequest("POST", path, {}, msgspec.json.encode(event)))
        assert answer.status < 300, answer.body
        return True

    def _ask(self, method: str, box: _Box, body: Any, sub: str = "", kind: str = "application/json") -> None:
        path = f"/api/v1/namespaces/{box.key.namespace}/pods/{box.key.name}" + (f"/{sub}" if sub else "")
        answer = self._cluster.answer(KubeRequest(method, path, {}, msgspec.json.encode(body), kind))
        assert answer.status < 300, f"{method} {path}: {answer.body!r}"

    def _secret(self, pod: Object, name: str) -> Object | None:
        return self._cluster.store.get(self._cluster.kind("secrets"), Key(pod["metadata"]["namespace"], name))

    def _missing(self, pod: Object) -> str:
        return next((each["name"] for each in runner.mounted(pod) if self._secret(pod, each["name"]) is None), "")

    def _data(self, pod: Object, name: str) -> dict[str, bytes]:
        found = self._secret(pod, name)
        assert found is not None, "the pod has not started before it was there"
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    def _ledger(self, uid: str) -> str:
        found = [item for item in self._cluster.objects("runs") if item["metadata"]["uid"] == uid]
        return found[0]["ledger"]["uid"] if found else f"no run {uid}"

    def _ms(self) -> int:
        return EPOCH_MS + int((self._cluster.time() + self.ahead) * 1000)

    def _now(self) -> str:
        now = dt.datetime.fromtimestamp(self._ms() // 1000, dt.UTC)
        return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _recalled(pod: Object) -> str:
    """Return the name of the container that a recall has added."""
    return next((each["name"] for each in pod["spec"].get("ephemeralContainers", ())), "")


def _main(state: Object) -> Object:
    return {"name": "main", "state": state}
