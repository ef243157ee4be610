"""Which key leads from which baseline to whose fork: what route servers tell those who ask for themselves. Pure.

A consumer of a queue asks whether a message with a key is meant for it. So a rule is there while its fork answers and,
where something routes requests, while that leads them there: no message is taken by a fork that is not yet, or no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.spec.lifecycle import Baseline, fork_id, route_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_RUNNING = "running"


class _JsonObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object."""


class RoutedDestination(_JsonObject, frozen=True, kw_only=True):
    """Where a fork answers."""

    host: str
    port: int


class RoutedPort(_JsonObject, frozen=True, kw_only=True):
    """Where a fork answers to what its baseline takes at a port."""

    workload_port: int
    destinations: tuple[RoutedDestination, ...]


class RoutedBaseline(_JsonObject, frozen=True, kw_only=True):
    """The workload for which a request or message was meant."""

    kind: str
    namespace: str
    name: str


class RoutedSandbox(_JsonObject, frozen=True, kw_only=True):
    """The sandbox whose fork takes it."""

    name: str


class RoutingRule(_JsonObject, frozen=True, kw_only=True):
    """One key, one baseline, one fork. There is one rule at most for a baseline and a key: `id`."""

    routing_key: str
    baseline: RoutedBaseline
    destination_sandbox: RoutedSandbox
    mappings: tuple[RoutedPort, ...]

    @property
    def id(self) -> RuleId:
        """What no two rules that hold have in common."""
        return RuleId(self.baseline, self.routing_key)


class RuleId(NamedTuple):
    """Which rule is meant."""

    baseline: RoutedBaseline
    key: str


class Forked(NamedTuple):
    """A living sandbox, as far as rules are concerned.

    Attributes:
        name: As people call it.
        key: Its own routing key.
        forks: What it forks.
        groups: By baseline (`namespace/name`), the keys of route groups that lead to its fork.
        states: Of its units, by their ids, as its report has them.
        mappings: By the id of a fork, where it answers; none where nothing leads to it.
    """

    name: str
    key: str
    forks: Sequence[Baseline]
    groups: Mapping[str, Sequence[str]]
    states: Mapping[str, str]
    mappings: Mapping[str, tuple[RoutedPort, ...]]


def rules(sandbox: Forked) -> Iterator[RoutingRule]:
    """All rules that lead to it now."""
    for of in sandbox.forks:
        fork = fork_id(of)
        if sandbox.states.get(fork) != _RUNNING or sandbox.states.get(route_id(of), _RUNNING) != _RUNNING:
            continue
        for key in (sandbox.key, *sandbox.groups.get(f"{of.namespace}/{of.name}", ())):
            yield RoutingRule(
                routing_key=key,
                baseline=RoutedBaseline(kind=of.kind, namespace=of.namespace, name=of.name),
                destination_sandbox=RoutedSandbox(name=sandbox.name),
                mappings=sandbox.mappings.get(fork, ()),
            )


class Query(NamedTuple):
    """Which rules are meant; what is empty may be anything."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    key: str = ""
    sandbox: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Query:
        """By the parameters of an address (surface 7.3)."""
        return cls(*(asked.get(name, "") for name in PARAMETERS))

    def takes(self, rule: RoutingRule) -> bool:
        """Whether a rule is meant."""
        of = rule.baseline
        have = of.kind, of.namespace, of.name, rule.routing_key, rule.destination_sandbox.name
        return all(wanted in ("", has) for wanted, has in zip(self, have, strict=True))


PARAMETERS = ("baselineKind", "baselineNamespace", "baselineName", "routingKey", "destinationSandboxName")


def by_id(found: Iterable[RoutingRule]) -> dict[RuleId, RoutingRule]:
    """Each once. Should two sandboxes be said to answer to one key for a moment, the first has it."""
    told: dict[RuleId, RoutingRule] = {}
    for rule in found:
        told.setdefault(rule.id, rule)
    return told
