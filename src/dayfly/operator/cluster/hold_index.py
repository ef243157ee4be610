"""Index of the runs of pool members and shared parents and of their holders, from the cache of Runs."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import msgspec

from dayfly.execute.acquire.members import is_free
from dayfly.execute.pod import names
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.operator.cluster.objects import POOL_LABEL, MemberRef, PoolMemberObject, ResourcePoolObject, RunObject
from dayfly.spec.lifecycle import Kind
from dayfly.spec.report import RunReport
from dayfly.spec.run import Holder, Phase, Run, State

K = TypeVar("K", bound=Hashable)


class HoldIndex:
    """An index of the members that a holder may join, the entries of each run, and the runs that refer to a member.

    All results are names of Runs. The cache may be behind, so the results are only candidates.
    """

    def __init__(self) -> None:
        self.members: Cache[PoolMemberObject] = Cache(labels=(POOL_LABEL,))
        """The objects of members; empty if this process does not watch them."""
        self.pools: Cache[ResourcePoolObject] = Cache()
        """The same for pools."""
        self.retries: dict[str, dict[str, int]] = {}
        """By member: the attempts of its steps whose back-off ends because a person retries its holder's units."""
        self.on_miss: Callable[[str, str], None] = lambda _namespace, _template: None
        """Called after a member was created for a holder, with its namespace and the digest of its template."""
        self.is_enabled = False
        """Whether this process has pools."""
        self.is_server_frozen: Callable[[], bool] = lambda: False
        """Whether the server has frozen this cluster, so that its pools create nothing."""
        self.pool_reports: dict[str, RunReport] = {}
        """The newest reports of a server's pools, by the UIDs of their runs."""
        # The runs of shared parents.
        self._parents: set[str] = set()
        self._pools: dict[str, dict[str, None]] = {}
        self._free: dict[tuple[str, str], dict[str, None]] = {}
        self._living: dict[tuple[str, str], dict[str, None]] = {}
        self._by_holder: dict[str, dict[str, None]] = {}
        self._by_ref: dict[str, dict[str, None]] = {}

    def free(self, namespace: str, template: str) -> tuple[str, ...]:
        """Return the members of a namespace that are made from a template and were never held."""
        return tuple(self._free.get((namespace, template), ()))

    def living(self, namespace: str, template: str) -> tuple[str, ...]:
        """Return the open members of a namespace that are made from a template, held or not."""
        return tuple(self._living.get((namespace, template), ()))

    def held_by(self, holder: str) -> tuple[str, ...]:
        """Return the members with an entry of the run with this UID."""
        return tuple(self._by_holder.get(holder, ()))

    def referring_to(self, member: MemberRef) -> tuple[str, ...]:
        """Return the runs whose ledger claims a member."""
        return tuple(self._by_ref.get(str(member), ()))

    def pools_of(self, template: str) -> tuple[str, ...]:
        """Return the runs of the pools, in all namespaces, whose members are made from a template."""
        return tuple(self._pools.get(template, ()))

    def _update_pool(self, change: ObjectChange[RunObject]) -> None:
        _replace(self._pools, change.key.name, _pool_templates(change.old), _pool_templates(change.new))
        if change.new is None:
            self.pool_reports.pop(change.latest.ledger.uid, None)

    def update(self, change: ObjectChange[RunObject]) -> set[str]:
        """Apply a change of a run. Return the other runs that need a turn because of it."""
        name, old, new = change.key.name, change.old, change.new
        if new is None:
            self.retries.pop(name, None)
        if change.latest.spec.pool is not None:
            self._update_pool(change)
        if change.latest.ledger.is_parent:
            (self._parents.add if new is not None else self._parents.discard)(name)
        if not any(run is not None and _takes_part(run.ledger) for run in (old, new)):
            # The run may have an entry in a member, which it never claims if it has ended or was closed.
            return set(self.held_by(change.latest.ledger.uid)) if _is_over(new) else set()
        if old is not None and new is not None and old.ledger == new.ledger:
            return set()
        for index, before, after in (
            (self._free, _free_key(old), _free_key(new)),
            (self._living, _living_key(old), _living_key(new)),
        ):
            _replace(index, name, before, after)
        _replace(self._by_holder, name, _holders(old), _holders(new))
        _replace(self._by_ref, name, refs_of(old), refs_of(new))
        return self._partners(old, new) - {name}

    def _partners(self, old: RunObject | None, new: RunObject | None) -> set[str]:
        """Return the holders of a member or parent, and the members and parents of a holder, that need a turn.

        A parent has many holders. So they get no turn when others join or leave it, and the parent gets none for each
        step of its holders.
        """
        holders: set[str] = set()
        held: set[str] = set()
        only_holders = old is not None and new is not None and _only_holders_differ(old.ledger, new.ledger)
        for run in (old, new):
            if run is None:
                continue
            ledger = run.ledger
            if ledger.is_member or (ledger.is_parent and not only_holders):
                holders |= _runs_of(ledger.holders)
                holders.update(self.referring_to(MemberRef.from_target(ledger.target)))
            held |= {MemberRef.parse(ref).run for ref in refs_of(run)}
            held.update(self.held_by(ledger.uid))
        if old is None or new is None:
            return holders | held
        if only_holders:
            holders |= _runs_of(set(old.ledger.holders) ^ set(new.ledger.holders))
        if _acquisitions(old.ledger) == _acquisitions(new.ledger):
            held -= self._parents
        return holders | held


def _runs_of(holders: Iterable[Holder]) -> set[str]:
    return {names.run_name(each.target.name, each.run) for each in holders}


def refs_of(run: RunObject | None) -> tuple[str, ...]:
    """Return the members to which a run's ledger refers."""
    found = members_of(run.ledger) if run is not None else ()
    return tuple(dict.fromkeys(ref for _, ref in found))


def members_of(ledger: Run) -> tuple[tuple[str, str], ...]:
    """Return the members to which a ledger refers, each after the resource that it provides."""
    records = (item for item in ledger.units.items() if item[1].kind == Kind.ACQUIRE)
    found = ((name.rpartition("/")[0], record.ref) for name, record in records if record.ref.count("/") == 2)
    return tuple(dict.fromkeys(found))


def only_pool_changes(change: ObjectChange[RunObject]) -> bool:
    """Return whether only the ledger of a pool has changed, which the controller of pools handles."""
    old, new = change.old, change.new
    if old is None or new is None or new.spec.pool is None:
        return False
    return (old.ledger, old.spec.offered) == (new.ledger, new.spec.offered)


def _takes_part(ledger: Run) -> bool:
    is_held = ledger.is_member or ledger.is_parent
    return is_held or any(record.kind == Kind.ACQUIRE for record in ledger.units.values())


def _acquisitions(ledger: Run) -> tuple[Phase, tuple[tuple[str, State, str], ...]]:
    """Return what the members and parents of a run depend on: its phase and its attempts to hold them."""
    records = ((name, each) for name, each in ledger.units.items() if each.kind == Kind.ACQUIRE)
    return ledger.phase, tuple((name, each.state, each.ref) for name, each in records)


def _only_holders_differ(old: Run, new: Run) -> bool:
    """Return whether two ledgers of a parent differ only in its holders."""
    same = {"seq": new.seq, "holders": new.holders, "joins": new.joins, "idle_since": new.idle_since}
    return new.is_parent and msgspec.structs.replace(old, **same) == new


def _is_over(run: RunObject | None) -> bool:
    return run is None or run.ledger.phase is not Phase.OPEN


def _living_key(run: RunObject | None) -> tuple[tuple[str, str], ...]:
    if run is None or not run.ledger.is_member or run.ledger.phase is not Phase.OPEN:
        return ()
    return ((run.ledger.target.namespace, run.ledger.plan),)


def _free_key(run: RunObject | None) -> tuple[tuple[str, str], ...]:
    return _living_key(run) if run is not None and is_free(run.ledger) else ()


def _holders(run: RunObject | None) -> tuple[str, ...]:
    return tuple(each.run for each in run.ledger.holders) if run is not None else ()


def _pool_templates(run: RunObject | None) -> tuple[str, ...]:
    return (run.spec.pool.ledger.template,) if run is not None and run.spec.pool is not None else ()


def _replace(index: dict[K, dict[str, None]], name: str, before: Iterable[K], after: Iterable[K]) -> None:
    """Move a name from some keys of an index to others."""
    old, new = set(before), set(after)
    for key in old - new:
        found = index.get(key, {})
        found.pop(name, None)
        if not found:
            index.pop(key, None)
    for key in new - old:
        index.setdefault(key, {})[name] = None
