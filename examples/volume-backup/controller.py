"""A minimal controller of Machines: it creates a machine's volume, and deletes it with the machine.

It does not know Dayfly. Like many controllers, it supports a hold: it deletes nothing while the annotation
`cluster.example.org/hold` is on the machine. Run it with: python controller.py FOLDER [KUBECONFIG]
"""

import asyncio
import shutil
import socket
import sys
from pathlib import Path

from dayfly.kube import (
    AnnotatedMeta,
    ApiResource,
    KubeStruct,
    Manager,
    add_finalizer,
    connect,
    drop_finalizer,
    run_to_signal,
)

FINALIZER = "cluster.example.org/volume"
HOLD = "cluster.example.org/hold"


class Spec(KubeStruct, frozen=True):
    """The desired state of a machine."""

    volume: str = ""


class Status(KubeStruct, frozen=True):
    """The actual state of a machine."""

    phase: str = ""


class Machine(KubeStruct, frozen=True):
    """The fields of a machine that this controller reads."""

    metadata: AnnotatedMeta
    spec: Spec = Spec()
    status: Status = Status()


MACHINES = ApiResource("cluster.example.org", "v1", "machines", "Machine", Machine)


class Controller:
    """Create and delete the folder of each machine. Every action may be repeated."""

    def __init__(self, manager: Manager, disks: Path) -> None:
        self._client = manager.client
        self._disks = disks
        manager.control(MACHINES, self._reconcile)

    async def _reconcile(self, machine: Machine) -> None:
        meta = machine.metadata
        folder = self._disks / meta.namespace / machine.spec.volume if machine.spec.volume else None
        if meta.deletion_timestamp is None:
            if await add_finalizer(self._client, MACHINES, meta, FINALIZER):
                return
            if machine.status.phase != "Running":
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                await self._phase(meta, "Running")
        elif FINALIZER in (meta.finalizers or ()) and HOLD not in (meta.annotations or {}):
            if folder is not None and folder.exists():
                shutil.rmtree(folder)
            await drop_finalizer(self._client, MACHINES, meta, FINALIZER)

    async def _phase(self, meta: AnnotatedMeta, phase: str) -> None:
        patch = {"metadata": {"uid": meta.uid}, "status": {"phase": phase}}
        await self._client.patch(MACHINES, patch, meta.name, meta.namespace, subresource="status", manager="machines")


async def main(disks: Path, kubeconfig: Path | None) -> None:
    async with connect(kubeconfig) as client:
        manager = Manager(client, "cluster.example.org/machines", socket.gethostname())
        Controller(manager, disks)
        await run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
