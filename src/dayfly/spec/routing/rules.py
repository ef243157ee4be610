"""Routing rules: which routing key sends requests for which baseline to whose fork. Route servers publish them.

A consumer of a queue reads the rules to decide whether a message with a key is for it. A rule exists only while its
fork answers and, if the host routes requests, while it routes them there. So no fork takes a message before it is ready
or after it has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from dayfly.spec.lifecycle import Baseline, fork_id, route_id
from dayfly.spec.meta import doc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_RUNNING = "running"


class _JsonObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object."""


class RoutedDestination(_JsonObject, frozen=True, kw_only=True):
    """The address of a fork."""

    host: Annotated[str, doc("Host name or IP address.")]
    port: Annotated[int, doc("Port of the fork.")]


class RoutedPort(_JsonObject, frozen=True, kw_only=True):
    """The address of a fork for one port of its baseline."""

    workload_port: Annotated[int, doc("Port of the baseline.")]
    destinations: Annotated[tuple[RoutedDestination, ...], doc("Addresses of the fork for this port.")]


class RoutedBaseline(_JsonObject, frozen=True, kw_only=True):
    """The workload to which a request or message was addressed."""

    kind: Annotated[str, doc("Kind, `Deployment`.")]
    namespace: Annotated[str, doc("Namespace.")]
    name: Annotated[str, doc("Name.")]


class RoutedSandbox(_JsonObject, frozen=True, kw_only=True):
    """The sandbox whose fork receives it."""

    name: Annotated[str, doc("Name of the sandbox.")]


class RoutingRule(_JsonObject, frozen=True, kw_only=True):
    """One routing key, one baseline and one fork. A baseline and a key have at most one rule: `id`."""

    routing_key: Annotated[str, doc("Routing key of a sandbox or a route group.")]
    baseline: Annotated[RoutedBaseline, doc("Baseline that requests are addressed to.")]
    destination_sandbox: Annotated[RoutedSandbox, doc("Sandbox whose fork receives them.")]
    mappings: Annotated[tuple[RoutedPort, ...], doc("Addresses of the fork, by port of the baseline.")]

    @property
    def id(self) -> RuleId:
        """The identity of a rule, which no other current rule has."""
        return RuleId(self.baseline, self.routing_key)


class RuleId(NamedTuple):
    """Return the identity of a rule."""

    baseline: RoutedBaseline
    key: str


class Forked(NamedTuple):
    """A live sandbox as input for rules.

    Attributes:
        name: Its name.
        key: Its own routing key.
        forks: The baselines that it forks.
        groups: By baseline (`namespace/name`), the keys of the route groups that reach its fork.
        states: The states of its units by id, from its report.
        mappings: By the id of a fork, its addresses; none if nothing routes to it.
    """

    name: str
    key: str
    forks: Sequence[Baseline]
    groups: Mapping[str, Sequence[str]]
    states: Mapping[str, str]
    mappings: Mapping[str, tuple[RoutedPort, ...]]


def rules(sandbox: Forked) -> Iterator[RoutingRule]:
    """Return all rules that route to the sandbox now."""
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
    """A filter of rules. Empty fields match everything."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    key: str = ""
    sandbox: str = ""

    @classmethod
    def from_parameters(cls, asked: Mapping[str, str]) -> Query:
        """Return the query of URL parameters (surface 7.3)."""
        return cls(*(asked.get(name, "") for name in PARAMETERS))

    def matches(self, rule: RoutingRule) -> bool:
        """Return whether a rule matches."""
        of = rule.baseline
        have = of.kind, of.namespace, of.name, rule.routing_key, rule.destination_sandbox.name
        return all(wanted in ("", has) for wanted, has in zip(self, have, strict=True))


PARAMETERS = ("baselineKind", "baselineNamespace", "baselineName", "routingKey", "destinationSandboxName")


def index_by_id(found: Iterable[RoutingRule]) -> dict[RuleId, RoutingRule]:
    """Return each rule once. If two sandboxes have the same key for a moment, the first one has it."""
    told: dict[RuleId, RoutingRule] = {}
    for rule in found:
        told.setdefault(rule.id, rule)
    return told
