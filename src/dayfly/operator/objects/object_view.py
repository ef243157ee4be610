"""Where the object of a unit is, and how it is there at this moment."""

from typing import Any, NamedTuple

from dayfly.execute.inputs import TargetValues, UnitOutputRef, resolve
from dayfly.execute.object import render
from dayfly.execute.object.render import ObjectIdentity
from dayfly.execute.object.run import Kind, NotServedError, ObjectClient
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import teller
from dayfly.operator.cluster.objects import RunObject, owner
from dayfly.operator.objects import grants
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep, sensitive_inputs
from dayfly.plan.world import Objection
from dayfly.spec.lifecycle import Kind as UnitKind
from dayfly.spec.lifecycle import Object, unit_id
from dayfly.spec.run import State, UnitRecord
from dayfly.spec.steps.kube_object import KubeObject


class ObjectRef(NamedTuple):
    """One attempt's object as it is written, and whose it is."""

    item: KubeObject
    identity: ObjectIdentity

    @property
    def manifest(self) -> dict[str, Any]:
        return self.item.manifest or {}

    @property
    def name(self) -> str:
        return render.object_name(self.identity, self.manifest)

    @property
    def named(self) -> str:
        """`Job shop/db-make-x`, as people look it up."""
        return f"{self.manifest['kind']} {self.identity.namespace}/{self.name}"


class View(NamedTuple):
    """The kind as it is served and the object, or the reason why they cannot be read.

    Without any of these the kind is proven to be gone, and the object with it.
    """

    kind: Kind | None = None
    found: dict[str, Any] | None = None
    hindered: Objection | None = None


def written(step: SealedStep) -> Object:
    """The step's own part of the document."""
    assert step.unit.object is not None, "asked of objects alone"
    return step.unit.object


def steps(plan: Plan) -> list[SealedStep]:
    """The plan's steps that make or remove objects."""
    return [step for step in plan.steps.values() if step.unit.kind == UnitKind.OBJECT and step.unit.object is not None]


def target(plan: Plan, step: SealedStep) -> SealedStep | None:
    """The step whose object this one removes."""
    return plan.steps.get(unit_id(step.resource, written(step).remove))


def was_never_made(record: UnitRecord) -> bool:
    """Return whether the ledger proves that there was never an object: nothing was permitted, or it came to nothing."""
    return record.attempt == 0 or (record.state is State.VOID and not record.ref)


def place(run: RunObject, step: SealedStep, attempt: int) -> ObjectRef:
    """The object of one attempt of a step that makes one."""
    identity = ObjectIdentity(run.ledger.uid, step.id, attempt, run.ledger.target.namespace, owner(run))
    return ObjectRef(render.parse_object(written(step)), identity)


class Views:
    """Looks at objects, and gathers what they are made of."""

    def __init__(self, cluster: ClusterWatches, objects: ObjectClient, outputs: AttemptSecrets) -> None:
        self._cluster = cluster
        self._objects = objects
        self._outputs = outputs

    async def look(self, where: ObjectRef, now: int, made: UnitRecord | None = None) -> View:
        """The object as it is now.

        Args:
            where: Which one.
            now: Unix milliseconds.
            made: The attempt that may have made it; None if none has been claimed yet.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        version, name = where.manifest["apiVersion"], where.manifest["kind"]
        try:
            if made is None:
                kind: Kind | None = await self._objects.kind(version, name)
            else:
                kind = await self._objects.kind_of_made(version, name, made.definition)
            return View() if kind is None else await self._look(kind, where, now)
        except NotServedError as error:
            reason = Reason.KIND_REFUSED if error.scope else Reason.KIND_NOT_SERVED
            return View(hindered=Objection(reason=reason, message=str(error), since=now))

    async def _look(self, kind: Kind, where: ObjectRef, now: int) -> View:
        namespace = where.identity.namespace
        try:
            return View(kind, await self._objects.find(kind, where.name, namespace))
        except errors.Refused as error:
            ending = isinstance(error, errors.Forbidden) and await self._objects.is_ending(namespace)
            return View(kind, hindered=grants.objection(error, namespace, now, ending=ending))

    async def manifest(self, run: RunObject, plan: Plan, where: ObjectRef, given: TargetValues) -> dict[str, Any]:
        """What is sent, with the values of the step's inputs; `given` are those that the target has for it.

        Raises:
            ForkAddressUnknownError: a fork cannot tell now what it is made of.
            CannotRenderError: a value is not there, or cannot stand where it is to.
            errors.ApiError: the server cannot be asked.
        """
        values: dict[str, bytes | None] = {}
        step, forks = plan.steps[where.identity.unit], teller(self._cluster, run)
        sources = resolve(run.ledger, step.unit, step.resource, cleans=False, given=given, forks=forks).sources
        for name, source in sources.items():
            if isinstance(source, UnitOutputRef):
                producer = plan.steps[source.unit].unit
                values[name] = await self._outputs.read(run, names.namespace_of(producer), source.unit, source.output)
            else:
                values[name] = source
        sensitive = sensitive_inputs(plan, step.unit, step.resource)
        return render.render_object(where.item, values, sensitive, where.identity)
