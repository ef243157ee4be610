"""Every version of all objects of a story, and which of them exist now."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from tests.kube.fake.store import Write

from dayfly.execute.fork.run import DEPLOYMENTS, SERVICES
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import PODS, SECRETS, ApiResource, Key, untyped_resource
from dayfly.kube.watch import Bookmark, WatchTimeouts, watch
from dayfly.operator.cluster.objects import DOCUMENTS, RUNS, SANDBOXES, STEP_LOGS
from dayfly.operator.status.resource_status import RESOURCES

Object = dict[str, Any]
CONFIG_MAPS = untyped_resource("v1", "ConfigMap", "configmaps")
_KINDS = (SANDBOXES, RUNS, DOCUMENTS, PODS, SECRETS, RESOURCES, STEP_LOGS, DEPLOYMENTS, SERVICES, CONFIG_MAPS)
KINDS = tuple(each.read_as(dict[str, Any]) for each in _KINDS)
# Baselines and their Services do not belong to Dayfly.
_OURS = {kind.plural: RUN_LABEL for kind in (DEPLOYMENTS, SERVICES)}


@dataclasses.dataclass
class Record:
    """The stored versions of one story."""

    writes: dict[str, list[Write]] = dataclasses.field(default_factory=dict)
    there: dict[tuple[str, Key], Object] = dataclasses.field(default_factory=dict)
    changed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def take(self, plural: str, item: Object, *, deleted: bool) -> None:
        meta = item["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        old, new = self.there.pop((plural, key), None), None if deleted else item
        if new is not None:
            self.there[plural, key] = new
        write = Write(int(meta["resourceVersion"]), key, old, new, time.monotonic())
        self.writes.setdefault(plural, []).append(write)
        self.changed.set()

    async def until(self, so: Callable[[], Any]) -> None:
        """Wait until the condition is true; it is checked after each change."""
        while not so():
            self.changed.clear()
            await self.changed.wait()

    def one(self, plural: str) -> Object:
        """Return the only object of its kind; empty if there is none."""
        return next((item for (kind, _), item in self.there.items() if kind == plural), {})

    def left(self) -> list[str]:
        return [f"{plural}/{key}" for plural, key in self.there]


class Recorder:
    """Watches as an administrator, without proxies. `owner` maps an object's metadata to its story."""

    def __init__(self, client: KubeClient, owner: Callable[[str], str]) -> None:
        self._client, self._owner = client, owner
        self._records: dict[str, Record] = {}
        self._watching = asyncio.Semaphore(0)

    def begin(self, plan: str) -> Record:
        """Return the empty record of a story that begins now."""
        self._records[plan] = Record()
        return self._records[plan]

    async def run(self) -> None:
        """Run until cancelled. A missed version ends it, because no check would be reliable."""
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                tasks.create_task(self._follow(kind))

    async def ready(self) -> None:
        """Wait until everything that was written before is recorded."""
        for _ in KINDS:
            await self._watching.acquire()

    async def left(self) -> list[str]:
        """Return all remaining objects of stories, by quorum reads."""
        found = []
        for kind in KINDS:
            items = (await self._client.list_all(kind, labels=_OURS.get(kind.plural, ""))).items
            found += [
                f"{kind.plural}/{item['metadata']['name']}" for item in items if self._owner(str(item["metadata"]))
            ]
        return found

    async def _follow(self, kind: ApiResource[Object]) -> None:
        version = await self._proved(kind)
        self._watching.release()
        while True:
            try:
                async for event in watch(self._client, kind, version, labels=_OURS.get(kind.plural, "")):
                    if isinstance(event, Bookmark):
                        version = event.resource_version
                        continue
                    version = event.object["metadata"]["resourceVersion"]
                    self._take(kind.plural, event.object, deleted=event.type == "DELETED")
            except (errors.ServerError, errors.Throttled):
                await asyncio.sleep(0.1)

    async def _proved(self, kind: ApiResource[Object]) -> str:
        """Return a version for a watch: for a new kind, not every version is possible."""
        while True:
            version = (await self._client.list_all(kind)).resource_version
            try:
                async for _ in watch(self._client, kind, version, timeouts=WatchTimeouts(lifetime=1)):
                    break
            except (errors.Gone, errors.ServerError, errors.Throttled):
                continue
            return version

    def _take(self, plural: str, item: Object, *, deleted: bool) -> None:
        item["metadata"].pop("managedFields", None)
        if plan := self._owner(str(item["metadata"])):
            self._records.setdefault(plan, Record()).take(plural, item, deleted=deleted)
