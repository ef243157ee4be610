"""Facts about a run's objects: the results of claimed attempts, and objections against the next ones."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from dayfly.execute.inputs import ForkAddressUnknownError, TargetValues
from dayfly.execute.object import read, render
from dayfly.execute.object.read import ObjectState
from dayfly.execute.object.run import ObjectClient
from dayfly.execute.outputs import mark_binary
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.objects import grants, object_view
from dayfly.operator.objects.object_view import ObjectReader, ObjectRef
from dayfly.operator.refusals import is_down
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.plan.world import AttemptKey, Ended, Fact, NeverRan, Prepared, Running, UnitRefusal
from dayfly.spec.lifecycle import UnitOutput
from dayfly.spec.run import OutputRecord, Phase, Result, UnitRecord
from dayfly.spec.steps.kube_object import GONE

FIRST_POLL_S, MAX_POLL_S = 1.0, 30.0
RETRY_AFTER_MS = 5_000
_MAX_VALUE_BYTES = 64 * 1024


class ObjectMemory(msgspec.Struct):
    """`version` is the object's latest known resource version; `tries` counts the reads that found it unchanged."""

    version: str = ""
    tries: int = 0
    admitted_at: int | None = None
    """When a dry run of the create request last succeeded, in unix milliseconds."""
    definition: str = ""
    """The CustomResourceDefinition at that time, as NAME/UID; empty for other kinds."""
    refused: UnitRefusal | NeverRan | None = None
    """Why the latest change of the object, or its creation, was refused."""

    def is_admitted(self, now: int) -> bool:
        """Return whether a recent dry run succeeded. Older results prove nothing: permissions and kinds may be gone."""
        return self.admitted_at is not None and self.admitted_at <= now < self.admitted_at + RETRY_AFTER_MS

    def next_poll_in(self, version: str) -> float:
        """Return the seconds until the next read: soon after a change, then with increasing intervals."""
        self.tries = self.tries + 1 if version == self.version else 0
        self.version = version
        return min(FIRST_POLL_S * 2.0 ** min(self.tries, 10), MAX_POLL_S)

    def current_objection(self, now: int) -> UnitRefusal | None:
        """Return the objection against another try at `now` (unix milliseconds), if it is recent."""
        found = self.refused
        return found if isinstance(found, UnitRefusal) and found.since <= now < found.since + RETRY_AFTER_MS else None


class ObjectTurn:
    """Input and results of one observation of a run's objects."""

    def __init__(
        self,
        run: RunObject,
        plan: Plan,
        now: int,
        *,
        closing: bool,
        abandoned: bool,
        given: Mapping[str, TargetValues] = MappingProxyType({}),
    ) -> None:
        self.run, self.plan, self.now, self.given = run, plan, now, given
        self.closing, self.abandoned = closing, abandoned
        self.facts: dict[AttemptKey, Fact] = {}
        self.object_refs: dict[AttemptKey, str] = {}
        self.outputs: dict[AttemptKey, dict[str, bytes]] = {}
        self.definitions: dict[str, str] = {}
        self.found: dict[AttemptKey, dict[str, Any]] = {}
        """The objects by the attempts that created them."""


class ObjectObserver:
    """Observes the objects of units."""

    def __init__(self, objects: ObjectClient, reader: ObjectReader) -> None:
        self._objects = objects
        self._reader = reader

    async def observe_create(self, turn: ObjectTurn, step: SealedStep, memory: ObjectMemory) -> Fact:
        """Return the fact about a claimed attempt to create an object."""
        record = turn.run.ledger.unit(step.id)
        key = step.id, record.attempt
        where = object_view.object_of(turn.run, step, record.attempt)
        if turn.abandoned:
            return _failed(turn, record, Reason.CANCELLED, f"the run was abandoned before {where.title} was ready")
        view = await self._reader.read(where, turn.now, record)
        if view.objection is not None:
            return _waiting(record, view.objection)
        found = view.found
        if found is None or not read.is_ours(found, ref=record.ref, token=where.identity.token):
            return self._read_missing(turn, record, where, memory, taken=found is not None)
        turn.found[key] = found
        if not record.ref:
            turn.object_refs[key] = found["metadata"]["uid"]
        if read.is_ending(found):
            return _ending(record, found) or _unready(turn, step, record, where)
        if turn.closing and (hindered := memory.current_objection(turn.now)):
            return _waiting(record, hindered)
        if render.release_patch(where.manifest, found) is not None:
            hindered = memory.current_objection(turn.now)
            return _waiting(record, hindered) if hindered else Prepared(ref=found["metadata"]["uid"])
        judged = read.judge(found, where.item)
        if judged.state is ObjectState.FAILED:
            return _failed(turn, record, Reason.OBJECT_FAILED, judged.message)
        if judged.state is ObjectState.WAITING:
            return Running(since=record.claimed_at, reason=Reason.OBJECT_NOT_READY, message=judged.message)
        return await self._read_ready(turn, step, record, found)

    def _read_missing(
        self, turn: ObjectTurn, record: UnitRecord, where: ObjectRef, memory: ObjectMemory, *, taken: bool
    ) -> Fact:
        """Return the fact for an object that does not exist, or belongs to something else (`taken`)."""
        if record.ref:
            step = turn.plan.steps[where.identity.unit]
            return _unready(turn, step, record, where)
        if taken:
            message = (
                f"{where.title} exists and does not belong to this step: delete it, or give the object another name"
            )
            return NeverRan(reason=Reason.NAME_CONFLICT, message=message)
        # While the run is open, a peer may be about to create the object, so its absence proves nothing.
        if turn.run.ledger.phase is not Phase.OPEN:
            return NeverRan(reason=Reason.CANCELLED, message=f"the run was closed before {where.title} was made")
        if isinstance(memory.refused, NeverRan):
            return memory.refused
        hindered = memory.current_objection(turn.now)
        if (
            hindered is not None
            and turn.now >= record.claimed_at + turn.plan.steps[where.identity.unit].unit.timeouts.run_ms
        ):
            return NeverRan(reason=hindered.reason, message=hindered.message)
        return _waiting(record, hindered) if hindered else Prepared(ref=record.ref)

    async def _read_ready(self, turn: ObjectTurn, step: SealedStep, record: UnitRecord, found: dict[str, Any]) -> Fact:
        """Return the fact for a ready object: the attempt succeeds when all outputs have values."""
        values: dict[str, bytes] = {}
        for output in step.unit.outputs:
            value, lack = await self._read_value(turn, found, output)
            if isinstance(lack, UnitRefusal):
                return _waiting(record, lack)
            if value is None:
                message = f"{read.describe(found)} is ready, but its output {output.name} has no value yet: {lack}"
                return Running(since=record.claimed_at, reason=Reason.OBJECT_NOT_READY, message=message)
            if len(value) > _MAX_VALUE_BYTES:
                problem = f"output {output.name} has {len(value)} bytes; at most {_MAX_VALUE_BYTES} fit"
                return _failed(turn, record, Reason.OUTPUT_TOO_LARGE, problem)
            values[output.name] = value
        return _succeeded(turn, step, record, values)

    async def _read_value(
        self, turn: ObjectTurn, found: dict[str, Any], output: UnitOutput
    ) -> tuple[bytes | None, UnitRefusal | str]:
        """Return the value of an output, or None and the reason why it has none."""
        if output.secret is None:
            return read.output_value(found, output), f"{output.json_path} finds no single value"
        namespace, name = found["metadata"]["namespace"], read.secret_name(found, output)
        if not name:
            return None, f"{output.secret.json_path} names no Secret"
        try:
            held = await self._objects.read_secret(name, namespace)
        except errors.Forbidden as error:
            if not error.is_not_granted:
                return None, error.message
            return None, grants.explain_secret_refusal(namespace, name, turn.now)
        if held is None:
            return None, f"there is no Secret {namespace}/{name}"
        return held.get(output.secret.key), f"Secret {namespace}/{name} has no key {output.secret.key}"

    async def observe_delete(self, turn: ObjectTurn, step: SealedStep, memory: ObjectMemory) -> Fact:
        """Return the fact about a claimed attempt to delete an object."""
        record, maker = turn.run.ledger.unit(step.id), object_view.creating_step(turn.plan, step)
        if turn.abandoned:
            return _failed(turn, record, Reason.CANCELLED, "its cleanup was abandoned")
        made = turn.run.ledger.unit(maker.id) if maker is not None else UnitRecord()
        told = {GONE: b"true"} if any(output.name == GONE for output in step.unit.outputs) else {}
        gone = _succeeded(turn, step, record, told)
        if maker is None or object_view.was_never_made(made):
            return gone
        where = object_view.object_of(turn.run, maker, made.attempt)
        view = await self._reader.read(where, turn.now, made)
        if view.objection is not None:
            return _waiting(record, view.objection)
        found = view.found
        if found is None or not read.is_ours(found, ref=made.ref, token=where.identity.token):
            return gone
        turn.found[maker.id, made.attempt] = found
        if read.is_ending(found):
            return _ending(record, found) or gone
        hindered = memory.current_objection(turn.now)
        return _waiting(record, hindered) if hindered else Prepared(ref=record.ref)

    async def check_create(
        self, turn: ObjectTurn, step: SealedStep, memory: ObjectMemory
    ) -> UnitRefusal | NeverRan | None:
        """Return why the next object cannot be created now; None if a dry run succeeds.

        Return `NeverRan` if the object can never be created from its manifest and inputs, whatever changes in the
        cluster.

        Raises:
            ForkAddressUnknownError: a value of a fork is not available now.
        """
        where = object_view.object_of(turn.run, step, turn.run.ledger.unit(step.id).attempt + 1)
        namespace = where.identity.namespace
        try:
            manifest = await self._reader.render_manifest(turn.run, turn.plan, where, turn.given.get(step.id, {}))
        except ForkAddressUnknownError:
            raise
        except CannotRenderError as error:
            return NeverRan(reason=error.reason, message=str(error))
        view = await self._reader.read(where, turn.now)
        if view.objection is not None and view.objection.reason == Reason.KIND_REFUSED:
            return NeverRan(reason=view.objection.reason, message=view.objection.message)
        if view.objection is not None or view.kind is None:
            return view.objection
        try:
            if view.found is None:
                await self._objects.dry_run(view.kind, manifest)
                memory.definition = await self._objects.read_definition(view.kind)
                memory.admitted_at = turn.now
                return None
        except errors.AlreadyExists:
            pass
        except (errors.Refused, errors.OutcomeUnknown) as error:
            return _refusal(error, namespace, turn.now)
        message = f"{where.title} exists and does not belong to this step: delete it, or give the object another name"
        return UnitRefusal(reason=Reason.NAME_CONFLICT, message=message, since=turn.now)


def _refusal(error: errors.Refused | errors.OutcomeUnknown, namespace: str, now: int) -> UnitRefusal | NeverRan:
    """Return the result of a dry run that failed. It stores nothing, so an unknown outcome needs no clarification.

    Raises:
        errors.OutcomeUnknown: the API server did not answer.
    """
    if isinstance(error, errors.OutcomeUnknown):
        if is_down(error):
            raise error
        return UnitRefusal(reason=Reason.BLOCKED, message=error.message, since=now)
    if error.is_permanent:
        return NeverRan(reason=Reason.FIELD_INVALID, message=error.message)
    return grants.explain_refusal(error, namespace, now)


def _waiting(record: UnitRecord, objection: UnitRefusal) -> Running:
    return Running(since=record.claimed_at, reason=objection.reason, message=objection.message)


def _ending(record: UnitRecord, found: dict[str, Any]) -> Running | None:
    """Return the finalizers of others that block the deletion; None if there are none."""
    left = read.foreign_finalizers(found)
    if not left:
        return None
    many = "finalizers" if len(left) > 1 else "finalizer"
    message = f"waits until {read.describe(found)} is gone: it still has the {many} {messages.join_names(tuple(left))}"
    return Running(since=record.claimed_at, reason=Reason.OBJECT_TERMINATING, message=message)


def _unready(turn: ObjectTurn, step: SealedStep, record: UnitRecord, where: ObjectRef) -> Ended:
    """Return the result for an object that was deleted before it was ready."""
    limit = step.unit.timeouts.run_ms
    if turn.closing:
        return _failed(turn, record, Reason.CANCELLED, f"{where.title} was deleted before it was ready")
    if turn.now >= record.claimed_at + limit:
        message = f"{where.title} was not ready within {messages.format_duration(limit)} and was deleted"
        return _failed(turn, record, Reason.RUN_DEADLINE, message)
    return _failed(
        turn, record, Reason.OBJECT_DELETED, f"{where.title} was deleted by another client before it was ready"
    )


def _failed(turn: ObjectTurn, record: UnitRecord, reason: str, message: str) -> Ended:
    result = Result(outcome="failed", reason=reason, message=message, started_at=record.claimed_at, ended_at=turn.now)
    return Ended(result=result)


def _succeeded(turn: ObjectTurn, step: SealedStep, record: UnitRecord, values: dict[str, bytes]) -> Ended:
    sensitive = {output.name for output in step.unit.outputs if output.sensitive}
    outputs = {
        name: OutputRecord(
            digest="sha256:" + hashlib.sha256(value).hexdigest(), size=len(value), sensitive=name in sensitive
        )
        for name, value in values.items()
    }
    turn.outputs[step.id, record.attempt] = values
    result = Result(outcome="succeeded", started_at=record.claimed_at, ended_at=turn.now, outputs=outputs)
    return mark_binary(Ended(result=result), values)
