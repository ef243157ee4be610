"""Objects of any kind as the targets of LifecycleHooks: watched by their metadata, read as a whole when it matters.

A hook only reads its targets, puts a finalizer on them and, where it has one, a hold. They start, stop and go by
themselves, so each look of which anything follows is a quorum read; and that the server finds nothing proves that an
object is gone only as long as its kind is served.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dayfly.execute.object.read import ObjectState, is_ending, judge
from dayfly.execute.pod.read import milliseconds
from dayfly.execute.turn import Scene
from dayfly.kube import errors
from dayfly.kube.cache import Change
from dayfly.kube.client import Client
from dayfly.kube.discovery import is_definition_gone, served
from dayfly.kube.forms import Style
from dayfly.kube.objects import AnnotatedMeta, PartialObjectMetadata, Resource, anything
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import DOCUMENTS, HOOKS, HookObject, RunObject, holds
from dayfly.operator.targets.adapter import KindLostError, Plain, StatusReporter, UndecidableError
from dayfly.plan import messages
from dayfly.plan.closed_run import is_past_pre_stop
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import TargetState
from dayfly.spec.kinds import SealedHook
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.report import RunReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.steps.kube_object import KubeObject, ReadyRule, pointer_parts

_OVER = (Phase.CLEANED, Phase.ABANDONED)


async def living_hook(client: Client, name: str, uid: str) -> HookObject | None:
    """That very hook by a quorum read; None if it is gone, or on its way out.

    Raises:
        As `find_hook`.
    """
    found = await find_hook(client, name, uid)
    return found if found is not None and not found.metadata.deletion_timestamp else None


async def find_hook(client: Client, name: str, uid: str) -> HookObject | None:
    """That very hook by a quorum read; None if it is gone.

    Raises:
        FrozenError: the server does not serve hooks at all, so nobody knows.
        errors.ApiError: the server cannot be asked.
    """
    try:
        found = await client.get(HOOKS, name)
    except errors.NotFound:
        return None
    except errors.NotServed as missing:
        raise KindLostError(f"this cluster serves no {HOOKS.kind}: apply the install manifest again") from missing
    return found if found.metadata.uid == uid else None


class HookSpeaker(StatusReporter, Protocol):
    """Who tells of a hook's runs, in the hook's status."""

    def settle(self, uid: str, key: str, /) -> None:
        """Nobody need look at the run of that name any more; `uid` is its hook's."""


class HookedTarget(Plain):
    """One kind that hooks select. Its targets live on without us: nothing is kept beside them, and none is deleted."""

    def __init__(
        self,
        cluster: ClusterWatches,
        resource: Resource[PartialObjectMetadata],
        speaker: HookSpeaker,
        *,
        heard: Callable[["HookedTarget", Change[PartialObjectMetadata]], None],
        lost: Callable[["HookedTarget", PartialObjectMetadata], None],
    ) -> None:
        """`heard` is told of what may be in want of a run, `lost` of what is held without its own."""
        super().__init__(resource)
        self._cluster = cluster
        self._client = cluster.client
        self._speaker = speaker
        self._tell_heard, self._tell_lost = heard, lost

    def heard(self, change: Change[PartialObjectMetadata]) -> bool:
        self._tell_heard(self, change)
        if change.old is None or change.new is None or change.new is change.old:
            return True
        if _signs(change.old.metadata) != _signs(change.new.metadata):
            return True
        # Only what its controller says of it: that matters to those that wait for its start or its stop.
        runs = map(self._cluster.ledger.get, self._cluster.runs_of(change.new.metadata.uid))
        return any(
            run is None or run.ledger.closed is not None or not run.ledger.started_at or run.ledger.phase in _OVER
            for run in runs
        )

    def lost(self, item: PartialObjectMetadata) -> None:
        self._tell_lost(self, item)

    async def dismissal(self, run: RunObject) -> EndRequest | None:
        """Its hook is being removed. Whoever begins a run asks the server: it may have been born after the hook's end.

        Its finalizer is on its target by then. So either the hook is seen alive after the run is there, and whoever
        removes the hook finds the run; or the run is seen to be nobody's, and ends before anything has begun.
        """
        hook = _hook(run)
        seen = self._cluster.hooks.get(hook.name)
        if run.ledger.seq and seen is not None and seen.metadata.uid == hook.uid:
            if not (at := milliseconds(seen.metadata.deletion_timestamp)):
                return None
        elif await living_hook(self._client, hook.name, hook.uid) is not None:
            return None
        else:
            at = self._cluster.now()
        return EndRequest(at=at, reason=Reason.HOOK_REMOVED, message=messages.hook_removed(hook.name))

    async def vouch(self, run: RunObject, missing: errors.NotFound | errors.NotServed) -> None:
        """Gone is what the server does not find under its name while it serves the kind."""
        target, plural = run.ledger.target, run.spec.plural
        if isinstance(missing, errors.NotFound) and await served(self._client, target.api_version, target.kind):
            return
        uid, definition = _hook(run).definition, f"{plural}.{self.resource.group}"
        if uid and await is_definition_gone(self._client, definition, uid):
            return
        raise KindLostError(messages.kind_lost(target.kind, target.api_version, definition, proves=True))

    async def stays(self, run: RunObject) -> bool:
        """As long as the hook is there: else the target, which lives on, would be taken for a new one."""
        hook = _hook(run)
        self._speaker.settle(hook.uid, run.metadata.name)
        return await living_hook(self._client, hook.name, hook.uid) is not None

    async def fields(self, run: RunObject) -> dict[str, Any] | None:
        target = run.ledger.target
        try:
            found = await self._client.get(_whole(run), target.name, target.namespace)
        except errors.ABSENT as missing:
            await self.vouch(run, missing)
            return None
        return found if found["metadata"]["uid"] == target.uid else None

    async def grip(self, run: RunObject, meta: AnnotatedMeta) -> dict[str, Any]:
        """The hook's hold, where nobody holds it in that place already; it is set before anything is begun."""
        hold = _hook(run).hold
        found = await self.fields(run) if hold is not None else None
        if hold is None or found is None or found["metadata"]["resourceVersion"] != meta.resource_version:
            return {}
        return {} if _at(found, hold) is not None else _nested(_way(hold), _value(hold))

    async def loosen(self, run: RunObject) -> bool:
        """Of runs that share a hold the last one takes it away: each asks for the others once its own end is noted."""
        hold, target = _hook(run).hold, run.ledger.target
        if hold is None:
            return True
        for name in self._cluster.runs_of(target.uid):
            if name != run.metadata.name and await self._needs(name, hold):
                return False
        found = await self.fields(run)
        if _at(found, hold) != _value(hold):
            return True
        path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in _way(hold))
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": target.uid},
            {"op": "test", "path": path, "value": _value(hold)},
            {"op": "remove", "path": path},
        ]
        try:
            kind = _whole(run).metadata_only()
            await self._client.patch(kind, operations, target.name, target.namespace, style=Style.JSON)
        except (errors.Conflict, errors.Invalid):
            if _at(await self.fields(run), hold) == _value(hold):
                raise  # by no peer: the server does not take it away
        except errors.ABSENT as missing:
            await self.vouch(run, missing)
        return True

    async def _needs(self, name: str, hold: Hold) -> bool:
        """Whether another run of the target has the same hold, and something to do yet before the target stops."""
        run = await self._cluster.ledger.fresh(name)
        if run is None or run.spec.hook is None or run.spec.hook.hold != hold or run.ledger.phase in _OVER:
            return False
        documents = []
        for pin in run.spec.documents:
            found = await self._client.find(DOCUMENTS, pin.name)
            documents += [found.spec] if found is not None else []
        # One whose document is lost is frozen, and takes none of the others with it: what it owes nobody knows.
        lost = len(documents) < len(run.spec.documents)
        return lost or not is_past_pre_stop(seal(tuple(documents)), run.ledger)

    async def state(self, run: RunObject) -> TargetState:
        hook, ledger = _hook(run), run.ledger
        if ledger.phase in _OVER:
            return TargetState()
        if ledger.closed is None and ledger.started_at and self._lives(run):
            return TargetState(started=True)
        found = await self.fields(run)
        if found is None:
            # It was there when its run was born. Whether it had started by its own words nobody can tell any more.
            return TargetState(started=hook.started is None, stopped=True)
        started, lack = _holds(found, hook.started)
        stopped, left = _has_stopped(found, hook.stopped)
        return TargetState(started=started, stopped=stopped, message=left if is_ending(found) else lack)

    def _lives(self, run: RunObject) -> bool:
        """Whether the cache has the target, and nobody has deleted it: then its run does not close for that now."""
        seen = self.cache.get(run.ledger.target.name, run.ledger.target.namespace)
        return seen is not None and seen.metadata.uid == run.ledger.target.uid and not seen.metadata.deletion_timestamp

    async def tell(self, scene: Scene, report: RunReport, *, hindrance: str = "") -> float:
        return await self._speaker.tell(scene, report, hindrance=hindrance)

    async def freeze(self, run: RunObject, why: UndecidableError) -> None:
        await self._speaker.freeze(run, why)


def _whole(run: RunObject) -> Resource[dict[str, Any]]:
    """The kind of a run's target in the version in which its fields are meant; it may be watched in another."""
    return anything(run.ledger.target.api_version, run.ledger.target.kind, run.spec.plural)


def _way(hold: Hold) -> tuple[str, ...]:
    """The keys that lead to what is held by."""
    return ("metadata", "annotations", hold.annotation) if hold.annotation else pointer_parts(hold.path)


def _value(hold: Hold) -> Any:
    return hold.value if hold.path or hold.value is not None else ""


def _at(found: Any, hold: Hold) -> Any:
    """What the object has in that place; None for nothing, or if it is gone."""
    for part in _way(hold):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _nested(way: tuple[str, ...], value: Any) -> dict[str, Any]:
    for part in reversed(way[1:]):
        value = {part: value}
    return {way[0]: value}


def _hook(run: RunObject) -> SealedHook:
    assert run.spec.hook is not None, "a run of such a target is a hook's"
    return run.spec.hook


def _signs(meta: AnnotatedMeta) -> AnnotatedMeta:
    """What of its metadata can mean anything to us."""
    return msgspec.structs.replace(meta, resource_version="")


def _holds(found: dict[str, Any], verdict: ReadyRule | None) -> tuple[bool, str]:
    """Whether the object says so by now, and else what it is to say."""
    if verdict is None:
        return True, ""
    said = judge(found, KubeObject(ready=verdict))
    return said.standing is ObjectState.READY, said.message


def _has_stopped(found: dict[str, Any], verdict: ReadyRule | None) -> tuple[bool, str]:
    """Whether nothing of it is at work any more: by its own words, else once nobody but us holds it."""
    meta = msgspec.convert(found["metadata"], AnnotatedMeta)
    if not meta.deletion_timestamp:
        return False, messages.not_deleted(found.get("kind", ""))
    if verdict is not None:
        return _holds(found, verdict)
    others = tuple(each for each in meta.finalizers or () if each not in holds(meta))
    return not others, messages.remaining_finalizers(others) if others else ""
