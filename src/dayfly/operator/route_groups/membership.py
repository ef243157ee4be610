"""The Sandboxes of each RouteGroup: those in its namespace that match, according to the caches."""

from collections.abc import Callable, Iterable

from dayfly.execute.pod import names
from dayfly.execute.pod.read import parse_time
from dayfly.kube.cache import ObjectChange
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RouteGroupObject, SandboxObject
from dayfly.plan.route_groups import GroupMember, GroupSelector, MembershipIndex, routes_by_sandbox
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key


class ClusterMembership:
    """An index over the caches. A namespace belongs to one tenant, so a group matches only in its own namespace."""

    def __init__(self, cluster: ClusterWatches, on_emptied: Callable[[Key], None]) -> None:
        """`on_emptied` is called with each group that may have got its first sandbox, or lost its last one."""
        self._cluster = cluster
        self._on_emptied = on_emptied
        self._members = MembershipIndex()
        self._keys: dict[str, Key] = {}
        self._sandboxes: dict[str, Key] = {}
        self.refused: dict[str, str] = {}
        """By group UID, why its newest match is invalid; such a group keeps its sandboxes."""
        cluster.sandboxes.listen(self._on_sandbox_change)
        cluster.groups.listen(self._on_group_change)

    def members_of(self, uid: str) -> dict[str, GroupMember]:
        """Return the sandboxes of a group by UID. The first one's forks take precedence."""
        return self._members.sandboxes_of(uid)

    def has_any(self, uid: str) -> bool:
        """Return whether a group has a sandbox."""
        return self._members.has_any(uid)

    def keys_of(self, seen: SandboxObject) -> dict[str, tuple[str, ...]]:
        """Return, by baseline, the keys of groups whose requests go to the forks of a sandbox."""
        uid = seen.metadata.uid
        groups = [(routing_key(group), self._members.sandboxes_of(group)) for group in self._members.groups_of(uid)]
        return routes_by_sandbox(groups).get(uid, {})

    def _queue_sandboxes(self, groups: Iterable[str], *others: str) -> None:
        """Queue the sandboxes of these groups and the others: the forks behind a key may have changed."""
        uids = {*others, *(uid for group in groups for uid in self._members.sandboxes_of(group))}
        for key in sorted(self._sandboxes[uid] for uid in uids):
            self._cluster.sandbox_queue.add(key)

    def _on_group_change(self, change: ObjectChange[RouteGroupObject]) -> None:
        seen = change.latest
        uid = seen.metadata.uid
        before = set(self._members.sandboxes_of(uid))
        if change.new is None:
            self._members.drop_group(uid)
            self._queue_sandboxes((), *before)
            self._keys.pop(uid, None)
            self.refused.pop(uid, None)
            return
        self._keys[uid] = change.key
        if change.old is not None and change.old.spec == change.new.spec:
            return
        had = self.has_any(uid)
        try:
            match = seen.parsed().spec.matcher
        except SpecError as fault:
            self.refused[uid] = str(fault)
            return
        self.refused.pop(uid, None)
        self._members.put_group(uid, GroupSelector(seen.metadata.namespace, match))
        self._queue_sandboxes((uid,), *before)
        if self.has_any(uid) != had:
            self._on_emptied(change.key)

    def _on_sandbox_change(self, change: ObjectChange[SandboxObject]) -> None:
        seen = change.latest
        uid = seen.metadata.uid
        before = self._members.groups_of(uid)
        if change.new is None or change.new.metadata.deletion_timestamp:
            changed = self._members.drop(uid)
            self._sandboxes.pop(uid, None)
            self._queue_sandboxes(changed)
        else:
            self._sandboxes[uid] = change.key
            changed = self._members.put(uid, to_member(change.new))
            self._queue_sandboxes(changed, *((uid,) if changed else ()))
            if not changed and change.old is not None and _ready(change.old) != _ready(change.new):
                changed = self._members.groups_of(uid)
        for group in changed:
            key = self._keys[group]
            self._cluster.queue.add(names.run_name(key.name, group))
            if group not in before or not self.has_any(group):
                self._on_emptied(key)


def _ready(seen: SandboxObject) -> bool:
    return seen.status is not None and seen.status.ready


def to_member(seen: SandboxObject) -> GroupMember:
    """Convert a Sandbox to a potential member of groups."""
    spec, meta = seen.spec, seen.metadata
    labels = {key: value for key, value in (spec.get("labels") or {}).items() if isinstance(value, str)}
    forked = [fork.get("forkOf") or {} for fork in spec.get("forks") or () if isinstance(fork, dict)]
    baselines = tuple(f"{source.get('namespace', '')}/{source.get('name', '')}" for source in forked)
    return GroupMember(meta.name, meta.namespace, labels, baselines, parse_time(meta.creation_timestamp))
