"""Index of the runs that have rules in VirtualServices. It queues these runs when a VirtualService changes."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.rules import group_by_run, rules_of_others
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.objects import Key


class ForkingRuns(Protocol):
    """The runs that have forks."""

    def all_runs(self) -> Iterable[str]:
        """Return all runs with a fork."""

    def runs_in(self, namespace: str) -> Iterable[str]:
        """Return the runs with a fork in a namespace."""


class VirtualServiceIndex:
    """The runs whose rules are in a VirtualService, found by the names of the rules.

    Anyone may write these names, so they prove nothing.
    """

    def __init__(self, cache: Cache[VirtualService], forking_runs: ForkingRuns, wake: Callable[[str], object]) -> None:
        self._cache = cache
        self._forking_runs = forking_runs
        self._wake = wake
        self._keys: dict[str, set[Key]] = {}
        cache.listen(self._changed)

    def runs(self) -> set[str]:
        """Return all runs with rules."""
        return set(self._keys)

    def with_rules_of(self, run: str) -> list[VirtualService]:
        """Return the VirtualServices with rules of a run."""
        found = (self._cache.get(key.name, key.namespace) for key in sorted(self._keys.get(run, ())))
        return [each for each in found if each is not None]

    def _changed(self, change: ObjectChange[VirtualService]) -> None:
        # Queue runs whose own rules have changed, and all runs that a change of other parts may concern.
        old, new = ({} if each is None else group_by_run(each.rules) for each in (change.old, change.new))
        for run in new:
            self._keys.setdefault(run, set()).add(change.key)
        for run in old.keys() - new.keys():
            self._keys[run].discard(change.key)
            if not self._keys[run]:
                del self._keys[run]
        woken = {run for run in old.keys() | new.keys() if old.get(run) != new.get(run)}
        if change.old is None or change.new is None or _scope_of(change.old) != _scope_of(change.new):
            woken.update(self._forking_runs.all_runs())
        elif rules_of_others(change.old.rules) != rules_of_others(change.new.rules):
            woken.update(self._forking_runs.runs_in(change.key.namespace))
        for run in sorted(woken):
            self._wake(run)


def _scope_of(seen: VirtualService) -> tuple[Any, ...]:
    """Return the parts that decide whose requests use this VirtualService."""
    meta = seen.metadata
    rest = {key: value for key, value in seen.spec.items() if key != "http"}
    return rest, seen.is_ours, seen.is_ignored, bool(meta.deletion_timestamp)
