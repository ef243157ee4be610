"""A controller that keeps one process for each ProcessMachine, in a service with an HTTP API.

Run it with: python -m process_machine URL TOKEN [KUBECONFIG]

ProcessMachines fulfil the contract `ready`, but the controller does not know Machines. Requests contain the object's
UID, which exists before the first request and is never reused. So lost or repeated requests lead to only one process.
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
POLL_STARTING_S, POLL_INTERVAL_S = 1.0, 10.0  # no event reports that a process has started or ended


class Spec(kube.KubeStruct, frozen=True):
    """The name of a program that the service knows."""

    program: str


class Status(kube.KubeStruct, frozen=True):
    """The fields of the contract."""

    ready: bool = False
    address: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: list[kube.ObjectCondition] | None = None


class ProcessMachine(kube.KubeStruct, frozen=True):
    """The kind that users write."""

    metadata: kube.ObjectMeta
    spec: Spec
    status: Status = Status()


PROCESS_MACHINES = kube.ApiResource("machines.example.org", "v1", "processmachines", "ProcessMachine", ProcessMachine)


class Process(msgspec.Struct):
    """The state of a process, as the service reports it."""

    state: str
    """`starting`, `running` or `ended`."""
    address: str = ""
    code: int = 0


class ServiceError(Exception):
    """The service did not answer, or refused the request with this message."""


class Service(Protocol):
    """The required calls of the service. Both are idempotent."""

    async def keep(self, uid: str, program: str) -> Process:
        """Start the process if it does not run, unless it was removed."""
        ...

    async def remove(self, uid: str) -> None:
        """End the process forever: none is started for this UID again."""
        ...


class ProcessMachines:
    """Keep the process of each object, and remove it before the object is deleted."""

    def __init__(self, manager: kube.Manager, service: Service) -> None:
        self._client, self._service = manager.client, service
        self._status_writer = manager.status_writer(warnings={"Failed", "ServiceError"})
        manager.control(PROCESS_MACHINES, self.reconcile)

    async def reconcile(self, item: ProcessMachine) -> float | None:
        meta = item.metadata
        try:
            if not meta.deletion_timestamp:
                if await kube.add_finalizer(self._client, PROCESS_MACHINES, meta, FINALIZER):
                    return None  # the finalizer comes before the process
                process = await self._service.keep(meta.uid, item.spec.program)
                await self._status_writer.write(PROCESS_MACHINES, item, machine_status(process))
                return POLL_STARTING_S if process.state == "starting" else POLL_INTERVAL_S
            if FINALIZER in (meta.finalizers or ()):
                await self._service.remove(meta.uid)
                await kube.drop_finalizer(self._client, PROCESS_MACHINES, meta, FINALIZER)
        except ServiceError as error:
            condition = kube.ObjectCondition("Ready", "False", "ServiceError", str(error))
            await self._status_writer.write(PROCESS_MACHINES, item, Status(conditions=[condition]))
            return POLL_INTERVAL_S
        return None


def machine_status(process: Process) -> Status:
    """Return the status of a ProcessMachine."""
    if process.state == "ended":
        message = f"its process has ended with code {process.code}"
        failed = kube.ObjectCondition("Ready", "False", "Failed", message)
        return Status(failure_reason="ProcessEnded", failure_message=message, conditions=[failed])
    runs = process.state == "running"
    condition = kube.ObjectCondition("Ready", "False", "Starting", "its process is starting")
    if runs:
        condition = kube.ObjectCondition("Ready", "True", "Running", "its process is running")
    return Status(ready=runs, address=process.address or None, conditions=[condition])


class HttpService:
    """The client of `service.py`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session, self._url = session, url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}

    async def keep(self, uid: str, program: str) -> Process:
        return msgspec.json.decode(await self._request("PUT", uid, {"program": program}), type=Process)

    async def remove(self, uid: str) -> None:
        await self._request("DELETE", uid)

    async def _request(self, method: str, uid: str, body: dict[str, str] | None = None) -> bytes:
        try:
            request = self._session.request(method, f"{self._url}/machines/{uid}", json=body, headers=self._headers)
            async with asyncio.timeout(10), request as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise ServiceError(f"the process service does not answer: {type(fault).__name__}") from fault
        if answer.status >= 400:
            raise ServiceError(
                f"the process service answered {answer.status}: {content[:1000].decode(errors='replace')}"
            )
        return content


async def main(url: str, token: str, kubeconfig: Path | None) -> None:
    async with aiohttp.ClientSession() as session, kube.connect(kubeconfig) as client:
        manager = kube.Manager(client, "machines.example.org/processes", socket.gethostname())
        ProcessMachines(manager, HttpService(session, url, token))
        await kube.run_to_signal(manager)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None))
