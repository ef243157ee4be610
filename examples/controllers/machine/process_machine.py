"""ProcessMachines: a process for each, at a service over HTTP.

Run it with: python -m process_machine URL TOKEN [KUBECONFIG]

It fulfils the contract `ready`, and has never heard of Machines. The service is asked under the object's UID, which is
known before the first call and never comes again: whatever is lost or done twice, there is one process.
"""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Protocol

import aiohttp
import msgspec

from dayfly import kube

FINALIZER = "machines.example.org/process"
SOON_S, LATER_S = 1.0, 10.0  # nobody tells that a process has started, or ended


class Spec(kube.Slim, frozen=True):
    """The name of a program that the service knows."""

    program: str


class Status(kube.Slim, frozen=True):
    """The contract."""

    ready: bool = False
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.Condition] | None = None


class ProcessMachine(kube.Slim, frozen=True):
    """What a user writes."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: Status = Status()


PROCESS_MACHINES = kube.Resource("machines.example.org", "v1", "processmachines", "ProcessMachine", ProcessMachine)


class Process(msgspec.Struct):
    """What the service says of one."""

    state: str
    """`starting`, `running` or `ended`."""
    address: str = ""
    code: int = 0


class ServiceError(Exception):
    """The service could not be asked, or says no: its own words."""


class Service(Protocol):
    """The service, as far as it is needed. Both may be asked again and again."""

    async def keep(self, uid: str, program: str) -> Process:
        """Have a process run, unless it was removed for good."""
        ...

    async def remove(self, uid: str) -> None:
        """End it for good: nothing runs under that UID again."""
        ...


class ProcessMachines:
    """Keeps each one's process, and has it gone before the object is."""

    def __init__(self, manager: kube.Manager, service: Service) -> None:
        self._client, self._service = manager.client, service
        self._status_writer = manager.status_writer(warnings={"Failed", "ServiceError"})
        manager.control(PROCESS_MACHINES, self.reconcile)

    async def reconcile(self, item: ProcessMachine) -> float | None:
        meta = item.metadata
        try:
            if not meta.deletion_timestamp:
                if await kube.add_finalizer(self._client, PROCESS_MACHINES, meta, FINALIZER):
                    return None  # held before there is anything to clean up
                process = await self._service.keep(meta.uid, item.spec.program)
                await self._status_writer.write(PROCESS_MACHINES, item, told(process))
                return SOON_S if process.state == "starting" else LATER_S
            if FINALIZER in (meta.finalizers or ()):
                await self._service.remove(meta.uid)
                await kube.drop_finalizer(self._client, PROCESS_MACHINES, meta, FINALIZER)
        except ServiceError as no:
            news = kube.Condition("Ready", "False", "ServiceError", str(no))
            await self._status_writer.write(PROCESS_MACHINES, item, Status(conditions=[news]))
            return LATER_S
        return None


def told(process: Process) -> Status:
    """How the machine stands."""
    if process.state == "ended":
        message = f"its process has ended with code {process.code}"
        failed = kube.Condition("Ready", "False", "Failed", message)
        return Status(failure_reason="ProcessEnded", failure_message=message, conditions=[failed])
    runs = process.state == "running"
    news = kube.Condition("Ready", "False", "Starting", "its process is starting")
    if runs:
        news = kube.Condition("Ready", "True", "Running", "its process runs")
    return Status(ready=runs, address=process.address or None, conditions=[news])


class HttpService:
    """The service of `service.py`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self._url = session, url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}

    async def keep(self, uid: str, program: str) -> Process:
        return msgspec.json.decode(await self._ask("PUT", uid, {"program": program}), type=Process)

    async def remove(self, uid: str) -> None:
        await self._ask("DELETE", uid)

    async def _ask(self, method: str, uid: str, body: dict[str, str] | None = None) -> bytes:
        try:
            asked = self._session.request(method, f"{self._url}/machines/{uid}", json=body, headers=self._headers)
            async with asyncio.timeout(10), asked as answer:
                said = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise ServiceError(f"the service of processes does not answer: {type(fault).__name__}") from fault
        if answer.status >= 400:
            raise ServiceError(f"the service of processes says {answer.status}: {said[:1000].decode(errors='replace')}")
        return said


async def main(url: str, token: str, kubeconfig: Path | None) -> None:
    async with aiohttp.ClientSession() as session, kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "machines.example.org/processes", socket.gethostname())
        ProcessMachines(manager, HttpService(session, url, token))
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None))
