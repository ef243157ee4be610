"""Into which VirtualServices the rules for a fork are to be woven, and why some cannot be."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dayfly.execute.istio.read import ServiceRef, VirtualService, applies_to, sort_by_age
from dayfly.execute.istio.rules import ForkRules, Rule, insert_rules, leads_to, others, owners_of
from dayfly.execute.istio.run import render_shared, shared_name
from dayfly.kube.objects import Key
from dayfly.plan import messages
from dayfly.spec.lifecycle import Baseline

MOST_WOVEN = 64
"""VirtualServices into which rules are woven for one fork, the oldest first: anybody may write as many as they like."""


class Strand(NamedTuple):
    """A VirtualService with rules for a fork in it, as it is to be; with `service` it is ours, and is for that one."""

    key: Key
    thread: ForkRules
    seen: VirtualService | None
    service: str = ""

    def weave(self, rules: Sequence[Rule]) -> list[Rule]:
        return list(insert_rules(rules, self.thread, self.key.namespace).rules)

    @property
    def is_off(self) -> bool:
        """Whether it is other than it is to be."""
        return self.seen is None or self.weave(self.seen.rules) != self.seen.rules

    @property
    def is_new(self) -> bool:
        """Whether there is no rule for the fork yet."""
        return self.seen is None or self.thread.owner not in owners_of(self.seen.rules)

    @property
    def remarks(self) -> Iterator[str]:
        rules = self.seen.rules if self.seen is not None else render_shared(self.key, self.service)["spec"]["http"]
        made = insert_rules(rules, self.thread, self.key.namespace)
        called = f"VirtualService {self.key}"
        if made.crowded:
            numbers = ", ".join(map(str, made.crowded))
            yield f"rule {numbers} of {called} asks for all the headers that could carry a key itself"
        if made.cut:
            yield f"{called} has so many rules, or the sandbox so many groups, that some keys reach the baseline"


class Concerned(NamedTuple):
    """VirtualServices that lead to a baseline; `services` are those of it that any of them leads to."""

    found: tuple[VirtualService, ...]
    shared: tuple[str, ...]
    services: frozenset[str]
    remarks: tuple[str, ...]


def concerned(every: Iterable[VirtualService], of: Baseline, services: Sequence[str]) -> Concerned:
    """Whose rules lead to any of the Services of a baseline, and for which of these we have to make one ourselves."""
    known = list(sort_by_age(every))
    own = [each for each in known if each.metadata.namespace == of.namespace and not each.is_left_alone]
    found = [each for each in own if not each.is_ours and _named(each, services)]
    alone: list[str] = []
    remarks: list[str] = []
    for service in services:
        place = ServiceRef(service, of.namespace)
        covering = [each for each in known if not each.is_ours and applies_to(each, place)]
        if not covering:
            alone.append(service)
        remarks += (f"{why} where calls to Service {of.namespace}/{service} go" for why in _refused(covering, found))
    if len(found) > MOST_WOVEN:
        remarks.insert(0, messages.routes_left_out(len(found) - MOST_WOVEN))
    found = found[:MOST_WOVEN]
    asked = {name for each in found for name in _named(each, services)} | set(alone)
    return Concerned(tuple(found), tuple(alone), frozenset(asked), tuple(dict.fromkeys(remarks)))


def strands(of: Concerned, thread: ForkRules, seen: Callable[[Key], VirtualService | None]) -> Iterator[Strand]:
    """All of them; what we have made ourselves, and have to no more, is none."""
    for each in of.found:
        yield Strand(Key.of(each), thread, each)
    for service in of.shared:
        if service in thread.leads:
            key = Key(thread.namespace, shared_name(service))
            only = thread._replace(leads={service: thread.leads[service]})
            yield Strand(key, only, seen(key), service)


def _named(each: VirtualService, services: Sequence[str]) -> list[str]:
    namespace = each.metadata.namespace
    return [
        name for name in services if any(leads_to(rule, (name,), namespace, namespace) for rule in others(each.rules))
    ]


def _refused(covering: Sequence[VirtualService], found: Sequence[VirtualService]) -> Iterator[str]:
    """Of two for one host Istio takes the older: so beside somebody's we make none of ours."""
    keys = {Key.of(each) for each in found}
    for each in covering:
        if Key.of(each) not in keys:
            how = "is left alone, as its annotation says, and" if each.is_left_alone else "leads none to it, and"
            yield f"VirtualService {Key.of(each)} {how} decides"


def leads_of(wanted: Mapping[str, str], asked: frozenset[str]) -> dict[str, str]:
    """The fork's Services for those that are asked for."""
    return {name: wanted[name] for name in sorted(asked)}
