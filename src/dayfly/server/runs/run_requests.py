"""Bodies of requests to end, retry and extend the life of a sandbox or route group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason
from dayfly.server.http.errors import RequestError
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.run import EndRequest, Phase

if TYPE_CHECKING:
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.report import RunReport

MAX_LEASE_S = 86_400


def parse_lease(body: Any, keys: tuple[str, ...]) -> int:
    """Return the seconds in `{"seconds": n}`."""
    if not isinstance(body, dict) or set(body) != {"seconds"}:
        raise SpecError('must be {"seconds": n} and nothing else', keys)
    seconds = body["seconds"]
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= MAX_LEASE_S:
        raise SpecError(f"must be a whole number from 1 to {MAX_LEASE_S}", (*keys, "seconds"))
    return seconds


def parse_unit(body: Any) -> str:
    """Return the unit in `{"unit": "db/drop"}`, or "" for `{}`."""
    if not isinstance(body, dict) or not set(body) <= {"unit"}:
        raise SpecError('must be {} or {"unit": "RESOURCE/STEP"}, and nothing else', ())
    unit = body.get("unit", "")
    if not isinstance(unit, str) or ("unit" in body and not unit):
        raise SpecError("must be the ID of a unit in the report, such as db/drop", ("unit",))
    return unit


def parse_resource(body: Any) -> str:
    """Return the resource in `{"resource": "db"}`."""
    resource = body.get("resource") if isinstance(body, dict) and set(body) == {"resource"} else None
    if not isinstance(resource, str) or not resource:
        raise SpecError('must be {"resource": "NAME"} and nothing else', ())
    return resource


class Abandonment(NamedTuple):
    """A request to abandon a cleanup; with `forced` the cleanup need not have started."""

    request: EndRequest
    forced: bool


def parse_abandonment(body: Any, by: str) -> Abandonment:
    """Parse `{"reason": "...", "force": false}`."""
    reason = body.get("reason") if isinstance(body, dict) else None
    if not isinstance(reason, str) or not reason.strip():
        raise SpecError("is required: why is the cleanup abandoned? It is recorded", ("reason",))
    if len(reason) > 1000 or not reason.isprintable():
        raise SpecError("must be one line of at most 1000 printable characters", ("reason",))
    forced = body.get("force", False)
    if not isinstance(forced, bool):
        raise SpecError("must be true or false", ("force",))
    return Abandonment(end_request(Reason.ABANDONED, reason.strip(), by), forced)


def forced_deletion(by: str) -> Abandonment:
    """Return the request for `DELETE` with `force=true`."""
    return Abandonment(end_request(Reason.ABANDONED, "deleted with force=true", by), forced=True)


def refuse_too_early(record: RunRecord[Any], report: RunReport) -> None:
    """Refuse to abandon a cleanup that has not started.

    Raises:
        RequestError: 409.
    """
    if record.stop is not None or report.phase is not Phase.OPEN:
        return
    text = f"{record.kind.noun} {quote(record.name)} is not being deleted, so there is no cleanup to abandon"
    raise RequestError(409, f'{text}: delete it first, or send "force": true to leave everything behind')


def end_request(reason: Reason, message: str, by: str) -> EndRequest:
    """Return the request to end a run now."""
    return EndRequest(at=now_ms(), reason=reason, message=message, by=by)
