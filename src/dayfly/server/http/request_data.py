"""The body and query parameters of a request, and the format of times in the API."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from dayfly.server.http.errors import RequestError
from dayfly.spec.errors import SpecError
from dayfly.spec.scalars import label_selector
from dayfly.spec.scalars.numbers import parse_whole

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")

MAX_BODY_BYTES = 1 << 20
JSON = "application/json"
MAX_WAIT_S = 30.0
MAX_NUMBER = 10**18 - 1

_BOOLEANS = {"false": False, "0": False, "true": True, "1": True}
_LAST_SECOND_MS = 253_402_300_799_000  # 9999-12-31T23:59:59Z, the last time that RFC 3339 can express


async def read_json(request: Request) -> Any:
    """Return the decoded JSON body.

    Raises:
        RequestError: see `read_body`, or the body is not JSON.
    """
    _refuse_other_types(request)
    body = await read_body(request)
    if not body.strip():
        raise RequestError(400, "the body is empty; it must be JSON")
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as fault:
        raise RequestError(400, f"the body is not JSON in UTF-8: {fault}") from None


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the body.

    Raises:
        RequestError: it is longer than `max_bytes`, incomplete, or has a content encoding.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        text = f"the body has the Content-Encoding {encoding[:60]!r}: send it without an encoding"
        raise RequestError(415, text, {"Accept-Encoding": "identity"})
    # The rest of a body that is too long is not read, so the connection cannot be used again.
    too_long = RequestError(413, f"the body is longer than {max_bytes} bytes", {"Connection": "close"})
    declared = parse_whole(request.headers.get("content-length", "0"), MAX_NUMBER) or 0
    if declared > max_bytes and "expect" in request.headers:
        raise too_long  # the client has not sent the body yet; other clients could not read an early answer
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise too_long
    except ClientDisconnect:
        raise RequestError(400, "the connection was closed before the end of the body") from None
    return bytes(body)


def _refuse_other_types(request: Request) -> None:
    """Refuse a body whose Content-Type is not JSON in UTF-8. A body without Content-Type counts as JSON.

    Raises:
        RequestError: 415.
    """
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if (kind.strip() or JSON) != JSON or charset not in ("", "utf-8", "utf8", "us-ascii"):
        text = f"the body has the Content-Type {given[:60]!r}: send JSON in UTF-8, with Content-Type: {JSON}"
        raise RequestError(415, text, {"Accept": JSON})


def read_text(request: Request, name: str) -> str:
    """Return a query parameter that restricts the request, or "" if it is missing.

    Raises:
        RequestError: it has no value, for example because a shell variable is not set.
    """
    value = request.query_params.get(name)
    if value == "":
        raise RequestError(400, f"query parameter {name} is empty: give it a value or leave it out")
    return value or ""


def read_flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a boolean query parameter.

    Raises:
        RequestError: it is neither true nor false.
    """
    value = request.query_params.get(name, str(default)).lower()
    if value not in _BOOLEANS:
        raise RequestError(400, f"query parameter {name}: {value[:60]!r} is neither true nor false")
    return _BOOLEANS[value]


def read_number(request: Request, name: str, default: int, *, least: int = 0) -> int:
    """Return an integer query parameter.

    Raises:
        RequestError: it is not a whole number from `least` to `MAX_NUMBER`.
    """
    value = request.query_params.get(name)
    if value is None:
        return default
    number = parse_whole(value, MAX_NUMBER)
    if number is None or number < least:
        problem = f"{value[:60]!r} is not a whole number from {least} to {MAX_NUMBER}"
        raise RequestError(400, f"query parameter {name}: {problem}")
    return number


def apply_limit(request: Request, found: list[T]) -> list[T]:
    """Return the first items of a list, up to the query parameter `limit`.

    Raises:
        RequestError: `limit` is not a positive whole number.
    """
    limit = read_number(request, "limit", 0, least=1)
    return found[:limit] if limit else found


def read_label_terms(request: Request) -> tuple[label_selector.Term, ...]:
    """Return the label selector in the query parameters `label`.

    Raises:
        RequestError: one of them is not a label selector.
    """
    try:
        return label_selector.parse(request.query_params.getlist("label"))
    except SpecError as fault:
        raise RequestError(400, f"query parameter label: {fault}") from None


def read_wait(request: Request) -> float:
    """Return the seconds of the query parameter `wait`, at most `MAX_WAIT_S`."""
    return min(float(read_number(request, "wait", 0)), MAX_WAIT_S)


def read_time(request: Request, name: str) -> int:
    """Return the time in a query parameter, in Unix milliseconds; 0 if it is missing.

    Raises:
        RequestError: it is not a time with a zone.
    """
    written = read_text(request, name)
    # In a query a plus sign is a space.
    found = parse_rfc3339(written.replace(" ", "+")) if written else 0
    if written and found <= 0:
        raise RequestError(400, f"query parameter {name}: write a time with its zone, like 2026-01-02T03:04:05Z")
    return found


def parse_rfc3339(written: Any) -> int:
    """Return the Unix milliseconds of a time with a zone; 0 for any other value."""
    try:
        found = dt.datetime.fromisoformat(written)
        return int(found.timestamp() * 1000) if found.tzinfo else 0
    except (TypeError, ValueError, OverflowError):
        return 0


def rfc3339(at: int) -> str:
    """Format Unix milliseconds as `2026-01-02T03:04:05.678Z`, limited to the years 1970 to 9999."""
    moment = dt.datetime.fromtimestamp(min(max(at, 0), _LAST_SECOND_MS) / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
