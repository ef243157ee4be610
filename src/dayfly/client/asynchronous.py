"""`AsyncClient`, for programs with an asyncio event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dayfly.client import address, sources
from dayfly.client.errors import UnreachableError
from dayfly.client.home import Home
from dayfly.client.interface import ClientInterface
from dayfly.client.json_client import JsonClient
from dayfly.client.plugins import AsyncBaselines, AsyncPlugins
from dayfly.client.retry import RetryPolicy
from dayfly.client.runs import AsyncPools, AsyncRouteGroups, AsyncSandboxes
from dayfly.spec.routing.rules import PARAMETERS, Query, RoutingRule

if TYPE_CHECKING:
    import os
    import ssl
    from collections.abc import Callable
    from typing import Self

    from dayfly.client.address import Address
    from dayfly.client.connection import Io
    from dayfly.client.sources import Applied, Variables

TIMEOUT_S = 30.0
_RULES = "/api/v2/workloads/routing-rules"


class AsyncClient(ClientInterface):
    """A client of one server.

    A program must close it at its end, best with `async with`. It belongs to one event loop. Without arguments, it uses
    the server that the command line uses: the server of `DAYFLY_URL`, otherwise that of the home.

    Args:
        url: The URL of the server, like `https://dayfly.example.com`.
        key: The API key.
        org: The organisation of the key, if it is not `local`.
        server: The name of a server from `dayfly login --name`, instead of `url` and `key`.
        home: The home to use instead of `DAYFLY_HOME`.
        tls: A TLS context, for example with a private certificate authority.
        timeout: Seconds without a byte from the server after which a request fails.
        retries: When requests are sent again.

    Raises:
        DayflyError: no server is known, or its address is invalid.
        ValueError: the arguments name two servers.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        org: str = "",
        server: str = "",
        home: str | os.PathLike[str] = "",
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT_S,
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008 # a value
    ) -> None:
        find = finder(url, key, org=org, server=server, home=home)
        self._begin(JsonClient(find, self._io(tls), timeout=timeout, retries=retries))

    @staticmethod
    def _io(tls: ssl.SSLContext | None) -> Io:
        from dayfly.client.loop_io import LoopIo

        return LoopIo(tls)

    def _begin(self, json_client: JsonClient) -> None:
        self._json = json_client
        self.sandboxes = AsyncSandboxes(json_client)
        self.route_groups = AsyncRouteGroups(json_client)
        self.pools = AsyncPools(json_client)
        self.plugins = AsyncPlugins(json_client)
        self.baselines = AsyncBaselines(json_client)

    @property
    def url(self) -> str:
        return self._json.address.url

    async def version(self) -> str:
        return (await self._json.request_as(_Health, "GET", "/api/v2/meta/health")).version

    async def routing_rules(self, *, baseline: str = "", key: str = "", sandbox: str = "") -> tuple[RoutingRule, ...]:
        namespace, _, name = baseline.rpartition("/")
        query = dict(zip(PARAMETERS, Query(namespace=namespace, name=name, key=key, sandbox=sandbox), strict=True))
        asked = {parameter: value for parameter, value in query.items() if value}
        return (await self._json.request_as(_Rules, "GET", _RULES, asked)).routing_rules

    async def apply(self, *paths: str | os.PathLike[str], variables: Variables | None = None) -> Applied:
        appliers = {
            "plugin": self.plugins.apply,
            "baseline": self.baselines.apply,
            "sandbox": self.sandboxes.apply,
            "route group": self.route_groups.apply,
            "pool": self.pools.apply,
        }
        return await sources.apply_all(appliers, paths, variables or {})

    async def close(self) -> None:
        self._json.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Health(msgspec.Struct):
    version: str


class _Rules(msgspec.Struct, rename="camel"):
    routing_rules: tuple[RoutingRule, ...]


def finder(url: str, key: str, *, org: str, server: str, home: str | os.PathLike[str]) -> Callable[[], Address]:
    """Return the function that finds the address of the server.

    Raises:
        ValueError: the arguments name two servers.
    """
    if url and (server or home):
        raise ValueError("give either `url`, or `server` or `home`, not both")
    if url:
        given = address.Address(url.rstrip("/"), key, org or address.ORGANISATION)
        return lambda: given
    where = Home.of(home) if home else Home.find()

    def find() -> Address:
        found = address.find(where, server, of_home=bool(home))
        if found is None:
            raise UnreachableError(f"no server runs in {where.path}", address.START)
        return found._replace(key=key or found.key, org=org or found.org)

    return find
