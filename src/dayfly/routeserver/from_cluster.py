"""The rules of a plain cluster, by watching what the operator says of its Sandboxes.

A Sandbox's status says which of its forks and routes are in force; the Service of a fork says where it answers. Which
route groups have it is reckoned as the operator does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL, fork_name
from dayfly.execute.fork.run import DEPLOYMENTS, SERVICES
from dayfly.kube.cache import Cache, Change
from dayfly.kube.objects import Key, ObjectMeta, Slim
from dayfly.kube.watches import Watches
from dayfly.operator.cluster.objects import (
    GROUPS,
    SANDBOXES,
    SERVED_KEY_ANNOTATION,
    RouteGroupObject,
    SandboxObject,
)
from dayfly.operator.route_groups.membership import to_member
from dayfly.plan.route_groups import Group, Members, routed
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import Baseline, fork_id
from dayfly.spec.routing.rules import Forked, RoutedDestination, RoutedPort, RoutingRule, RuleId, rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.kube.client import Client
    from dayfly.routeserver.board import Board


class _Port(Slim, frozen=True):
    """What a container says of a port."""

    container_port: int
    name: str = ""


class _Container(Slim, frozen=True):
    ports: tuple[_Port, ...] | None = None


class _PodSpec(Slim, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(Slim, frozen=True):
    spec: _PodSpec = _PodSpec()


class _ForkSpec(Slim, frozen=True):
    template: _Template = _Template()


class _Fork(Slim, frozen=True):
    """A fork's Deployment, as far as the names of its ports are concerned."""

    metadata: ObjectMeta
    spec: _ForkSpec = _ForkSpec()


class ClusterRuleWatcher:
    """Keeps a board up by what it sees of one namespace, or (empty) of all."""

    def __init__(self, client: Client, board: Board, namespace: str = "") -> None:
        self._board = board
        self._watches = Watches(client)
        self._sandboxes: Cache[SandboxObject] = Cache()
        self._groups: Cache[RouteGroupObject] = Cache()
        self._services: Cache[ForkService] = Cache()
        self._forks: Cache[_Fork] = Cache()
        self._members = Members()
        self._places: dict[str, Key] = {}
        self._of_fork: dict[Key, str] = {}
        self._put: dict[str, tuple[RuleId, ...]] = {}
        self._owners: dict[RuleId, str] = {}
        self._follow(namespace)

    def _follow(self, namespace: str) -> None:
        self._sandboxes.listen(self._sandbox_changed)
        self._groups.listen(self._group_changed)
        self._services.listen(self._place_changed)
        self._forks.listen(self._place_changed)
        follow = self._watches.follow
        follow(SANDBOXES, self._sandboxes, namespace=namespace)
        follow(GROUPS, self._groups, namespace=namespace)
        # A fork lies beside its baseline, which may be in another namespace than its sandbox.
        follow(SERVICES, self._services, labels=FORK_LABEL)
        follow(DEPLOYMENTS.read_as(_Fork), self._forks, labels=FORK_LABEL)

    async def run(self) -> None:
        """Until cancelled."""

        async def complete() -> None:
            await self._watches.wait_synced()
            self._board.complete()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watches.watch())
            tasks.create_task(complete())

    # --- what is heard ----------------------------------------------------------------------------------------------

    def _sandbox_changed(self, change: Change[SandboxObject]) -> None:
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
        self._tell(*own, *(other for group in touched for other in self._members.of(group)))

    def _group_changed(self, change: Change[RouteGroupObject]) -> None:
        seen = change.seen
        uid = seen.metadata.uid
        before = set(self._members.of(uid))
        if change.new is None:
            self._members.drop_group(uid)
        else:
            try:
                match = seen.parsed().spec.matcher
            except SpecError:
                return  # the operator says so; it keeps whom it had
            self._members.put_group(uid, Group(seen.metadata.namespace, match))
        self._tell(*before, *self._members.of(uid))

    def _place_changed(self, change: Change[ForkService] | Change[_Fork]) -> None:
        if (uid := self._of_fork.get(change.key)) is not None:
            self._tell(uid)

    # --- what is told -----------------------------------------------------------------------------------------------

    def _tell(self, *uids: str) -> None:
        """How it stands with these sandboxes now."""
        changed: dict[RuleId, RoutingRule | None] = {}
        for uid in dict.fromkeys(uids):
            now = {rule.id: rule for rule in rules(self._forked(uid))} if uid in self._places else {}
            for id_ in self._put.pop(uid, ()):
                # A group's key may have gone to another sandbox's fork meanwhile.
                if self._owners.get(id_) == uid:
                    del self._owners[id_]
                    changed[id_] = None
            if now:
                changed |= now
                self._owners |= dict.fromkeys(now, uid)
                self._put[uid] = tuple(now)
        self._board.put(changed)

    def _forked(self, uid: str) -> Forked:
        key = self._places[uid]
        seen = self._sandboxes.get(key.name, key.namespace)
        assert seen is not None, "it is dropped when it goes"
        meta, status = seen.metadata, seen.status
        groups = [(routing_key(group), self._members.of(group)) for group in self._members.groups_of(uid)]
        of = list(_forks(seen))
        return Forked(
            name=meta.name,
            key=(meta.annotations or {}).get(SERVED_KEY_ANNOTATION) or routing_key(uid),
            forks=[baseline for baseline, _ in of],
            groups=routed(groups).get(uid, {}),
            states={unit.id: unit.state for unit in status.units} if status else {},
            mappings={fork_id(baseline): tuple(self._answers(key)) for baseline, key in of},
        )

    def _answers(self, fork: Key) -> Iterator[RoutedPort]:
        """Where a fork does; a baseline that no Service leads to has nothing of the kind."""
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
    """What a Sandbox forks, and where the fork lies."""
    meta = seen.metadata
    for each in seen.spec.get("forks") or ():
        of = each.get("forkOf") if isinstance(each, dict) else None
        if isinstance(of, dict) and all(isinstance(of.get(part), str) for part in ("kind", "namespace", "name")):
            baseline = Baseline(kind=of["kind"], namespace=of["namespace"], name=of["name"])
            name = fork_name(meta.name, meta.uid, baseline.namespace, baseline.name)
            yield baseline, Key(baseline.namespace, name)
