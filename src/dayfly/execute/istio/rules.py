"""The rules of a VirtualService with ours woven in, or taken out again. Pure.

The name of a rule of ours says whose it is: `dayfly/<birth of its run>/<run>/<fork>/<number>`. Copies of one rule stand
in the order of their names, so of several keys in one request that of the oldest sandbox counts, at each hop alike.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dayfly.execute.gateway.rules import Sign
from dayfly.execute.istio.read import place_of, renamed
from dayfly.spec.scalars.kube_names import is_label

PREFIX = "dayfly/"
MOST_MATCHES = 960
"""Of ours for one fork in one VirtualService: what one sandbox may add to what every proxy has to look through."""
LONGEST = 1024
"""Of a pattern, as Istio checks it."""
_EVERYTHING: tuple[dict[str, Any], ...] = ({},)
# Anybody may write such a name in a VirtualService of theirs: what is no moment of ours is not turned into one, and
# under what is no name of ours nothing is asked for at the server.
_BIRTH = re.compile("[0-9]{13}")

Rule = dict[str, Any]


class Mark(NamedTuple):
    """Whose a rule of ours is."""

    born: int
    run: str
    fork: str

    def name(self, number: int) -> str:
        return f"{PREFIX}{self.born:013}/{self.run}/{self.fork}/{number:02}"


class Thread(NamedTuple):
    """What is woven in for one fork: `leads` has its Service for each Service of its baseline, all of `namespace`."""

    mark: Mark
    namespace: str
    leads: Mapping[str, str]
    signs: tuple[Sign, ...]


class Woven(NamedTuple):
    """All rules, those (by number, of the others alone) that have no room for a key, and whether some were left out."""

    rules: tuple[Rule, ...]
    crowded: tuple[int, ...] = ()
    cut: bool = False


def mark_of(rule: Mapping[str, Any]) -> Mark | None:
    """Whose rule it is; None if it is none of ours."""
    parts = str(rule.get("name", "")).split("/")
    if len(parts) != 5 or f"{parts[0]}/" != PREFIX or not _BIRTH.fullmatch(parts[1]):
        return None
    if not all(map(is_label, parts[2:4])):
        return None
    return Mark(int(parts[1]), parts[2], parts[3])


def marks(rules: Sequence[Mapping[str, Any]]) -> frozenset[Mark]:
    """All whose rules are among these."""
    return frozenset(mark for rule in rules if (mark := mark_of(rule)))


def by_run(rules: Sequence[Rule]) -> dict[str, list[Rule]]:
    """Ours, by whose they are."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if mark := mark_of(rule):
            found.setdefault(mark.run, []).append(rule)
    return found


def others(rules: Sequence[Rule]) -> list[Rule]:
    """Those that are none of ours."""
    return [rule for rule in rules if mark_of(rule) is None]


def without(rules: Sequence[Rule], *, run: str, fork: str = "") -> list[Rule]:
    """All but those of a run, or of one fork of it."""

    def ours(mark: Mark | None) -> bool:
        return mark is not None and mark.run == run and fork in ("", mark.fork)

    return [rule for rule in rules if not ours(mark_of(rule))]


def leads_to(rule: Mapping[str, Any], services: Mapping[str, Any] | Sequence[str], namespace: str, own: str) -> bool:
    """Whether any request that fits is sent to one of these Services of a namespace; `own` is the VirtualService's."""
    return any(_destined(each, services, namespace, own) for each in _weighty(rule))


def woven(rules: Sequence[Rule], thread: Thread, own: str) -> Woven:
    """The rules of a VirtualService of the namespace `own` with a fork's among them, and else as they were."""
    mark = thread.mark
    made: list[Rule] = []
    crowded: list[int] = []
    left, number, at, cut = MOST_MATCHES, 0, 0, False
    for rule in without(rules, run=mark.run, fork=mark.fork):
        if mark_of(rule) is None:
            number += 1
            if leads_to(rule, thread.leads, thread.namespace, own):
                found = [signed for match in _matches(rule) for signed in _signed(match, thread.signs)]
                if thread.signs and not found:
                    crowded.append(number)
                cut = cut or len(found) > left
                if taken := found[:left]:
                    copy = {**rule, "name": mark.name(at), "match": taken, "route": _led(rule, thread, own)}
                    made.insert(_place(made, copy["name"]), copy)
                    left, at = left - len(taken), at + 1
        made.append(rule)
    return Woven(tuple(made), tuple(crowded), cut)


def _place(made: Sequence[Rule], name: str) -> int:
    """Where a copy goes that comes last: among those of ours that the same rule is the next after."""
    place = len(made)
    while place and mark_of(made[place - 1]) is not None and str(made[place - 1]["name"]) > name:
        place -= 1
    return place


def _matches(rule: Rule) -> list[dict[str, Any]]:
    return list(rule.get("match") or _EVERYTHING)


def _signed(match: Mapping[str, Any], signs: Sequence[Sign]) -> Iterator[dict[str, Any]]:
    """The match with one sign more, for each that it has room for: of one header it can ask but once."""
    names = {str(name).lower() for name in match.get("headers") or ()}
    for sign in signs:
        field = "queryParams" if sign.query else "headers"
        asked = match.get(field) or {}
        if sign.name not in (asked if sign.query else names):
            signed = {**match, field: {**asked, sign.name: {"regex" if sign.pattern else "exact": sign.value}}}
            signed.pop("name", None)
            yield signed


def _destined(each: Mapping[str, Any], services: Mapping[str, Any] | Sequence[str], namespace: str, own: str) -> bool:
    found = place_of(str((each.get("destination") or {}).get("host", "")), own)
    return found is not None and found.namespace == namespace and found.name in services


def _weighty(rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where it leads: of several destinations those without a weight get nothing, of one the weight does not count."""
    every = rule.get("route") or []
    return every if len(every) == 1 else [each for each in every if each.get("weight")]


def _led(rule: Rule, thread: Thread, own: str) -> list[dict[str, Any]]:
    """Where it led, but that whatever it sent to the baseline, and to others beside it, is the fork's alone.

    A subset is one of the baseline's pods: the fork's Service has none.
    """
    found = [each for each in _weighty(rule) if _destined(each, thread.leads, thread.namespace, own)]
    each = found[0]
    destination = {key: value for key, value in each["destination"].items() if key != "subset"}
    destination["host"] = renamed(destination["host"], thread.leads)
    return [{**{key: value for key, value in each.items() if key != "weight"}, "destination": destination}]
