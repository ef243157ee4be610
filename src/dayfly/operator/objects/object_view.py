"""The objects of units: their identity, their state in the cluster, and their manifests."""

from typing import Any, NamedTuple

from dayfly.execute.inputs import TargetValues, UnitOutputRef, resolve
from dayfly.execute.object import render
from dayfly.execute.object.render import ObjectIdentity
from dayfly.execute.object.run import Kind, NotServedError, ObjectClient
from dayfly.execute.pod import names
from dayfly.kube import errors
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.fork_values import fork_evaluator
from dayfly.operator.cluster.objects import RunObject, run_owner_reference
from dayfly.operator.objects import grants
from dayfly.operator.outputs.attempt_secrets import AttemptSecrets
from dayfly.operator.outputs.producers import find_producer
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep, sensitive_inputs
from dayfly.plan.world import UnitRefusal
from dayfly.spec.lifecycle import Kind as UnitKind
from dayfly.spec.lifecycle import Object, unit_id
from dayfly.spec.run import State, UnitRecord
from dayfly.spec.steps.kube_object import KubeObject


class ObjectRef(NamedTuple):
    """The object of one attempt: its spec and identity."""

    item: KubeObject
    identity: ObjectIdentity

    @property
    def manifest(self) -> dict[str, Any]:
        return self.item.manifest or {}

    @property
    def name(self) -> str:
        return render.object_name(self.identity, self.manifest)

    @property
    def title(self) -> str:
        """Kind, namespace and name for messages, such as `Job shop/db-make-x`."""
        return f"{self.manifest['kind']} {self.identity.namespace}/{self.name}"


class ObjectView(NamedTuple):
    """The served kind and the object, or the objection if they cannot be read.

    If all are None, the kind is proven to be gone, and with it the object.
    """

    kind: Kind | None = None
    found: dict[str, Any] | None = None
    objection: UnitRefusal | None = None


def object_spec(step: SealedStep) -> Object:
    """Return the object spec of a step."""
    assert step.unit.object is not None, "only for object units"
    return step.unit.object


def object_steps(plan: Plan) -> list[SealedStep]:
    """Return the plan's steps that create or delete objects."""
    return [step for step in plan.steps.values() if step.unit.kind == UnitKind.OBJECT and step.unit.object is not None]


def creating_step(plan: Plan, step: SealedStep) -> SealedStep | None:
    """Return the step whose object this one deletes."""
    return plan.steps.get(unit_id(step.resource, object_spec(step).remove))


def was_never_made(record: UnitRecord) -> bool:
    """Return whether the ledger proves that the object never existed: no attempt was claimed, or it is void."""
    return record.attempt == 0 or (record.state is State.VOID and not record.ref)


def object_of(run: RunObject, step: SealedStep, attempt: int) -> ObjectRef:
    """Return the object of an attempt."""
    identity = ObjectIdentity(run.ledger.uid, step.id, attempt, run.ledger.target.namespace, run_owner_reference(run))
    return ObjectRef(render.parse_object(object_spec(step)), identity)


class ObjectReader:
    """Reads objects and renders their manifests."""

    def __init__(self, cluster: ClusterWatches, objects: ObjectClient, outputs: AttemptSecrets) -> None:
        self._cluster = cluster
        self._objects = objects
        self._outputs = outputs

    async def read(self, where: ObjectRef, now: int, made: UnitRecord | None = None) -> ObjectView:
        """Return the current state of an object.

        Args:
            where: The object.
            now: Unix milliseconds.
            made: The attempt that may have created it; None if none was claimed yet.

        Raises:
            errors.ApiError: the API server failed.
        """
        version, name = where.manifest["apiVersion"], where.manifest["kind"]
        try:
            if made is None:
                kind: Kind | None = await self._objects.discover_kind(version, name)
            else:
                kind = await self._objects.discover_existing_kind(version, name, made.definition)
            return ObjectView() if kind is None else await self._find(kind, where, now)
        except NotServedError as error:
            reason = Reason.KIND_REFUSED if error.scope else Reason.KIND_NOT_SERVED
            return ObjectView(objection=UnitRefusal(reason=reason, message=str(error), since=now))

    async def _find(self, kind: Kind, where: ObjectRef, now: int) -> ObjectView:
        namespace = where.identity.namespace
        try:
            return ObjectView(kind, await self._objects.find(kind, where.name, namespace))
        except errors.Refused as error:
            ending = isinstance(error, errors.Forbidden) and await self._objects.is_ending(namespace)
            return ObjectView(kind, objection=grants.explain_refusal(error, namespace, now, ending=ending))

    async def render_manifest(
        self, run: RunObject, plan: Plan, where: ObjectRef, given: TargetValues
    ) -> dict[str, Any]:
        """Return the manifest with the values of the step's inputs; `given` are the values of the run's target.

        Raises:
            ForkAddressUnknownError: a value of a fork is not available now.
            CannotRenderError: a value is missing, or is invalid in its place.
            errors.ApiError: the API server failed.
        """
        values: dict[str, bytes | None] = {}
        step, forks = plan.steps[where.identity.unit], fork_evaluator(self._cluster, run)
        sources = resolve(run.ledger, step.unit, step.resource, must_run=False, given=given, forks=forks).sources
        for name, source in sources.items():
            if isinstance(source, UnitOutputRef):
                producer = plan.steps[source.unit]
                document = next(each for each in plan.documents if each.resource == producer.resource)
                found = await find_producer(self._cluster, run, document, producer.unit)
                values[name] = await self._outputs.read(
                    found.run, names.namespace_of(found.unit), found.name, source.output
                )
            else:
                values[name] = source
        sensitive = sensitive_inputs(plan, step.unit, step.resource)
        return render.render_object(where.item, values, sensitive, where.identity)
