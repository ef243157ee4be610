"""A controller of Machines, as small as it can be: it makes a machine's volume, and destroys it with the machine.

It has never heard of Dayfly. All it does for others is what many controllers do: it destroys nothing as long as the
annotation `cluster.example.org/hold` is on the machine. Run it with: python controller.py FOLDER [KUBECONFIG]
"""

import asyncio
import shutil
import sys
from pathlib import Path

from dayfly.kube import auth, errors
from dayfly.kube.cache import Cache, Reflector
from dayfly.kube.client import Client
from dayfly.kube.objects import AnnotatedMeta, Key, Resource, Slim
from dayfly.kube.transport import HttpTransport
from dayfly.work.queue import WorkQueue, work

FINALIZER = "cluster.example.org/volume"
HOLD = "cluster.example.org/hold"


class Spec(Slim, frozen=True):
    """What a machine is to have."""

    volume: str = ""


class Status(Slim, frozen=True):
    """What has become of it."""

    phase: str = ""


class Machine(Slim, frozen=True):
    """What this controller reads of a machine."""

    metadata: AnnotatedMeta
    spec: Spec = Spec()
    status: Status = Status()


MACHINES = Resource("cluster.example.org", "v1", "machines", "Machine", Machine)


class Controller:
    """Brings each machine and its folder one step nearer to each other; whatever it does may be done twice."""

    def __init__(self, client: Client, disks: Path) -> None:
        self.cache: Cache[Machine] = Cache()
        self.queue: WorkQueue[Key] = WorkQueue()
        self.cache.listen(lambda change: self.queue.add(change.key))
        self._client = client
        self._disks = disks

    async def handle(self, key: Key) -> None:
        """Look at one machine; whatever the server refuses is tried again later."""
        machine = self.cache.get(key.name, key.namespace)
        try:
            if machine is not None:
                await self._reconcile(machine)
            self.queue.forget(key)
        except errors.ApiError:
            self.queue.retry(key)

    async def _reconcile(self, machine: Machine) -> None:
        meta = machine.metadata
        folder = self._disks / meta.namespace / machine.spec.volume if machine.spec.volume else None
        finalizers = meta.finalizers or []
        if meta.deletion_timestamp is None:
            if FINALIZER not in finalizers:
                await self._finalizers(meta, [*finalizers, FINALIZER])
            elif machine.status.phase != "Running":
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                await self._phase(meta, "Running")
        elif FINALIZER in finalizers and HOLD not in (meta.annotations or {}):
            if folder is not None and folder.exists():
                shutil.rmtree(folder)
            await self._finalizers(meta, [each for each in finalizers if each != FINALIZER])

    async def _finalizers(self, meta: AnnotatedMeta, finalizers: list[str]) -> None:
        patch = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}}
        await self._client.patch(MACHINES, patch, meta.name, meta.namespace, manager="machines")

    async def _phase(self, meta: AnnotatedMeta, phase: str) -> None:
        patch = {"metadata": {"uid": meta.uid}, "status": {"phase": phase}}
        await self._client.patch(MACHINES, patch, meta.name, meta.namespace, subresource="status", manager="machines")


async def main(disks: Path, kubeconfig: Path | None) -> None:
    client = Client(HttpTransport(await auth.load(kubeconfig)))
    controller = Controller(client, disks)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(Reflector(client, MACHINES, controller.cache).run())
        for _ in range(4):
            tasks.create_task(work(controller.queue, controller.handle))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
