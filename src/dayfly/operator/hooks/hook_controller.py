"""One hook: judged, its kind found and watched, held as long as it owes anything, and spoken of."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from dayfly import compile as compiler
from dayfly.execute.pod import pod_precheck
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.discovery import served
from dayfly.kube.objects import AnnotatedMeta, Key, PartialObjectMetadata, Resource, anything
from dayfly.kube.ownership import add_finalizer
from dayfly.operator.cluster.caches import ClusterWatches, Pair, has_finalizer
from dayfly.operator.cluster.objects import (
    HOOK_FINALIZER,
    HOOK_LABEL,
    HOOKS,
    RUNS,
    HookObject,
    RunObject,
    finalizer_of,
)
from dayfly.operator.hooks import target_grants
from dayfly.operator.hooks.hook_runs import Pairs, selected
from dayfly.operator.hooks.hook_status import HookStatus
from dayfly.operator.hooks.target_grants import TargetGrants
from dayfly.operator.hooks.watched_kinds import Kind, Kinds, WatchedKind
from dayfly.operator.targets.targets import kind_of
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec.errors import SpecError, with_article
from dayfly.spec.lifecycle import Target
from dayfly.spec.lifecycle_hook import LifecycleHook, Selector
from dayfly.spec.run import Phase

# Nobody tells us of a right that was granted, or of a kind that is served now.
AGAIN_S = 5.0
MOST_ASKED = 16
"""Namespaces of which one object each is asked about, as long as something stands against these alone."""
_OVER = (Phase.CLEANED, Phase.ABANDONED)


class HookNotReadyError(Exception):
    """A hook cannot be taken up yet; `reason` is one word, the text what it waits for."""

    def __init__(self, reason: str, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.again = again


class _KnownHook(NamedTuple):
    """A hook of one generation as it can be read, or what is wrong with it."""

    uid: str
    generation: int
    wish: LifecycleHook | SpecError


class HookController:
    """Sees to it that each hook is heeded, and goes when it owes nothing any more."""

    def __init__(self, cluster: ClusterWatches, kinds: Kinds, pairs: Pairs, status: HookStatus) -> None:
        self._cluster = cluster
        self._client: Client = cluster.client
        self._kinds = kinds
        self._pairs = pairs
        self._status = status
        self._grants = TargetGrants(cluster.client, cluster.now)
        self._known: dict[str, _KnownHook] = {}
        self._selects: dict[str, Kind] = {}
        """By the name of a hook, what it selects."""
        self._taken_up: set[str] = set()
        """The UIDs of hooks for whose objects something may be begun."""

    def hooks_of(self, kind: Kind) -> list[HookObject]:
        """The hooks that select objects of that kind."""
        found = (self._cluster.hooks.get(name) for name, of in self._selects.items() if of == kind)
        return [hook for hook in found if hook is not None]

    def reset(self) -> None:
        """Begin nothing for any object: another process handles the hooks from now on."""
        self._taken_up.clear()

    def forget(self, gone: HookObject) -> None:
        """Forget a hook that is gone, also while another process works."""
        self._known.pop(gone.metadata.name, None)
        self._selects.pop(gone.metadata.name, None)
        self._taken_up.discard(gone.metadata.uid)

    async def reconcile(self, name: str) -> None:
        """Take one hook a step further.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        seen = self._cluster.hooks.get(name)
        if seen is None:
            self._settle()
            return
        if seen.metadata.deletion_timestamp:
            await self._remove(seen)
            return
        try:
            watched = await self._take_up(seen)
        except HookNotReadyError as why:
            self._taken_up.discard(seen.metadata.uid)
            await self._say(seen, why.reason, str(why))
            if why.again:
                self._cluster.hooked.add(name, after=AGAIN_S)
            return
        self._taken_up.add(seen.metadata.uid)
        for item in watched.adapter.cache:
            self.heard(seen, watched.adapter.resource, item.metadata)
        await self._say(seen, Reason.HOOK_ACTIVE, self._status.standing(seen.metadata.uid, _ready(self._status, seen)))

    async def _say(self, seen: HookObject, reason: str, message: str) -> None:
        if after := await self._status.say(seen, reason, message):
            self._cluster.hooked.add(seen.metadata.name, after=after)

    async def _take_up(self, seen: HookObject) -> WatchedKind:
        """Have its kind watched, and the hook itself held.

        Raises:
            WaitingError: it cannot be done yet.
        """
        wish = self._read(seen)
        if isinstance(wish, SpecError):
            raise HookNotReadyError(Reason.REFUSED, str(wish), again=False)
        resource = await self._served(wish.spec.selector)
        self._selects[seen.metadata.name] = resource.group, resource.plural
        watched = self._kinds.want_served(resource)
        self._settle()
        await self._hold(seen)
        trouble = watched.trouble
        # A watch that broke is begun again by itself; a refusal stays until somebody does something.
        if trouble is not None and (isinstance(trouble, errors.Refused) or not watched.whole):
            lack = target_grants.sentence(trouble.message)
            reason = Reason.TARGETS_NOT_GRANTED if lack else Reason.BLOCKED
            raise HookNotReadyError(reason, lack or f"its objects cannot be watched: {trouble.message}")
        if not watched.whole:
            raise HookNotReadyError(Reason.WAITING_FOR_OPERATOR, f"objects of kind {resource.kind} are being listed")
        await self._ask_leave(seen, watched)
        return watched

    async def _ask_leave(self, seen: HookObject, watched: WatchedKind) -> None:
        """See whether we may write to what the hook is new to, by one object of a namespace.

        What is said against one object itself, by a policy say, is no word on the others: another namespace's is asked.

        Raises:
            WaitingError: the right is missing, or nothing can be written to any that were asked.
        """
        refused: errors.Refused | None = None
        for item in islice(self._samples(seen, watched), MOST_ASKED):
            try:
                await self._grants.check(watched.adapter.resource, item)
            except errors.Refused as error:
                if lack := target_grants.sentence(error.message):
                    raise HookNotReadyError(Reason.TARGETS_NOT_GRANTED, lack) from None
                refused = refused or error
            else:
                return
        if refused is not None:
            raise HookNotReadyError(Reason.BLOCKED, f"its objects cannot be changed: {refused.message}")

    def _samples(self, seen: HookObject, watched: WatchedKind) -> Iterator[PartialObjectMetadata]:
        """Of each namespace the first that the hook does not go with yet."""
        asked: set[str] = set()
        for item in watched.adapter.cache:
            if item.metadata.namespace not in asked and self._is_new(seen, item.metadata):
                asked.add(item.metadata.namespace)
                yield item

    def _read(self, seen: HookObject) -> LifecycleHook | SpecError:
        name, which = seen.metadata.name, (seen.metadata.uid, seen.metadata.generation)
        known = self._known.get(name)
        # Generations begin anew with an object: of one that is applied again at once, nobody sees that it was gone.
        if known is None or known[:2] != which:
            known = self._known[name] = _KnownHook(*which, _judged(seen))
        return known.wish

    async def _served(self, selector: Selector) -> Resource[dict[str, Any]]:
        """How the API serves what it selects."""
        version, kind = selector.api_version, selector.kind
        seen = await served(self._client, version, kind)
        if seen is None:
            raise HookNotReadyError(Reason.KIND_NOT_SERVED, messages.kind_not_served(kind, version))
        if not seen.namespaced:
            message = f"{with_article(kind)} of {version} lies in no namespace, and no hook may go with one"
            raise HookNotReadyError(Reason.REFUSED, message, again=False)
        return anything(version, kind, seen.name)

    async def _hold(self, seen: HookObject) -> None:
        """Before anything is begun for its objects: it is not to go while it owes them anything.

        Raises:
            WaitingError: it has changed meanwhile, and is looked at again.
        """
        try:
            await add_finalizer(self._client, HOOKS, seen.metadata, HOOK_FINALIZER)
        except (errors.NotFound, errors.Conflict):
            raise HookNotReadyError(Reason.WAITING_FOR_OPERATOR, "it has just been changed") from None

    def heard(self, seen: HookObject, resource: Resource[Any], meta: AnnotatedMeta) -> None:
        """Something has become of an object of the kind that the hook selects."""
        if seen.metadata.uid in self._taken_up and self._is_new(seen, meta):
            kind, key = (resource.group, resource.plural), Key(meta.namespace, meta.name)
            self._cluster.pairs.add(Pair(seen.metadata.name, kind, key))

    def _is_new(self, seen: HookObject, meta: AnnotatedMeta) -> bool:
        """Whether the hook means that object and, as far as is known, does not go with it yet."""
        wish = self._read(seen)
        meant = isinstance(wish, LifecycleHook) and selected(wish, meta) and not meta.deletion_timestamp
        return meant and not self._pairs.is_begun(seen, meta)

    async def _remove(self, seen: HookObject) -> None:
        """It is on its way out: its runs hear of that and close by themselves, and once all have ended it may go."""
        meta = seen.metadata
        left = [run for run in self._status.runs_of(meta.uid) if self._owes(run)]
        if not has_finalizer(meta, HOOK_FINALIZER):
            return
        if not left:
            # What the cache has not heard of yet may have been born before the hook's end.
            listing = await self._client.list_all(RUNS, labels=f"{HOOK_LABEL}={meta.uid}")
            left = [run for run in listing.items if run.ledger.phase not in _OVER]
        if not left:
            await self._cluster.drop_finalizer(HOOKS, meta, HOOK_FINALIZER)
            return
        self._cluster.hooked.add(meta.name, after=AGAIN_S)
        message = f"is being removed: {_objects(len(left))} to be left in order first"
        await self._say(seen, Reason.DELETING, self._status.standing(meta.uid, message))

    def _owes(self, run: RunObject) -> bool:
        """Whether a run of a hook is still to end, or to let its target go."""
        if run.ledger.phase not in _OVER:
            return True
        target = run.ledger.target
        found = self._kinds.want(kind_of(run)).adapter.cache.get(target.name, target.namespace)
        return (
            found is not None and found.metadata.uid == target.uid and has_finalizer(found.metadata, finalizer_of(run))
        )

    def _settle(self) -> None:
        """Watch the kinds that hooks select or runs go with, and no others."""
        kinds = {(kind.group, kind.plural) for kind in map(kind_of, self._status.every_run())}
        self._kinds.settle(kinds | set(self._selects.values()))


def _judged(seen: HookObject) -> LifecycleHook | SpecError:
    """The hook, if it can mean something for any object."""
    try:
        wish = seen.parsed()
        any_one = Target(
            api_version=wish.spec.selector.api_version, kind=wish.spec.selector.kind, namespace="n", name="n", uid="u"
        )
        found = pod_precheck.objections(compiler.compile_hook(wish, any_one))
    except SpecError as fault:
        return fault
    return SpecError(f"{found[0]}; change spec.runner.podTemplateOverlay") if found else wish


def _ready(status: HookStatus, seen: HookObject) -> str:
    """What is said where nothing stands in anybody's way."""
    counts = status.count(seen.metadata.uid)
    said = f"goes with {_objects(counts.objects)}"
    if counts.older:
        were = "was" if counts.older == 1 else "were"
        said += f", of which {counts.older} {were} there before the hook: preStart was passed over"
    return said


def _objects(count: int) -> str:
    return f"{count} object{'s' * (count != 1)}"
