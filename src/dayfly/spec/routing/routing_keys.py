"""Routing keys: their form, and their places in a request. All data planes follow these rules.

A request may have several keys, for example its sender's and that of a preview address. The order of keys is
irrelevant: `first` selects the first *route* with one of the request's keys, in the order of the routes. So each hop
decides alike. A request without any of these keys goes to the baseline.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from dayfly.spec.errors import Path, SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

R = TypeVar("R")

KEY_NAMES: Final = ("sd-routing-key", "sd-sandbox", "sd-workspace")
"""Members of `baggage` or `tracestate` whose value is a routing key, the newest name first."""
SENT: Final = KEY_NAMES[:2]
BAGGAGE, TRACESTATE = "baggage", "tracestate"
PLAIN: Final = tuple(f"{prefix}{name}" for prefix in ("ot-baggage-", "uberctx-") for name in KEY_NAMES)
"""Headers whose whole value is a routing key, of OpenTracing, Datadog and Jaeger."""
MAX_KEY_LENGTH = 32
_KEY_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_SPACE: Final = " \t"
_ESCAPE: Final = re.compile("%([0-9a-fA-F]{2})")
# The characters of a header's name (RFC 9110), in lower case.
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~abcdefghijklmnopqrstuvwxyz0123456789")
# Headers with a function in HTTP, which cannot have a routing key.
_TAKEN: Final = frozenset(
    {BAGGAGE, TRACESTATE, "host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade"}
    | {"te", "trailer", "keep-alive", "expect", "authorization", "cookie", "proxy-connection"}
)


class Forms(NamedTuple):
    """Additional places of routing keys: plain headers (in lower case) and a query parameter."""

    headers: tuple[str, ...] = ()
    query: str = ""


def is_key(text: str) -> bool:
    """Return whether this is a valid routing key: 1 to 32 lower-case letters, digits and inner hyphens."""
    return 0 < len(text) <= MAX_KEY_LENGTH and _KEY_LETTERS.issuperset(text) and "-" not in (text[0], text[-1])


def check_key(key: str) -> None:
    """Check the form of a key, so that no data plane has to escape it in a pattern.

    Raises:
        SpecError: It is not a routing key.
    """
    if not is_key(key):
        raise SpecError(
            f"{quote(key)} is not a routing key: 1 to {MAX_KEY_LENGTH} lower-case letters, digits and hyphens"
        )


def check_forms(headers: Iterable[str], query: str = "", keys: Path = ()) -> Forms:
    """Return further headers and the parameter with routing keys, in the form in which a data plane compares them.

    Raises:
        SpecError: A name is not valid for a header or parameter, or the header has another function.
    """
    found = []
    for name in headers:
        small = name.lower()
        if not small or not _TOKEN.issuperset(small) or len(small) > 64:
            raise SpecError(f"{quote(name)} is not the name of a header", keys)
        if small in _TAKEN or small.startswith(":") or small in PLAIN:
            raise SpecError(f"the header {quote(name)} is recognised already, or has another meaning", keys)
        found.append(small)
    if query and (len(query) > 64 or not all(each.isascii() and (each.isalnum() or each in "-_.") for each in query)):
        raise SpecError(f"{quote(query)} cannot be the parameter: use letters, digits, '-', '_' and '.'", keys)
    return Forms(tuple(dict.fromkeys(found)), query)


def keys_of(headers: Iterable[tuple[str, str]], target: str = "", forms: Forms = Forms()) -> frozenset[str]:  # noqa: B008  -- frozen
    """Return all routing keys of a request, without invalid ones.

    Args:
        headers: Names and values as received. If a name appears twice, both count.
        target: The request's path with its query.
        forms: Additional places.
    """
    found: list[str] = []
    for name, value in headers:
        match name.lower():
            case "baggage":
                found += (_unescaped(each.partition(";")[0].strip(_SPACE)) for each in _members(value))
            case "tracestate":
                found += _members(value)
            case small if small in PLAIN:
                found.append(_unescaped(value.strip(_SPACE)))
            case small if small in forms.headers:
                found.append(value.strip(_SPACE))
    if forms.query:
        query = target.partition("#")[0].partition("?")[2]
        parameters = (each.partition("=") for each in query.split("&"))
        found += [_unescaped(value) for name, _, value in parameters if name == forms.query][:1]
    return frozenset(filter(is_key, found))


def first_route(routes: Sequence[tuple[Sequence[str], R]], carried: frozenset[str]) -> R | None:
    """Return the destination of the first route whose key the request has; None: the baseline."""
    return next((leads for keys, leads in routes if not carried.isdisjoint(keys)), None)


def injected_headers(key: str) -> tuple[tuple[str, str], ...]:
    """Return the headers that add a key to a request. They are appended to the request's own."""
    check_key(key)
    members = ",".join(f"{name}={key}" for name in SENT)
    return (BAGGAGE, members), (TRACESTATE, members)


def baggage_pattern(keys: Sequence[str]) -> str:
    """Return a pattern (RE2, for the whole value) of a `baggage` with one of these keys, with spaces, properties and
    escapes.
    """
    return _member(_any(map(_escapable, keys)), r"(?:;[^,]*)?")


def tracestate_pattern(keys: Sequence[str]) -> str:
    """Return a pattern of a `tracestate` with one of these keys. Its values have neither properties nor escapes."""
    return _member(_any(map(_literal, keys)), "")


def plain_pattern(keys: Sequence[str], *, escapes: bool) -> str:
    """Return a pattern of a header whose whole value is the key. Tracers may escape it."""
    return rf"[ \t]*{_any(map(_escapable if escapes else _literal, keys))}[ \t]*"


def query_pattern(keys: Sequence[str]) -> str:
    """Return a pattern of the value of a query parameter with one of these keys."""
    return _any(map(_escapable, keys))


def _member(value: str, tail: str) -> str:
    names = "|".join(KEY_NAMES)
    return rf"(?:.*,)?[ \t]*(?:{names})[ \t]*=[ \t]*{value}[ \t]*{tail}(?:,.*)?"


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _escapable(key: str) -> str:
    """Return a pattern of the key in which each letter may be percent-encoded."""
    check_key(key)
    return "".join(f"(?:{each}|%{_hex(ord(each))})" for each in key)


def _literal(key: str) -> str:
    check_key(key)
    return key


def _unescaped(text: str) -> str:
    """Return the text with its percent-encoded letters decoded. The letters of a key need no more than that."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _hex(code: int) -> str:
    return "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in f"{code:02x}")


def _members(value: str) -> list[str]:
    """Return the values of those members of a list whose name is one for keys."""
    found = []
    for member in value.split(","):
        name, equals, said = member.partition("=")
        if equals and name.strip(_SPACE) in KEY_NAMES:
            found.append(said.strip(_SPACE))
    return found
