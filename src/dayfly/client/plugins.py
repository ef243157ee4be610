"""What is published or declared, and does not run: plugins and baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.client import sources
from dayfly.client.errors import ConflictError, InvalidError
from dayfly.client.types import Baseline, Plugin
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.plugin import Plugin as Wished

if TYPE_CHECKING:
    from dayfly.client.json_client import JsonClient
    from dayfly.client.sources import Source, Variables

_AT = "resource-plugins"


class AsyncPlugins:
    """The resource plugins of one server. A name may have a version behind it, `db@1.2.0`."""

    def __init__(self, json_client: JsonClient) -> None:
        self._json = json_client

    async def apply(self, source: Source, *, variables: Variables | None = None) -> Plugin:
        """Publish a version; one that is there with the same content is left as it is.

        Raises:
            InvalidError: what is wrong, with its places.
            ConflictError: that version is there, with other content.
        """
        wish = sources.read(source, variables or {}, "plugin")
        with sources.placed(wish.document):
            wished = documents.from_wire(wish.body, "ResourcePlugin")
            assert isinstance(wished, Wished), "asked for by its kind"
            name, version = wished.name, wished.version
            try:
                await self._json.ask(dict[str, Any], "PUT", self._json.below(_AT, name), body=wish.body)
            except ConflictError as fault:
                there = await self._json.get(dict[str, Any], _AT, name, version=version)
                published = documents.from_wire(there, "ResourcePlugin")
                if not isinstance(published, Wished) or published.spec != wished.spec:
                    fault.advice = f"publish the change under another version than {version}"
                    raise
        return await self._json.get(Plugin, _AT, name, version=version)

    async def get(self, name: str) -> Plugin:
        """One version; the highest if none is named.

        Raises:
            NotFoundError: there is none.
        """
        name, _, version = name.partition("@")
        return await self._json.get(Plugin, _AT, name, version=version or None)

    async def list(self, *, all_versions: bool = False) -> tuple[Plugin, ...]:
        """The highest version of each, or all versions of all."""
        return await self._json.get(tuple[Plugin, ...], _AT, version="all" if all_versions else None)

    async def versions(self, name: str) -> tuple[Plugin, ...]:
        """All versions of one, the highest first."""
        return await self._json.get(tuple[Plugin, ...], _AT, name, "versions")

    async def delete(self, name: str) -> None:
        """Remove a version, the highest if none is named.

        Raises:
            RefusedError: a sandbox uses it.
        """
        found = await self.get(name)  # by its version: without one, a request that is sent again takes the next
        path = self._json.below(_AT, found.name.partition("@")[0])
        await self._json.ask(dict[str, Any], "DELETE", path, {"version": found.version})


class AsyncBaselines:
    """The baselines of one server, by namespace and name."""

    def __init__(self, json_client: JsonClient) -> None:
        self._json = json_client

    async def apply(self, source: Source, *, variables: Variables | None = None) -> Baseline:
        """Declare it, or change it.

        Raises:
            InvalidError: what is wrong, with its places.
        """
        wish = sources.read(source, variables or {}, "baseline")
        if not wish.name:
            raise InvalidError([SpecError("it has no name", ("name",))])
        path = self._json.below("workloads", str(wish.body.get("namespace", "default")), wish.name)
        with sources.placed(wish.document):
            return await self._json.ask(Baseline, "PUT", path, body=wish.body)

    async def get(self, name: str, namespace: str = "default") -> Baseline:
        """As it was declared.

        Raises:
            NotFoundError: there is none.
        """
        return await self._json.get(Baseline, "workloads", namespace, name)

    async def list(self) -> tuple[Baseline, ...]:
        """All of them."""
        return await self._json.get(tuple[Baseline, ...], "workloads")

    async def delete(self, name: str, namespace: str = "default") -> None:
        """Remove it.

        Raises:
            ConflictError: a fork derives from it.
        """
        await self._json.ask(dict[str, Any], "DELETE", self._json.below("workloads", namespace, name))
