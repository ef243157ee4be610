"""Controllers of custom resources of other projects, whose kinds Dayfly does not know.

They run beside the test with an administrator's permissions, and make one change for each event.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.cluster.installed import Installed

from dayfly.kube import auth, errors
from dayfly.kube.cache import Cache
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS, ApiResource, Key, ObjectMeta
from dayfly.kube.reflector import Reflector
from dayfly.kube.transport import HttpTransport

FINALIZER = "platform.example.org/provided"


class Thing(msgspec.Struct):
    """An object of any such kind."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


Kind = ApiResource[Thing]
Carry = Callable[[KubeClient, Kind, Thing], Awaitable[None]]


def kind(api_version: str, name: str, plural: str) -> Kind:
    """A kind, by its names."""
    group, _, version = api_version.partition("/")
    return ApiResource(group, version, plural, name, Thing)


def definition(of: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition: all fields are kept, and only the controller writes the status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{of.plural}.{of.group}"},
        "spec": {
            "group": of.group,
            "scope": "Namespaced",
            "names": {"kind": of.kind, "plural": of.plural, "singular": of.kind.lower()},
            "versions": [
                {
                    "name": of.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
                    },
                }
            ],
        },
    }


WORKFLOWS = kind("argoproj.io/v1alpha1", "Workflow", "workflows")
INSTANCES = kind("database.example.org/v1alpha1", "PostgreSQLInstance", "postgresqlinstances")
DATABASES = kind("services.example.org/v1", "Database", "databases")


def definitions() -> str:
    """Return all definitions for kubectl. They are needed early: the garbage collector searches for new kinds only
    every half minute, and an object whose dependents are deleted first waits for it.
    """
    every = [definition(of) for of in (WORKFLOWS, INSTANCES, DATABASES)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": every})


@contextlib.contextmanager
def carried(operator: Installed, of: Kind, carry: Carry) -> Iterator[None]:
    """Run the controller of this kind; raise its errors here."""
    controller = _Controller(operator.own.kubeconfig, of, carry)
    try:
        yield
    finally:
        controller.end()


class _Controller:
    """A thread with a separate event loop."""

    def __init__(self, kubeconfig: Path, of: Kind, carry: Carry) -> None:
        self._of, self._carry = of, carry
        self._end: Callable[[], object] = lambda: None
        self._fault: BaseException | None = None
        begun = threading.Event()
        self._thread = threading.Thread(target=self._live, args=(kubeconfig, begun), daemon=True)
        self._thread.start()
        begun.wait()

    def end(self) -> None:
        """Stop, and raise what it failed of."""
        with contextlib.suppress(RuntimeError):  # it has ended, and its loop with it
            self._end()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _live(self, kubeconfig: Path, begun: threading.Event) -> None:
        try:
            asyncio.run(self._run(kubeconfig, begun))
        except asyncio.CancelledError:
            pass
        except Exception as fault:  # noqa: BLE001 - raised again where the controller is ended
            self._fault = fault

    async def _run(self, kubeconfig: Path, begun: threading.Event) -> None:
        task = asyncio.current_task()
        assert task is not None, "this runs as one"
        self._end = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        begun.set()
        connections = _track_connections()
        client = KubeClient(HttpTransport(await auth.load(kubeconfig)))
        cache: Cache[Thing] = Cache()
        changed: asyncio.Queue[Key] = asyncio.Queue()
        cache.listen(lambda change: changed.put_nowait(change.key))
        watching = asyncio.create_task(Reflector(client, self._of, cache).run())
        try:
            while True:
                key = await changed.get()
                if (thing := cache.get(key.name, key.namespace)) is not None:
                    # it has changed since, so another event follows
                    with contextlib.suppress(errors.Conflict, errors.NotFound):
                        await self._carry(client, self._of, thing)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await client.close()
            await _closed(connections)


def _track_connections() -> list[asyncio.trsock.TransportSocket]:
    """Collect the sockets of the connections that this loop opens from now on."""
    loop, opened = asyncio.get_running_loop(), []
    connect = loop.create_connection

    async def create(*how: Any, **options: Any) -> Any:
        transport, protocol = await connect(*how, **options)
        opened.append(transport.get_extra_info("socket"))
        return transport, protocol

    loop.create_connection = create
    return opened


async def _closed(connections: list[asyncio.trsock.TransportSocket]) -> None:
    """Wait until all are closed: that of a watch that was left early closes by itself."""
    async with asyncio.timeout(30):
        while any(each.fileno() >= 0 for each in connections):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def workflow(client: KubeClient, of: Kind, thing: Thing) -> None:
    """In the shape of an Argo Workflow: from phase to phase, and at the end its outputs."""
    given = {each["name"]: each["value"] for each in thing.spec["arguments"]["parameters"]}
    match thing.status.get("phase"):
        case None:
            await _speak(client, of, thing, {"phase": "Running", "progress": "0/1"})
        case "Running":
            url = {"name": "url", "value": f"https://{given['branch']}.preview.example.com"}
            outputs = {"parameters": [{"name": "size", "value": "3"}, url]}
            await _speak(client, of, thing, {"phase": "Succeeded", "progress": "1/1", "outputs": outputs})


async def claim(client: KubeClient, of: Kind, thing: Thing) -> None:
    """In the shape of a Crossplane claim: a finalizer, a connection Secret, the conditions Synced and Ready."""
    where = thing.spec["writeConnectionSecretToRef"]["name"]
    if thing.metadata.deletion_timestamp:
        with contextlib.suppress(errors.NotFound):
            await client.delete(SECRETS, where, thing.metadata.namespace)
        await _finalize(client, of, thing, on=False)
    elif FINALIZER not in (thing.metadata.finalizers or ()):
        await _finalize(client, of, thing, on=True)
    elif not thing.status:
        await _speak(client, of, thing, {"conditions": [{"type": "Synced", "status": "True", "reason": "Reconciled"}]})
    elif len(thing.status["conditions"]) == 1:
        size = thing.spec["parameters"]["storageGB"]
        told = {"endpoint": "10.0.0.9", "port": "5432", "username": "ada", "password": f"of {json.dumps(size)} GB"}
        await _secret(client, of, thing, where, told, "connection.crossplane.io/v1alpha1")
        ready = {"type": "Ready", "status": "True", "reason": "Available"}
        await _speak(client, of, thing, {"conditions": [*thing.status["conditions"], ready]})


async def binding(client: KubeClient, of: Kind, thing: Thing) -> None:
    """A provisioned service of the Service Binding specification: it names its Secret."""
    if thing.status:
        return
    name = f"{thing.metadata.name}-binding"
    engine = thing.spec["engine"]
    told = {"type": engine, "host": "10.0.0.9", "port": "5432", "username": "ada", "password": "s3cret"}
    await _secret(client, of, thing, name, told, f"servicebinding.io/{engine}")
    ready = {"type": "Ready", "status": "True", "reason": "Bound", "observedGeneration": thing.metadata.generation}
    await _speak(client, of, thing, {"binding": {"name": name}, "conditions": [ready]})


async def _speak(client: KubeClient, of: Kind, thing: Thing, status: dict[str, Any]) -> None:
    """Write the status at this version, so that it is not written twice."""
    meta = thing.metadata
    patch = {"metadata": {"resourceVersion": meta.resource_version}, "status": status}
    await client.patch(of, patch, meta.name, meta.namespace, subresource="status")


async def _finalize(client: KubeClient, of: Kind, thing: Thing, *, on: bool) -> None:
    meta = thing.metadata
    others = [each for each in meta.finalizers or () if each != FINALIZER]
    patch = {"resourceVersion": meta.resource_version, "finalizers": [*others, FINALIZER] if on else others}
    await client.patch(of, {"metadata": patch}, meta.name, meta.namespace)


async def _secret(client: KubeClient, of: Kind, thing: Thing, name: str, told: dict[str, str], type_: str) -> None:
    """Create a Secret that is owned by the object."""
    owner = {"apiVersion": of.api_version, "kind": of.kind, "name": thing.metadata.name, "uid": thing.metadata.uid}
    meta = {"name": name, "ownerReferences": [owner]}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": type_, "stringData": told}
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(SECRETS, body, thing.metadata.namespace)
