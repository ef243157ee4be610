"""Edits of VirtualServices for a fork: which ones need rules for it, and why some cannot have them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dayfly.execute.istio.read import ServiceRef, VirtualService, applies_to, sort_by_age
from dayfly.execute.istio.rules import ForkRules, Rule, insert_rules, leads_to, owners_of, rules_of_others
from dayfly.execute.istio.run import render_shared, shared_name
from dayfly.kube.objects import Key
from dayfly.plan import messages
from dayfly.spec.lifecycle import Baseline

MAX_VIRTUAL_SERVICES = 64
"""VirtualServices that get rules for one fork, oldest first, because users may write any number of them."""


class VirtualServiceEdit(NamedTuple):
    """The desired rules for a fork in a VirtualService; with `service` the object is ours and serves that Service."""

    key: Key
    fork_rules: ForkRules
    seen: VirtualService | None
    service: str = ""

    def apply(self, rules: Sequence[Rule]) -> list[Rule]:
        return list(insert_rules(rules, self.fork_rules, self.key.namespace).rules)

    @property
    def is_outdated(self) -> bool:
        """Whether the VirtualService differs from its desired state."""
        return self.seen is None or self.apply(self.seen.rules) != self.seen.rules

    @property
    def is_new(self) -> bool:
        """Whether it has no rule for the fork yet."""
        return self.seen is None or self.fork_rules.owner not in owners_of(self.seen.rules)

    @property
    def remarks(self) -> Iterator[str]:
        rules = self.seen.rules if self.seen is not None else render_shared(self.key, self.service)["spec"]["http"]
        made = insert_rules(rules, self.fork_rules, self.key.namespace)
        name = f"VirtualService {self.key}"
        if made.full_rules:
            numbers = ", ".join(map(str, made.full_rules))
            yield f"rule {numbers} of {name} already matches on all headers that could carry a key"
        if made.is_cut:
            yield f"{name} has too many rules, or the sandbox too many groups: some keys reach the baseline"


class RelevantServices(NamedTuple):
    """VirtualServices that lead to a baseline; `services` are the baseline's Services that they lead to."""

    found: tuple[VirtualService, ...]
    shared: tuple[str, ...]
    services: frozenset[str]
    remarks: tuple[str, ...]


def find_relevant(every: Iterable[VirtualService], baseline: Baseline, services: Sequence[str]) -> RelevantServices:
    """Find the VirtualServices that lead to a baseline's Services, and the Services that have none."""
    known = list(sort_by_age(every))
    own = [each for each in known if each.metadata.namespace == baseline.namespace and not each.is_ignored]
    found = [each for each in own if not each.is_ours and _led_services(each, services)]
    without: list[str] = []
    remarks: list[str] = []
    for service in services:
        place = ServiceRef(service, baseline.namespace)
        covering = [each for each in known if not each.is_ours and applies_to(each, place)]
        if not covering:
            without.append(service)
        remarks += (
            f"{why} where calls to Service {baseline.namespace}/{service} go"
            for why in _blocking_remarks(covering, found)
        )
    if len(found) > MAX_VIRTUAL_SERVICES:
        remarks.insert(0, messages.routes_left_out(len(found) - MAX_VIRTUAL_SERVICES))
    found = found[:MAX_VIRTUAL_SERVICES]
    led = {name for each in found for name in _led_services(each, services)} | set(without)
    return RelevantServices(tuple(found), tuple(without), frozenset(led), tuple(dict.fromkeys(remarks)))


def build_edits(
    relevant: RelevantServices, thread: ForkRules, find: Callable[[Key], VirtualService | None]
) -> Iterator[VirtualServiceEdit]:
    """Yield the edits of all VirtualServices that need rules. Our own obsolete ones are left out."""
    for each in relevant.found:
        yield VirtualServiceEdit(Key.from_object(each), thread, each)
    for service in relevant.shared:
        if service in thread.leads:
            key = Key(thread.namespace, shared_name(service))
            only = thread._replace(leads={service: thread.leads[service]})
            yield VirtualServiceEdit(key, only, find(key), service)


def _led_services(each: VirtualService, services: Sequence[str]) -> list[str]:
    namespace = each.metadata.namespace
    return [
        name
        for name in services
        if any(leads_to(rule, (name,), namespace, namespace) for rule in rules_of_others(each.rules))
    ]


def _blocking_remarks(covering: Sequence[VirtualService], found: Sequence[VirtualService]) -> Iterator[str]:
    """Yield why the operator cannot add a VirtualService: if a host has two, Istio uses the older one."""
    keys = {Key.from_object(each) for each in found}
    for each in covering:
        if Key.from_object(each) not in keys:
            how = "is left alone because of its annotation" if each.is_ignored else "does not lead to it"
            yield f"VirtualService {Key.from_object(each)} {how} and decides"


def leads_of(wanted: Mapping[str, str], led: frozenset[str]) -> dict[str, str]:
    """Return the fork's Services for the requested Services of its baseline."""
    return {name: wanted[name] for name in sorted(led)}
