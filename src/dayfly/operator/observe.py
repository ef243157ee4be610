"""Gathers the world of one run: its documents, its target's wish, and what the executors of its kinds know."""

from dayfly.execute import inputs
from dayfly.execute.executor import Known, Registry
from dayfly.execute.inputs import unfit_messages
from dayfly.execute.turn import Scene, adjust_facts, pin_generations
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import teller
from dayfly.operator.cluster.objects import DOCUMENTS, RunObject
from dayfly.operator.pods.step_slots import Places
from dayfly.operator.refusals import AGAIN_S, hindrance, is_down
from dayfly.operator.run_memory import RunMemory, Sight
from dayfly.operator.targets.adapter import UndecidableError
from dayfly.operator.targets.targets import Targets
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, seal
from dayfly.plan.world import Objection, Unclear, World
from dayfly.spec.lifecycle import Kind, digest
from dayfly.spec.run import ALIVE, MAX_UNITS, Phase, Run, State

UNSEEN_MS = 60_000
"""For how long a unit that cannot be read is assumed to exist; each turn tries to read it."""
CHANGED_IN_PLACE = frozenset({Kind.FORK, Kind.ROUTE, Kind.PREVIEW})


class PlanLostError(UndecidableError):
    """A document that the run has pinned is not there as it was: nothing is decided without it."""


class Observer:
    """Makes scenes. What is remembered of a run between turns only saves reads."""

    def __init__(
        self, cluster: ClusterWatches, *, targets: Targets, executors: Registry[Sight], places: Places
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._client = cluster.client
        self._targets = targets
        self._executors = executors

    async def scene(self, run: RunObject, session: RunMemory) -> tuple[Scene, Sight]:
        """The world of one run as far as it can be known now.

        Raises:
            PlanLostError: its documents are not those that were sealed.
            errors.ApiError: the server cannot be asked.
        """
        wish = await self._targets.read_intent(run)
        sealed = await self._plan(run, session, given_up=wish.abandon is not None)
        plan = pin_generations(sealed, run.ledger, CHANGED_IN_PLACE)
        now = self._cluster.now()
        closing = run.ledger.phase is not Phase.OPEN or wish.stop or wish.abandon or 0 < wish.expires_at <= now
        sight = Sight(run, session, plan, now, closing=bool(closing), abandoned=wish.abandon is not None)
        unseen = await self._look(sight)
        known = self._executors.known(sight, plan, unseen)
        sight.outputs |= {key: dict(values) for key, values in known.outputs.items()}
        objections, refused = session.refusals.of(run.ledger, now)
        facts = adjust_facts(plan, run.ledger, known.facts, now)
        hindered = {**_crowded(plan, run.ledger, now), **sight.lacking, **objections, **known.objections}
        share = await self._places.share(run, plan, facts, hindered, cleaning=sight.closing)
        world = World(
            run=run.ledger,
            wish=wish,
            facts=facts | refused,
            target=await self._targets.adapter_for(run).read_state(run),
            gated=self._executors.gated,
            made=dict(known.made),
            definitions=dict(known.definitions),
            slots=share.slots,
            objections=share.objections | hindered,
            remarks=unfit_messages(plan, run.ledger, teller(self._cluster, run)),
        )
        return Scene(plan=plan, world=world, now=now), sight

    async def _look(self, sight: Sight) -> dict[str, Known]:
        """Read the units of a run, and return the assumptions for kinds that cannot be read.

        Only a run that is closing continues without a kind: it begins nothing new, so only the units that depend on
        that kind wait.
        """
        unseen: dict[str, Known] = {}

        def failed(kind: str, error: Exception) -> None:
            if not sight.closing or is_down(error):
                raise error
            sight.failed = sight.failed or error
            unseen[kind] = _unseen(sight, kind, hindrance(error))

        await self._ask_target(sight)
        await self._executors.observe(sight, failed)
        return unseen

    async def _ask_target(self, sight: Sight) -> None:
        """Read what the next steps take from the target: as it is now, once for all of them."""
        run, kind = sight.run, sight.run.ledger.target.kind
        steps = inputs.steps_with_target_inputs(sight.plan, run.ledger, closing=sight.closing)
        found = await self._targets.adapter_for(run).read_fields(run) if steps else None
        for step in steps:
            sight.given[step.id] = inputs.target_values(step, found)
            if message := inputs.missing_target_field(step, found, kind):
                sight.lacking[step.id] = Objection(reason=Reason.WAITING_FOR_FIELD, message=message, since=sight.now)
                # Whoever writes the field may do so without a sign that we heed.
                self._cluster.queue.add(run.metadata.name, after=AGAIN_S)

    async def _plan(self, run: RunObject, session: RunMemory, *, given_up: bool) -> Plan:
        """The sealed documents, if they are still those that were pinned. A run that is over needs none."""
        forks = digest(run.spec.forks)
        if session.work.plan is not None and session.work.plan[0] == forks:
            return session.work.plan[1]
        over = run.ledger.phase in (Phase.CLEANED, Phase.ABANDONED)
        documents = []
        for pin in run.spec.documents:
            found = self._cluster.documents.get(pin.name)
            if found is None:
                found = await self._client.find(DOCUMENTS, pin.name)
            if found is not None and found.metadata.uid == pin.uid and digest(found.spec) == pin.digest:
                documents.append(found.spec)
            elif not over and not given_up:
                raise PlanLostError(
                    f"document {pin.name} is not the one that was sealed when the run began, so nothing is done: "
                    "restore it, or delete what the run is for and abandon its cleanup"
                )
        if len(documents) < len(run.spec.documents):
            return seal(())  # references of what is left may lead nowhere
        session.work.plan = forks, seal(tuple(documents), run.spec.forks)
        return session.work.plan[1]


def _unseen(sight: Sight, kind: str, problem: str) -> Known:
    """Return the assumptions for units that cannot be read: none may begin, and a recorded attempt may still exist.

    A running unit has no news. An abandoned run does not wait for it.
    """
    ledger, message = sight.run.ledger, f"cannot be read: {problem}"
    doubt = Unclear(since=sight.now, reason=Reason.BLOCKED, message=message, dead_by=sight.now + UNSEEN_MS)
    mine = [(name, record) for name, record in ledger.units.items() if ledger.kind(name) == kind]
    doubtful = [
        (name, record.attempt)
        for name, record in mine
        if record.state is State.DONE or (sight.abandoned and record.state in ALIVE)
    ]
    objection = Objection(reason=Reason.BLOCKED, message=message, since=sight.now)
    every = {step.id: step.unit.kind for step in sight.plan.steps.values()}
    every |= {step.id: step.unit.kind for step in sight.plan.kept.values()}
    return Known(
        facts=dict.fromkeys(doubtful, doubt),
        objections={name: objection for name, of in every.items() if of == kind},
    )


def _crowded(plan: Plan, run: Run, now: int) -> dict[str, Objection]:
    """What is kept and has no line in the ledger yet, and can have none: each step is to have its own, above all those
    that clean up, whatever has come and gone beside them.
    """
    new = [name for name in plan.kept if name not in run.units]
    if not new:
        return {}
    room = max(MAX_UNITS - len(run.units.keys() | plan.steps.keys()), 0)
    message = (
        f"forks, routes and addresses of too many names have come and gone here: a ledger holds {MAX_UNITS} lines. "
        "Delete it and apply it again"
    )
    return {name: Objection(reason=Reason.REFUSED, message=message, since=now) for name in new[room:]}
