"""Objects in a cluster, as the engine meets them: claimed first, then made; let go, removed and forgotten by UID."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from dayfly.execute.executor import Known
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.execute.object import read, render
from dayfly.execute.object.run import Kind as ServedKind
from dayfly.execute.object.run import NotServedError, ObjectClient
from dayfly.execute.outputs import apply_ends
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.objects import grants, object_view
from dayfly.operator.objects.object_memory import ObjectMemory
from dayfly.operator.objects.object_observer import ObjectObserver, Turn
from dayfly.operator.objects.object_view import ObjectRef, Views
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets
from dayfly.operator.run_memory import Sight
from dayfly.plan import messages
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, unit_state
from dayfly.plan.sealed import SealedStep
from dayfly.plan.world import NeverRan, Objection, Running
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import ALIVE, Phase, Run, UnitRecord
from dayfly.spec.steps.kube_object import check

log = logging.getLogger(__name__)


class ObjectExecutor:
    """Objects of any kind, by an account of the target's namespace."""

    kind: str = Kind.OBJECT
    gated = False

    def __init__(self, cluster: ClusterWatches, outputs: AttemptSecrets) -> None:
        self._cluster = cluster
        self._objects = ObjectClient(cluster.client, lambda: cluster.now() / 1000)
        self._views = Views(cluster, self._objects, outputs)
        self._observer = ObjectObserver(self._objects, self._views)

    def admit(self, name: str, unit: Unit, /) -> None:
        """Hold a document, which another Dayfly may have compiled, to the rules of objects again."""
        if unit.object is None or unit.object.remove:
            return
        try:
            check(render.parse_object(unit.object), {given.name for given in unit.inputs}, ("object",))
        except (SpecError, msgspec.ValidationError) as error:
            raise DocumentsRefusedError(f"{name}: {error}") from error

    async def observe(self, sight: Sight) -> None:
        run = sight.run
        # By the turn's own time: an objection that is later than the turn would not count in it.
        turn = Turn(run, sight.plan, sight.now, closing=sight.closing, abandoned=sight.abandoned, given=sight.given)
        objections: dict[str, Objection] = {}
        if run.ledger.phase not in (Phase.CLEANED, Phase.ABANDONED):
            steps = object_view.steps(sight.plan)
            for step in steps:
                await self._see(sight, turn, step)
            if not turn.closing:
                for step in steps:
                    await self._foresee(sight, turn, step, objections)
        sight.objects = turn.found
        sight.known[self.kind] = Known(
            facts=turn.facts,
            objections=objections,
            outputs=turn.outputs,
            made=turn.made,
            definitions=turn.definitions,
        )

    def known(self, sight: Sight) -> Known:
        return sight.known[self.kind]

    async def _see(self, sight: Sight, turn: Turn, step: SealedStep) -> None:
        """What has become of an attempt that was claimed. Nobody tells us of it, so it is looked at again."""
        record = turn.run.ledger.unit(step.id)
        if record.state not in ALIVE:
            return
        key = step.id, record.attempt
        memory = sight.session.objects.setdefault(key, ObjectMemory())
        look = self._observer.removed if object_view.written(step).remove else self._observer.made
        fact = turn.facts[key] = await look(turn, step, memory)
        if isinstance(fact, Running):
            found = turn.found.get(key)
            version = found["metadata"]["resourceVersion"] if found else fact.message
            self._cluster.queue.add(sight.run.metadata.name, after=memory.look_again(version))

    async def _foresee(self, sight: Sight, turn: Turn, step: SealedStep, objections: dict[str, Objection]) -> None:
        """Before an object is claimed the server says whether it would take it: nothing was permitted by then.

        Without that word there is an objection. A step's inputs can be read only once they are recorded: the turn that
        records them does not claim the steps that follow.
        """
        if object_view.written(step).remove:
            return
        key = step.id, turn.run.ledger.unit(step.id).attempt + 1
        preparing = Objection(reason=Reason.STARTING, message=messages.preparing(key[1]), since=turn.now)
        facts = {key: fact for known in sight.known.values() for key, fact in known.facts.items()} | turn.facts
        if not _is_due(apply_ends(turn.run.ledger, facts), step):
            objections[step.id] = preparing
            return
        memory = sight.session.objects.setdefault(key, ObjectMemory())
        unit_state, never = sight.session.refusals.of(turn.run.ledger, turn.now)
        if step.id in sight.lacking or key in never:
            return
        if said := unit_state.get(step.id):
            objections[step.id] = said
            return
        if not memory.is_admitted(turn.now):
            if not _is_due(turn.run.ledger, step):
                objections[step.id] = preparing
                self._cluster.queue.add(sight.run.metadata.name)
                return
            if objection := await self._ask(sight, turn, step, memory):
                objections[step.id] = objection
        turn.definitions[step.id] = memory.definition

    async def _ask(self, sight: Sight, turn: Turn, step: SealedStep, memory: ObjectMemory) -> Objection | None:
        """Have the server say whether it would take the object, and return what it objects."""
        try:
            said = await self._observer.ask(turn, step, memory)
        except ForkAddressUnknownError as error:
            return Objection(reason=error.reason, message=str(error))
        if said is not None:
            sight.session.refusals.put((step.id, turn.run.ledger.unit(step.id).attempt + 1), said)
        return said if isinstance(said, Objection) else None

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Nothing of an object is made before it is claimed."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        step = sight.plan.steps[effect.unit]
        maker = object_view.target(sight.plan, step) if object_view.written(step).remove else step
        if maker is None:
            return
        where = object_view.place(sight.run, maker, sight.run.ledger.unit(maker.id).attempt)
        found = sight.objects.get((maker.id, where.identity.attempt))
        memory = sight.session.objects.setdefault((effect.unit, effect.attempt), ObjectMemory())
        memory.refused = None
        with self._hearing(where, memory):
            if maker is not step:
                await self._remove(sight, where, found)
            elif found is None:
                kind = await self._objects.kind(where.manifest["apiVersion"], where.manifest["kind"])
                await self._make(sight, kind, where)
            elif patch := render.release_patch(where.manifest, found):
                await self._objects.patch(await self._kind_of(found), found, patch)
        self._cluster.queue.add(sight.run.metadata.name)

    async def _make(self, sight: Sight, kind: ServedKind, where: ObjectRef) -> None:
        """Create it, if that is still permitted; and if it no longer was once it was done, take it back.

        The name alone keeps two tries from making two. That the ledger has gone on, while we stood still, must be seen
        by us: nobody else looks for an object that was never heard of.
        """
        if not await self._is_permitted(sight, where, Phase.OPEN):
            return
        given = sight.given.get(where.identity.unit, {})
        manifest = await self._views.manifest(sight.run, sight.plan, where, given)
        try:
            made = await self._objects.create(kind, manifest)
        except errors.AlreadyExists:
            return  # what is there now tells, in the next turn
        except errors.OutcomeUnknown:
            if await self._objects.find(kind, where.name, where.identity.namespace) is None:
                raise  # to try again at once would be to ask without end, and nobody would be told why
            return
        if not await self._is_permitted(sight, where, Phase.OPEN, Phase.CLOSED, made=made["metadata"]["uid"]):
            await self._objects.delete(kind, made)
            await self._objects.remove_finalizer(kind, made)

    async def _is_permitted(self, sight: Sight, where: ObjectRef, *phases: Phase, made: str = "") -> bool:
        """Whether the ledger, as it is now, waits for the object of this attempt, or holds the one that was `made`.

        A peer may have seen it before we heard that it was made: then it is the run's, however far that has come.
        """
        run = await self._cluster.ledger.fresh(sight.run.metadata.name)
        if run is None or run.metadata.uid != sight.run.metadata.uid:
            return False
        record = run.ledger.unit(where.identity.unit)
        if record.ref:
            return record.ref == made
        return run.ledger.phase in phases and record.attempt == where.identity.attempt and record.state in ALIVE

    async def _kind_of(self, found: dict[str, Any]) -> ServedKind:
        """Return the kind of an object in the version in which it was found."""
        return await self._objects.kind(found["apiVersion"], found["kind"])

    async def _remove(self, sight: Sight, where: ObjectRef, found: dict[str, Any] | None) -> None:
        """Ask it to go. The claim may be a moment old, and the object not looked at yet."""
        if found is None:
            found = await self._find_own(where, sight.run.ledger.unit(where.identity.unit))
        if found is not None:
            await self._objects.delete(await self._kind_of(found), found)

    async def _find_own(self, where: ObjectRef, record: UnitRecord) -> dict[str, Any] | None:
        """Return the object of an attempt; None if there is none, or another one has its name.

        Raises:
            NotServedError: its kind is not served, which proves nothing.
            errors.ApiError: the server did not answer, or the account may not get it.
        """
        manifest = where.manifest
        kind = await self._objects.kind_of_made(manifest["apiVersion"], manifest["kind"], record.definition)
        found = await self._objects.find(kind, where.name, where.identity.namespace) if kind is not None else None
        return found if found is not None and read.is_ours(found, ref=record.ref, token=where.identity.token) else None

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._end(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._end(sight, effect)

    async def _end(self, sight: Sight, effect: Fence | Cancel) -> None:
        """What is not ready when its time is over goes at once: nothing may be at work when others clean up.

        It may have become ready since it was looked at, and a peer have recorded that: then it is another version.
        """
        key = effect.unit, effect.attempt
        found = sight.objects.get(key)
        if found is None and isinstance(effect, Fence):
            # Once the ledger is closed nobody makes it any more, and that is seen. One that is to be cancelled but
            # cannot be looked at has its own time: to ask at once would be to ask for ever.
            self._cluster.queue.add(sight.run.metadata.name)
        memory = sight.session.objects.setdefault(key, ObjectMemory())
        if found is None or read.is_ending(found) or memory.hindrance(self._cluster.now()):
            return
        where = object_view.place(sight.run, sight.plan.steps[effect.unit], effect.attempt)
        with self._hearing(where, memory):
            await self._objects.delete(await self._kind_of(found), found, unchanged=True)
        self._cluster.queue.add(sight.run.metadata.name)

    @contextlib.contextmanager
    def _hearing(self, where: ObjectRef, memory: ObjectMemory) -> Iterator[None]:
        """Remember what was said against a change, for the next turn to tell."""
        now = self._cluster.now()
        try:
            yield
        except errors.Refused as error:
            memory.refused = grants.objection(error, where.identity.namespace, now)
        except NotServedError as error:
            memory.refused = Objection(reason=Reason.KIND_NOT_SERVED, message=str(error), since=now)
        except ForkAddressUnknownError as error:
            memory.refused = Objection(reason=error.reason, message=str(error), since=now)
        except CannotRenderError as error:
            memory.refused = NeverRan(reason=error.reason, message=str(error))

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """It is never asked for."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Our finalizer stays until the run is over, so that nobody makes the object again under its name."""

    async def keep(self, sight: Sight) -> None:
        """An object is made once; whoever carries it out keeps it."""

    async def clear(self, sight: Sight) -> None:
        """The run is over: its objects' names may be taken again. Those of an abandoned one the cluster collects."""
        for step in object_view.steps(sight.plan):
            record = sight.run.ledger.unit(step.id)
            if object_view.written(step).remove or object_view.was_never_made(record):
                continue
            where = object_view.place(sight.run, step, record.attempt)
            if render.rest_field(where.manifest) is not None:
                continue
            try:
                if found := await self._find_own(where, record):
                    await self._objects.remove_finalizer(await self._kind_of(found), found)
            except (errors.Refused, NotServedError) as error:
                said = str(error)
                if isinstance(error, errors.Refused):
                    said = grants.objection(error, where.identity.namespace, sight.now).message
                if sight.run.ledger.phase is not Phase.ABANDONED:
                    raise errors.Refused(where.named, f"our finalizer is still on it: {said}", status=0) from error
                log.warning("%s keeps the finalizer %s: %s", where.named, render.FINALIZER, said)

    async def close(self) -> None:
        """Nothing of objects is under way between turns."""


def _is_due(ledger: Run, step: SealedStep) -> bool:
    """Whether all that the step reads has been told, and it may be tried."""
    needed = all(ledger.unit(name).outcome == "succeeded" for name in step.needs)
    return needed and unit_state(step, ledger.unit(step.id)) in (UnitState.FRESH, UnitState.AGAIN)
