"""Route groups: sandboxes selected by labels, with a routing key that reaches the forks of all of them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import doc, list_of, map_of
from dayfly.spec.plugin import Runner
from dayfly.spec.routing import label_match
from dayfly.spec.routing.endpoints import split_target
from dayfly.spec.routing.label_match import Match
from dayfly.spec.sandbox import EVENTS, Endpoint, Hooks, Ttl, check_ttl
from dayfly.spec.sandbox_rules import MAX_CLUSTER_BYTES, check_choice, check_hooks
from dayfly.spec.scalars import names
from dayfly.spec.steps.webhook import EVERY_STEPS_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "RouteGroup"
NO_MATCHED_SANDBOXES = "noMatchedSandboxes"
OFFSETS = (NO_MATCHED_SANDBOXES, "createdAt", "updatedAt")
MAX_ENDPOINTS = 64
GROUP_VARIABLES = ("DAYFLY_ROUTE_GROUP_NAME", "DAYFLY_ROUTE_GROUP_ROUTING_KEY", "DAYFLY_ROUTE_GROUP_NAMESPACE")
"""Variables of each step that identify its route group."""


class GroupTtl(Ttl, frozen=True, kw_only=True):
    """A duration of m, h, d or w, counted from `offset_from`: the last match, the creation or the last change."""

    offset_from: Annotated[str, doc("Start of the duration.", enum=list(OFFSETS))] = NO_MATCHED_SANDBOXES

    def end_time(self, *, born: int, updated: int, unmatched: int) -> int:
        """Return the end of a life with these times, in unix milliseconds; 0 while it cannot be determined.

        Args:
            born: Creation time.
            updated: Time of the last change of its spec.
            unmatched: Time since which no sandbox matches; 0 while one matches.
        """
        begin = {"createdAt": born, "updatedAt": updated}.get(self.offset_from, unmatched)
        return begin + self.seconds * 1000 if begin else 0


class GroupEndpoint(Endpoint, frozen=True, kw_only=True):
    """An address: `target` is `<scheme>://<host>:<port>`. `cluster` selects one of a group's clusters."""

    cluster: Annotated[str, doc("The cluster, for a group of several clusters.", 255)] = ""


MAY_CHANGE = ("labels", "match", "ttl", "endpoints")
"""Fields that may change in a live route group."""


class RouteGroupSpec(WireStruct, frozen=True, kw_only=True):
    """The spec of a route group."""

    cluster: Annotated[str, doc("Name of the cluster of its sandboxes. It cannot change.", 255)] = ""
    description: Annotated[str, doc("Description for readers. It cannot change.", 4096)] = ""
    labels: Annotated[dict[str, str], map_of("Labels of the group itself.", 1024)] = {}
    match: Annotated[
        dict[str, Any],
        doc(
            "The sandboxes of its namespace that it selects: label {key, value} with a pattern as value (* ? "
            "[a-z], where no star crosses a slash); any of several matches; or all of several."
        ),
    ]
    ttl: Annotated[GroupTtl | None, doc("Time to live. By default the group lives until it is deleted.")] = None
    endpoints: Annotated[tuple[GroupEndpoint, ...], list_of("Addresses, by name.", MAX_ENDPOINTS, key="name")] = ()
    hooks: Annotated[
        Hooks | None, doc("Steps of the group itself: before and after it starts, before and after it stops.")
    ] = None
    runner: Annotated[Runner | None, doc("Image and namespace of the hooks' steps. It cannot change.")] = None

    @property
    def matcher(self) -> Match:
        """The match, parsed."""
        return label_match.parse(self.match)


class RouteGroup(WireStruct, frozen=True, kw_only=True):
    """A route group: its name and spec."""

    name: str
    spec: RouteGroupSpec


def check_route_group(group: RouteGroup, spelled: Mapping[Path, str] = MappingProxyType({})) -> None:
    """Check a route group by every rule that needs no other document. `spelled` is as for `label_match.parse`.

    Raises:
        SpecError: Every fault, each with a path from the document's root.
    """
    spec = group.spec
    root: Path = ("spec",)
    faults = Faults()
    with faults:
        names.check("route group", group.name, ("name",))
    with faults:
        if len(spec.cluster.encode()) > MAX_CLUSTER_BYTES:
            raise SpecError(f"a cluster name has at most {MAX_CLUSTER_BYTES} bytes", (*root, "cluster"))
    with faults:
        label_match.parse(spec.match, (*root, "match"), spelled)
    with faults:
        if spec.ttl:
            check_ttl(spec.ttl.duration, (*root, "ttl", "duration"))
            check_choice(spec.ttl.offset_from, OFFSETS, (*root, "ttl", "offsetFrom"))
    with faults:
        check_hooks(spec.hooks, spec.runner, root, variables=(*GROUP_VARIABLES, *EVERY_STEPS_VARIABLES))
    with faults:
        _check_sources(spec.hooks or Hooks(), root)
    with faults:
        _check_endpoints(spec, root)
    faults.settle()


def _check_sources(hooks: Hooks, root: Path) -> None:
    faults = Faults()
    by_event = (hooks.pre_start, hooks.post_start, hooks.pre_stop, hooks.post_stop)
    for event, steps in zip(EVENTS, by_event, strict=True):
        for index, step in enumerate(steps):
            for position, wanted in enumerate(step.inputs):
                if wanted.value_from is not None:
                    problem = "a route group has neither resources nor forks; write value or valueFromStep"
                    keys = (*root, "hooks", event, index, "inputs", position, "valueFrom")
                    faults.found.append(SpecError(problem, keys))
    faults.settle()


def _check_endpoints(spec: RouteGroupSpec, root: Path) -> None:
    here = (*root, "endpoints")
    if len(spec.endpoints) > MAX_ENDPOINTS:
        raise SpecError(f"has {len(spec.endpoints)} items; at most {MAX_ENDPOINTS} are allowed", here)
    faults = Faults()
    for index, endpoint in enumerate(spec.endpoints):
        with faults:
            names.check("endpoint", endpoint.name, (*here, index, "name"))
        with faults:
            split_target(endpoint.target, (*here, index, "target"))
        with faults:
            if endpoint.cluster and endpoint.cluster != spec.cluster and spec.cluster:
                problem = f"the group is only in cluster {quote(spec.cluster)}; leave it out"
                raise SpecError(problem, (*here, index, "cluster"))
    with faults:
        names.check_unique("the endpoint", [(each.name, (*here, n, "name")) for n, each in enumerate(spec.endpoints)])
    faults.settle()
