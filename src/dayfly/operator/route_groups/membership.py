"""Which Sandboxes each RouteGroup has: those of its own namespace that it matches, as the caches know them."""

from collections.abc import Callable, Iterable

from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.kube.cache import Change
from dayfly.kube.objects import Key
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import RouteGroupObject, SandboxObject
from dayfly.plan.route_groups import Group, Member, Members, routes_by_sandbox
from dayfly.spec.errors import SpecError
from dayfly.spec.identity import routing_key


class ClusterMembership:
    """Kept up by what is heard. A namespace is a tenant's, so no group reaches beyond its own."""

    def __init__(self, cluster: ClusterWatches, emptied: Callable[[Key], None]) -> None:
        """`emptied` is told of each group that may have its first sandbox now, or none any more."""
        self._cluster = cluster
        self._emptied = emptied
        self._members = Members()
        self._keys: dict[str, Key] = {}
        self._sandboxes: dict[str, Key] = {}
        self.refused: dict[str, str] = {}
        """By the UIDs of groups whose newest match cannot be read, why; they have whom they had before."""
        cluster.sandboxes.listen(self._sandbox_changed)
        cluster.groups.listen(self._group_changed)

    def of(self, uid: str) -> dict[str, Member]:
        """The sandboxes of a group by their UIDs, the one whose forks go first at the head."""
        return self._members.sandboxes_of(uid)

    def has_any(self, uid: str) -> bool:
        """Whether it has a sandbox."""
        return self._members.has_any(uid)

    def keys_of(self, seen: SandboxObject) -> dict[str, tuple[str, ...]]:
        """By baseline, the keys of groups whose requests go to the forks of a sandbox."""
        uid = seen.metadata.uid
        groups = [(routing_key(group), self._members.sandboxes_of(group)) for group in self._members.groups_of(uid)]
        return routes_by_sandbox(groups).get(uid, {})

    def _lead_anew(self, groups: Iterable[str], *others: str) -> None:
        """Whose forks these groups' requests go to may be others now, and so of these sandboxes."""
        uids = {*others, *(uid for group in groups for uid in self._members.sandboxes_of(group))}
        for key in sorted(self._sandboxes[uid] for uid in uids):
            self._cluster.wishes.add(key)

    def _group_changed(self, change: Change[RouteGroupObject]) -> None:
        seen = change.seen
        uid = seen.metadata.uid
        before = set(self._members.sandboxes_of(uid))
        if change.new is None:
            self._members.drop_group(uid)
            self._lead_anew((), *before)
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
        self._members.put_group(uid, Group(seen.metadata.namespace, match))
        self._lead_anew((uid,), *before)
        if self.has_any(uid) != had:
            self._emptied(change.key)

    def _sandbox_changed(self, change: Change[SandboxObject]) -> None:
        seen = change.seen
        uid = seen.metadata.uid
        before = self._members.groups_of(uid)
        if change.new is None or change.new.metadata.deletion_timestamp:
            changed = self._members.drop(uid)
            self._sandboxes.pop(uid, None)
            self._lead_anew(changed)
        else:
            self._sandboxes[uid] = change.key
            changed = self._members.put(uid, member(change.new))
            self._lead_anew(changed, *((uid,) if changed else ()))
            if not changed and change.old is not None and _ready(change.old) != _ready(change.new):
                changed = self._members.groups_of(uid)
        for group in changed:
            key = self._keys[group]
            self._cluster.queue.add(names.run_name(key.name, group))
            if group not in before or not self.has_any(group):
                self._emptied(key)


def _ready(seen: SandboxObject) -> bool:
    return seen.status is not None and seen.status.ready


def member(seen: SandboxObject) -> Member:
    """A Sandbox as groups see it."""
    spec, meta = seen.spec, seen.metadata
    labels = {key: value for key, value in (spec.get("labels") or {}).items() if isinstance(value, str)}
    forked = [fork.get("forkOf") or {} for fork in spec.get("forks") or () if isinstance(fork, dict)]
    baselines = tuple(f"{of.get('namespace', '')}/{of.get('name', '')}" for of in forked)
    return Member(meta.name, meta.namespace, labels, baselines, milliseconds(meta.creation_timestamp))
