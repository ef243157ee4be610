"""What lives has in common for the API, sandboxes and route groups alike: how it is told of, ended, and tried again."""

from __future__ import annotations

import secrets
import string
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.control.errors import ApiError, outside
from dayfly.link.wire import Reply, Retry, Verdict
from dayfly.plan.reasons import Reason
from dayfly.plan.why import nothing_to_retry
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.report import Report
from dayfly.spec.run import Phase
from dayfly.spec.run import Request as EndRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dayfly.control.audit import Who
    from dayfly.control.auth import Asking
    from dayfly.control.shelves import Kept
    from dayfly.link.server_end import Link

LONGEST_LEASE_S = 86_400
ROUTING_KEY_LENGTH = 13

_KEY_LETTERS = string.digits + string.ascii_lowercase


class Told(NamedTuple):
    """What is told of one: its report, where it answers, and the report's number if its host has one of it."""

    report: Report
    endpoints: list[dict[str, Any]]
    version: int | None


def refuse_elsewhere(who: Asking, what: str, wished: str, has: str | None) -> None:
    """Refuse a wish for a cluster that a key's scope leaves out, or under the name of what lives in one (`has`).

    Raises:
        ApiError: 403, in a sentence.
    """
    if has is not None and not who.scope.takes_cluster(has):
        raise outside(who.scope, f"a {what} of that name lives in another cluster, which")
    if not who.scope.takes_cluster(wished):
        raise outside(who.scope, f"cluster {quote(wished)}" if wished else f"a {what} of all clusters")


def with_trouble(
    record: Kept, report: Report | None, trouble: str, *, refused: bool = False, what: str = "sandbox"
) -> Report:
    """A run's report, where the host may not have heard of it, or of its newest wish, or refuses that (`refused`)."""
    if report is None:
        message = trouble or f"the cluster has not taken this {what} over yet"
        waits = Reason.REFUSED if refused else Reason.RESOURCES_PENDING
        reason = Reason.DELETING if record.stop else waits
        nothing = Report(
            uid=record.uid, phase=Phase.OPEN, ready=False, reason=reason, message=message, done=0, total=0, units=()
        )
        return msgspec.structs.replace(nothing, closed=record.stop, abandon=record.abandon)
    if record.abandon is not None:
        # The order may still be on its way, and an agent records neither its author nor its time.
        report = msgspec.structs.replace(report, abandon=record.abandon)
    if record.stop is not None and report.phase is Phase.OPEN:
        return msgspec.structs.replace(
            report, ready=False, reason=Reason.DELETING, message=trouble or "is about to be deleted"
        )
    if trouble:
        # Of a run whose record is damaged both say the same.
        message = trouble if report.message and report.message in trouble else f"{report.message} ({trouble})"
        why = Reason.REFUSED if refused and report.phase is Phase.OPEN else report.reason
        return msgspec.structs.replace(report, ready=False, reason=why, message=message)
    return report


def lease_seconds(body: Any, keys: tuple[str, ...]) -> int:
    """The seconds in `{"seconds": n}`."""
    if not isinstance(body, dict) or set(body) != {"seconds"}:
        raise SpecError('must be {"seconds": n} and nothing else', keys)
    seconds = body["seconds"]
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= LONGEST_LEASE_S:
        raise SpecError(f"must be a whole number from 1 to {LONGEST_LEASE_S}", (*keys, "seconds"))
    return seconds


def unit_in(body: Any) -> str:
    """The unit in `{"unit": "db/drop"}`; nothing in `{}`."""
    if not isinstance(body, dict) or not set(body) <= {"unit"}:
        raise SpecError('must be {} or {"unit": "RESOURCE/STEP"}, and nothing else', ())
    unit = body.get("unit", "")
    if not isinstance(unit, str) or ("unit" in body and not unit):
        raise SpecError("must be a unit as the report names it, such as db/drop", ("unit",))
    return unit


class Abandonment(NamedTuple):
    """A request to give up a cleanup; with `forced` the cleanup need not have begun."""

    request: EndRequest
    forced: bool


def abandonment(body: Any, by: str) -> Abandonment:
    """Parse `{"reason": "...", "force": false}`."""
    reason = body.get("reason") if isinstance(body, dict) else None
    if not isinstance(reason, str) or not reason.strip():
        raise SpecError("say why the cleanup is given up; it is recorded", ("reason",))
    if len(reason) > 1000 or not reason.isprintable():
        raise SpecError("is one line of at most 1000 printable characters", ("reason",))
    forced = body.get("force", False)
    if not isinstance(forced, bool):
        raise SpecError("must be true or false", ("force",))
    return Abandonment(end_request(Reason.ABANDONED, reason.strip(), by), forced)


def forced_deletion(by: str) -> Abandonment:
    """Return the request that `DELETE` with `force=true` makes."""
    return Abandonment(end_request(Reason.ABANDONED, "deleted with force=true", by), forced=True)


def refuse_too_early(record: Kept, report: Report, kind: str) -> None:
    """Refuse to give up a cleanup that has not begun.

    Raises:
        ApiError: 409, with the next step.
    """
    if record.stop is not None or report.phase is not Phase.OPEN:
        return
    text = f"{kind} {quote(record.name)} is not being deleted, so there is no cleanup to give up"
    raise ApiError(409, f'{text}: delete it first, or send "force": true to leave everything behind')


async def retried(
    link: Link | None, report: Report, body: Any, who: Who, noted: Callable[[], Awaitable[None]], kind: str, name: str
) -> Any:
    """End the back-off of the unit that the body names, or of all that wait; `noted` is awaited before."""
    wanted, whose = unit_in(body), f"{kind} {quote(name)}"
    units = [unit for unit in report.units if wanted in ("", unit.id)]
    if wanted and not units:
        there = ", ".join(unit.id for unit in report.units) or "none yet"
        raise ApiError(404, f"{whose} has no unit {quote(wanted)}; it has {there}")
    attempts = {unit.id: unit.attempt for unit in units if unit.state == "retrying"}
    if not attempts:
        raise ApiError(409, nothing_to_retry(report, wanted, kind))
    await noted()
    answer = await link.order(Retry(uid=report.uid, attempts=attempts, by=who.words)) if link else None
    if not isinstance(answer, Reply) or answer.verdict is not Verdict.TAKEN:
        raise ApiError(404, f"{whose} has ended")
    return {"retried": [{"unit": unit, "attempt": attempt} for unit, attempt in attempts.items()]}


def new_routing_key() -> str:
    """One that nobody has."""
    return "".join(secrets.choice(_KEY_LETTERS) for _ in range(ROUTING_KEY_LENGTH))


def end_request(reason: Reason, message: str, by: str) -> EndRequest:
    return EndRequest(at=time.time_ns() // 1_000_000, reason=reason, message=message, by=by)
