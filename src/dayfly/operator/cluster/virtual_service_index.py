"""Which runs have rules in which VirtualServices, and who is to look again when one has changed."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.rules import group_by_run, others
from dayfly.kube.cache import Cache, Change
from dayfly.kube.objects import Key


class Forkers(Protocol):
    """Who forks what."""

    def all(self) -> Iterable[str]:
        """The runs that fork anything."""

    def within(self, namespace: str) -> Iterable[str]:
        """The runs that fork something there."""


class WovenRules:
    """Rules of ours in VirtualServices, by their names; these may be anybody's work, so they prove nothing."""

    def __init__(self, cache: Cache[VirtualService], forkers: Forkers, wake: Callable[[str], object]) -> None:
        self._cache = cache
        self._forkers = forkers
        self._wake = wake
        self._keys: dict[str, set[Key]] = {}
        cache.listen(self._changed)

    def runs(self) -> set[str]:
        """All that have rules anywhere."""
        return set(self._keys)

    def of(self, run: str) -> list[VirtualService]:
        """Those with rules of a run."""
        found = (self._cache.get(key.name, key.namespace) for key in sorted(self._keys.get(run, ())))
        return [each for each in found if each is not None]

    def _changed(self, change: Change[VirtualService]) -> None:
        """Runs whose rules have been changed look at it; and those that it may concern, if what is not ours has."""
        old, new = ({} if each is None else group_by_run(each.rules) for each in (change.old, change.new))
        for run in new:
            self._keys.setdefault(run, set()).add(change.key)
        for run in old.keys() - new.keys():
            self._keys[run].discard(change.key)
            if not self._keys[run]:
                del self._keys[run]
        woken = {run for run in old.keys() | new.keys() if old.get(run) != new.get(run)}
        if change.old is None or change.new is None or _around(change.old) != _around(change.new):
            woken.update(self._forkers.all())
        elif others(change.old.rules) != others(change.new.rules):
            woken.update(self._forkers.within(change.key.namespace))
        for run in sorted(woken):
            self._wake(run)


def _around(seen: VirtualService) -> tuple[Any, ...]:
    """What says whose calls go by it."""
    meta = seen.metadata
    rest = {key: value for key, value in seen.spec.items() if key != "http"}
    return rest, seen.is_ours, seen.is_left_alone, bool(meta.deletion_timestamp)
