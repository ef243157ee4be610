"""What a routing key is, and where a request carries one. Pure; every data plane is held to it.

A request may carry several keys: its sender's, and that of a preview address on its way. Who has which key decides
nobody here: `first` takes the first *route* of which the request carries a key, in the order of the routes, so that
each hop decides alike. A request that carries none of them goes to the baseline.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from dayfly.spec.errors import Path, SpecError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

R = TypeVar("R")

KEY_NAMES: Final = ("sd-routing-key", "sd-sandbox", "sd-workspace")
"""What a member of `baggage` or `tracestate` is called whose value is a key: the newest name first."""
SENT: Final = KEY_NAMES[:2]
BAGGAGE, TRACESTATE = "baggage", "tracestate"
PLAIN: Final = tuple(f"{prefix}{name}" for prefix in ("ot-baggage-", "uberctx-") for name in KEY_NAMES)
"""Headers whose whole value is a key, as OpenTracing, Datadog and Jaeger carry them."""
LONGEST_KEY = 32
_KEY_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_SPACE: Final = " \t"
_ESCAPE: Final = re.compile("%([0-9a-fA-F]{2})")
# What a header's name may be made of (RFC 9110), in lower case.
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~abcdefghijklmnopqrstuvwxyz0123456789")
# Headers that a connection or a message needs for itself: none of them can carry a key.
_TAKEN: Final = frozenset(
    {BAGGAGE, TRACESTATE, "host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade"}
    | {"te", "trailer", "keep-alive", "expect", "authorization", "cookie", "proxy-connection"}
)


class Forms(NamedTuple):
    """Where else a data plane finds keys: plain headers (in lower case) and a parameter of the query."""

    headers: tuple[str, ...] = ()
    query: str = ""


def is_key(text: str) -> bool:
    """Whether this can be a routing key: small letters, digits and inner hyphens, 1 to 32 of them."""
    return 0 < len(text) <= LONGEST_KEY and _KEY_LETTERS.issuperset(text) and "-" not in (text[0], text[-1])


def check_key(key: str) -> None:
    """Hold a key to its form, so that no data plane has to wonder what one could smuggle into a pattern.

    Raises:
        SpecError: it is none.
    """
    if not is_key(key):
        raise SpecError(f"{quote(key)} is not a routing key: 1 to {LONGEST_KEY} small letters, digits and hyphens")


def check_forms(headers: Iterable[str], query: str = "", keys: Path = ()) -> Forms:
    """Further headers and the parameter that a data plane looks at, in the form in which it compares them.

    Raises:
        SpecError: a name that no header or parameter has, or a header that is needed for something else.
    """
    found = []
    for name in headers:
        small = name.lower()
        if not small or not _TOKEN.issuperset(small) or len(small) > 64:
            raise SpecError(f"{quote(name)} is not the name of a header", keys)
        if small in _TAKEN or small.startswith(":") or small in PLAIN:
            raise SpecError(f"the header {quote(name)} is recognised already, or means something else", keys)
        found.append(small)
    if query and (len(query) > 64 or not all(each.isascii() and (each.isalnum() or each in "-_.") for each in query)):
        raise SpecError(f"{quote(query)} cannot be the parameter: use letters, digits, '-', '_' and '.'", keys)
    return Forms(tuple(dict.fromkeys(found)), query)


def keys_of(headers: Iterable[tuple[str, str]], target: str = "", forms: Forms = Forms()) -> frozenset[str]:  # noqa: B008  -- frozen
    """All that a request carries where keys stand; what is no key is not among them.

    Args:
        headers: Names and values as they came; of a name that comes twice, both count.
        target: The request's path with its query.
        forms: Where else to look.
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


def first(routes: Sequence[tuple[Sequence[str], R]], carried: frozenset[str]) -> R | None:
    """Where the first route of which a request carries a key leads; None: it is for the baseline."""
    return next((leads for keys, leads in routes if not carried.isdisjoint(keys)), None)


def injected(key: str) -> tuple[tuple[str, str], ...]:
    """The headers that give a request a key. They are appended: what it carries of these stays."""
    check_key(key)
    members = ",".join(f"{name}={key}" for name in SENT)
    return (BAGGAGE, members), (TRACESTATE, members)


def baggage_pattern(keys: Sequence[str]) -> str:
    """A pattern (RE2, for the whole value) of `baggage` that carries one of these: spaces, properties, escapes."""
    return _member(_any(map(_escapable, keys)), r"(?:;[^,]*)?")


def tracestate_pattern(keys: Sequence[str]) -> str:
    """The same of `tracestate`, whose values have neither properties nor escapes."""
    return _member(_any(map(_literal, keys)), "")


def plain_pattern(keys: Sequence[str], *, escapes: bool) -> str:
    """The same of a header whose whole value is the key; tracers that send one may escape it."""
    return rf"[ \t]*{_any(map(_escapable if escapes else _literal, keys))}[ \t]*"


def query_pattern(keys: Sequence[str]) -> str:
    """The same of the value of a parameter, as it stands in the address."""
    return _any(map(_escapable, keys))


def _member(value: str, tail: str) -> str:
    names = "|".join(KEY_NAMES)
    return rf"(?:.*,)?[ \t]*(?:{names})[ \t]*=[ \t]*{value}[ \t]*{tail}(?:,.*)?"


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _escapable(key: str) -> str:
    """The key, each letter of which may be percent-encoded."""
    check_key(key)
    return "".join(f"(?:{each}|%{_hex(ord(each))})" for each in key)


def _literal(key: str) -> str:
    check_key(key)
    return key


def _unescaped(text: str) -> str:
    """With its percent-encoded letters put in; no letter of a key is one that needs more than that."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _hex(code: int) -> str:
    return "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in f"{code:02x}")


def _members(value: str) -> list[str]:
    """The values of those members of a list that are called as keys are."""
    found = []
    for member in value.split(","):
        name, equals, said = member.partition("=")
        if equals and name.strip(_SPACE) in KEY_NAMES:
            found.append(said.strip(_SPACE))
    return found
