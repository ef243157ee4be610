"""Pools of a cluster: their watch, and the routes of a pool with its members."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.cli.backends import cluster_pools, cluster_report
from dayfly.cli.backends.cluster_logs import ClusterLogs
from dayfly.cli.backends.cluster_objects import Objects, now
from dayfly.cli.cluster_page.entries import PageSandbox, decode
from dayfly.client import subject
from dayfly.kube.cache import Cache
from dayfly.kube.objects import Key
from dayfly.kube.reflector import Reflector
from dayfly.link.wire import PoolAction
from dayfly.operator.cluster.objects import POOL_MEMBERS, POOLS
from dayfly.plan.why import units_without_output
from dayfly.server import attention
from dayfly.server.attention import AttentionSubject, Concern
from dayfly.server.http.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.cluster_page.handler import PageContext
    from dayfly.cli.cluster_page.sandbox_watch import SandboxWatch
    from dayfly.kube.cache import ObjectChange
    from dayfly.kube.client import KubeClient

NOT_FOUND = "pool not found"
_PAGE_POOLS, _PAGE_MEMBERS = POOLS.read_as(PageSandbox), POOL_MEMBERS.read_as(PageSandbox)


class PoolWatch:
    """The known pools and members, which are published to the event streams of the Sandboxes."""

    def __init__(self, client: KubeClient, watch: SandboxWatch) -> None:
        self._feed = watch
        self._pools: Cache[PageSandbox] = Cache()
        self._members: Cache[PageSandbox] = Cache()
        # The members of a pool by name.
        self._of_pool: dict[Key, dict[str, PageSandbox]] = {}
        self._reflectors = [
            Reflector(client, kind, cache, namespace=watch.namespace)
            for kind, cache in ((_PAGE_POOLS, self._pools), (_PAGE_MEMBERS, self._members))
        ]
        self._pools.listen(self._on_pool_change)
        self._members.listen(self._on_member_change)

    async def run(self) -> None:
        """Watch until cancelled. A user who may not view pools sees none."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._reflectors:
                tasks.create_task(each.run())
            for each in self._reflectors:
                await each.wait_synced()
            for pool in self._pools:
                self._publish(Key.from_object(pool))

    def find(self, name: str) -> dict[str, Any]:
        """Return a pool with its members by its name on the page.

        Raises:
            RequestError: it does not exist.
        """
        key = self._feed.locate(name)
        found = self._pools.get(key.name, key.namespace)
        if found is None:
            raise RequestError(404, NOT_FOUND)
        return self._with_members(found)

    async def find_async(self, name: str) -> dict[str, Any]:
        """Return what `find` returns."""
        return self.find(name)

    def forms(self) -> list[dict[str, Any]]:
        """Return all pools as the REST API does, sorted by name."""
        found = (self._form(self._with_members(each)) for each in self._pools)
        return sorted(found, key=lambda each: str(each["name"]))

    def find_concerns(self, flags: Callable[[str], str], at: int) -> list[Concern]:
        """Return why pools need attention. `flags` returns the options that make a command use a namespace."""
        found = []
        for each in self._pools:
            report = cluster_report.report(self._with_members(each), at)
            pool = AttentionSubject(subject.pool_subject(self._feed.page_name(Key.from_object(each))), report, 0, 0)
            options = flags(each.metadata.namespace)
            found += [
                msgspec.structs.replace(concern, next=cluster_report.add_flags(concern.next, options))
                for concern in attention.find_concerns([pool], at)
            ]
        return found

    def _with_members(self, pool: PageSandbox) -> dict[str, Any]:
        members = map(decode, self._of_pool.get(Key.from_object(pool), {}).values())
        found: dict[str, Any] = cluster_pools.join_members([decode(pool)], members)[0]
        return found

    def _form(self, pool: dict[str, Any]) -> dict[str, Any]:
        name = self._feed.page_name(Key(pool["metadata"]["namespace"], pool["metadata"]["name"]))
        return {**cluster_pools.form(pool, cluster_report.report(pool, now())), "name": name}

    def _on_pool_change(self, change: ObjectChange[PageSandbox]) -> None:
        self._publish(change.key)

    def _on_member_change(self, change: ObjectChange[PageSandbox]) -> None:
        pool = Key(change.key.namespace, msgspec.json.decode(change.latest.spec).get("pool", ""))
        if not pool.name:
            return
        members = self._of_pool.setdefault(pool, {})
        if change.new is None:
            members.pop(change.key.name, None)
        else:
            members[change.key.name] = change.new
        self._publish(pool)

    def _publish(self, key: Key) -> None:
        """Publish the newest state of a pool, once all pools and members are known."""
        if not all(each.is_synced for each in self._reflectors):
            return
        name, found = self._feed.page_name(key), self._pools.get(key.name, key.namespace)
        if found is not None:
            self._feed.publish_change(subject.pool_subject(name), self._form(self._with_members(found)))
        else:
            self._feed.publish_deletion(subject.pool_subject(name))


class PoolRoutes:
    """The routes of pools: their state, how they are used, and their actions."""

    def __init__(self, context: PageContext, pools: PoolWatch) -> None:
        self._context, self._pools = context, pools

    def routes(self) -> list[Route]:
        """Return the routes."""
        path, serve = "/orgs/{org}/resourcepools", self._context.serve
        one = path + "/{name}"
        actions = [serve(f"{one}/{each}", POST=functools.partial(self.control, each)) for each in PoolAction]
        return [
            serve(path, GET=self.list_all),
            serve(one, GET=self.get, DELETE=self.delete),
            serve(one + "/why", GET=self.why),
            serve(one + "/explain", GET=self.explain),
            *actions,
        ]

    async def list_all(self, _request: Request) -> Any:
        """Return all pools."""
        return self._pools.forms()

    async def get(self, request: Request) -> Any:
        """Return one pool."""
        found = self._pools.find(_name(request))
        return {**cluster_pools.form(found, cluster_report.report(found, now())), "name": _name(request)}

    async def why(self, request: Request) -> Any:
        """Return why a pool is not ready."""
        objects, bare = self._objects(request)
        found = self._pools.find(_name(request))
        logs = await ClusterLogs(objects.client, objects.namespace).list_stored(found)
        return objects.why(found, subject.pool_subject(bare), units_without_output(logs)) or {}

    async def explain(self, request: Request) -> Any:
        """Return how a pool is used, and the predicted misses for other sizes."""
        objects, bare = self._objects(request)
        return {**await objects.explain_pool(bare), "name": _name(request)}

    async def control(self, action: PoolAction, request: Request) -> Any:
        """Pause, resume or drain a pool."""
        objects, bare = self._objects(request)
        await objects.control_pool(bare, action)
        return await self.get(request)

    async def delete(self, request: Request) -> Any:
        """Request the deletion of a pool."""
        objects, bare = self._objects(request)
        await objects.delete(subject.pool_subject(bare))
        return {}

    def _objects(self, request: Request) -> tuple[Objects, str]:
        self._pools.find(_name(request))
        return self._context.objects(_name(request))


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not name or len(name) > 320:
        raise RequestError(404, NOT_FOUND)
    return name
