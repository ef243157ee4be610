"""Plugins and baselines of `AsyncClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.client import sources
from dayfly.client.errors import ConflictError, InvalidError
from dayfly.client.interface import BaselinesInterface, PluginsInterface
from dayfly.client.types import Baseline, Plugin
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.plugin import Plugin as PluginDocument

if TYPE_CHECKING:
    from dayfly.client.json_client import JsonClient
    from dayfly.client.sources import Source, Variables

_PATH = "resource-plugins"


class AsyncPlugins(PluginsInterface):
    """The resource plugins of one server. A name may include a version: `db@1.2.0`."""

    def __init__(self, json_client: JsonClient) -> None:
        self._json = json_client

    async def apply(self, source: Source, *, variables: Variables | None = None) -> Plugin:
        wish = sources.read(source, variables or {}, "plugin")
        with sources.errors_with_places(wish.document):
            wished = documents.from_wire(wish.body, "ResourcePlugin")
            assert isinstance(wished, PluginDocument), "asked for by its kind"
            name, version = wished.name, wished.version
            try:
                await self._json.request_as(dict[str, Any], "PUT", self._json.org_path(_PATH, name), body=wish.body)
            except ConflictError as fault:
                there = await self._json.get(dict[str, Any], _PATH, name, version=version)
                published = documents.from_wire(there, "ResourcePlugin")
                if not isinstance(published, PluginDocument) or published.spec != wished.spec:
                    fault.advice = f"publish the change under another version than {version}"
                    raise
        return await self._json.get(Plugin, _PATH, name, version=version)

    async def get(self, name: str) -> Plugin:
        name, _, version = name.partition("@")
        return await self._json.get(Plugin, _PATH, name, version=version or None)

    async def list(self, *, all_versions: bool = False) -> tuple[Plugin, ...]:
        return await self._json.get(tuple[Plugin, ...], _PATH, version="all" if all_versions else None)

    async def versions(self, name: str) -> tuple[Plugin, ...]:
        return await self._json.get(tuple[Plugin, ...], _PATH, name, "versions")

    async def delete(self, name: str) -> None:
        found = await self.get(name)  # by its version: without one, a request that is sent again takes the next
        path = self._json.org_path(_PATH, found.name.partition("@")[0])
        await self._json.request_as(dict[str, Any], "DELETE", path, {"version": found.version})


class AsyncBaselines(BaselinesInterface):
    """The baselines of one server, by namespace and name."""

    def __init__(self, json_client: JsonClient) -> None:
        self._json = json_client

    async def apply(self, source: Source, *, variables: Variables | None = None) -> Baseline:
        wish = sources.read(source, variables or {}, "baseline")
        if not wish.name:
            raise InvalidError([SpecError("it has no name", ("name",))])
        path = self._json.org_path("workloads", str(wish.body.get("namespace", "default")), wish.name)
        with sources.errors_with_places(wish.document):
            return await self._json.request_as(Baseline, "PUT", path, body=wish.body)

    async def get(self, name: str, namespace: str = "default") -> Baseline:
        return await self._json.get(Baseline, "workloads", namespace, name)

    async def list(self) -> tuple[Baseline, ...]:
        return await self._json.get(tuple[Baseline, ...], "workloads")

    async def delete(self, name: str, namespace: str = "default") -> None:
        await self._json.request_as(dict[str, Any], "DELETE", self._json.org_path("workloads", namespace, name))
