"""The routes and Services that route requests with a key to a fork. Pure."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL, LIKE_LABEL, ports
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.rules import CopiedRules, KeyMatch, RuleTargets, copy_rules, leads_to
from dayfly.execute.pod.names import GROUP, RUN_LABEL, derive_name
from dayfly.kube.objects import ApiResource

ROUTE_LABEL = f"{GROUP}/route"
"""On routes and additional Services of a fork: the fork's name."""
BESIDE_ANNOTATION = f"{GROUP}/beside"
"""On a route of Dayfly: the UID of the existing route that it was derived from."""
WITHDRAWN_ANNOTATION = f"{GROUP}/withdrawn"
"""On a route of Dayfly that is about to be deleted: its own UID."""
WITHDRAWN_HEADER = "dayfly-withdrawn"
IGNORE_ANNOTATION = f"{GROUP}/routing"
"""On a route of another owner, with the value `ignore`: Dayfly derives no route from it."""
LABELS_ANNOTATION = f"{GROUP}/route-labels"
"""On a route of another owner: comma-separated labels that derived routes copy, for policies that select by them. On a
derived route: the labels that it has copied."""

MAX_MATCHES = 960
"""Maximum number of matches that one sandbox adds for one route, because every Gateway evaluates them."""
# Names have at most 253 characters. The derived name sorts after the existing one, which decides between equal routes.
_MAX_READABLE_CHARS = 230
_EVERYTHING: tuple[dict[str, Any], ...] = ({},)
WITH_PARAMETERS = "HTTPRoute"


class RouteTarget(NamedTuple):
    """The fork that receives requests: its name, the run's name, and the run's owner reference."""

    name: str
    run: str
    owner: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return {ROUTE_LABEL: self.name, RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "dayfly"}


class ForkRoutes(NamedTuple):
    """The manifests derived from one route.

    `full_rules` has the indexes of its rules without room for a key match. `is_cut` is true if matches were omitted
    because of the limit.
    """

    manifests: tuple[dict[str, Any], ...]
    full_rules: tuple[int, ...]
    is_cut: bool = False


def services_for(services: Iterable[ForkService], labels: Mapping[str, str]) -> tuple[ForkService, ...]:
    """Return the Services that select pods with these labels, without those of forks."""
    return tuple(
        sorted(
            (
                each
                for each in services
                if each.spec.selector
                and RUN_LABEL not in (each.metadata.labels or {})
                and each.spec.selector.items() <= labels.items()
            ),
            key=lambda each: each.metadata.name,
        )
    )


def routes_to(routes: Iterable[RouteObject], services: Sequence[str]) -> Iterator[RouteObject]:
    """Yield the routes of other owners to any of these Services in their namespace, oldest first."""
    for route in sorted(routes, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name)):
        meta = route.metadata
        if RUN_LABEL in (meta.labels or {}) or meta.deletion_timestamp:
            continue
        if (meta.annotations or {}).get(IGNORE_ANNOTATION) == "ignore":
            continue
        if any(leads_to(rule, services, meta.namespace) for rule in route.rules):
            yield route


def routes_of_other_namespaces(
    routes: Iterable[RouteObject], services: Sequence[str], namespace: str
) -> list[RouteObject]:
    """Return the routes of other namespaces to any of these Services. Dayfly cannot derive routes from them."""
    return [
        each
        for each in routes
        if each.metadata.namespace != namespace
        and any(ref.get("namespace") == namespace and ref.get("name") in services for ref in backend_refs(each.rules))
    ]


def backend_refs(rules: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Return the `backendRefs` of all rules."""
    return (ref for rule in rules for ref in rule.get("backendRefs") or ())


def services_of(rules: Sequence[Mapping[str, Any]], services: Sequence[str], namespace: str) -> list[str]:
    """Return those of the Services that the rules route to."""
    return [name for name in services if any(leads_to(rule, (name,), namespace) for rule in rules)]


def render_service(like: ForkService, fork: RouteTarget) -> dict[str, Any]:
    """Return an additional Service for the fork with the ports of one of the baseline's Services."""
    headless = {"clusterIP": "None"} if like.spec.cluster_ip == "None" else {}
    meta = like.metadata
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(fork, meta.name),
            "namespace": meta.namespace,
            "labels": {**fork.labels, LIKE_LABEL: meta.name},
            "ownerReferences": [dict(fork.owner)],
        },
        "spec": {"selector": {FORK_LABEL: fork.name}, "ports": ports(like), **headless},
    }


def service_name(fork: RouteTarget, like: str) -> str:
    """Return the name of an additional Service. The fork's name is derived from the sandbox's UID, so it is unique."""
    return derive_name("f", like, "route service", fork.name, like)


def render_routes(
    kind: ApiResource[RouteObject],
    route: RouteObject,
    fork: RouteTarget,
    leads: RuleTargets,
    key_matches: Sequence[KeyMatch],
) -> ForkRoutes:
    """Return the routes to a fork that are derived from an existing route of the same kind.

    They have its Gateways and hosts. They have none of its annotations, and its labels only on request, because these
    may be instructions to other tools.
    """
    meta = route.metadata
    # The API server drops query parameters of a GRPCRoute without an error. The match would then match everything.
    usable = [each for each in key_matches if kind.kind == WITH_PARAMETERS or not each.query]
    made: CopiedRules = copy_rules(route.rules, usable, leads, meta.namespace, MAX_MATCHES)
    wanted = (meta.annotations or {}).get(LABELS_ANNOTATION, "")
    labels = {
        key: value
        for key, value in (meta.labels or {}).items()
        if key in {each.strip() for each in wanted.split(",")} and not key.startswith(f"{GROUP}/")
    }
    notes = {BESIDE_ANNOTATION: meta.uid}
    if labels:
        notes[LABELS_ANNOTATION] = ",".join(sorted(labels))
    common = {key: value for key, value in route.spec.items() if key != "rules"}
    manifests = tuple(
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": _name(kind, route, fork, number),
                "namespace": meta.namespace,
                "labels": labels | fork.labels,
                "annotations": dict(notes),
                "ownerReferences": [dict(fork.owner)],
            },
            "spec": {**common, "rules": list(rules)},
        }
        for number, rules in enumerate(made.objects)
    )
    return ForkRoutes(manifests, made.full_rules, made.is_cut)


def render_withdrawn(kind: ApiResource[RouteObject], seen: RouteObject) -> dict[str, Any]:
    """Return a derived route that matches no requests and keeps its backends.

    A data plane may remove the backends of a deleted route before the route. Matching requests would then fail with
    503.
    """
    meta, number = seen.metadata, itertools.count()

    def unfit(match: Mapping[str, Any]) -> dict[str, Any]:
        header = {"type": "Exact", "name": WITHDRAWN_HEADER, "value": f"{meta.uid}-{next(number)}"}
        return {**match, "headers": [header]}

    rules = [{**rule, "matches": [unfit(match) for match in rule.get("matches") or _EVERYTHING]} for rule in seen.rules]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": dict(meta.labels or {}),
            "annotations": {**(meta.annotations or {}), WITHDRAWN_ANNOTATION: meta.uid},
            "ownerReferences": msgspec.to_builtins(meta.owner_references or []),
        },
        "spec": {**seen.spec, "rules": rules},
    }


def is_withdrawn(seen: RouteObject) -> bool:
    """Return whether the route was changed to match no requests."""
    return (seen.metadata.annotations or {}).get(WITHDRAWN_ANNOTATION) == seen.metadata.uid


def _name(kind: ApiResource[RouteObject], route: RouteObject, fork: RouteTarget, number: int) -> str:
    """Return the name, derived from the UID of the existing route, so that a recreated route gets a new one."""
    hashed = derive_name("", "", "route", fork.name, kind.kind, route.metadata.uid)
    return f"{route.metadata.name[:_MAX_READABLE_CHARS].rstrip('.-')}-{hashed}-{number:02}"
