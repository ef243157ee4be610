"""What is known of a run's objects: what has become of those that were claimed, and what the next ones wait for."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dayfly.execute.inputs import ForkAddressUnknownError, TargetValues
from dayfly.execute.object import read, render
from dayfly.execute.object.read import ObjectState
from dayfly.execute.object.run import ObjectClient
from dayfly.execute.outputs import mark_binary
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.objects import grants, object_view
from dayfly.operator.objects.object_memory import ObjectMemory
from dayfly.operator.objects.object_view import ObjectRef, Views
from dayfly.operator.refusals import is_down
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import Plan, SealedStep
from dayfly.plan.world import AttemptKey, Ended, Fact, Held, NeverRan, Objection, Running
from dayfly.spec.lifecycle import UnitOutput
from dayfly.spec.run import OutputRecord, Phase, Result, UnitRecord
from dayfly.spec.steps.kube_object import GONE

_LONGEST_VALUE = 64 * 1024


class Turn:
    """One look at a run's objects: what is given, and what is found."""

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
        self.made: dict[AttemptKey, str] = {}
        self.outputs: dict[AttemptKey, dict[str, bytes]] = {}
        self.definitions: dict[str, str] = {}
        self.found: dict[AttemptKey, dict[str, Any]] = {}
        """By the attempts that made them."""


class ObjectObserver:
    """Looks at objects, each for itself."""

    def __init__(self, objects: ObjectClient, views: Views) -> None:
        self._objects = objects
        self._views = views

    async def made(self, turn: Turn, step: SealedStep, memory: ObjectMemory) -> Fact:
        """What has become of a claimed attempt to make an object."""
        record = turn.run.ledger.unit(step.id)
        key = step.id, record.attempt
        where = object_view.place(turn.run, step, record.attempt)
        if turn.abandoned:
            return _over(turn, record, Reason.CANCELLED, f"nobody waits for {where.named} any more")
        view = await self._views.look(where, turn.now, record)
        if view.hindered is not None:
            return _waiting(record, view.hindered)
        found = view.found
        if found is None or not read.is_ours(found, ref=record.ref, token=where.identity.token):
            return self._missing(turn, record, where, memory, taken=found is not None)
        turn.found[key] = found
        if not record.ref:
            turn.made[key] = found["metadata"]["uid"]
        if read.is_ending(found):
            return _ending(record, found) or _unready(turn, step, record, where)
        if turn.closing and (hindered := memory.hindrance(turn.now)):
            return _waiting(record, hindered)
        if render.release_patch(where.manifest, found) is not None:
            hindered = memory.hindrance(turn.now)
            return _waiting(record, hindered) if hindered else Held(ref=found["metadata"]["uid"])
        judged = read.judge(found, where.item)
        if judged.standing is ObjectState.FAILED:
            return _over(turn, record, Reason.OBJECT_FAILED, judged.message)
        if judged.standing is ObjectState.WAITING:
            return Running(since=record.claimed_at, reason=Reason.OBJECT_NOT_READY, message=judged.message)
        return await self._ready(turn, step, record, found)

    def _missing(self, turn: Turn, record: UnitRecord, where: ObjectRef, memory: ObjectMemory, *, taken: bool) -> Fact:
        """There is no such object, or one that is not this attempt's."""
        if record.ref:
            step = turn.plan.steps[where.identity.unit]
            return _unready(turn, step, record, where)
        if taken:
            message = f"{where.named} exists and is not this step's: delete it, or give the object another name"
            return NeverRan(reason=Reason.NAME_CONFLICT, message=message)
        # A peer may be making it as long as the ledger is open: what is not there then proves nothing.
        if turn.run.ledger.phase is not Phase.OPEN:
            return NeverRan(reason=Reason.CANCELLED, message=f"was asked to end before {where.named} was made")
        if isinstance(memory.refused, NeverRan):
            return memory.refused
        hindered = memory.hindrance(turn.now)
        if (
            hindered is not None
            and turn.now >= record.claimed_at + turn.plan.steps[where.identity.unit].unit.timeouts.run_ms
        ):
            return NeverRan(reason=hindered.reason, message=hindered.message)
        return _waiting(record, hindered) if hindered else Held(ref=record.ref)

    async def _ready(self, turn: Turn, step: SealedStep, record: UnitRecord, found: dict[str, Any]) -> Fact:
        """It is ready; once all its outputs are there it is done."""
        values: dict[str, bytes] = {}
        for output in step.unit.outputs:
            value, lack = await self._value(turn, found, output)
            if isinstance(lack, Objection):
                return _waiting(record, lack)
            if value is None:
                message = f"{read.describe(found)} is ready; its output {output.name} is waited for: {lack}"
                return Running(since=record.claimed_at, reason=Reason.OBJECT_NOT_READY, message=message)
            if len(value) > _LONGEST_VALUE:
                problem = f"output {output.name} has {len(value)} bytes; at most {_LONGEST_VALUE} fit"
                return _over(turn, record, Reason.OUTPUT_TOO_LARGE, problem)
            values[output.name] = value
        return _succeeded(turn, step, record, values)

    async def _value(
        self, turn: Turn, found: dict[str, Any], output: UnitOutput
    ) -> tuple[bytes | None, Objection | str]:
        """The value of one output, or what it lacks."""
        if output.secret is None:
            return read.output_value(found, output), f"{output.json_path} finds no single value"
        namespace, name = found["metadata"]["namespace"], read.secret_name(found, output)
        if not name:
            return None, f"{output.secret.json_path} names no Secret"
        try:
            held = await self._objects.read_secret(name, namespace)
        except errors.Forbidden as error:
            if not error.not_granted:
                return None, error.message
            return None, grants.secrets(namespace, name, turn.now)
        if held is None:
            return None, f"there is no Secret {namespace}/{name}"
        return held.get(output.secret.key), f"Secret {namespace}/{name} has no key {output.secret.key}"

    async def removed(self, turn: Turn, step: SealedStep, memory: ObjectMemory) -> Fact:
        """What has become of a claimed attempt to remove an object."""
        record, maker = turn.run.ledger.unit(step.id), object_view.target(turn.plan, step)
        if turn.abandoned:
            return _over(turn, record, Reason.CANCELLED, "its cleanup was given up")
        made = turn.run.ledger.unit(maker.id) if maker is not None else UnitRecord()
        told = {GONE: b"true"} if any(output.name == GONE for output in step.unit.outputs) else {}
        gone = _succeeded(turn, step, record, told)
        if maker is None or object_view.was_never_made(made):
            return gone
        where = object_view.place(turn.run, maker, made.attempt)
        view = await self._views.look(where, turn.now, made)
        if view.hindered is not None:
            return _waiting(record, view.hindered)
        found = view.found
        if found is None or not read.is_ours(found, ref=made.ref, token=where.identity.token):
            return gone
        turn.found[maker.id, made.attempt] = found
        if read.is_ending(found):
            return _ending(record, found) or gone
        hindered = memory.hindrance(turn.now)
        return _waiting(record, hindered) if hindered else Held(ref=record.ref)

    async def ask(self, turn: Turn, step: SealedStep, memory: ObjectMemory) -> Objection | NeverRan | None:
        """What stands in the way of the object that is to be made next, by the server's word.

        Return `NeverRan` if the object can never be made of its manifest and inputs, whatever changes in the cluster.

        Raises:
            ForkAddressUnknownError: a fork cannot tell now what it is to be made of.
        """
        where = object_view.place(turn.run, step, turn.run.ledger.unit(step.id).attempt + 1)
        namespace = where.identity.namespace
        try:
            manifest = await self._views.manifest(turn.run, turn.plan, where, turn.given.get(step.id, {}))
        except ForkAddressUnknownError:
            raise
        except CannotRenderError as error:
            return NeverRan(reason=error.reason, message=str(error))
        view = await self._views.look(where, turn.now)
        if view.hindered is not None and view.hindered.reason == Reason.KIND_REFUSED:
            return NeverRan(reason=view.hindered.reason, message=view.hindered.message)
        if view.hindered is not None or view.kind is None:
            return view.hindered
        try:
            if view.found is None:
                await self._objects.dry_run(view.kind, manifest)
                memory.definition = await self._objects.definition(view.kind)
                memory.admitted_at = turn.now
                return None
        except errors.AlreadyExists:
            pass
        except (errors.Refused, errors.OutcomeUnknown) as error:
            return _refusal(error, namespace, turn.now)
        message = f"{where.named} exists and is not this step's: delete it, or give the object another name"
        return Objection(reason=Reason.NAME_CONFLICT, message=message, since=turn.now)


def _refusal(error: errors.Refused | errors.OutcomeUnknown, namespace: str, now: int) -> Objection | NeverRan:
    """Return what the answer to a dry run means. It was to store nothing, so an unknown outcome leaves no doubt.

    Raises:
        errors.OutcomeUnknown: the server did not answer.
    """
    if isinstance(error, errors.OutcomeUnknown):
        if is_down(error):
            raise error
        return Objection(reason=Reason.BLOCKED, message=error.message, since=now)
    if error.is_permanent:
        return NeverRan(reason=Reason.FIELD_INVALID, message=error.message)
    return grants.objection(error, namespace, now)


def _waiting(record: UnitRecord, said: Objection) -> Running:
    return Running(since=record.claimed_at, reason=said.reason, message=said.message)


def _ending(record: UnitRecord, found: dict[str, Any]) -> Running | None:
    """What holds an object that was asked to go; None if nothing but we do."""
    left = read.foreign_finalizers(found)
    if not left:
        return None
    many = "finalizers" if len(left) > 1 else "finalizer"
    message = f"waits until {read.describe(found)} is gone: it still has the {many} {messages.join_names(tuple(left))}"
    return Running(since=record.claimed_at, reason=Reason.OBJECT_TERMINATING, message=message)


def _unready(turn: Turn, step: SealedStep, record: UnitRecord, where: ObjectRef) -> Ended:
    """Its object is gone before it was ready; why is told by what was wished for."""
    limit = step.unit.timeouts.run_ms
    if turn.closing:
        return _over(turn, record, Reason.CANCELLED, f"{where.named} was deleted before it was ready")
    if turn.now >= record.claimed_at + limit:
        message = f"{where.named} was not ready within {messages.span(limit)} and was deleted"
        return _over(turn, record, Reason.RUN_DEADLINE, message)
    return _over(turn, record, Reason.OBJECT_DELETED, f"somebody deleted {where.named} before it was ready")


def _over(turn: Turn, record: UnitRecord, reason: str, message: str) -> Ended:
    result = Result(outcome="failed", reason=reason, message=message, started_at=record.claimed_at, ended_at=turn.now)
    return Ended(result=result)


def _succeeded(turn: Turn, step: SealedStep, record: UnitRecord, values: dict[str, bytes]) -> Ended:
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
