"""Insertion and removal of Dayfly's rules in a VirtualService. Pure.

The name of a rule identifies its owner: `dayfly/<birth of its run>/<run>/<fork>/<number>`. Copies of one rule are
sorted by name. So if a request has several keys, the oldest sandbox receives it, at every hop.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dayfly.execute.gateway.rules import KeyMatch
from dayfly.execute.istio.read import replace_service, service_of_host
from dayfly.spec.scalars.kube_names import is_label

PREFIX = "dayfly/"
MAX_MATCHES = 960
"""Maximum number of matches of one fork in one VirtualService, because every proxy evaluates them."""
MAX_PATTERN_CHARS = 1024
"""Istio's limit for a pattern."""
_EVERYTHING: tuple[dict[str, Any], ...] = ({},)
# Other users can write rules with such names. So the time and the names in it are validated before they are used.
_BIRTH = re.compile("[0-9]{13}")

Rule = dict[str, Any]


class RuleOwner(NamedTuple):
    """The run and the fork that a rule belongs to, and the run's birth in unix milliseconds."""

    born: int
    run: str
    fork: str

    def name(self, number: int) -> str:
        return f"{PREFIX}{self.born:013}/{self.run}/{self.fork}/{number:02}"


class ForkRules(NamedTuple):
    """The rules of one fork: `leads` has its Service for each Service of its baseline, all in `namespace`."""

    owner: RuleOwner
    namespace: str
    leads: Mapping[str, str]
    key_matches: tuple[KeyMatch, ...]


class EditedRules(NamedTuple):
    """The rules after an insertion.

    `full_rules` has the numbers of rules, not counting Dayfly's, that have no room for a key match. `is_cut` is true if
    matches were omitted because of the limit.
    """

    rules: tuple[Rule, ...]
    full_rules: tuple[int, ...] = ()
    is_cut: bool = False


def owner_of(rule: Mapping[str, Any]) -> RuleOwner | None:
    """Return the owner of a rule; None if the rule is not Dayfly's."""
    parts = str(rule.get("name", "")).split("/")
    if len(parts) != 5 or f"{parts[0]}/" != PREFIX or not _BIRTH.fullmatch(parts[1]):
        return None
    if not all(map(is_label, parts[2:4])):
        return None
    return RuleOwner(int(parts[1]), parts[2], parts[3])


def owners_of(rules: Sequence[Mapping[str, Any]]) -> frozenset[RuleOwner]:
    """Return the owners of all of Dayfly's rules."""
    return frozenset(owner for rule in rules if (owner := owner_of(rule)))


def group_by_run(rules: Sequence[Rule]) -> dict[str, list[Rule]]:
    """Return Dayfly's rules, grouped by run."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if owner := owner_of(rule):
            found.setdefault(owner.run, []).append(rule)
    return found


def rules_of_others(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that are not Dayfly's."""
    return [rule for rule in rules if owner_of(rule) is None]


def remove_rules(rules: Sequence[Rule], *, run: str, fork: str = "") -> list[Rule]:
    """Return all rules except those of a run, or of one fork of it."""

    def is_theirs(owner: RuleOwner | None) -> bool:
        return owner is not None and owner.run == run and fork in ("", owner.fork)

    return [rule for rule in rules if not is_theirs(owner_of(rule))]


def leads_to(rule: Mapping[str, Any], services: Mapping[str, Any] | Sequence[str], namespace: str, own: str) -> bool:
    """Return whether the rule routes requests to one of these Services; `own` is the VirtualService's namespace."""
    return any(_is_to(each, services, namespace, own) for each in _effective_routes(rule))


def insert_rules(rules: Sequence[Rule], fork: ForkRules, own: str) -> EditedRules:
    """Replace the rules of a fork in a VirtualService of the namespace `own`; all other rules stay unchanged."""
    owner = fork.owner
    made: list[Rule] = []
    crowded: list[int] = []
    left, number, at, cut = MAX_MATCHES, 0, 0, False
    for rule in remove_rules(rules, run=owner.run, fork=owner.fork):
        if owner_of(rule) is None:
            number += 1
            if leads_to(rule, fork.leads, fork.namespace, own):
                found = [added for match in _matches(rule) for added in _add_key(match, fork.key_matches)]
                if fork.key_matches and not found:
                    crowded.append(number)
                cut = cut or len(found) > left
                if taken := found[:left]:
                    copy = {**rule, "name": owner.name(at), "match": taken, "route": _fork_route(rule, fork, own)}
                    made.insert(_insert_index(made, copy["name"]), copy)
                    left, at = left - len(taken), at + 1
        made.append(rule)
    return EditedRules(tuple(made), tuple(crowded), cut)


def _insert_index(made: Sequence[Rule], name: str) -> int:
    """Return the index for a new copy among the copies at the end of `made`, which are sorted by name."""
    place = len(made)
    while place and owner_of(made[place - 1]) is not None and str(made[place - 1]["name"]) > name:
        place -= 1
    return place


def _matches(rule: Rule) -> list[dict[str, Any]]:
    return list(rule.get("match") or _EVERYTHING)


def _add_key(match: Mapping[str, Any], key_matches: Sequence[KeyMatch]) -> Iterator[dict[str, Any]]:
    """Yield the match with each key match added, unless it already has that header or parameter."""
    names = {str(name).lower() for name in match.get("headers") or ()}
    for each in key_matches:
        field = "queryParams" if each.query else "headers"
        present = match.get(field) or {}
        if each.name not in (present if each.query else names):
            added = {**match, field: {**present, each.name: {"regex" if each.pattern else "exact": each.value}}}
            added.pop("name", None)
            yield added


def _is_to(each: Mapping[str, Any], services: Mapping[str, Any] | Sequence[str], namespace: str, own: str) -> bool:
    found = service_of_host(str((each.get("destination") or {}).get("host", "")), own)
    return found is not None and found.namespace == namespace and found.name in services


def _effective_routes(rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the routes that receive requests: a single one, or those of several that have a weight."""
    every = rule.get("route") or []
    return every if len(every) == 1 else [each for each in every if each.get("weight")]


def _fork_route(rule: Rule, fork: ForkRules, own: str) -> list[dict[str, Any]]:
    """Return the route of the rule with the fork as its only destination, also if it had several.

    Subsets select pods of the baseline, so the fork's destination has none.
    """
    found = [each for each in _effective_routes(rule) if _is_to(each, fork.leads, fork.namespace, own)]
    each = found[0]
    destination = {key: value for key, value in each["destination"].items() if key != "subset"}
    destination["host"] = replace_service(destination["host"], fork.leads)
    return [{**{key: value for key, value in each.items() if key != "weight"}, "destination": destination}]
