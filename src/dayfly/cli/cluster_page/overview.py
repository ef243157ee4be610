"""Addresses about several sandboxes: those that need attention, ended ones, plugins, and changes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from dayfly.cli.backends import cluster_report
from dayfly.cli.backends.cluster_logs import ClusterLogs
from dayfly.cli.backends.cluster_objects import now
from dayfly.cli.cluster_page import entries, lifecycle_hooks
from dayfly.kube import errors
from dayfly.kube.objects import AnnotatedMeta, Slim
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

    from dayfly.cli.cluster_page.handler import Side
    from dayfly.spec.run_data import LogInfo


class Described(Slim, frozen=True):
    """What a plugin's object tells its readers. Annotations may be long, so they are read of one at a time."""

    metadata: AnnotatedMeta


_DESCRIBED = PLUGINS.read_as(Described)


class ClusterOverview:
    """Of all that is watched."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._mute = MuteUnits()

    def routes(self) -> list[Route]:
        """All of them."""
        at, serve = "/orgs/{org}", self._side.serve
        return [
            serve(at + "/changes", GET=self.changes),
            serve(at + "/attention", GET=self.attention),
            serve(at + "/ended-sandboxes", GET=self.ended),
            serve(at + "/resource-plugins", GET=self.plugins),
            serve(at + "/resource-plugins/{name}", GET=self.plugin),
        ]

    async def changes(self, request: Request) -> StreamingResponse:
        last = request.headers.get("last-event-id", "")
        # Of a head there is no body that could go on.
        said = self._side.watched.stream(last, self._side.closing) if request.method == "GET" else ()
        return StreamingResponse(said, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def attention(self, _request: Request) -> Any:
        """What needs attention, the worst first. Only those are looked at of which that is known to be possible."""
        watched, at = self._side.watched, now()
        found = await lifecycle_hooks.concerns(self._side.client)
        boxes: dict[str, Any] = {}
        for name, each in list(watched.entries.items()):
            soon = each.expires_at and at >= ttl.warns_at(each.begins_at, each.expires_at)
            if (each.concerns or soon) and (box := watched.find(name)):
                boxes[name] = box
        asked = [(cluster_report.report(box, at), functools.partial(self._logs, box)) for box in boxes.values()]
        mute = await self._mute.find("", asked)
        for name, box in boxes.items():
            flags = self._side.flags(watched.place(name).namespace)
            found += entries.concerns(box, name, flags, at, mute.get(box["metadata"]["uid"], ()))
        return attention.sort_concerns(found, at)

    async def _logs(self, box: Any) -> list[LogInfo]:
        try:
            return await ClusterLogs(self._side.client, box["metadata"]["namespace"]).kept(box)
        except errors.ApiError:
            return []  # it is asked again

    async def ended(self, _request: Request) -> Any:
        """Those that went while this process looked: a cluster keeps nothing of them."""
        return [gone.told for gone in reversed(self._side.watched.ended.values())]

    async def plugins(self, _request: Request) -> Any:
        """All versions, with those sandboxes of what is watched that name them."""
        return [self._plugin(each, latest=latest) for each, latest in await self._versions()]

    async def plugin(self, request: Request) -> Any:
        """One version, the highest if none is named, with its README."""
        name, wanted = request.path_params["name"], request.query_params.get("version") or semver.LATEST
        for each, latest in await self._versions():
            bare, version = _split(each)
            if bare == name and (version == wanted or (wanted == semver.LATEST and latest)):
                whole = await self._side.client.get(_DESCRIBED, each.metadata.name)
                told = (whole.metadata.annotations or {}).get(readme.ANNOTATION, "")[: readme.MAX_BYTES]
                return self._plugin(each, latest=latest) | ({"readme": told} if told else {})
        raise RequestError(404, f"resource plugin {quote(name)} not found")

    async def _versions(self) -> list[tuple[PluginObject, bool]]:
        """All of them by name and version, and whether each is the highest of its name."""
        found = (await self._side.client.list_all(PLUGINS)).items
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
        means = {f"{name}@{version}"} | ({name, f"{name}@{semver.LATEST}"} if latest else set())
        return {
            "name": f"{name}@{version}" if version else name,
            "spec": {key: value for key, value in each.spec.items() if key != "name"},
            "createdAt": born,
            "updatedAt": born,
            "status": {"resources": list(self._users(means))},
        }

    def _users(self, means: set[str]) -> Iterable[dict[str, str]]:
        for name, each in self._side.watched.entries.items():
            for resource, plugin in each.plugins:
                if plugin in means:
                    yield {"name": resource, "sandbox": name, "cluster": ""}


def _split(each: PluginObject) -> tuple[str, str]:
    """Name and version; of one that nobody can name, what it is called."""
    written = str(each.spec.get("name", ""))
    try:
        return semver.split_name(written)
    except SpecError:
        return written, ""


def _order(version: str) -> Any:
    return (1, semver.order(version)) if version else (0, ())
