"""The executor of objects: claimed first, then created; released, deleted and forgotten by UID."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from dayfly.execute.executor import Observations
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.execute.object import read, render
from dayfly.execute.object.run import Kind as ServedKind
from dayfly.execute.object.run import NotServedError, ObjectClient
from dayfly.execute.outputs import apply_ends
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.executors.refused_outputs import hold_back_refused
from dayfly.operator.objects import grants, object_view
from dayfly.operator.objects.object_observer import ObjectMemory, ObjectObserver, ObjectTurn
from dayfly.operator.objects.object_view import ObjectReader, ObjectRef
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets
from dayfly.operator.run_memory import Sight
from dayfly.plan import messages
from dayfly.plan.actions import Cancel, Fence, Launch, Prepare, Recall, Release
from dayfly.plan.reasons import Reason
from dayfly.plan.retry import UnitState, unit_state
from dayfly.plan.sealed import SealedStep
from dayfly.plan.world import NeverRan, Running, UnitRefusal
from dayfly.spec.errors import SpecError
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Unit
from dayfly.spec.run import ALIVE, Phase, Run, UnitRecord
from dayfly.spec.steps.kube_object import check

log = logging.getLogger(__name__)


class ObjectExecutor:
    """Objects of any kind, created with the permissions of an account in the target's namespace."""

    kind: str = Kind.OBJECT
    is_gated = False

    def __init__(self, cluster: ClusterWatches, outputs: AttemptSecrets) -> None:
        self._cluster = cluster
        self._objects = ObjectClient(cluster.client, lambda: cluster.now() / 1000)
        self._reader = ObjectReader(cluster, self._objects, outputs)
        self._observer = ObjectObserver(self._objects, self._reader)

    def admit(self, name: str, unit: Unit, /) -> None:
        """Check the object again, since another version of Dayfly may have compiled the document."""
        if unit.object is None or unit.object.remove:
            return
        try:
            check(render.parse_object(unit.object), {given.name for given in unit.inputs}, ("object",))
        except (SpecError, msgspec.ValidationError) as error:
            raise DocumentsRefusedError(f"{name}: {error}") from error

    async def observe(self, sight: Sight) -> None:
        run = sight.run
        # Use the turn's time: an objection with a later time would be ignored in it.
        turn = ObjectTurn(
            run, sight.plan, sight.now, closing=sight.closing, abandoned=sight.abandoned, given=sight.given
        )
        objections: dict[str, UnitRefusal] = {}
        if run.ledger.phase not in (Phase.CLEANED, Phase.ABANDONED):
            steps = object_view.object_steps(sight.plan)
            for step in steps:
                await self._observe_step(sight, turn, step)
            turn.facts = hold_back_refused(self._cluster, sight, turn.facts)
            if not turn.closing:
                for step in steps:
                    await self._check_ahead(sight, turn, step, objections)
        sight.objects = turn.found
        sight.known[self.kind] = Observations(
            facts=turn.facts,
            objections=objections,
            outputs=turn.outputs,
            object_refs=turn.object_refs,
            definitions=turn.definitions,
        )

    def observations(self, sight: Sight) -> Observations:
        return sight.known[self.kind]

    async def _observe_step(self, sight: Sight, turn: ObjectTurn, step: SealedStep) -> None:
        """Observe a claimed attempt. No watch reports changes of its object, so it is polled."""
        record = turn.run.ledger.unit(step.id)
        if record.state not in ALIVE:
            return
        key = step.id, record.attempt
        memory = sight.memory.objects.setdefault(key, ObjectMemory())
        observe = (
            self._observer.observe_delete if object_view.object_spec(step).remove else self._observer.observe_create
        )
        fact = turn.facts[key] = await observe(turn, step, memory)
        if isinstance(fact, Running):
            found = turn.found.get(key)
            version = found["metadata"]["resourceVersion"] if found else fact.message
            self._cluster.queue.add(sight.run.metadata.name, after=memory.next_poll_in(version))

    async def _check_ahead(
        self, sight: Sight, turn: ObjectTurn, step: SealedStep, objections: dict[str, UnitRefusal]
    ) -> None:
        """Let the API server check an object in a dry run before it is claimed, when nothing has been permitted yet.

        Until the check succeeds there is an objection. A step's inputs can only be read once they are recorded: the
        turn that records them does not claim the steps that follow.
        """
        if object_view.object_spec(step).remove:
            return
        key = step.id, turn.run.ledger.unit(step.id).attempt + 1
        preparing = UnitRefusal(reason=Reason.STARTING, message=messages.preparing(key[1]), since=turn.now)
        facts = {key: fact for known in sight.known.values() for key, fact in known.facts.items()} | turn.facts
        if not _is_due(apply_ends(turn.run.ledger, facts), step):
            objections[step.id] = preparing
            return
        memory = sight.memory.objects.setdefault(key, ObjectMemory())
        unit_state, never = sight.memory.refusals.current(turn.run.ledger, turn.now)
        if step.id in sight.missing_fields or key in never:
            return
        if refusal := unit_state.get(step.id):
            objections[step.id] = refusal
            return
        if not memory.is_admitted(turn.now):
            if not _is_due(turn.run.ledger, step):
                objections[step.id] = preparing
                self._cluster.queue.add(sight.run.metadata.name)
                return
            if objection := await self._dry_run(sight, turn, step, memory):
                objections[step.id] = objection
        turn.definitions[step.id] = memory.definition

    async def _dry_run(
        self, sight: Sight, turn: ObjectTurn, step: SealedStep, memory: ObjectMemory
    ) -> UnitRefusal | None:
        """Check by a dry run whether the API server would accept the object, and return its objection."""
        try:
            refusal = await self._observer.check_create(turn, step, memory)
        except ForkAddressUnknownError as error:
            return UnitRefusal(reason=error.reason, message=str(error))
        if refusal is not None:
            sight.memory.refusals.put((step.id, turn.run.ledger.unit(step.id).attempt + 1), refusal)
        return refusal if isinstance(refusal, UnitRefusal) else None

    async def prepare(self, sight: Sight, effect: Prepare) -> None:
        """Do nothing: an object is created after its claim."""

    async def launch(self, sight: Sight, effect: Launch) -> None:
        step = sight.plan.steps[effect.unit]
        maker = object_view.creating_step(sight.plan, step) if object_view.object_spec(step).remove else step
        if maker is None:
            return
        where = object_view.object_of(sight.run, maker, sight.run.ledger.unit(maker.id).attempt)
        found = sight.objects.get((maker.id, where.identity.attempt))
        memory = sight.memory.objects.setdefault((effect.unit, effect.attempt), ObjectMemory())
        memory.refused = None
        with self._recording_refusal(where, memory):
            if maker is not step:
                await self._remove(sight, where, found)
            elif found is None:
                kind = await self._objects.discover_kind(where.manifest["apiVersion"], where.manifest["kind"])
                await self._create(sight, kind, where)
            elif patch := render.release_patch(where.manifest, found):
                await self._objects.patch(await self._kind_of(found), found, patch)
        self._cluster.queue.add(sight.run.metadata.name)

    async def _create(self, sight: Sight, kind: ServedKind, where: ObjectRef) -> None:
        """Create the object if the ledger still permits it, and delete it if the permission ended in the meantime.

        Two tries cannot create two objects, because they use the same name. If this process was paused while the ledger
        continued, only this process can notice that, since no other one looks for an object that was never observed.
        """
        if not await self._is_permitted(sight, where, Phase.OPEN):
            return
        given = sight.given.get(where.identity.unit, {})
        manifest = await self._reader.render_manifest(sight.run, sight.plan, where, given)
        try:
            made = await self._objects.create(kind, manifest)
        except errors.AlreadyExists:
            return  # the next turn observes the existing object
        except errors.OutcomeUnknown:
            if await self._objects.find(kind, where.name, where.identity.namespace) is None:
                raise  # an immediate retry could continue forever without a report
            return
        if not await self._is_permitted(sight, where, Phase.OPEN, Phase.CLOSED, made=made["metadata"]["uid"]):
            await self._objects.delete(kind, made)
            await self._objects.remove_finalizer(kind, made)

    async def _is_permitted(self, sight: Sight, where: ObjectRef, *phases: Phase, made: str = "") -> bool:
        """Return whether the current ledger waits for the object of this attempt, or contains the one that was `made`.

        A peer may have observed and recorded the object before we received the answer. Then it belongs to the run,
        whatever the run's phase is.
        """
        run = await self._cluster.ledger.read_current(sight.run.metadata.name)
        if run is None or run.metadata.uid != sight.run.metadata.uid:
            return False
        record = run.ledger.unit(where.identity.unit)
        if record.ref:
            return record.ref == made
        return run.ledger.phase in phases and record.attempt == where.identity.attempt and record.state in ALIVE

    async def _kind_of(self, found: dict[str, Any]) -> ServedKind:
        """Return the kind of an object in the version in which it was found."""
        return await self._objects.discover_kind(found["apiVersion"], found["kind"])

    async def _remove(self, sight: Sight, where: ObjectRef, found: dict[str, Any] | None) -> None:
        """Delete the object. If the claim is recent, it was not observed yet and is searched for first."""
        if found is None:
            found = await self._find_own(where, sight.run.ledger.unit(where.identity.unit))
        if found is not None:
            await self._objects.delete(await self._kind_of(found), found)

    async def _find_own(self, where: ObjectRef, record: UnitRecord) -> dict[str, Any] | None:
        """Return the object of an attempt; None if there is none, or another one has its name.

        Raises:
            NotServedError: its kind is not served, which proves nothing.
            errors.ApiError: the API server failed, or the account may not read the object.
        """
        manifest = where.manifest
        kind = await self._objects.discover_existing_kind(manifest["apiVersion"], manifest["kind"], record.definition)
        found = await self._objects.find(kind, where.name, where.identity.namespace) if kind is not None else None
        return found if found is not None and read.is_ours(found, ref=record.ref, token=where.identity.token) else None

    async def fence(self, sight: Sight, effect: Fence) -> None:
        await self._end(sight, effect)

    async def cancel(self, sight: Sight, effect: Cancel) -> None:
        await self._end(sight, effect)

    async def _end(self, sight: Sight, effect: Fence | Cancel) -> None:
        """Delete an object that is not ready in time, because nothing of it may be running during cleanup.

        If it has become ready since the observation, and a peer has recorded that, its version differs and it is kept.
        """
        key = effect.unit, effect.attempt
        found = sight.objects.get(key)
        if found is None and isinstance(effect, Fence):
            # A closed ledger permits no creation, and the next turn observes that. An object to be cancelled that
            # cannot be read has its own poll interval: an immediate turn could repeat forever.
            self._cluster.queue.add(sight.run.metadata.name)
        memory = sight.memory.objects.setdefault(key, ObjectMemory())
        if found is None or read.is_ending(found) or memory.current_objection(self._cluster.now()):
            return
        where = object_view.object_of(sight.run, sight.plan.steps[effect.unit], effect.attempt)
        with self._recording_refusal(where, memory):
            await self._objects.delete(await self._kind_of(found), found, unchanged=True)
        self._cluster.queue.add(sight.run.metadata.name)

    @contextlib.contextmanager
    def _recording_refusal(self, where: ObjectRef, memory: ObjectMemory) -> Iterator[None]:
        """Store the refusal of a change, which the next turn reports."""
        now = self._cluster.now()
        try:
            yield
        except errors.Refused as error:
            memory.refused = grants.explain_refusal(error, where.identity.namespace, now)
        except NotServedError as error:
            memory.refused = UnitRefusal(reason=Reason.KIND_NOT_SERVED, message=str(error), since=now)
        except ForkAddressUnknownError as error:
            memory.refused = UnitRefusal(reason=error.reason, message=str(error), since=now)
        except CannotRenderError as error:
            memory.refused = NeverRan(reason=error.reason, message=str(error))

    async def recall(self, sight: Sight, effect: Recall) -> None:
        """Do nothing: objects are never recalled."""

    async def release(self, sight: Sight, effect: Release) -> None:
        """Do nothing: our finalizer stays until the run is over, so that the object cannot be created again."""

    async def keep(self, sight: Sight) -> None:
        """Do nothing: an object is created once and not kept."""

    async def clear(self, sight: Sight) -> None:
        """Remove our finalizers when the run is over.

        Objects of an abandoned run are deleted by the garbage collector.
        """
        for step in object_view.object_steps(sight.plan):
            record = sight.run.ledger.unit(step.id)
            if object_view.object_spec(step).remove or object_view.was_never_made(record):
                continue
            where = object_view.object_of(sight.run, step, record.attempt)
            if render.suspend_field(where.manifest) is not None:
                continue
            try:
                if found := await self._find_own(where, record):
                    await self._objects.remove_finalizer(await self._kind_of(found), found)
            except (errors.Refused, NotServedError) as error:
                refusal = str(error)
                if isinstance(error, errors.Refused):
                    refusal = grants.explain_refusal(error, where.identity.namespace, sight.now).message
                if sight.run.ledger.phase is not Phase.ABANDONED:
                    raise errors.Refused(where.title, f"our finalizer is still on it: {refusal}", status=0) from error
                log.warning("%s keeps the finalizer %s: %s", where.title, render.FINALIZER, refusal)

    async def close(self) -> None:
        """Do nothing: no task runs between turns."""


def _is_due(ledger: Run, step: SealedStep) -> bool:
    """Return whether all inputs of the step are recorded and it may be tried."""
    needed = all(ledger.unit(name).outcome == "succeeded" for name in step.needs)
    return needed and unit_state(step, ledger.unit(step.id)) in (UnitState.FRESH, UnitState.RETRYABLE)
