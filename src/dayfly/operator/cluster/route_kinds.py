"""Discovery of the Gateway API and of Istio, and the watches of their routes."""

import asyncio
import contextlib
import enum
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.cache import Cache
from dayfly.kube.objects import ApiResource, HasMeta
from dayfly.kube.reflector import Reflector
from dayfly.kube.watches import Watches
from dayfly.spec.routing.routing_keys import Forms

# Maximum time that the first turns wait for the first list of routes. Without it, existing routes would be reported
# as missing.
FIRST_LIST_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.05

T = TypeVar("T", bound=HasMeta)


class Istio(enum.StrEnum):
    """When Istio routes requests: in clusters without the Gateway API, in all clusters with Istio, or never."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class RoutingSettings(NamedTuple):
    """Routing settings of the administrator: forms of routing keys, use of Istio, gateway of previews."""

    forms: Forms = Forms()
    istio: Istio = Istio.AUTO
    edge: PreviewGateway | None = None


class RouteKinds(Generic[T]):
    """The route kinds of one API, which the cluster may start or stop serving at any time."""

    def __init__(self, watches: Watches, kinds: tuple[ApiResource[T], ...]) -> None:
        """`kinds` have the same group and version."""
        self._watches = watches
        self._all = kinds
        self.routes: dict[str, Cache[T]] = {kind.plural: Cache(labels=(RUN_LABEL,)) for kind in kinds}
        """Caches by plural; empty for kinds that are not served."""
        self._followed: dict[str, Reflector[Any]] = {}
        self._is_discovered = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def kinds(self) -> tuple[ApiResource[T], ...]:
        """The kinds that are served, according to the latest discovery."""
        return tuple(kind for kind in self._all if kind.plural in self._followed)

    @property
    def list_error(self) -> str:
        """The error that prevents the first list of routes; empty if there is none."""
        found = (each.error for each in self._followed.values() if not each.is_synced)
        return next((each.message for each in found if each is not None), "")

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the served kinds have changed."""
        self._listeners.append(listener)

    async def discover(self) -> None:
        """Query the served kinds, and start or stop their watches.

        Raises:
            errors.ApiError: discovery failed.
        """
        try:
            served = {kind.name for kind in await self._watches.client.kinds(self._all[0].api_version)}
        except errors.NotServed:
            served = set()
        before, self._is_discovered = self.kinds, True
        for kind in self._all:
            cache, plural = self.routes[kind.plural], kind.plural
            if plural in served and plural not in self._followed:
                self._followed[plural] = self._watches.follow_also(kind, cache)
            elif plural not in served and self._followed.pop(plural, None) is not None:
                self._watches.unfollow(cache)
                cache.replace([])
        if before != self.kinds:
            for listener in self._listeners:
                listener()

    async def wait_discovered(self) -> None:
        """Wait for the first discovery.

        Raises:
            errors.ApiError: discovery failed.
        """
        if not self._is_discovered:
            await self.discover()

    async def wait_listed(self) -> None:
        """Wait until the routes have been listed once, but no longer than `FIRST_LIST_TIMEOUT_S`; errors end the wait.

        Raises:
            errors.ApiError: discovery failed.
        """
        await self.wait_discovered()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_TIMEOUT_S):
                while not all(each.is_synced or each.error for each in self._followed.values()):  # noqa: ASYNC110 - the watches have no event for this
                    await asyncio.sleep(_POLL_INTERVAL_S)
