"""The kinds that are watched because a hook selects them, or because a run's target is of that kind."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from dayfly.kube import errors
from dayfly.kube.objects import ApiResource, PartialObjectMetadata
from dayfly.kube.reflector import Reflector
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.targets.lifecycle_hook import HookedTarget
from dayfly.operator.targets.targets import Targets

Kind = tuple[str, str]
"""Group and plural."""


class WatchedKind(NamedTuple):
    """A watched kind: its adapter and its watch."""

    adapter: HookedTarget
    reflector: Reflector[Any]

    @property
    def error(self) -> errors.ApiError | None:
        """Why the kind cannot be watched; None if there is no error, or none yet."""
        return self.reflector.error

    @property
    def is_listed(self) -> bool:
        """Whether all its objects have been listed."""
        return self.reflector.is_synced


class WatchedKinds:
    """Adds an adapter with the first hook or run of a kind, and removes it with the last."""

    def __init__(
        self,
        cluster: ClusterWatches,
        targets: Targets,
        make: Callable[[ApiResource[PartialObjectMetadata]], HookedTarget],
    ) -> None:
        self._cluster = cluster
        self._targets = targets
        self._make = make
        self._watched: dict[Kind, WatchedKind] = {}
        self.on_listed: Callable[[Kind], None] = lambda _: None
        """Called each time the objects of a kind have been listed."""

    def __iter__(self) -> Iterator[WatchedKind]:
        return iter(list(self._watched.values()))

    def find(self, kind: Kind) -> WatchedKind | None:
        """Return a watched kind, if it is watched."""
        return self._watched.get(kind)

    def retry_failed(self) -> None:
        """Retry failed watches now: the operator may have got the rights."""
        for watched in self:
            if watched.error is not None:
                watched.reflector.retry()

    def watch(self, resource: ApiResource[Any]) -> WatchedKind:
        """Watch a kind, if it is not watched yet."""
        kind = resource.group, resource.plural
        if kind not in self._watched:
            adapter = self._make(resource.metadata_only())
            self._targets.register(adapter)
            reflector = self._cluster.follow_also(adapter.resource, adapter.cache)
            reflector.on_recovered = lambda: self.on_listed(kind)
            self._watched[kind] = WatchedKind(adapter, reflector)
        return self._watched[kind]

    def watch_served(self, resource: ApiResource[Any]) -> WatchedKind:
        """Watch a kind in this version, which is served; it replaces a version that is no longer served.

        All versions have the same objects, so any served version can be watched.
        """
        kind = resource.group, resource.plural
        known = self._watched.get(kind)
        other = known is not None and known.adapter.resource.version != resource.version
        if known is not None and other and isinstance(known.error, errors.NotServed):
            self._drop(kind)
        return self.watch(resource)

    def keep_only(self, wanted: Collection[Kind]) -> None:
        """Unwatch all other kinds."""
        for kind in self._watched.keys() - set(wanted):
            self._drop(kind)

    def _drop(self, kind: Kind) -> None:
        adapter, _ = self._watched.pop(kind)
        self._targets.remove(adapter)
        self._cluster.unfollow(adapter.cache)
