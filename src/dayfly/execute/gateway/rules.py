"""Copies of a route's rules for requests with a key, which route to a fork. Pure.

A Gateway compares the matches of all routes of a host. It prefers the more exact or longer path, then a method, then
more headers, then more query parameters, and between equal matches the older route. A copy has one header or parameter
more than its rule. So if a Gateway selects the baseline's rule for a request, it selects the copy for the same request
with a key. It selects no other copy, because copies compare to each other like their rules.

One case remains: a rule to another Service that differs from the baseline's rule only by headers or parameters. It wins
against the baseline's rule but would lose against the copy. Such a rule is copied too, with its own backends (a
shield).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dayfly.spec.routing import routing_keys
from dayfly.spec.routing.routing_keys import Forms

# Limits of all versions of the Gateway API: matches of a rule, rules of a route, matches of all its rules.
MAX_RULE_MATCHES, MAX_RULES, MAX_TOTAL_MATCHES = 8, 16, 120
MAX_CONDITIONS = 16
"""Maximum number of headers in a match, and of query parameters."""
MAX_VALUE_CHARS = 4096
"""Maximum length of a value in a match."""
_EVERYTHING: tuple[dict[str, Any], ...] = ({},)

Rule = dict[str, Any]


class KeyMatch(NamedTuple):
    """A condition for requests with a key: a header or query parameter whose whole value must match."""

    name: str
    value: str
    pattern: bool = False
    query: bool = False


class RuleTargets(NamedTuple):
    """The targets of copies.

    `forks` has the fork's Service for each Service of its baseline. `others` are Services of other baselines, whose own
    forks copy their rules.
    """

    forks: Mapping[str, str]
    others: Collection[str] = ()


class CopiedRules(NamedTuple):
    """The rules of each derived object.

    `full_rules` has the indexes of rules without room for a key match. `is_cut` is true if matches were omitted because
    of the limit.
    """

    objects: tuple[tuple[Rule, ...], ...]
    full_rules: tuple[int, ...]
    is_cut: bool = False


def leads_to(rule: Mapping[str, Any], services: Collection[str], namespace: str) -> bool:
    """Return whether the rule routes requests to one of these Services."""
    return any(_is_ref_to(ref, services, namespace) for ref in rule.get("backendRefs") or ())


def copy_rules(
    rules: Sequence[Rule], key_matches: Sequence[KeyMatch], leads: RuleTargets, namespace: str, most: int
) -> CopiedRules:
    """Copy the rules of a route.

    Args:
        rules: The rules of the existing route.
        key_matches: The conditions for all keys of the fork.
        leads: The targets of the copies.
        namespace: The route's namespace.
        most: Maximum number of matches.
    """
    made: list[Rule] = []
    crowded: list[int] = []
    left, cut = most, False
    for index, rule in enumerate(rules):
        if leads_to(rule, leads.forks, namespace):
            matches = _matches(rule)
            body = _to_fork(rule, leads.forks, namespace)
        else:
            matches = (
                []
                if leads_to(rule, leads.others, namespace)
                else list(_shielding_matches(index, rules, leads, namespace))
            )
            body = dict(rule)
        each = [list(_add_key(match, key_matches)) for match in matches]
        if key_matches and not all(each):
            crowded.append(index)
        found = [added for some in each for added in some]
        cut = cut or len(found) > left
        made += _split(body, found[:left])
        left -= len(found[:left])
    return CopiedRules(tuple(_pack(made)), tuple(crowded), cut)


def _matches(rule: Rule) -> list[dict[str, Any]]:
    return list(rule.get("matches") or _EVERYTHING)


def _is_ref_to(ref: Mapping[str, Any], services: Collection[str], namespace: str) -> bool:
    is_service = ref.get("group", "") == "" and ref.get("kind", "Service") == "Service"
    here = ref.get("namespace", namespace) == namespace
    return bool(is_service and here and ref.get("name") in services and ref.get("weight", 1))


def _to_fork(rule: Rule, forks: Mapping[str, str], namespace: str) -> Rule:
    """Return the rule with the fork as its only backend, also if it had several."""
    refs = [ref for ref in rule["backendRefs"] if _is_ref_to(ref, forks, namespace)]
    return rule | {"backendRefs": [ref | {"name": forks[ref["name"]]} for ref in refs]}


def _add_key(match: Mapping[str, Any], key_matches: Sequence[KeyMatch]) -> Iterator[dict[str, Any]]:
    """Yield the match with each key match added, unless it is full or already has that header or parameter."""
    for key in key_matches:
        field = "queryParams" if key.query else "headers"
        present = list(match.get(field) or ())
        names = {str(each.get("name")) if key.query else str(each.get("name")).lower() for each in present}
        if len(present) < MAX_CONDITIONS and (key.name if key.query else key.name.lower()) not in names:
            how = "RegularExpression" if key.pattern else "Exact"
            yield {**match, field: [*present, {"type": how, "name": key.name, "value": key.value}]}


def _shielding_matches(
    index: int, rules: Sequence[Rule], leads: RuleTargets, namespace: str
) -> Iterator[dict[str, Any]]:
    """Yield the matches of a rule to another Service that win against a baseline's rule but not against its copy."""
    ours = [
        (match, at)
        for at, other in enumerate(rules)
        if leads_to(other, leads.forks, namespace)
        for match in _matches(other)
    ]
    for match in _matches(rules[index]):
        if any(_path(match) == _path(mine) and _is_preferred(match, index, mine, at) for mine, at in ours):
            yield match


def _is_preferred(match: Mapping[str, Any], index: int, other: Mapping[str, Any], at: int) -> bool:
    """Return whether a Gateway prefers `match` to `other`, which has the same path and method."""
    ours, theirs = _count_conditions(match), _count_conditions(other)
    return ours > theirs or (ours == theirs and index < at)


def _count_conditions(match: Mapping[str, Any]) -> tuple[int, int]:
    return len(match.get("headers") or ()), len(match.get("queryParams") or ())


def _path(match: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the part of a match that is compared before headers: path and method."""
    path = match.get("path") or {}
    kind, value = str(path.get("type", "PathPrefix")), str(path.get("value", "/"))
    value = value.rstrip("/") if kind == "PathPrefix" else value
    method = match.get("method")
    if isinstance(method, dict):
        return kind, value, *(str(method.get(part, "")) for part in ("type", "service", "method"))
    return kind, value, str(method or "")


def _split(body: Rule, matches: Sequence[dict[str, Any]]) -> Iterator[Rule]:
    """Split a rule into rules within the limit of matches."""
    body = {key: value for key, value in body.items() if key not in ("matches", "name")}
    size = 1 if _needs_single_match(body) else MAX_RULE_MATCHES
    for start in range(0, len(matches), size):
        yield {"matches": list(matches[start : start + size]), **body}


def _needs_single_match(body: Rule) -> bool:
    """Return whether a filter replaces the matched prefix. The API then allows only one match."""
    filters = [*(body.get("filters") or ())]
    for ref in body.get("backendRefs") or ():
        filters += ref.get("filters") or ()
    paths = [(each.get(kind) or {}).get("path") or {} for each in filters for kind in ("urlRewrite", "requestRedirect")]
    return any(path.get("type") == "ReplacePrefixMatch" for path in paths)


def _pack(rules: Sequence[Rule]) -> Iterator[tuple[Rule, ...]]:
    """Group rules into objects within the limits of rules and matches, in order."""
    pack: list[Rule] = []
    total = 0
    for rule in rules:
        count = len(rule["matches"])
        if pack and (len(pack) == MAX_RULES or total + count > MAX_TOTAL_MATCHES):
            yield tuple(pack)
            pack, total = [], 0
        pack.append(rule)
        total += count
    if pack:
        yield tuple(pack)


def build_key_matches(keys: Sequence[str], forms: Forms, *, max_chars: int = MAX_VALUE_CHARS) -> tuple[KeyMatch, ...]:
    """Return conditions for requests that carry one of the keys. Long patterns are split into several conditions."""
    found = [
        KeyMatch(name, pattern, pattern=True)
        for name, make in _headers(forms)
        for pattern in _patterns(keys, make, max_chars)
    ]
    if forms.query:
        patterns = _patterns(keys, routing_keys.query_pattern, max_chars)
        found += [KeyMatch(forms.query, each, pattern=True, query=True) for each in patterns]
    return tuple(found)


def _headers(forms: Forms) -> Iterator[tuple[str, Callable[[Sequence[str]], str]]]:
    yield routing_keys.BAGGAGE, routing_keys.baggage_pattern
    yield routing_keys.TRACESTATE, routing_keys.tracestate_pattern
    for name in routing_keys.PLAIN:
        yield name, lambda keys: routing_keys.plain_pattern(keys, escapes=True)
    for name in forms.headers:
        yield name, lambda keys: routing_keys.plain_pattern(keys, escapes=False)


def _patterns(keys: Sequence[str], make: Callable[[Sequence[str]], str], max_chars: int) -> Iterator[str]:
    """Yield patterns within the limit for all keys, as few as possible."""
    some: list[str] = []
    for key in keys:
        if some and len(make([*some, key])) > max_chars:
            yield make(some)
            some = []
        some.append(key)
    if some:
        yield make(some)
