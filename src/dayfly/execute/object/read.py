"""The state of an existing object: whether it belongs to an attempt, is ready or has failed, and its outputs. Pure."""

import enum
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.execute.object.render import FINALIZER
from dayfly.execute.pod import names
from dayfly.spec.lifecycle import UnitOutput
from dayfly.spec.scalars import jsonpath
from dayfly.spec.scalars.kube_names import is_object
from dayfly.spec.steps.kube_object import KubeObject, ReadyRule

Found = Mapping[str, Any]
_MAX_MESSAGE_CHARS = 300


class ObjectState(enum.Enum):
    """The state of an object as its controller reports it."""

    WAITING = "waiting"
    READY = "ready"
    FAILED = "failed"


class ObjectJudgement(NamedTuple):
    """The state of an object, and a message."""

    state: ObjectState
    message: str = ""


def is_ours(found: Found, *, ref: str, token: str) -> bool:
    """Return whether the object belongs to an attempt: by its UID if the ledger has one, otherwise by the token."""
    meta = found["metadata"]
    if ref:
        return bool(meta["uid"] == ref)
    return (meta.get("annotations") or {}).get(names.NONCE_ANNOTATION) == token


def describe(found: Found) -> str:
    """Return kind, namespace and name for messages: `Job shop/db-make-x`."""
    meta = found["metadata"]
    return f"{found.get('kind', 'object')} {meta.get('namespace', '')}/{meta['name']}"


def is_ending(found: Found) -> bool:
    """Return whether the deletion of the object was requested."""
    return bool(found["metadata"].get("deletionTimestamp"))


def foreign_finalizers(found: Found) -> list[str]:
    """Return the finalizers that are not Dayfly's."""
    return [each for each in found["metadata"].get("finalizers") or () if each != FINALIZER]


def judge(found: Found, item: KubeObject) -> ObjectJudgement:
    """Return the state of the object. Reports of its controller on earlier generations are ignored.

    A failure takes precedence over readiness.
    """
    status = _mapping(found.get("status"))
    generation = found["metadata"].get("generation", 0)
    observed = status.get("observedGeneration")
    if _is_late(observed, generation) and (item.ready or item.failed):
        message = f"its controller has observed generation {observed}, and the object has generation {generation}"
        return ObjectJudgement(ObjectState.WAITING, f"waits for {describe(found)}: {message}")
    failed = item.failed or (item.ready if item.ready and item.ready.contract else None)
    if failed is not None and (cause := _failure(found, failed)):
        return ObjectJudgement(ObjectState.FAILED, f"{describe(found)} has failed: {cause}"[:_MAX_MESSAGE_CHARS])
    if item.ready is None:
        return ObjectJudgement(ObjectState.READY)
    ready, missing = _readiness(found, item.ready)
    if ready:
        return ObjectJudgement(ObjectState.READY)
    return ObjectJudgement(ObjectState.WAITING, f"waits for {describe(found)}: {missing}"[:_MAX_MESSAGE_CHARS])


def output_value(found: Found, output: UnitOutput) -> bytes | None:
    """Return the value of an output that is a field of the object; None if the object has no such field."""
    values = jsonpath.find(output.json_path, found)
    return as_bytes(values[0]) if len(values) == 1 else None


def secret_name(found: Found, output: UnitOutput) -> str:
    """Return the name of the Secret with an output; empty if the object does not name it yet."""
    assert output.secret is not None, "the output is in a Secret"
    if output.secret.name:
        return output.secret.name
    values = jsonpath.find(output.secret.json_path, found)
    # The name becomes a part of a URL and of a command for users, so it must be valid.
    return values[0] if len(values) == 1 and isinstance(values[0], str) and is_object(values[0]) else ""


def as_bytes(value: Any) -> bytes:
    """Return text as UTF-8 and any other value as JSON."""
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _readiness(found: Found, verdict: ReadyRule) -> tuple[bool, str]:
    """Return whether the object is ready, and if not, the unmet condition."""
    if verdict.when is not None:
        values = jsonpath.find(verdict.when.path, found)
        wanted = " or ".join(json.dumps(each) for each in verdict.when.in_)
        shown = ", ".join(_as_json(each) for each in values[:3]) or "missing"
        return _contains_any(values, verdict.when.in_), f"{verdict.when.path} must be {wanted} and is {shown}"
    flag = _mapping(found.get("status")).get("ready")
    if verdict.contract and isinstance(flag, bool):
        return flag, "status.ready must be true and is false"
    kind, status = verdict.condition or "Ready", verdict.status
    condition = _condition(found, kind)
    if condition is None:
        return False, f"it has no condition {kind} yet"
    if condition.get("status") == status and not _is_late(
        condition.get("observedGeneration"), found["metadata"].get("generation", 0)
    ):
        return True, ""
    return False, f"its condition {kind} must be {status} and is {condition.get('status')}{_details(condition)}"


def _failure(found: Found, verdict: ReadyRule) -> str:
    """Return why the object has failed; empty if it has not."""
    if verdict.contract:
        status = _mapping(found.get("status"))
        reason, message = status.get("failureReason"), status.get("failureMessage")
        return ": ".join(_on_one_line(each) for each in (reason, message) if each)
    holds, _ = _readiness(found, verdict)
    if not holds:
        return ""
    if verdict.when is not None:
        values = jsonpath.find(verdict.when.path, found)
        return f"{verdict.when.path} is {', '.join(map(_as_json, values[:3]))}"
    condition = _condition(found, verdict.condition) or {}
    return f"its condition {verdict.condition} is {condition.get('status')}{_details(condition)}"


def _condition(found: Found, kind: str) -> Mapping[str, Any] | None:
    conditions = _mapping(found.get("status")).get("conditions")
    every = conditions if isinstance(conditions, list) else []
    return next((each for each in every if isinstance(each, dict) and each.get("type") == kind), None)


def _is_late(observed: Any, generation: int) -> bool:
    return type(observed) is int and observed < generation


def _contains_any(values: list[Any], wanted: tuple[Any, ...]) -> bool:
    """Return whether a value is one of the wanted ones; as in JSON, `true` is not `1`."""
    return any(
        isinstance(value, bool) is isinstance(each, bool) and value == each for value in values for each in wanted
    )


def _details(condition: Mapping[str, Any]) -> str:
    details = ": ".join(_on_one_line(each) for each in (condition.get("reason"), condition.get("message")) if each)
    return f" ({details})" if details else ""


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_MAX_MESSAGE_CHARS]


def _on_one_line(value: Any) -> str:
    return " ".join(str(value).split())[:_MAX_MESSAGE_CHARS]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
