"""Collects the world of a run: its documents, its target's intent, and the facts of its executors."""

from dayfly.execute import inputs
from dayfly.execute.executor import SLOTLESS_KINDS, Observations, Registry
from dayfly.execute.inputs import unfit_messages
from dayfly.execute.turn import Scene, adjust_facts, pin_generations
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import fork_evaluator
from dayfly.operator.cluster.objects import DOCUMENTS, RunObject
from dayfly.operator.pods.step_slots import StepSlots
from dayfly.operator.refusals import RETRY_AFTER_S, error_message, is_down
from dayfly.operator.run_memory import RunMemory, Sight
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.targets import Targets
from dayfly.plan.reasons import Reason
from dayfly.plan.resource_reset import reset_units
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import Unclear, UnitRefusal, World
from dayfly.spec.lifecycle import Kind, digest
from dayfly.spec.run import ALIVE, MAX_UNITS, Phase, Run, State

UNSEEN_MS = 60_000
"""For how long a unit that cannot be read is assumed to exist; each turn tries to read it."""
CHANGED_IN_PLACE = frozenset({Kind.FORK, Kind.ROUTE, Kind.PREVIEW})


class PlanLostError(UndecidableError):
    """A pinned document of the run is missing or was changed. Without it, no decision is possible."""


class Observer:
    """Creates scenes. The memory between turns only saves reads."""

    def __init__(
        self, cluster: ClusterWatches, *, targets: Targets, executors: Registry[Sight], slots: StepSlots
    ) -> None:
        self._cluster = cluster
        self._slots = slots
        self._client = cluster.client
        self._targets = targets
        self._executors = executors

    async def scene(self, run: RunObject, memory: RunMemory) -> tuple[Scene, Sight]:
        """Return the world of a run as far as it is known now.

        Raises:
            PlanLostError: a document is missing or was changed.
            errors.ApiError: the API server failed.
        """
        intent = await self._targets.read_intent(run)
        sealed = await self._plan(run, memory, given_up=intent.abandon is not None)
        plan = pin_generations(sealed, run.ledger, CHANGED_IN_PLACE)
        now = self._cluster.now()
        closing = run.ledger.phase is not Phase.OPEN or intent.stop or intent.abandon or 0 < intent.expires_at <= now
        sight = Sight(run, memory, plan, now, closing=bool(closing), abandoned=intent.abandon is not None)
        sight.reset = frozenset(step.resource for step in reset_units(plan, run.ledger, intent.reset))
        unseen = await self._read_units(sight)
        known = self._executors.observations(sight, plan, unseen)
        sight.outputs |= {key: dict(values) for key, values in known.outputs.items()}
        objections, refused = memory.refusals.current(run.ledger, now)
        facts = adjust_facts(plan, run.ledger, known.facts, now)
        blocked = {**_without_room(plan, run.ledger, now), **sight.missing_fields, **objections, **known.objections}
        grant = await self._slots.grant(run, plan, facts, blocked, is_cleanup=sight.closing)
        world = World(
            run=run.ledger,
            intent=intent,
            facts=facts | refused,
            target=await self._targets.adapter_for(run).read_state(run),
            gated_kinds=self._executors.gated_kinds,
            slotless_kinds=SLOTLESS_KINDS,
            object_refs=dict(known.object_refs),
            definitions=dict(known.definitions),
            slots=grant.slots,
            objections=grant.objections | blocked,
            remarks=unfit_messages(plan, run.ledger, fork_evaluator(self._cluster, run)),
        )
        return Scene(plan=plan, world=world, now=now), sight

    async def _read_units(self, sight: Sight) -> dict[str, Observations]:
        """Read the units of a run, and return the assumptions for kinds that cannot be read.

        A closing run continues without a kind: it starts nothing new, so only units that depend on that kind wait. Any
        other run fails.
        """
        unseen: dict[str, Observations] = {}

        def failed(kind: str, error: Exception) -> None:
            if not sight.closing or is_down(error):
                raise error
            sight.first_error = sight.first_error or error
            unseen[kind] = _assume_unreadable(sight, kind, error_message(error))

        await self._read_target_fields(sight)
        await self._executors.observe(sight, failed)
        return unseen

    async def _read_target_fields(self, sight: Sight) -> None:
        """Read the fields of the target that the next steps use; one read for all steps."""
        run, kind = sight.run, sight.run.ledger.target.kind
        steps = inputs.steps_with_target_inputs(sight.plan, run.ledger, closing=sight.closing)
        found = await self._targets.adapter_for(run).read_fields(run) if steps else None
        for step in steps:
            sight.given[step.id] = inputs.target_values(step, found)
            if message := inputs.missing_target_field(step, found, kind):
                sight.missing_fields[step.id] = UnitRefusal(
                    reason=Reason.WAITING_FOR_FIELD, message=message, since=sight.now
                )
                # The field may be written by a change that the operator does not watch.
                self._cluster.queue.add(run.metadata.name, after=RETRY_AFTER_S)

    async def _plan(self, run: RunObject, memory: RunMemory, *, given_up: bool) -> Plan:
        """Return the sealed documents if they are the pinned ones. A run that is over needs none."""
        forks = digest(run.spec.forks)
        if memory.work.plan is not None and memory.work.plan[0] == forks:
            return memory.work.plan[1]
        over = run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED)
        inline = run.inline_documents()
        if inline is None and not over and not given_up:
            raise PlanLostError(
                "the documents in its Run were changed since the run began, so nothing is started or cleaned up: "
                "restore them, or delete the run's target and abandon the cleanup"
            )
        documents = list(inline or ())
        for pin in run.spec.documents:
            found = self._cluster.documents.get(pin.name)
            if found is None:
                found = await self._client.find(DOCUMENTS, pin.name)
            if found is not None and found.metadata.uid == pin.uid and digest(found.spec) == pin.digest:
                documents.append(found.spec)
            elif not over and not given_up:
                raise PlanLostError(
                    f"document {pin.name} is missing or was changed since the run began, so nothing is started or "
                    "cleaned up: restore it, or delete the run's target and abandon the cleanup"
                )
        if len(documents) < len(run.spec.documents) + len(run.spec.inline):
            return seal(())  # the remaining documents may refer to missing ones
        memory.work.plan = forks, seal(tuple(documents), run.spec.forks)
        return memory.work.plan[1]


def _assume_unreadable(sight: Sight, kind: str, problem: str) -> Observations:
    """Return assumptions for units that cannot be read: none may begin, and a recorded attempt may still exist.

    There is no new fact about a running unit, and an abandoned run does not wait for it.
    """
    ledger, message = sight.run.ledger, f"cannot be read: {problem}"
    doubt = Unclear(since=sight.now, reason=Reason.BLOCKED, message=message, dead_by=sight.now + UNSEEN_MS)
    mine = [(name, record) for name, record in ledger.units.items() if ledger.kind(name) == kind]
    doubtful = [
        (name, record.attempt)
        for name, record in mine
        if record.state is State.DONE or (sight.abandoned and record.state in ALIVE)
    ]
    objection = UnitRefusal(reason=Reason.BLOCKED, message=message, since=sight.now)
    every = {step.id: step.unit.kind for step in sight.plan.steps.values()}
    every |= {step.id: step.unit.kind for step in sight.plan.kept.values()}
    return Observations(
        facts=dict.fromkeys(doubtful, doubt),
        objections={name: objection for name, of in every.items() if of == kind},
    )


def _without_room(plan: Plan, run: Run, now: int) -> dict[str, UnitRefusal]:
    """Return objections against kept units for which the ledger has no room.

    Every step, above all cleanup steps, must have room in the ledger, however many forks were added and removed before.
    """
    new = [name for name in plan.kept if name not in run.units]
    if not new:
        return {}
    room = max(MAX_UNITS - len(run.units.keys() | plan.steps.keys()), 0)
    message = (
        f"too many different forks, routes and previews were added and removed: a ledger holds {MAX_UNITS} units. "
        "Delete the object and apply it again"
    )
    return {name: UnitRefusal(reason=Reason.REFUSED, message=message, since=now) for name in new[room:]}
