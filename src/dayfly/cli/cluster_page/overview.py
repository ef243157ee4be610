"""Routes for several sandboxes: changes, sandboxes that need attention, ended sandboxes, and plugins."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from dayfly.cli.backends import cluster_report
from dayfly.cli.backends.cluster_logs import ClusterLogs
from dayfly.cli.backends.cluster_objects import now
from dayfly.cli.cluster_page import entries, lifecycle_hooks
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, KubeStruct
from dayfly.operator.cluster.objects import PLUGINS, PluginObject
from dayfly.server import attention
from dayfly.server.api.silent_units import MuteUnits
from dayfly.server.http.errors import RequestError
from dayfly.spec import readme
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import semver, ttl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.routing import Route

    from dayfly.cli.cluster_page.handler import PageContext
    from dayfly.cli.cluster_page.pools import PoolWatch
    from dayfly.spec.run_data import LogInfo


class _AnnotatedPlugin(KubeStruct, frozen=True):
    """A plugin with its annotations, which may be long. They are read for one plugin at a time."""

    metadata: AnnotatedMeta


_ANNOTATED_PLUGINS = PLUGINS.read_as(_AnnotatedPlugin)


class OverviewRoutes:
    """The routes for several sandboxes."""

    def __init__(self, context: PageContext, pools: PoolWatch) -> None:
        self._context, self._pools = context, pools
        self._mute = MuteUnits()

    def routes(self) -> list[Route]:
        """Return the routes."""
        org, serve = "/orgs/{org}", self._context.serve
        return [
            serve(org + "/changes", GET=self.changes),
            serve(org + "/attention", GET=self.attention),
            serve(org + "/ended-sandboxes", GET=self.list_ended),
            serve(org + "/resource-plugins", GET=self.list_plugins),
            serve(org + "/resource-plugins/{name}", GET=self.get_plugin),
        ]

    async def changes(self, request: Request) -> StreamingResponse:
        last = request.headers.get("last-event-id", "")
        # A response to HEAD has no body.
        events = self._context.watch.stream(last, self._context.closing) if request.method == "GET" else ()
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def attention(self, _request: Request) -> Any:
        """Return what needs attention, the worst first. Only candidates are examined, by their entries."""
        watch, at = self._context.watch, now()
        found = await lifecycle_hooks.find_concerns(self._context.client)
        found += self._pools.find_concerns(self._context.flags, at)
        boxes: dict[str, Any] = {}
        for name, each in list(watch.entries.items()):
            soon = each.expires_at and at >= ttl.warning_time(each.begins_at, each.expires_at)
            if (each.needs_attention or soon) and (box := watch.find(name)):
                boxes[name] = box
        reports = [(cluster_report.report(box, at), functools.partial(self._logs, box)) for box in boxes.values()]
        mute = await self._mute.find("", reports)
        for name, box in boxes.items():
            flags = self._context.flags(watch.locate(name).namespace)
            found += entries.find_concerns(box, name, flags, at, mute.get(box["metadata"]["uid"], ()))
        return attention.sort_concerns(found, at)

    async def _logs(self, box: Any) -> list[LogInfo]:
        try:
            return await ClusterLogs(self._context.client, box["metadata"]["namespace"]).list_stored(box)
        except errors.ApiError:
            return []  # the next request tries again

    async def list_ended(self, _request: Request) -> Any:
        """Return sandboxes that ended while this process watched. A cluster does not record ended sandboxes."""
        return [gone.row for gone in reversed(self._context.watch.ended.values())]

    async def list_plugins(self, _request: Request) -> Any:
        """Return all versions, with the watched sandboxes that use them."""
        return [self._plugin(each, latest=latest) for each, latest in await self._versions()]

    async def get_plugin(self, request: Request) -> Any:
        """Return one version with its README; by default the highest version."""
        name, wanted = request.path_params["name"], request.query_params.get("version") or semver.LATEST
        for each, latest in await self._versions():
            bare, version = _split(each)
            if bare == name and (version == wanted or (wanted == semver.LATEST and latest)):
                whole = await self._context.client.get(_ANNOTATED_PLUGINS, each.metadata.name)
                text = (whole.metadata.annotations or {}).get(readme.ANNOTATION, "")[: readme.MAX_BYTES]
                return self._plugin(each, latest=latest) | ({"readme": text} if text else {})
        raise RequestError(404, f"resource plugin {quote(name)} not found")

    async def _versions(self) -> list[tuple[PluginObject, bool]]:
        """Return all plugins sorted by name and version, and whether each version is the highest."""
        found = (await self._context.client.list_all(PLUGINS)).items
        latest: dict[str, str] = {}
        for each in found:
            name, version = _split(each)
            if name not in latest or _order(version) > _order(latest[name]):
                latest[name] = version
        return [
            (each, _split(each)[1] == latest[_split(each)[0]])
            for each in sorted(found, key=lambda each: (_split(each)[0], _order(_split(each)[1])))
        ]

    def _plugin(self, each: PluginObject, *, latest: bool) -> dict[str, Any]:
        name, version = _split(each)
        born = each.metadata.creation_timestamp or ""
        references = {f"{name}@{version}"} | ({name, f"{name}@{semver.LATEST}"} if latest else set())
        return {
            "name": f"{name}@{version}" if version else name,
            "spec": {key: value for key, value in each.spec.items() if key != "name"},
            "createdAt": born,
            "updatedAt": born,
            "status": {"resources": list(self._users(references))},
        }

    def _users(self, references: set[str]) -> Iterable[dict[str, str]]:
        for name, each in self._context.watch.entries.items():
            for resource, plugin in each.plugins:
                if plugin in references:
                    yield {"name": resource, "sandbox": name, "cluster": ""}


def _split(each: PluginObject) -> tuple[str, str]:
    """Return name and version. An invalid name is returned unchanged, without a version."""
    written = str(each.spec.get("name", ""))
    try:
        return semver.split_name(written)
    except SpecError:
        return written, ""


def _order(version: str) -> Any:
    return (1, semver.order(version)) if version else (0, ())
