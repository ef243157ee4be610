"""Converts the status of a Sandbox in a cluster to a run report. Pure.

The report uses the status, because every user who may view the Sandbox may read it. Ledgers and documents are
cluster-scoped, and pods are in a namespace of the operator. The status has absolute times, so a report is correct at
the time of reading. A status cannot show that no operator runs: `why` detects requests without a reaction.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.cli.backends import cluster_pools
from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, TARGET_FINALIZER, parse_abandonment
from dayfly.plan.messages import ClockedText, render
from dayfly.plan.reasons import Reason
from dayfly.plan.status import unit_sentence
from dayfly.plan.why import Obstacle, obstacle_subject
from dayfly.plan.why import find_obstacles as chain
from dayfly.spec.lifecycle import workload_of
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.unsupported_fields import SUPPORTED, unsupported_group_fields, unsupported_sandbox_fields

if TYPE_CHECKING:
    from collections.abc import Collection

# The operator reacts faster than this. Only a longer delay is reported.
_REACTS_WITHIN_MS = 3_000


def milliseconds(stamp: str | None) -> int:
    """Convert an RFC 3339 time to Unix milliseconds; None or an empty string to 0."""
    return int(dt.datetime.fromisoformat(stamp).timestamp() * 1000) if stamp else 0


def report(sandbox: Any, now: int) -> RunReport:
    """Return the report of a Sandbox at `now` (Unix milliseconds), or of a pool that was read with its members.

    Without a status it is pending.
    """
    if "members" in sandbox:
        return cluster_pools.report(sandbox, milliseconds)
    meta, status = sandbox["metadata"], sandbox.get("status") or {}
    units = tuple(_unit(each, now) for each in status.get("units") or ())
    reason = status.get("reason") or Reason.WAITING_FOR_OPERATOR
    done, _, total = (status.get("progress") or "0/0").partition("/")
    closed = None
    if status.get("phase") == "Deleting":
        closed = EndRequest(at=_closed_at(meta, status), reason=Reason.DELETED, message="deleted")
    return RunReport(
        uid=meta["uid"],
        phase=Phase.CLOSED if closed else Phase.OPEN,
        ready=bool(status.get("ready")),
        reason=reason,
        message=next(
            (
                unit_sentence(unit, unit.message, status.get("others", 0))
                for unit in units
                if unit.id == status.get("about")
            ),
            status.get("message") or "no operator has picked it up yet",
        ),
        about=status.get("about", ""),
        others=status.get("others", 0),
        done=int(done),
        total=int(total),
        units=units,
        closed=closed,
        abandon=_abandonment(meta, status, closing=closed is not None),
        born_at=milliseconds(meta["creationTimestamp"]),
        # The condition names unsupported fields that only the operator can detect.
        unsupported=(_unsupported_fields(sandbox["spec"], status) or ("the fields in its condition Supported",))
        if _has_unsupported(status)
        else (),
    )


def why(sandbox: Any, now: int, flags: str, name: str = "", mute: Collection[str] = ()) -> Obstacle | None:
    """Return what a Sandbox, or `routegroup/NAME`, waits for. `flags` make a command use its cluster.

    The advice does not name the logs of `mute` units, whose last attempt has ended without output.
    """
    meta, status = sandbox["metadata"], sandbox.get("status") or {}
    name, found = name or meta["name"], report(sandbox, now)
    if overdue := _overdue(meta, status, now):
        since, message = overdue
        kubectl = f"kubectl{flags.partition(' -n ')[0]} -n dayfly-system"
        advice = f"check that the operator runs: {kubectl} get pods"
        if not status.get("reason") and TARGET_FINALIZER in (meta.get("finalizers") or ()):
            advice = f"check that it runs and read its log: {kubectl} logs deployment/dayfly-operator"
        return Obstacle(
            subject=obstacle_subject(name),
            reason=Reason.WAITING_FOR_OPERATOR,
            message=message,
            since=since,
            next=advice,
        )
    if not found.units and not found.ready and found.abandon is None:
        since = _transition(status) or found.born_at
        whole = Obstacle(subject=obstacle_subject(name), reason=found.reason, message=found.message)
        whole = chain(found, name, mute) or whole
        return _with_flags(msgspec.structs.replace(whole, since=since), flags)
    blocker = chain(found, name, mute)
    return _with_flags(blocker, flags) if blocker else None


def why_published(found: Any, now: int, flags: str, name: str) -> Obstacle | None:
    """Return what a LifecycleHook or ResourcePlugin waits for, as `why`. `name` is `KIND/NAME`."""
    status = found.get("status") or {}
    ready = status.get("ready", status.get("accepted", False))
    if (troubled := status.get("troubled")) and ready:
        cluster = flags.partition(" -n ")[0]
        advice = f"see the Events of that object; {troubled} in all: kubectl{cluster} describe {name}"
        return Obstacle(subject=name, reason=Reason.BLOCKED, message=status.get("message", ""), next=advice)
    return why({**found, "status": status and {**status, "ready": ready}}, now, flags, name)


def _overdue(meta: Any, status: Any, now: int) -> tuple[int, str] | None:
    """Return a request without a reaction of an operator: since when, and what it is."""
    born, dying = milliseconds(meta["creationTimestamp"]), milliseconds(meta.get("deletionTimestamp"))
    is_reported = bool(status.get("reason"))
    is_picked_up = TARGET_FINALIZER in (meta.get("finalizers") or ())
    if not is_reported and is_picked_up and now - max(born, dying) > _REACTS_WITHIN_MS:
        return max(born, dying), "the operator has picked it up, but could not store a status yet"
    if dying and status.get("phase") != "Deleting" and now - dying > _REACTS_WITHIN_MS:
        return dying, "its deletion was requested, but no operator has picked that up"
    if not is_reported and now - born > _REACTS_WITHIN_MS:
        return born, "no operator has picked it up"
    return None


def _unit(status: Any, now: int) -> UnitReport:
    since, until = milliseconds(status.get("since")), milliseconds(status.get("until"))
    template = status.get("template", "")
    workload = workload_of(status["id"])
    resource, _, name = ("", "", workload.name) if workload else _parts(status)
    return UnitReport(
        id=status["id"],
        resource=resource,
        name=name,
        event=status.get("event", ""),
        kind=status.get("kind", ""),
        state=status["state"],
        attempt=status.get("attempt", 0),
        reason=status.get("reason", ""),
        message=render(ClockedText(template), since, until, now) if template else status.get("message", ""),
        template=template,
        since=since,
        until=until,
        started_at=milliseconds(status.get("startedAt")),
        ended_at=milliseconds(status.get("endedAt")),
        reads=tuple(status.get("reads") or ()),
        waits_on=tuple(status.get("waitsOn") or ()),
        pool=status.get("pool", ""),
        member=status.get("member", ""),
        parent=status.get("parent", ""),
        hit=bool(status.get("hit")),
    )


def _parts(status: Any) -> tuple[str, str, str]:
    parts: tuple[str, str, str] = status["id"].rpartition("/")
    return parts


def _transition(status: Any) -> int:
    times = [each.get("lastTransitionTime") for each in status.get("conditions") or () if each["type"] == "Ready"]
    return milliseconds(times[0]) if times else 0


def _has_unsupported(status: Any) -> bool:
    """Whether the operator reports that it does not support a part of the spec."""
    values = [each["status"] for each in status.get("conditions") or () if each["type"] == SUPPORTED]
    return values == ["False"]


def _closed_at(meta: Any, status: Any) -> int:
    """Return when its deletion began. An expired Sandbox may not have a deletion timestamp yet."""
    return milliseconds(meta.get("deletionTimestamp")) or _transition(status)


def _abandonment(meta: Any, status: Any, *, closing: bool) -> EndRequest | None:
    """Return the request to give up its cleanup, with the time at which the operator accepted it."""
    request = parse_abandonment(meta.get("annotations"), closing=closing or bool(meta.get("deletionTimestamp")))
    if request is None or not request.applies:
        return None
    at = _transition(status) if status.get("reason") == Reason.ABANDONED else 0
    return EndRequest(at=at, reason=Reason.ABANDONED, message=request.reason, by=f"annotation {ABANDON_ANNOTATION}")


def _unsupported_fields(spec: Any, status: Any) -> tuple[str, ...]:
    if "match" not in spec:
        return unsupported_sandbox_fields(spec, by_name=False)
    messages = [each.get("message", "") for each in status.get("conditions") or () if each["type"] == SUPPORTED]
    return tuple(each for each in unsupported_group_fields(spec) if each in "".join(messages))


def add_flags(text: str, flags: str) -> str:
    """Return the text with `flags` added to each command in backticks."""
    pieces = text.split("`")
    pieces[1::2] = [f"{each}{flags}" if each.startswith("dayfly ") else each for each in pieces[1::2]]
    return "`".join(pieces)


def _with_flags(blocker: Obstacle, flags: str) -> Obstacle:
    return Obstacle(
        subject=blocker.subject,
        reason=blocker.reason,
        message=blocker.message,
        since=blocker.since,
        next=add_flags(blocker.next, flags),
        because=tuple(_with_flags(each, flags) for each in blocker.because),
    )
