"""A Sandbox of a cluster as a report: its status, as the operator speaks it, in the words that it came from. Pure.

The status is chosen over the ledger and the documents because whoever may view the Sandbox may read it: those are
cluster-wide, and the pods lie in a namespace that is the operator's. Its clocks are said as moments, so what is shown
is true at the time of reading. What it cannot tell is that no operator is there any more; `why` says where it has not
followed what was asked of the Sandbox.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.operator.cluster.objects import ABANDON_ANNOTATION, TARGET_FINALIZER, abandonment
from dayfly.plan.messages import ClockedText, render
from dayfly.plan.reasons import Reason
from dayfly.plan.status import unit_sentence
from dayfly.plan.why import Obstacle, subject
from dayfly.plan.why import why as chain
from dayfly.spec.lifecycle import workload_of
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.run import EndRequest, Phase
from dayfly.spec.unsupported_fields import SUPPORTED, group_unsupported, unsupported

if TYPE_CHECKING:
    from collections.abc import Collection

# The operator takes such things up within a moment; until then it is no news.
_PATIENCE_MS = 3_000


def milliseconds(stamp: str | None) -> int:
    """RFC 3339 as unix milliseconds; 0 for none."""
    return int(dt.datetime.fromisoformat(stamp).timestamp() * 1000) if stamp else 0


def report(sandbox: Any, now: int) -> RunReport:
    """How a Sandbox stands by its status, at `now`; one of which nothing was said yet is pending."""
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
        abandon=_given_up(meta, status, closing=closed is not None),
        born_at=milliseconds(meta["creationTimestamp"]),
        # What only the operator knows is in the condition that says so, in its own words.
        unsupported=(_in_vain(sandbox["spec"], status) or ("what its condition Supported names",))
        if _lacks(status)
        else (),
    )


def why(sandbox: Any, now: int, flags: str, name: str = "", mute: Collection[str] = ()) -> Obstacle | None:
    """What holds a Sandbox, or `routegroup/NAME`, up; `flags` is what makes a command mean its cluster.

    Nobody is sent to the log of a unit that is `mute`: its last attempt has ended and printed nothing.
    """
    meta, status = sandbox["metadata"], sandbox.get("status") or {}
    name, found = name or meta["name"], report(sandbox, now)
    if overdue := _overdue(meta, status, now):
        since, message = overdue
        kubectl = f"kubectl{flags.partition(' -n ')[0]} -n dayfly-system"
        advice = f"see whether the operator runs: {kubectl} get pods"
        if not status and TARGET_FINALIZER in (meta.get("finalizers") or ()):
            advice = f"see whether it runs, and what it logs: {kubectl} logs deployment/dayfly-operator"
        return Obstacle(
            subject=subject(name), reason=Reason.WAITING_FOR_OPERATOR, message=message, since=since, next=advice
        )
    if not found.units and not found.ready and found.abandon is None:
        since = _transition(status) or found.born_at
        whole = Obstacle(subject=subject(name), reason=found.reason, message=found.message)
        whole = chain(found, name, mute) or whole
        return _typeable(msgspec.structs.replace(whole, since=since), flags)
    blocker = chain(found, name, mute)
    return _typeable(blocker, flags) if blocker else None


def why_published(found: Any, now: int, flags: str, name: str) -> Obstacle | None:
    """What holds a LifecycleHook or a ResourcePlugin up, as `why`; `name` is `KIND/NAME`."""
    status = found.get("status") or {}
    ready = status.get("ready", status.get("accepted", False))
    if (troubled := status.get("troubled")) and ready:
        cluster = flags.partition(" -n ")[0]
        advice = f"see the Events of that object; {troubled} in all: kubectl{cluster} describe {name}"
        return Obstacle(subject=name, reason=Reason.BLOCKED, message=status.get("message", ""), next=advice)
    return why({**found, "status": status and {**status, "ready": ready}}, now, flags, name)


def _overdue(meta: Any, status: Any, now: int) -> tuple[int, str] | None:
    """Since when something is asked of the Sandbox that no operator has answered to, and what it is."""
    born, dying = milliseconds(meta["creationTimestamp"]), milliseconds(meta.get("deletionTimestamp"))
    if not status and TARGET_FINALIZER in (meta.get("finalizers") or ()) and now - max(born, dying) > _PATIENCE_MS:
        return max(born, dying), "the operator has picked it up, but no status of it could be stored yet"
    if dying and status.get("phase") != "Deleting" and now - dying > _PATIENCE_MS:
        return dying, "its deletion was requested, but no operator has picked that up"
    if not status and now - born > _PATIENCE_MS:
        return born, "no operator has picked it up"
    return None


def _unit(said: Any, now: int) -> UnitReport:
    since, until = milliseconds(said.get("since")), milliseconds(said.get("until"))
    template = said.get("template", "")
    of = workload_of(said["id"])
    resource, _, name = ("", "", of.name) if of else _parts(said)
    return UnitReport(
        id=said["id"],
        resource=resource,
        name=name,
        event=said.get("event", ""),
        kind=said.get("kind", ""),
        state=said["state"],
        attempt=said.get("attempt", 0),
        reason=said.get("reason", ""),
        message=render(ClockedText(template), since, until, now) if template else said.get("message", ""),
        template=template,
        since=since,
        until=until,
        started_at=milliseconds(said.get("startedAt")),
        ended_at=milliseconds(said.get("endedAt")),
        reads=tuple(said.get("reads") or ()),
        waits_on=tuple(said.get("waitsOn") or ()),
    )


def _parts(said: Any) -> tuple[str, str, str]:
    parts: tuple[str, str, str] = said["id"].rpartition("/")
    return parts


def _transition(status: Any) -> int:
    times = [each.get("lastTransitionTime") for each in status.get("conditions") or () if each["type"] == "Ready"]
    return milliseconds(times[0]) if times else 0


def _lacks(status: Any) -> bool:
    """Whether the operator says that a part of the wish is not carried out."""
    said = [each["status"] for each in status.get("conditions") or () if each["type"] == SUPPORTED]
    return said == ["False"]


def _closed_at(meta: Any, status: Any) -> int:
    """When its end began; one whose time to live is over may not be marked as deleted yet."""
    return milliseconds(meta.get("deletionTimestamp")) or _transition(status)


def _given_up(meta: Any, status: Any, *, closing: bool) -> EndRequest | None:
    """Return the request to give up its cleanup; its time is the one at which the operator took it up."""
    asked = abandonment(meta.get("annotations"), closing=closing or bool(meta.get("deletionTimestamp")))
    if asked is None or not asked.applies:
        return None
    at = _transition(status) if status.get("reason") == Reason.ABANDONED else 0
    return EndRequest(at=at, reason=Reason.ABANDONED, message=asked.reason, by=f"annotation {ABANDON_ANNOTATION}")


def _in_vain(spec: Any, status: Any) -> tuple[str, ...]:
    if "match" not in spec:
        return unsupported(spec, by_name=False)
    said = [each.get("message", "") for each in status.get("conditions") or () if each["type"] == SUPPORTED]
    return tuple(each for each in group_unsupported(spec) if each in "".join(said))


def typeable(text: str, flags: str) -> str:
    """A sentence whose commands mean the cluster."""
    pieces = text.split("`")
    pieces[1::2] = [f"{each}{flags}" if each.startswith("dayfly ") else each for each in pieces[1::2]]
    return "`".join(pieces)


def _typeable(blocker: Obstacle, flags: str) -> Obstacle:
    """The same with every command in it meant for the cluster."""
    return Obstacle(
        subject=blocker.subject,
        reason=blocker.reason,
        message=blocker.message,
        since=blocker.since,
        next=typeable(blocker.next, flags),
        because=tuple(_typeable(each, flags) for each in blocker.because),
    )
