"""The kinds that are watched because a hook selects them, or because a run goes with one of their objects."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from dayfly.kube import errors
from dayfly.kube.cache import Reflector
from dayfly.kube.objects import PartialObjectMetadata, Resource
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.targets.lifecycle_hook import HookedTarget
from dayfly.operator.targets.targets import Targets

Kind = tuple[str, str]
"""Group and plural."""


class WatchedKind(NamedTuple):
    """A kind with its adapter, and how its watch stands."""

    adapter: HookedTarget
    reflector: Reflector[Any]

    @property
    def trouble(self) -> errors.ApiError | None:
        """What stands in the way of watching it; None while all is well, or nothing is known yet."""
        return self.reflector.trouble

    @property
    def whole(self) -> bool:
        """Whether all its objects have been listed."""
        return self.reflector.synced


class Kinds:
    """Adds an adapter with the first hook or run of a kind, and drops it with the last."""

    def __init__(
        self,
        cluster: ClusterWatches,
        targets: Targets,
        make: Callable[[Resource[PartialObjectMetadata]], HookedTarget],
    ) -> None:
        self._cluster = cluster
        self._targets = targets
        self._make = make
        self._watched: dict[Kind, WatchedKind] = {}
        self.recovered: Callable[[Kind], None] = lambda _: None
        """Called when all objects of a kind are known: for the first time, or again."""

    def __iter__(self) -> Iterator[WatchedKind]:
        return iter(list(self._watched.values()))

    def find(self, kind: Kind) -> WatchedKind | None:
        """What is known of a kind that is watched."""
        return self._watched.get(kind)

    def retry(self) -> None:
        """Watch now those that could not be watched: they may be granted since."""
        for watched in self:
            if watched.trouble is not None:
                watched.reflector.retry()

    def want(self, resource: Resource[Any]) -> WatchedKind:
        """Watch a kind from now on, if nobody did."""
        kind = resource.group, resource.plural
        if kind not in self._watched:
            adapter = self._make(resource.metadata_only())
            self._targets.register(adapter)
            reflector = self._cluster.follow_also(adapter.resource, adapter.cache)
            reflector.recovered = lambda: self.recovered(kind)
            self._watched[kind] = WatchedKind(adapter, reflector)
        return self._watched[kind]

    def want_served(self, resource: Resource[Any]) -> WatchedKind:
        """The same of a kind that is served in this version: one that is served no more is watched by it instead.

        All versions have the same objects, so which of them is watched makes no difference as long as it is there.
        """
        kind = resource.group, resource.plural
        known = self._watched.get(kind)
        other = known is not None and known.adapter.resource.version != resource.version
        if known is not None and other and isinstance(known.trouble, errors.NotServed):
            self._drop(kind)
        return self.want(resource)

    def settle(self, wanted: Collection[Kind]) -> None:
        """Watch no others than these."""
        for kind in self._watched.keys() - set(wanted):
            self._drop(kind)

    def _drop(self, kind: Kind) -> None:
        adapter, _ = self._watched.pop(kind)
        self._targets.remove(adapter)
        self._cluster.unfollow(adapter.cache)
