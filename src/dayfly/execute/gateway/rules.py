"""A route's rules, as they are for requests with a key: the same, but that they lead to a fork. Pure.

Why all rules that lead to a baseline are copied, and how ours are chosen before them: a Gateway compares the matches of
all routes of a host, and takes the one with the more exact or longer path, then one with a method, then the one with
more headers, then with more query parameters (and of equals the older route's). A copy differs from its rule by one
header or parameter more. So where the baseline's rule is chosen for a request, its copy is chosen for the same request
with a key; and no other copy is, since among themselves they compare as their rules do.

One thing is left: a rule that leads elsewhere, and is told from the baseline's by headers or parameters alone, would
now lose against the copy of one that it wins against. It is copied as well, as it is (a shield).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# What every version of the Gateway API takes: matches of a rule, rules of a route, matches of all its rules.
MATCHES, RULES, TOTAL = 8, 16, 120
SIGNS = 16
"""Headers of one match, and query parameters."""
_EVERYTHING: tuple[dict[str, Any], ...] = ({},)

Rule = dict[str, Any]


class Sign(NamedTuple):
    """One way in which requests carry a key: a header whose whole value fits, or a query parameter."""

    name: str
    value: str
    pattern: bool = False
    query: bool = False


class RuleTargets(NamedTuple):
    """Where the rules of copies lead.

    `forks` has the fork's Service for each Service of its baseline; `others` are Services whose own forks see to their
    rules.
    """

    forks: Mapping[str, str]
    others: Collection[str] = ()


class Copied(NamedTuple):
    """The rules of each object to be made, those (by number) without room for a sign, and whether any match was cut."""

    objects: tuple[tuple[Rule, ...], ...]
    crowded: tuple[int, ...]
    cut: bool = False


def leads_to(rule: Mapping[str, Any], services: Collection[str], namespace: str) -> bool:
    """Whether any request that fits is sent to one of these Services."""
    return any(_names(ref, services, namespace) for ref in rule.get("backendRefs") or ())


def copied(rules: Sequence[Rule], signs: Sequence[Sign], leads: RuleTargets, namespace: str, most: int) -> Copied:
    """The rules of ours for a route with these.

    Args:
        rules: The route's.
        signs: Of all keys that lead to the fork.
        leads: Where they lead.
        namespace: The route's.
        most: So many matches are made, and no more.
    """
    made: list[Rule] = []
    crowded: list[int] = []
    left, cut = most, False
    for index, rule in enumerate(rules):
        if leads_to(rule, leads.forks, namespace):
            matches = _matches(rule)
            body = _led(rule, leads.forks, namespace)
        else:
            matches = [] if leads_to(rule, leads.others, namespace) else list(_shielded(index, rules, leads, namespace))
            body = dict(rule)
        each = [list(_signed(match, signs)) for match in matches]
        if signs and not all(each):
            crowded.append(index)
        found = [signed for some in each for signed in some]
        cut = cut or len(found) > left
        made += _split(body, found[:left])
        left -= len(found[:left])
    return Copied(tuple(_packed(made)), tuple(crowded), cut)


def _matches(rule: Rule) -> list[dict[str, Any]]:
    return list(rule.get("matches") or _EVERYTHING)


def _names(ref: Mapping[str, Any], services: Collection[str], namespace: str) -> bool:
    is_service = ref.get("group", "") == "" and ref.get("kind", "Service") == "Service"
    here = ref.get("namespace", namespace) == namespace
    return bool(is_service and here and ref.get("name") in services and ref.get("weight", 1))


def _led(rule: Rule, forks: Mapping[str, str], namespace: str) -> Rule:
    """The same, but that whatever it sent to the baseline, and to others beside it, is the fork's alone."""
    refs = [ref for ref in rule["backendRefs"] if _names(ref, forks, namespace)]
    return rule | {"backendRefs": [ref | {"name": forks[ref["name"]]} for ref in refs]}


def _signed(match: Mapping[str, Any], signs: Sequence[Sign]) -> Iterator[dict[str, Any]]:
    """The match with one sign more, for each that it has room for; one that asks for such a header itself is left."""
    for sign in signs:
        field = "queryParams" if sign.query else "headers"
        asked = list(match.get(field) or ())
        names = {str(each.get("name")) if sign.query else str(each.get("name")).lower() for each in asked}
        if len(asked) < SIGNS and (sign.name if sign.query else sign.name.lower()) not in names:
            how = "RegularExpression" if sign.pattern else "Exact"
            yield {**match, field: [*asked, {"type": how, "name": sign.name, "value": sign.value}]}


def _shielded(index: int, rules: Sequence[Rule], leads: RuleTargets, namespace: str) -> Iterator[dict[str, Any]]:
    """The matches of a rule that leads elsewhere which a copy would be chosen before, and the copy's own would not."""
    ours = [
        (match, at)
        for at, other in enumerate(rules)
        if leads_to(other, leads.forks, namespace)
        for match in _matches(other)
    ]
    for match in _matches(rules[index]):
        if any(_path(match) == _path(mine) and _before(match, index, mine, at) for mine, at in ours):
            yield match


def _before(match: Mapping[str, Any], index: int, other: Mapping[str, Any], at: int) -> bool:
    """Whether of two matches with one path and method the first is chosen where both fit."""
    ours, theirs = _signs(match), _signs(other)
    return ours > theirs or (ours == theirs and index < at)


def _signs(match: Mapping[str, Any]) -> tuple[int, int]:
    return len(match.get("headers") or ()), len(match.get("queryParams") or ())


def _path(match: Mapping[str, Any]) -> tuple[str, ...]:
    """What is compared before headers are; of gRPC that is all of its method."""
    path = match.get("path") or {}
    kind, value = str(path.get("type", "PathPrefix")), str(path.get("value", "/"))
    value = value.rstrip("/") if kind == "PathPrefix" else value
    method = match.get("method")
    if isinstance(method, dict):
        return kind, value, *(str(method.get(part, "")) for part in ("type", "service", "method"))
    return kind, value, str(method or "")


def _split(body: Rule, matches: Sequence[dict[str, Any]]) -> Iterator[Rule]:
    """Rules with no more matches than one may have."""
    body = {key: value for key, value in body.items() if key not in ("matches", "name")}
    size = 1 if _one_match_alone(body) else MATCHES
    for start in range(0, len(matches), size):
        yield {"matches": list(matches[start : start + size]), **body}


def _one_match_alone(body: Rule) -> bool:
    """Whether a filter replaces the prefix that was matched: then the API allows a rule no second match."""
    filters = [*(body.get("filters") or ())]
    for ref in body.get("backendRefs") or ():
        filters += ref.get("filters") or ()
    paths = [(each.get(kind) or {}).get("path") or {} for each in filters for kind in ("urlRewrite", "requestRedirect")]
    return any(path.get("type") == "ReplacePrefixMatch" for path in paths)


def _packed(rules: Sequence[Rule]) -> Iterator[tuple[Rule, ...]]:
    """Objects with no more rules, and no more matches in them, than one may have. The order stays."""
    pack: list[Rule] = []
    total = 0
    for rule in rules:
        count = len(rule["matches"])
        if pack and (len(pack) == RULES or total + count > TOTAL):
            yield tuple(pack)
            pack, total = [], 0
        pack.append(rule)
        total += count
    if pack:
        yield tuple(pack)
