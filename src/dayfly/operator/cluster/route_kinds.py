"""Whether the cluster has the Gateway API, or Istio, and the watch of its routes while it has."""

import asyncio
import contextlib
import enum
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from dayfly.execute.gateway.preview import PreviewGateway
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube import errors
from dayfly.kube.cache import Cache, Reflector
from dayfly.kube.objects import HasMeta, Resource
from dayfly.kube.watches import Watches
from dayfly.spec.routing.routing_keys import Forms

# So long the first turns wait for the first list of the routes: what is not known yet would be said to be missing.
FIRST_LIST_S = 5.0
_POLL_S = 0.05

T = TypeVar("T", bound=HasMeta)


class Istio(enum.StrEnum):
    """When requests are led by Istio: where the Gateway API is not there, always where Istio is, or never."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class RoutingSettings(NamedTuple):
    """How requests are led to forks, as the administrator says: further forms of keys, when
    Istio is asked, and where endpoints have their addresses.
    """

    forms: Forms = Forms()
    istio: Istio = Istio.AUTO
    edge: PreviewGateway | None = None


class RouteKinds(Generic[T]):
    """Routes are other people's objects, of kinds that may come and go: the operator is well without them."""

    def __init__(self, watches: Watches, kinds: tuple[Resource[T], ...]) -> None:
        """`kinds` are all of one group and version."""
        self._watches = watches
        self._all = kinds
        self.routes: dict[str, Cache[T]] = {kind.plural: Cache(labels=(RUN_LABEL,)) for kind in kinds}
        """By plural; empty where that is not served."""
        self._followed: dict[str, Reflector[Any]] = {}
        self._looked = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def kinds(self) -> tuple[Resource[T], ...]:
        """The kinds of routes that are served, as far as is known."""
        return tuple(kind for kind in self._all if kind.plural in self._followed)

    @property
    def trouble(self) -> str:
        """What stands in the way of seeing routes; empty if nothing does."""
        found = (each.trouble for each in self._followed.values() if not each.synced)
        return next((each.message for each in found if each is not None), "")

    def listen(self, listener: Callable[[], None]) -> None:
        """Call it when there are routes, or when there are none any more."""
        self._listeners.append(listener)

    async def look(self) -> None:
        """See what is served now, and follow that.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        try:
            served = {kind.name for kind in await self._watches.client.kinds(self._all[0].api_version)}
        except errors.NotServed:
            served = set()
        before, self._looked = self.kinds, True
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

    async def looked(self) -> None:
        """Return once it is known what is served.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        if not self._looked:
            await self.look()

    async def seen(self) -> None:
        """Wait until what is there has been listed once, or cannot be.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        await self.looked()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_S):
                while not all(each.synced or each.trouble for each in self._followed.values()):  # noqa: ASYNC110 - of another's watch, once
                    await asyncio.sleep(_POLL_S)
