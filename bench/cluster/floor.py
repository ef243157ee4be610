"""The yardstick of `bulk`: a bare loop with exactly as many requests to the API server as the operator had.

For each Sandbox it creates the same objects in the same order (documents, Run, gated pods, claims, Secrets, records),
with the operator's own bodies (`model`). It observes the ends of pods by the same kind of watch, and uses the same
client without rate limits. It compiles, validates, decides, checks and recovers nothing. `bulk` passes the number of
requests of each kind. Requests that the loop's own sequence does not need (statuses, Events, further versions of the
Run) are spread over the steps.

`bulk` starts it as a process: `python -m bench.cluster.floor KUBECONFIG`. Each line on standard input is the order for
a wave of sandboxes; the response to each is `ready`.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.cluster.model import Model, Words
from bench.cluster.place import HOME, RUNNERS, client
from bench.cluster.watches import watching
from dayfly.kube import objects as kinds
from dayfly.kube.client import KubeClient
from dayfly.kube.forms import Style
from dayfly.kube.objects import ApiResource, KubeStruct, ObjectMeta, Pod
from dayfly.operator.cluster import objects
from dayfly.operator.cluster.objects import SandboxObject
from dayfly.operator.status.resource_status import RESOURCES as _RESOURCES

if TYPE_CHECKING:
    from bench.cluster.watches import Watched
    from dayfly.kube.cache import ObjectChange


class Made(KubeStruct, frozen=True):
    """The fields of a response that a bare loop needs."""

    metadata: ObjectMeta


DOCUMENTS, RUNS, RESOURCES = objects.DOCUMENTS.read_as(Made), objects.RUNS.read_as(Made), _RESOURCES.read_as(Made)
SANDBOXES, SECRETS, EVENTS = objects.SANDBOXES.read_as(Made), kinds.SECRETS.read_as(Made), kinds.EVENTS.read_as(Made)
PODS = kinds.PODS.read_as(Made)
# As many as the operator's workers for runs and for specs.
IN_FLIGHT = 32
STEPS = ("db/s0", "db/s1", "db/s2")
AT_ONCE, THEN = ("db/s0", "db/s2"), "db/s1"
# The loop's own requests for each sandbox. It creates as many documents and Resources as ordered.
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


class Order(msgspec.Struct):
    """The number of sandboxes, the total number of each kind of request, and the model of their bodies."""

    sandboxes: int
    changes: dict[str, int]
    model: Model


class Floor:
    """One loop over all sandboxes."""

    def __init__(self, asking: KubeClient, pods: Watched[Pod]) -> None:
        self._client = asking
        self._order: Order | None = None
        self._begun = 0
        self._turns = asyncio.Semaphore(IN_FLIGHT)
        self._lives: set[asyncio.Task[None]] = set()
        self._ended: dict[str, asyncio.Event] = {}
        pods.cache.listen(self._pod_changed)

    def take(self, order: Order) -> None:
        """Use this order for the following sandboxes."""
        self._order, self._begun = order, 0

    def sandbox_changed(self, change: ObjectChange[SandboxObject]) -> None:
        """Start the life of a new sandbox."""
        if change.old is None and change.new is not None and (order := self._order) is not None:
            number, of = self._begun, order.sandboxes
            self._begun += 1
            # The requests are divided among the sandboxes, so that their sum is as ordered.
            due = {kind: (number + 1) * all_ // of - number * all_ // of for kind, all_ in order.changes.items()}
            meta = change.new.metadata
            words = Words(order.model, meta.name, meta.uid)
            task = asyncio.create_task(Life(self, meta, Counter(due), words).live())
            self._lives.add(task)
            task.add_done_callback(self._lived)

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        if change.new is not None and change.new.status.phase == "Succeeded":
            self._ended.setdefault(change.new.metadata.name, asyncio.Event()).set()

    def _lived(self, task: asyncio.Task[None]) -> None:
        self._lives.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            sys.stderr.write(f"{fault!r}\n")
            os._exit(1)  # the comparison is no longer valid

    async def ended(self, pod: str) -> None:
        """Wait until the watch reports that the pod has succeeded."""
        await self._ended.setdefault(pod, asyncio.Event()).wait()

    async def create(self, resource: ApiResource[Made], body: Any, namespace: str = "") -> ObjectMeta:
        async with self._turns:
            return (await self._client.create(resource, body, namespace)).metadata

    async def update(self, resource: ApiResource[Made], body: Any, name: str) -> ObjectMeta:
        async with self._turns:
            return (await self._client.update(resource, body, name)).metadata

    async def patch(self, resource: ApiResource[Made], patch: Any, name: str, namespace: str = "", **how: Any) -> None:
        async with self._turns:
            await self._client.patch(resource, patch, name, namespace, **how)

    async def delete(self, name: str, uid: str) -> None:
        async with self._turns:
            await self._client.delete(PODS, name, RUNNERS, uid=uid)


class Life:
    """One sandbox from its first document until the release of its last pod, with the bodies of the model."""

    def __init__(self, floor: Floor, meta: ObjectMeta, due: Counter[str], words: Words) -> None:
        self._floor = floor
        self._meta = meta
        self._due = due
        self._words = words
        self._run = meta
        self._resource = ""
        self._sequence = 0
        self._changed = False
        self._writing = asyncio.Lock()
        self._pods: dict[str, ObjectMeta] = {}
        beside = due - OWN - Counter({kind: due[kind] for kind in AS_ORDERED})
        self._beside = sorted(beside.elements())
        self._steps_left = len(STEPS)

    async def live(self) -> None:
        """Run everything: steps 0 and 2 in parallel, step 1 when the outputs of 0 are stored."""
        await self._birth()
        for name in self._words.names("create pods"):  # gated: the ledger decides which one starts
            [unit] = [unit for unit in STEPS if name.startswith(f"r-{unit.replace('/', '-')}-")]
            self._pods[unit] = await self._make("create pods", PODS, RUNNERS)
        await self._put()
        await asyncio.gather(*(self._step(unit) for unit in AT_ONCE))

    async def _birth(self) -> None:
        for _ in range(self._due["create objectlifecyclemethods"]):
            await self._make("create objectlifecyclemethods", DOCUMENTS)
        self._run = await self._make("create runs", RUNS)
        held = self._words.next("patch sandboxes", version=self._meta.resource_version)
        await self._floor.patch(SANDBOXES, held, self._meta.name, HOME)
        for _ in range(self._due["create resources"]):
            self._resource = (await self._make("create resources", RESOURCES)).name

    async def _make(self, request: str, resource: ApiResource[Made], namespace: str = "") -> ObjectMeta:
        """Create the next object that the model created by such a request."""
        names = self._words.names(request)
        body, number = self._words.next(request), self._words.times(request) - 1
        made = await self._floor.create(resource, body, namespace)
        self._words.made(names[min(number, len(names) - 1)], made.uid)
        return made

    async def _step(self, unit: str) -> None:
        pod = self._pods[unit]
        await self._json(pod, "/spec/schedulingGates/0/name", "dayfly.dev/claim", "/spec/schedulingGates/0")
        await self._floor.ended(pod.name)
        await self._speak()
        await self._make("create secrets", SECRETS, RUNNERS)
        await self._put()
        following = [THEN] if unit == STEPS[0] else []
        await asyncio.gather(self._release(pod), *(self._step(each) for each in following))

    async def _release(self, pod: ObjectMeta) -> None:
        await self._floor.delete(pod.name, pod.uid)
        await self._json(pod, "/metadata/finalizers/0", "dayfly.dev/record", "/metadata/finalizers/0")

    async def _json(self, pod: ObjectMeta, path: str, value: str, removed: str) -> None:
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": path, "value": value},
            {"op": "remove", "path": removed},
        ]
        await self._floor.patch(PODS, operations, pod.name, RUNNERS, style=Style.JSON)

    async def _put(self) -> None:
        """Write the ledger. Changes that arrive during a write are combined in the next one."""
        self._changed = True
        async with self._writing:
            if self._changed:
                self._changed = False
                await self._write()

    async def _write(self) -> None:
        self._sequence += 1
        body = self._words.next("update runs", version=self._run.resource_version, sequence=self._sequence)
        self._run = await self._floor.update(RUNS, body, self._run.name)

    async def _speak(self) -> None:
        """Send this step's share of the operator's requests that a bare loop does not need."""
        share = math.ceil(len(self._beside) / self._steps_left)
        self._steps_left -= 1
        for _ in range(share):
            match kind := self._beside.pop():
                case "update runs":
                    async with self._writing:
                        await self._write()
                case "patch sandboxes/status":
                    said = self._words.next(kind)
                    await self._floor.patch(SANDBOXES, said, self._meta.name, HOME, subresource="status")
                case "patch resources/status":
                    said = self._words.next(kind)
                    await self._floor.patch(RESOURCES, said, self._resource, subresource="status")
                case _:  # another request: a new object as large as an Event
                    await self._make("create events", EVENTS, HOME)


async def main(kubeconfig: Path) -> None:
    """Start a life for each sandbox, until there are no more orders."""
    async with client(kubeconfig) as asking, watching(asking, kinds.PODS, RUNNERS) as pods:
        floor = Floor(asking, pods)
        async with watching(asking, objects.SANDBOXES, HOME) as sandboxes:
            sandboxes.cache.listen(floor.sandbox_changed)
            while line := await asyncio.to_thread(sys.stdin.readline):
                floor.take(msgspec.json.decode(line, type=Order))
                sys.stdout.write("ready\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
