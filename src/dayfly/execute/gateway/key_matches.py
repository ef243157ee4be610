"""How a request is known to carry one of some keys, in the terms of the Gateway API. Pure."""

from collections.abc import Callable, Iterator, Sequence

from dayfly.execute.gateway.rules import Sign
from dayfly.spec.routing import routing_keys
from dayfly.spec.routing.routing_keys import Forms

LONGEST = 4096
"""Of a value that a match may have."""


def signs(keys: Sequence[str], forms: Forms, *, longest: int = LONGEST) -> tuple[Sign, ...]:
    """The ways in which requests carry one of these; keys that no one pattern has room for are spread over several."""
    found = [
        Sign(name, pattern, pattern=True)
        for name, make in _headers(forms)
        for pattern in _patterns(keys, make, longest)
    ]
    if forms.query:
        patterns = _patterns(keys, routing_keys.query_pattern, longest)
        found += [Sign(forms.query, each, pattern=True, query=True) for each in patterns]
    return tuple(found)


def _headers(forms: Forms) -> Iterator[tuple[str, Callable[[Sequence[str]], str]]]:
    yield routing_keys.BAGGAGE, routing_keys.baggage_pattern
    yield routing_keys.TRACESTATE, routing_keys.tracestate_pattern
    for name in routing_keys.PLAIN:
        yield name, lambda keys: routing_keys.plain_pattern(keys, escapes=True)
    for name in forms.headers:
        yield name, lambda keys: routing_keys.plain_pattern(keys, escapes=False)


def _patterns(keys: Sequence[str], make: Callable[[Sequence[str]], str], longest: int) -> Iterator[str]:
    """As few patterns as have room for all keys."""
    some: list[str] = []
    for key in keys:
        if some and len(make([*some, key])) > longest:
            yield make(some)
            some = []
        some.append(key)
    if some:
        yield make(some)
