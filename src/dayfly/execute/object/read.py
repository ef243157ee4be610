"""What an object that is there says: whether it is ours, ready or failed, and what still holds it. Pure."""

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
_LONGEST = 300


class ObjectState(enum.Enum):
    """How an object stands by the words of whoever carries it out."""

    WAITING = "waiting"
    READY = "ready"
    FAILED = "failed"


class Judgement(NamedTuple):
    """How it stands, and a sentence on why."""

    standing: ObjectState
    message: str = ""


def is_ours(found: Found, *, ref: str, token: str) -> bool:
    """Whether it is the object of an attempt: by its UID if the ledger holds one, else by the token."""
    meta = found["metadata"]
    if ref:
        return bool(meta["uid"] == ref)
    return (meta.get("annotations") or {}).get(names.NONCE_ANNOTATION) == token


def named(found: Found) -> str:
    """`Job shop/db-make-x`, as people look it up."""
    meta = found["metadata"]
    return f"{found.get('kind', 'object')} {meta.get('namespace', '')}/{meta['name']}"


def ending(found: Found) -> bool:
    """Whether it was asked to go."""
    return bool(found["metadata"].get("deletionTimestamp"))


def hangs_on(found: Found) -> list[str]:
    """The finalizers on it that are not ours."""
    return [each for each in found["metadata"].get("finalizers") or () if each != FINALIZER]


def judge(found: Found, item: KubeObject) -> Judgement:
    """How it stands. What its controller said of an earlier generation counts for nothing.

    An object that has failed is failed, whatever else it says.
    """
    status = _mapping(found.get("status"))
    generation = found["metadata"].get("generation", 0)
    observed = status.get("observedGeneration")
    if _is_late(observed, generation) and (item.ready or item.failed):
        message = f"its controller has seen generation {observed} of it, and it is at {generation}"
        return Judgement(ObjectState.WAITING, f"waits for {named(found)}: {message}")
    failed = item.failed or (item.ready if item.ready and item.ready.contract else None)
    if failed is not None and (said := _failure(found, failed)):
        return Judgement(ObjectState.FAILED, f"{named(found)} has failed: {said}"[:_LONGEST])
    if item.ready is None:
        return Judgement(ObjectState.READY)
    ready, wants = _readiness(found, item.ready)
    if ready:
        return Judgement(ObjectState.READY)
    return Judgement(ObjectState.WAITING, f"waits for {named(found)}: {wants}"[:_LONGEST])


def value(found: Found, output: UnitOutput) -> bytes | None:
    """The value of an output that is a field of the object; None if it has no such field."""
    values = jsonpath.find(output.json_path, found)
    return as_bytes(values[0]) if len(values) == 1 else None


def secret_name(found: Found, output: UnitOutput) -> str:
    """The Secret in which an output lies; empty if the object does not name it yet."""
    assert output.secret is not None, "asked of outputs that lie in Secrets"
    if output.secret.name:
        return output.secret.name
    values = jsonpath.find(output.secret.json_path, found)
    # It becomes a part of a request, and of a line that somebody is to type.
    return values[0] if len(values) == 1 and isinstance(values[0], str) and is_object(values[0]) else ""


def as_bytes(value: Any) -> bytes:
    """Text as it is, anything else as JSON."""
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _readiness(found: Found, verdict: ReadyRule) -> tuple[bool, str]:
    """Whether it is ready, and else what it is waited for."""
    if verdict.when is not None:
        values = jsonpath.find(verdict.when.path, found)
        wanted = " or ".join(json.dumps(each) for each in verdict.when.in_)
        shown = ", ".join(_shown(each) for each in values[:3]) or "not there"
        return _holds(values, verdict.when.in_), f"{verdict.when.path} is to be {wanted} and is {shown}"
    flag = _mapping(found.get("status")).get("ready")
    if verdict.contract and isinstance(flag, bool):
        return flag, "status.ready is to be true and is false"
    kind, status = verdict.condition or "Ready", verdict.status
    condition = _condition(found, kind)
    if condition is None:
        return False, f"it has no condition {kind} yet"
    if condition.get("status") == status and not _is_late(
        condition.get("observedGeneration"), found["metadata"].get("generation", 0)
    ):
        return True, ""
    return False, f"its condition {kind} is to be {status} and is {condition.get('status')}{_words(condition)}"


def _failure(found: Found, verdict: ReadyRule) -> str:
    """Why it has failed; empty if it has not."""
    if verdict.contract:
        status = _mapping(found.get("status"))
        reason, message = status.get("failureReason"), status.get("failureMessage")
        return ": ".join(_shown_plain(each) for each in (reason, message) if each)
    holds, _ = _readiness(found, verdict)
    if not holds:
        return ""
    if verdict.when is not None:
        return (
            f"{verdict.when.path} is {', '.join(_shown(each) for each in jsonpath.find(verdict.when.path, found)[:3])}"
        )
    condition = _condition(found, verdict.condition) or {}
    return f"its condition {verdict.condition} is {condition.get('status')}{_words(condition)}"


def _condition(found: Found, kind: str) -> Mapping[str, Any] | None:
    conditions = _mapping(found.get("status")).get("conditions")
    every = conditions if isinstance(conditions, list) else []
    return next((each for each in every if isinstance(each, dict) and each.get("type") == kind), None)


def _is_late(observed: Any, generation: int) -> bool:
    return type(observed) is int and observed < generation


def _holds(values: list[Any], wanted: tuple[Any, ...]) -> bool:
    """Whether one of them is one of those; `true` and `1` are two things, as they are in JSON."""
    return any(
        isinstance(value, bool) is isinstance(each, bool) and value == each for value in values for each in wanted
    )


def _words(condition: Mapping[str, Any]) -> str:
    said = ": ".join(_shown_plain(each) for each in (condition.get("reason"), condition.get("message")) if each)
    return f" ({said})" if said else ""


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_LONGEST]


def _shown_plain(value: Any) -> str:
    """Somebody else's words on one line."""
    return " ".join(str(value).split())[:_LONGEST]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
