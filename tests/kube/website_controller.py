"""A kind for tests and a minimal controller: a ConfigMap for every Website."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from tests.kube.fake import FakeCluster, custom

from dayfly.kube import (
    ApiResource,
    Key,
    KubeClient,
    KubeStruct,
    Manager,
    ObjectCondition,
    ObjectMeta,
    controls,
    create_owned,
)
from dayfly.kube.transport import KubeRequest

KINDS = (custom("example.org", "v1", "websites", "Website"),)


class Spec(KubeStruct, frozen=True):
    """The spec: a text to show."""

    text: str = ""


class Status(KubeStruct, frozen=True):
    """The status."""

    ready: bool = False
    shown: str | None = None
    conditions: list[ObjectCondition] | None = None


class Website(KubeStruct, frozen=True):
    """A Website."""

    metadata: ObjectMeta
    spec: Spec = Spec()
    status: Status = Status()


class Page(KubeStruct, frozen=True):
    """A ConfigMap of a Website."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


WEBSITES = ApiResource("example.org", "v1", "websites", "Website", Website)
PAGES = ApiResource("", "v1", "configmaps", "ConfigMap", Page)


class Sites:
    """The controller."""

    def __init__(self, manager: Manager, **options) -> None:
        self.client = manager.client
        self.looked: list[str] = []
        self.gone: list[Key] = []
        self.manager = manager
        self.pages = manager.watch(PAGES)
        self.writer = manager.status_writer(warnings={"Taken"})
        self.sites = manager.control(WEBSITES, self.reconcile, owns=[self.pages], gone=self.gone.append, **options)

    async def reconcile(self, site: Website) -> float | None:
        self.looked.append(site.metadata.name)
        page = self.pages.get(site.metadata.name, site.metadata.namespace)
        if page is None or not controls(site, page):
            body = {"metadata": {"name": site.metadata.name}, "data": {"text": site.spec.text}}
            page = await create_owned(self.client, PAGES, body, site, WEBSITES)
        elif page.data != {"text": site.spec.text}:
            meta = {"uid": page.metadata.uid, "resourceVersion": page.metadata.resource_version}
            page = await self.client.patch(
                PAGES, {"metadata": meta, "data": {"text": site.spec.text}}, page.metadata.name, page.metadata.namespace
            )
        text = (page.data or {}).get("text", "")
        ready = ObjectCondition("Ready", "True", "Shown", f"{len(text)} letters")
        await self.writer.write(WEBSITES, site, Status(ready=True, shown=text, conditions=[ready]))
        return None


def cluster() -> FakeCluster:
    """A fake cluster with that kind."""
    return FakeCluster(seed=1, extra=KINDS)


def ask(cluster: FakeCluster, method: str, path: str, body=None, kind: str = "application/merge-patch+json"):
    """Send a request as a user."""
    answer = cluster.answer(
        KubeRequest(
            method, path, {}, json.dumps(body or {}).encode(), kind if method == "PATCH" else "application/json"
        )
    )
    assert answer.status < 300, answer.body
    return json.loads(answer.body)


SITES = "/apis/example.org/v1/namespaces/default/websites"
MAPS = "/api/v1/namespaces/default/configmaps"


def site(cluster: FakeCluster, name: str, text: str = "hello"):
    return ask(cluster, "POST", SITES, {"metadata": {"name": name}, "spec": {"text": text}})


def manager(cluster: FakeCluster, client: str = "one", **options) -> Manager:
    options = {"seed": 1, **options}
    return Manager(KubeClient(cluster.transport(client), seed=1), "example.org/sites", client, **options)


@contextlib.asynccontextmanager
async def running(managed: Manager) -> AsyncIterator[asyncio.Task[None]]:
    """Run a manager during the block, then stop it."""
    task = asyncio.create_task(managed.run())
    try:
        yield task
    finally:
        managed.stop()
        await task
