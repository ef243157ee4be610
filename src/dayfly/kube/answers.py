"""From an answer to the object or the list in it, or to the error that says what to do."""

from __future__ import annotations

import functools
from typing import Any, Generic, TypeVar, cast

import msgspec

from dayfly.kube import errors
from dayfly.kube.depth import cut
from dayfly.kube.objects import ListMeta, Status
from dayfly.kube.transport import Answer, Request

T = TypeVar("T")

READS = frozenset({"GET"})
FIRST_REFUSAL = 400
UNAUTHORIZED = 401
THROTTLED = 429
FIRST_TROUBLE = 500

LONGEST = 4_096
"""Characters of a server's message that are kept: it repeats what it refuses, and what a webhook says has no bound."""
_CUT, _END = " [...] ", 1_024

_KINDS: dict[int, type[errors.Refused]] = {
    UNAUTHORIZED: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
}
_STATUS = msgspec.json.Decoder(Status)


class Page(msgspec.Struct, Generic[T], rename="camel", gc=False):
    """One answer to a list."""

    metadata: ListMeta
    found: list[T] | None = msgspec.field(default=None, name="items")  # an empty list of metadata comes as null

    @property
    def items(self) -> list[T]:
        return self.found or []


class Listing(msgspec.Struct, Generic[T]):
    """All pages of a list: what existed at `resource_version`, from which one can watch."""

    resource_version: str
    items: list[T]


def status_of(body: bytes) -> Status:
    """The Status in a body, or one with the body's beginning as its message (proxies answer in prose)."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(message=body[:200].decode(errors="replace").strip() or "no explanation was given")


def fault(request: Request, answer: Answer, *, changes: bool) -> errors.ApiError:
    """The error for an answer of 400 and above.

    A 5xx to a change tells nothing of what was stored before the trouble began, hence `OutcomeUnknown`. A 429 of a
    server that is too busy is prose. One with a Status is of that request: from a webhook, a disruption budget, or
    the cache of one kind.
    """
    status = status_of(answer.body)
    said = str(request)
    message = _bounded(status.message) or "no explanation was given"
    if answer.status == THROTTLED:
        wait, by_all = _seconds(answer, status), not status.status
        return errors.Throttled(
            said, message, retry_after=wait, status=answer.status, reason=status.reason, by_all=by_all
        )
    if answer.status >= FIRST_TROUBLE:
        family = errors.OutcomeUnknown if changes else errors.ServerTrouble
        return family(said, message, status=answer.status, reason=status.reason)
    return refusal(said, status, answer.status)


def refusal(request: str, status: Status, code: int) -> errors.Refused:
    """The error for a Status of the 400s; also for one that arrives inside a watch."""
    kind = _KINDS.get(code, errors.Refused)
    if code == 409 and status.reason == "AlreadyExists":
        kind = errors.AlreadyExists
    found = (status.details.causes if status.details else None) or ()
    causes = tuple(errors.Cause(cause.reason, cause.field, cause.message) for cause in found)
    if kind is errors.Invalid and any(cause.field == "metadata.uid" for cause in causes):
        kind = (
            errors.Conflict
        )  # a patch of an object with another UID: to the server the UID is a field that may not change
    if kind is errors.NotFound and not (status.details and status.details.name):
        kind = errors.NotServed  # a 404 of an object names it
    return kind(request, _bounded(status.message), status=code, reason=status.reason, causes=causes)


def _bounded(message: str) -> str:
    """Its beginning says of what it speaks, and its end what is wrong with that."""
    if len(message) <= LONGEST:
        return message
    return message[: LONGEST - _END - len(_CUT)] + _CUT + message[-_END:]


def _seconds(answer: Answer, status: Status) -> float:
    header = answer.headers.get("retry-after", "")
    told = status.details.retry_after_seconds if status.details else 0
    return float(header) if header.isascii() and header.isdigit() else float(told or 1)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(kind: type[T], answer: Answer, request: Request) -> T:
    """An answer that is a success, as an object of that type.

    Raises:
        errors.ServerTrouble: a read whose answer cannot be understood.
        errors.OutcomeUnknown: a change whose answer cannot be: it was done, and nobody learns what came of it.
    """
    decoder = _decoder(cast("Any", kind))
    try:
        try:
            decoded: T = decoder.decode(answer.body)
        except RecursionError:
            decoded = decoder.decode(cut(answer.body))
        return decoded
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        if request.method in READS:
            raise errors.ServerTrouble(
                str(request), f"cannot read the answer: {fault}", status=answer.status
            ) from fault
        raise errors.OutcomeUnknown(str(request), f"cannot read the answer: {fault}", status=answer.status) from fault
