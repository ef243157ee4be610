"""The yardstick of `bulk`: a bare loop that asks the API server for as many changes as the operator did, and no more.

It makes for each Sandbox the same kinds of objects in the same order (documents, Run, pods behind their gates, claims,
Secrets, records), sees pods end through the same kind of watch, and speaks the same client, without bound. It compiles,
validates, decides, checks and recovers nothing. How often each kind is written is told to it: what its own order of
work does not need (statuses, Events, further versions of the Run) it writes beside it, spread over the steps.

Started by `bulk` as a process of its own: `python -m bench.cluster.floor KUBECONFIG`, with an order for each wave of
sandboxes as a line on standard input; it answers `ready` to each.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import math
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from testcluster import images

from bench.cluster.place import HOME, RUNNERS, client
from bench.cluster.seen import watching
from bench.cluster.wishes import SCRIPT
from dayfly.execute.pod.names import NONCE_ANNOTATION, RUN_LABEL, run_name
from dayfly.kube.client import Client
from dayfly.kube.forms import Style
from dayfly.kube.objects import PODS, Pod, Resource, anything
from dayfly.operator.objects import SANDBOXES, SandboxObject
from dayfly.spec.identity import nonce

if TYPE_CHECKING:
    from bench.cluster.seen import Seen
    from dayfly.kube.cache import Change

Object = dict[str, Any]

API = "dayfly.dev/v1alpha1"
DOCUMENTS = anything(API, "ObjectLifecycleMethods", "objectlifecyclemethods", namespaced=False)
RUNS = anything(API, "Run", "runs", namespaced=False)
RESOURCES = anything(API, "Resource", "resources", namespaced=False)
SECRETS = anything("v1", "Secret", "secrets")
WHOLE_PODS = anything("v1", "Pod", "pods")
EVENTS = anything("events.k8s.io/v1", "Event", "events")
# As many as the operator has workers for runs and for wishes.
IN_FLIGHT = 32
STEPS = ("db/s0", "db/s1", "db/s2")
AT_ONCE, THEN = ("db/s0", "db/s2"), "db/s1"
NONE = "sha256:" + "0" * 64
VALUE = b"x\n"  # as stages.yaml has it
OUTPUTS = {"o": base64.b64encode(VALUE).decode(), "log.tail": ""}
OUTPUT = {"digest": f"sha256:{hashlib.sha256(VALUE).hexdigest()}", "size": len(VALUE)}
# How often the loop's own work asks for what, for each sandbox; of documents and Resources it makes as many as ordered.
OWN = Counter(
    {
        "create runs": 1,
        "patch sandboxes": 1,
        "create pods": len(STEPS),
        "patch pods": 2 * len(STEPS),
        "delete pods": len(STEPS),
        "create secrets": len(STEPS),
        "update runs": 1 + len(STEPS),
    }
)
AS_ORDERED = ("create objectlifecyclemethods", "create resources")
POD: Object = {
    "restartPolicy": "Never",
    "schedulingGates": [{"name": "dayfly.dev/claim"}],
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
    "containers": [
        {
            "name": "main",
            "image": images.SHELL,
            "command": ["/dayfly/runner", "pod"],
            "volumeMounts": [{"name": "dayfly", "mountPath": "/dayfly", "readOnly": True}],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
    "volumes": [{"name": "dayfly", "configMap": {"name": "dayfly-runner"}}],
}


class Order(msgspec.Struct):
    """How many sandboxes will come, and how often each kind of change is to be asked for, for all of them together."""

    sandboxes: int
    changes: dict[str, int]


class Floor:
    """One loop over all sandboxes."""

    def __init__(self, asking: Client, pods: Seen[Pod]) -> None:
        self._client = asking
        self._order = Order(0, {})
        self._begun = 0
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        self._lives: set[asyncio.Task[None]] = set()
        self._ended: dict[str, asyncio.Event] = {}
        pods.cache.listen(self._pod_changed)

    def take(self, order: Order) -> None:
        """From now on the sandboxes of this order come."""
        self._order, self._begun = order, 0

    def sandbox_changed(self, change: Change[SandboxObject]) -> None:
        """Begin the life of a new one."""
        if change.old is None and change.new is not None:
            number, of = self._begun, self._order.sandboxes
            self._begun += 1
            # Each its share, so that all together are asked for as often as ordered.
            due = {kind: (number + 1) * all_ // of - number * all_ // of for kind, all_ in self._order.changes.items()}
            task = asyncio.create_task(Life(self, change.new, Counter(due)).live())
            self._lives.add(task)
            task.add_done_callback(self._lived)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if change.new is not None and change.new.status.phase == "Succeeded":
            self._ended.setdefault(change.new.metadata.name, asyncio.Event()).set()

    def _lived(self, task: asyncio.Task[None]) -> None:
        self._lives.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            sys.stderr.write(f"{fault!r}\n")
            os._exit(1)  # what is left is nothing to compare with

    async def ended(self, pod: str) -> None:
        """Until the watch tells that the pod has succeeded."""
        await self._ended.setdefault(pod, asyncio.Event()).wait()

    async def create(self, resource: Resource[Object], body: Object, namespace: str = "") -> Object:
        async with self._turns:
            return await self._client.create(resource, body, namespace)

    async def update(self, resource: Resource[Object], body: Object) -> Object:
        async with self._turns:
            return await self._client.update(resource, body, body["metadata"]["name"])

    async def patch(self, resource: Resource[Any], patch: Any, name: str, namespace: str = "", **how: Any) -> None:
        async with self._turns:
            await self._client.patch(resource, patch, name, namespace, **how)

    async def delete(self, name: str, uid: str) -> None:
        async with self._turns:
            await self._client.delete(PODS, name, RUNNERS, uid=uid)


class Life:
    """One sandbox from its first document until its last pod is let go."""

    def __init__(self, floor: Floor, sandbox: SandboxObject, due: Counter[str]) -> None:
        self._floor = floor
        self._meta = sandbox.metadata
        self._due = due
        self._run: Object = {}
        self._changed = False
        self._writing = asyncio.Lock()
        self._pods: dict[str, Object] = {}
        beside = due - OWN - Counter({kind: due[kind] for kind in AS_ORDERED})
        self._beside = sorted(beside.elements())
        self._steps_left = len(STEPS)

    async def live(self) -> None:
        """All of it: steps 0 and 2 at once, step 1 when the outputs of 0 are kept."""
        await self._birth()
        for unit in STEPS:  # behind their gates: which one goes is the ledger's to say
            self._pods[unit] = (await self._floor.create(WHOLE_PODS, self._pod(unit), RUNNERS))["metadata"]
        await self._put(*((unit, {"state": "claimed"}) for unit in AT_ONCE))
        await asyncio.gather(*(self._step(unit) for unit in AT_ONCE))

    async def _birth(self) -> None:
        meta = self._meta
        for number in range(self._due["create objectlifecyclemethods"]):
            await self._floor.create(DOCUMENTS, _document(f"{meta.name}-{number}", meta.uid))
        target = {"apiVersion": API, "kind": "Sandbox", "namespace": HOME, "name": meta.name, "uid": meta.uid}
        ledger = {"uid": meta.uid, "target": target, "plan": NONE, "seq": 0, "phase": "open", "units": {}}
        run = _object(API, "Run", run_name(meta.name, meta.uid), ledger=ledger, spec={})
        run["metadata"]["finalizers"] = ["dayfly.dev/run"]
        self._run = await self._floor.create(RUNS, run)
        held = {"metadata": {"uid": meta.uid, "finalizers": ["dayfly.dev/lifecycle"]}}
        await self._floor.patch(SANDBOXES, held, meta.name, HOME)
        for _ in range(self._due["create resources"]):
            wish = {"name": "db", "sandbox": {"namespace": HOME, "name": meta.name, "uid": meta.uid}}
            await self._floor.create(RESOURCES, _object(API, "Resource", f"{meta.name}-db", spec=wish))

    async def _step(self, unit: str) -> None:
        pod = self._pods[unit]
        await self._json(pod, {"op": "remove", "path": "/spec/schedulingGates/0"})
        await self._floor.ended(pod["name"])
        await self._speak()
        secret = _object("v1", "Secret", f"o-{pod['name']}", immutable=True, type="dayfly.dev/outputs", data=OUTPUTS)
        await self._floor.create(SECRETS, secret, RUNNERS)
        done = {"state": "done", "outcome": "succeeded", "startedAt": 1, "endedAt": 2, "outputs": {"o": OUTPUT}}
        following = [(THEN, {"state": "claimed"})] if unit == STEPS[0] else []
        await self._put((unit, done), *following)
        await asyncio.gather(self._release(pod), *(self._step(each) for each, _ in following))

    async def _release(self, pod: Object) -> None:
        await self._floor.delete(pod["name"], pod["uid"])
        await self._json(pod, {"op": "remove", "path": "/metadata/finalizers/0"})

    async def _json(self, pod: Object, operation: Object) -> None:
        same = {"op": "test", "path": "/metadata/uid", "value": pod["uid"]}
        await self._floor.patch(PODS, [same, operation], pod["name"], RUNNERS, style=Style.JSON)

    async def _put(self, *moves: tuple[str, Object]) -> None:
        """Write the ledger; moves that come while it is being written go together in the next writing."""
        units = self._run["ledger"].setdefault("units", {})
        for unit, record in moves:
            before = units.get(unit, {"attempt": 1, "ref": self._pods[unit]["uid"], "claimedAt": 1})
            units[unit] = before | record
        self._changed = True
        async with self._writing:
            if self._changed:
                self._changed = False
                await self._write()

    async def _write(self) -> None:
        self._run["ledger"]["seq"] += 1
        written = await self._floor.update(RUNS, self._run)
        self._run["metadata"] = written["metadata"]

    async def _speak(self) -> None:
        """This step's share of what the operator wrote and a bare loop has no need of."""
        share = math.ceil(len(self._beside) / self._steps_left)
        self._steps_left -= 1
        for _ in range(share):
            kind = self._beside.pop()
            number, meta = len(self._beside), self._meta
            said = {"status": {"phase": "Creating", "message": f"{number} are left", "progress": "1/3"}}
            match kind:
                case "update runs":
                    async with self._writing:
                        await self._write()
                case "patch sandboxes/status":
                    await self._floor.patch(SANDBOXES, said, meta.name, HOME, subresource="status")
                case "patch resources/status":
                    await self._floor.patch(RESOURCES, said, f"{meta.name}-db", subresource="status")
                case _:  # whatever else it was: something new, about as large as an Event
                    await self._floor.create(EVENTS, _event(meta.name, meta.uid, number), HOME)

    def _pod(self, unit: str) -> Object:
        pod = _object("v1", "Pod", f"{self._meta.name}-{unit.rpartition('/')[2]}", spec=POD)
        pod["metadata"] |= {
            "finalizers": ["dayfly.dev/record"],
            "labels": {RUN_LABEL: self._run["metadata"]["name"]},
            "annotations": {NONCE_ANNOTATION: nonce(self._meta.uid, unit, 1), "dayfly.dev/order": SCRIPT},
        }
        return pod


def _object(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def _document(name: str, uid: str) -> Object:
    step = {"kind": "exec", "exec": {"script": SCRIPT, "image": images.SHELL}}
    steps = [step | {"name": unit.rpartition("/")[2]} for unit in STEPS]
    target = {"kind": "Sandbox", "name": name, "uid": uid}
    return _object(API, DOCUMENTS.kind, name, spec={"target": target, "preStart": steps})


def _event(name: str, uid: str, number: int) -> Object:
    return _object(
        "events.k8s.io/v1",
        "Event",
        f"{name}.{number}",
        eventTime=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
        reportingController="dayfly.dev/bench",
        reportingInstance="floor",
        action="Reconcile",
        reason="ResourcesPending",
        type="Normal",
        note=f"{number} are left",
        regarding={"apiVersion": API, "kind": "Sandbox", "namespace": HOME, "name": name, "uid": uid},
    )


async def main(kubeconfig: Path) -> None:
    """Begin a life for each sandbox that comes, until there are no more orders."""
    async with client(kubeconfig) as asking, watching(asking, PODS, RUNNERS) as pods:
        floor = Floor(asking, pods)
        async with watching(asking, SANDBOXES, HOME) as sandboxes:
            sandboxes.cache.listen(floor.sandbox_changed)
            while line := await asyncio.to_thread(sys.stdin.readline):
                floor.take(msgspec.json.decode(line, type=Order))
                sys.stdout.write("ready\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
