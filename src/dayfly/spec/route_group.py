"""A route group: a match over sandboxes' labels with a routing key of its own, which reaches the forks of all."""

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
from dayfly.spec.sandbox_rules import LONGEST_CLUSTER, check_choice, check_hooks
from dayfly.spec.scalars import names
from dayfly.spec.steps.webhook import EVERY_STEPS_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "RouteGroup"
NO_MATCHED_SANDBOXES = "noMatchedSandboxes"
OFFSETS = (NO_MATCHED_SANDBOXES, "createdAt", "updatedAt")
MOST_ENDPOINTS = 64
GROUP_VARIABLES = ("DAYFLY_ROUTE_GROUP_NAME", "DAYFLY_ROUTE_GROUP_ROUTING_KEY", "DAYFLY_ROUTE_GROUP_NAMESPACE")
"""What each step finds in its environment: whose hook it is."""


class GroupTtl(Ttl, frozen=True, kw_only=True):
    """`duration` is a whole number and m, h, d or w, counted from `offset_from`: the last match, or a moment."""

    offset_from: Annotated[str, doc("What it is counted from.", enum=list(OFFSETS))] = NO_MATCHED_SANDBOXES

    def until(self, *, born: int, updated: int, unmatched: int) -> int:
        """When the life ends that began and was changed then, in unix milliseconds; 0 while nobody can say.

        Args:
            born: When it was created.
            updated: When its wish last changed.
            unmatched: Since when no sandbox matches; 0 while one does.
        """
        begin = {"createdAt": born, "updatedAt": updated}.get(self.offset_from, unmatched)
        return begin + self.seconds * 1000 if begin else 0


class GroupEndpoint(Endpoint, frozen=True, kw_only=True):
    """A way in: `target` is `<scheme>://<host>:<port>`. `cluster` says where, for a group of several clusters."""

    cluster: Annotated[str, doc("In which of several clusters.", 255)] = ""


MAY_CHANGE = ("labels", "match", "ttl", "endpoints")
"""What of a living route group's spec may change."""


class RouteGroupSpec(WireStruct, frozen=True, kw_only=True):
    """A route group as wished."""

    cluster: Annotated[str, doc("Name of the cluster of its sandboxes. It cannot change.", 255)] = ""
    description: Annotated[str, doc("For readers. It cannot change.", 4096)] = ""
    labels: Annotated[dict[str, str], map_of("Labels of the group itself.", 1024)] = {}
    match: Annotated[
        dict[str, Any],
        doc(
            "Which sandboxes of its namespace it has: label {key, value}, value being a pattern (* ? [a-z]), and "
            "no star crosses a slash; any of several matches; or all of several."
        ),
    ]
    ttl: Annotated[GroupTtl | None, doc("How long the group lives; left out, until it is deleted.")] = None
    endpoints: Annotated[tuple[GroupEndpoint, ...], list_of("Ways in, by name.", MOST_ENDPOINTS, key="name")] = ()
    hooks: Annotated[
        Hooks | None, doc("Steps of the group itself: before and after it starts, before and after it stops.")
    ] = None
    runner: Annotated[Runner | None, doc("Where the hooks' steps run. It cannot change.")] = None

    @property
    def matcher(self) -> Match:
        """The match, as it has been checked."""
        return label_match.parse(self.match)


class RouteGroup(WireStruct, frozen=True, kw_only=True):
    """A named wish."""

    name: str
    spec: RouteGroupSpec


def check_route_group(group: RouteGroup, spelled: Mapping[Path, str] = MappingProxyType({})) -> None:
    """Hold a route group to every rule that needs no other document; `spelled` as for `label_match.parse`.

    Raises:
        SpecError: every fault, the keys of each counted from the document's root.
    """
    spec = group.spec
    root: Path = ("spec",)
    faults = Faults()
    with faults:
        names.check("route group", group.name, ("name",))
    with faults:
        if len(spec.cluster.encode()) > LONGEST_CLUSTER:
            raise SpecError(f"a cluster name has at most {LONGEST_CLUSTER} bytes", (*root, "cluster"))
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
    if len(spec.endpoints) > MOST_ENDPOINTS:
        raise SpecError(f"has {len(spec.endpoints)} items; at most {MOST_ENDPOINTS} are allowed", here)
    faults = Faults()
    for index, endpoint in enumerate(spec.endpoints):
        with faults:
            names.check("endpoint", endpoint.name, (*here, index, "name"))
        with faults:
            split_target(endpoint.target, (*here, index, "target"))
        with faults:
            if endpoint.cluster and endpoint.cluster != spec.cluster and spec.cluster:
                problem = f"the group is of cluster {quote(spec.cluster)} alone; leave it out"
                raise SpecError(problem, (*here, index, "cluster"))
    with faults:
        names.check_unique("the endpoint", [(each.name, (*here, n, "name")) for n, each in enumerate(spec.endpoints)])
    faults.settle()
