"""Responses of the API server, decoded to objects or turned into errors."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Generic, TypeVar, cast

import msgspec

from dayfly.kube import errors
from dayfly.kube.objects import ListMeta, ResponseStatus
from dayfly.kube.transport import Answer, KubeRequest

T = TypeVar("T")

READS = frozenset({"GET"})
FIRST_REFUSAL = 400
UNAUTHORIZED = 401
THROTTLED = 429
FIRST_SERVER_ERROR = 500

MAX_MESSAGE_CHARS = 4_096
"""The maximum length of a kept message in characters. It may repeat the refused object, or come from a webhook."""
_CUT, _END = " [...] ", 1_024

_KINDS: dict[int, type[errors.Refused]] = {
    UNAUTHORIZED: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
}
_STATUS = msgspec.json.Decoder(ResponseStatus)


MAX_DEPTH = 100
"""The nesting depth of JSON beyond which it is cut, counted from the outermost brace.

A user who may write an object with a schema that preserves unknown fields can nest thousands of lists in it. The API
server stores it, but no decoder in Python can read it: one such object would break every list and watch.
"""
CUT = "... (nested too deeply to be read)"
"""The text in place of a part that is nested too deeply."""
_CUT_JSON = json.dumps(CUT).encode()
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


class Page(msgspec.Struct, Generic[T], rename="camel", gc=False):
    """One page of a list."""

    metadata: ListMeta
    found: list[T] | None = msgspec.field(default=None, name="items")  # null if an empty list has only metadata

    @property
    def items(self) -> list[T]:
        return self.found or []


class Listing(msgspec.Struct, Generic[T]):
    """A complete list: the objects that existed at `resource_version`, from which a watch can start."""

    resource_version: str
    items: list[T]


def status_of(body: bytes) -> ResponseStatus:
    """Return the Status in a body; for other bodies (of proxies), a Status with the start of the body as message."""
    try:
        return _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ResponseStatus(message=body[:200].decode(errors="replace").strip() or "no explanation was given")


def error_of_response(request: KubeRequest, answer: Answer, *, changes: bool) -> errors.ApiError:
    """Return the error for a response with a status of 400 or more.

    After a 5xx to a change, it is unknown whether the change was stored: `OutcomeUnknown`. A 429 with plain text comes
    from an overloaded server. A 429 with a Status applies only to the request: it comes from a webhook, a disruption
    budget, or the watch cache of the kind.
    """
    status = status_of(answer.body)
    said = str(request)
    message = _bounded(status.message) or "no explanation was given"
    if answer.status == THROTTLED:
        wait, by_all = _seconds(answer, status), not status.status
        return errors.Throttled(
            said, message, retry_after=wait, status=answer.status, reason=status.reason, by_all=by_all
        )
    if answer.status >= FIRST_SERVER_ERROR:
        family = errors.OutcomeUnknown if changes else errors.ServerError
        return family(said, message, status=answer.status, reason=status.reason)
    return error_of_status(said, status, answer.status)


def error_of_status(request: str, status: ResponseStatus, code: int) -> errors.Refused:
    """Return the error for a Status with a code of 4xx, also of a Status inside a watch."""
    kind = _KINDS.get(code, errors.Refused)
    if code == 409 and status.reason == "AlreadyExists":
        kind = errors.AlreadyExists
    found = (status.details.causes if status.details else None) or ()
    causes = tuple(errors.Cause(cause.reason, cause.field, cause.message) for cause in found)
    if kind is errors.Invalid and any(cause.field == "metadata.uid" for cause in causes):
        # A patch with another UID: the server reports the UID as an immutable field.
        kind = errors.Conflict
    if kind is errors.NotFound and not (status.details and status.details.name):
        kind = errors.NotServed  # the 404 of an object has its name
    return kind(request, _bounded(status.message), status=code, reason=status.reason, causes=causes)


def _bounded(message: str) -> str:
    """Truncate a message in the middle: its start names the object, and its end the problem."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    return message[: MAX_MESSAGE_CHARS - _END - len(_CUT)] + _CUT + message[-_END:]


def _seconds(answer: Answer, status: ResponseStatus) -> float:
    header = answer.headers.get("retry-after", "")
    told = status.details.retry_after_seconds if status.details else 0
    return float(header) if header.isascii() and header.isdigit() else float(told or 1)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(kind: type[T], answer: Answer, request: KubeRequest) -> T:
    """Decode a successful response.

    Raises:
        errors.ServerError: the response to a read cannot be decoded.
        errors.OutcomeUnknown: the response to a change cannot be decoded: the change is done, its result is unknown.
    """
    decoder = _decoder(cast("Any", kind))
    try:
        try:
            decoded: T = decoder.decode(answer.body)
        except RecursionError:
            decoded = decoder.decode(truncate_nested(answer.body))
        return decoded
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        if request.method in READS:
            raise errors.ServerError(str(request), f"cannot read the answer: {fault}", status=answer.status) from fault
        raise errors.OutcomeUnknown(str(request), f"cannot read the answer: {fault}", status=answer.status) from fault


def truncate_nested(body: bytes) -> bytes:
    """Return well-formed JSON with `CUT` in place of each part that is nested too deeply."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == MAX_DEPTH + 1:
                    kept += (body[begin : token.start()], _CUT_JSON)
            case b"]" | b"}":
                if depth == MAX_DEPTH + 1:
                    begin = token.end()
                depth -= 1
    return b"".join((*kept, body[begin:]))


def is_truncated(found: Any) -> bool:
    """Return whether a part of an object was cut. Such an object must not be acted on."""
    return _CUT_JSON in msgspec.json.encode(found)
