"""The rules of a cluster without a server, from watches of its objects.

The status of a Sandbox has the active forks and routes, and the Service of a fork has its address. The members of route
groups are computed as in the operator.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL, fork_name
from dayfly.execute.fork.run import DEPLOYMENTS, SERVICES
from dayfly.kube.cache import Cache, ObjectChange
from dayfly.kube.objects import Key, KubeStruct, ObjectMeta
from dayfly.kube.watches import Watches
from dayfly.operator.cluster.objects import (
    GROUPS,
    SANDBOXES,
    SERVED_KEY_ANNOTATION,
    RouteGroupObject,
    SandboxObject,
)
from dayfly.operator.route_groups.membership import to_member
from dayfly.plan.route_groups import GroupSelector, MembershipIndex, routes_by_sandbox
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import Baseline, fork_id
from dayfly.spec.routing.rules import Forked, RoutedDestination, RoutedPort, RoutingRule, RuleId, rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.kube.client import KubeClient
    from dayfly.routeserver.rule_store import RuleStore


class _Port(KubeStruct, frozen=True):
    """A port of a container."""

    container_port: int
    name: str = ""


class _Container(KubeStruct, frozen=True):
    ports: tuple[_Port, ...] | None = None


class _PodSpec(KubeStruct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(KubeStruct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _ForkSpec(KubeStruct, frozen=True):
    template: _Template = _Template()


class _Fork(KubeStruct, frozen=True):
    """The container ports in a fork's Deployment."""

    metadata: ObjectMeta
    spec: _ForkSpec = _ForkSpec()


class ClusterRuleWatcher:
    """Updates a store from watches of one namespace, or of all namespaces if it is empty."""

    def __init__(self, client: KubeClient, store: RuleStore, namespace: str = "") -> None:
        self._store = store
        self._watches = Watches(client)
        self._sandboxes: Cache[SandboxObject] = Cache()
        self._groups: Cache[RouteGroupObject] = Cache()
        self._services: Cache[ForkService] = Cache()
        self._forks: Cache[_Fork] = Cache()
        self._members = MembershipIndex()
        self._places: dict[str, Key] = {}
        self._of_fork: dict[Key, str] = {}
        self._put: dict[str, tuple[RuleId, ...]] = {}
        self._owners: dict[RuleId, str] = {}
        self._follow(namespace)

    def _follow(self, namespace: str) -> None:
        self._sandboxes.listen(self._sandbox_changed)
        self._groups.listen(self._group_changed)
        self._services.listen(self._fork_changed)
        self._forks.listen(self._fork_changed)
        follow = self._watches.follow
        follow(SANDBOXES, self._sandboxes, namespace=namespace)
        follow(GROUPS, self._groups, namespace=namespace)
        # A fork is in the namespace of its baseline, which may differ from that of its sandbox.
        follow(SERVICES, self._services, labels=FORK_LABEL)
        follow(DEPLOYMENTS.read_as(_Fork), self._forks, labels=FORK_LABEL)

    async def run(self) -> None:
        """Watch until cancelled."""

        async def complete() -> None:
            await self._watches.wait_synced()
            self._store.complete()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watches.watch())
            tasks.create_task(complete())

    # --- events of watches ------------------------------------------------------------------------------------------

    def _sandbox_changed(self, change: ObjectChange[SandboxObject]) -> None:
        old, new = change.old, change.new
        living = new if new is not None and not new.metadata.deletion_timestamp else None
        touched: list[str] = []
        if old is not None:
            for _, key in _forks(old):
                self._of_fork.pop(key, None)
            if living is None or old.metadata.uid != living.metadata.uid:
                self._places.pop(old.metadata.uid, None)
                touched += self._members.drop(old.metadata.uid)
        if living is not None:
            uid = living.metadata.uid
            self._places[uid] = change.key
            self._of_fork |= {key: uid for _, key in _forks(living)}
            touched += self._members.put(uid, to_member(living))
        own = (each.metadata.uid for each in (old, new) if each is not None)
        self._update(*own, *(other for group in touched for other in self._members.sandboxes_of(group)))

    def _group_changed(self, change: ObjectChange[RouteGroupObject]) -> None:
        seen = change.latest
        uid = seen.metadata.uid
        before = set(self._members.sandboxes_of(uid))
        if change.new is None:
            self._members.drop_group(uid)
        else:
            try:
                match = seen.parsed().spec.matcher
            except SpecError:
                return  # the operator reports the error; the group keeps its members
            self._members.put_group(uid, GroupSelector(seen.metadata.namespace, match))
        self._update(*before, *self._members.sandboxes_of(uid))

    def _fork_changed(self, change: ObjectChange[ForkService] | ObjectChange[_Fork]) -> None:
        if (uid := self._of_fork.get(change.key)) is not None:
            self._update(uid)

    # --- updates of the store ---------------------------------------------------------------------------------------

    def _update(self, *uids: str) -> None:
        """Compute and store the rules of these sandboxes."""
        changed: dict[RuleId, RoutingRule | None] = {}
        for uid in dict.fromkeys(uids):
            now = {rule.id: rule for rule in rules(self._forks_of(uid))} if uid in self._places else {}
            for id_ in self._put.pop(uid, ()):
                # Another sandbox's fork may own the rule of a group's key by now.
                if self._owners.get(id_) == uid:
                    del self._owners[id_]
                    changed[id_] = None
            if now:
                changed |= now
                self._owners |= dict.fromkeys(now, uid)
                self._put[uid] = tuple(now)
        self._store.update(changed)

    def _forks_of(self, uid: str) -> Forked:
        key = self._places[uid]
        seen = self._sandboxes.get(key.name, key.namespace)
        assert seen is not None, "a deleted Sandbox is removed from _places"
        meta, status = seen.metadata, seen.status
        groups = [(routing_key(group), self._members.sandboxes_of(group)) for group in self._members.groups_of(uid)]
        of = list(_forks(seen))
        return Forked(
            name=meta.name,
            key=(meta.annotations or {}).get(SERVED_KEY_ANNOTATION) or routing_key(uid),
            forks=[baseline for baseline, _ in of],
            groups=routes_by_sandbox(groups).get(uid, {}),
            states={unit.id: unit.state for unit in status.units} if status else {},
            mappings={fork_id(baseline): tuple(self._addresses(key)) for baseline, key in of},
        )

    def _addresses(self, fork: Key) -> Iterator[RoutedPort]:
        """Yield the addresses of a fork; none if no Service selects the baseline."""
        service = self._services.get(fork.name, fork.namespace)
        there = self._forks.get(fork.name, fork.namespace)
        named = {
            port.name: port.container_port
            for container in (there.spec.template.spec.containers if there else ())
            for port in container.ports or ()
        }
        for port in (service.spec.ports or ()) if service else ():
            target = port.target_port or port.port
            at = named.get(target) if isinstance(target, str) else target
            if at is not None:
                where = RoutedDestination(host=f"{fork.name}.{fork.namespace}.svc", port=port.port)
                yield RoutedPort(workload_port=at, destinations=(where,))


def _forks(seen: SandboxObject) -> Iterator[tuple[Baseline, Key]]:
    """Yield the baselines of a Sandbox's forks, and the name and namespace of each fork."""
    meta = seen.metadata
    for each in seen.spec.get("forks") or ():
        of = each.get("forkOf") if isinstance(each, dict) else None
        if isinstance(of, dict) and all(isinstance(of.get(part), str) for part in ("kind", "namespace", "name")):
            baseline = Baseline(kind=of["kind"], namespace=of["namespace"], name=of["name"])
            name = fork_name(meta.name, meta.uid, baseline.namespace, baseline.name)
            yield baseline, Key(baseline.namespace, name)
