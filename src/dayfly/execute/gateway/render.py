"""The objects that lead requests with a key to a fork: a route beside the baseline's, and Services. Pure."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dayfly.execute.fork.read import ForkService
from dayfly.execute.fork.render import FORK_LABEL, LIKE_LABEL, ports
from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.rules import Copied, RuleTargets, Sign, copied, leads_to
from dayfly.execute.pod.names import GROUP, RUN_LABEL, derive_name
from dayfly.kube.objects import Resource

ROUTE_LABEL = f"{GROUP}/route"
"""On what leads to a fork and is not its own Service: the fork's name."""
BESIDE_ANNOTATION = f"{GROUP}/beside"
"""On a route of ours: the UID of the one that it stands beside."""
WITHDRAWN_ANNOTATION = f"{GROUP}/withdrawn"
"""On a route of ours that is about to go: its UID."""
WITHDRAWN_HEADER = "dayfly-withdrawn"
IGNORE_ANNOTATION = f"{GROUP}/routing"
"""On somebody's route, with the value `ignore`: no route of ours stands beside it."""
LABELS_ANNOTATION = f"{GROUP}/route-labels"
"""On somebody's route: the labels of it, with commas between, that ours have too, for policies that select by them. On
one of ours: those that it has of that route."""

MOST_MATCHES = 960
"""Of ours beside one route: what one sandbox may add to what every Gateway has to look through."""
# A name has at most 253 characters; ours stand behind the other's in the alphabet, by which equals are told.
_READABLE = 230
_EVERYTHING: tuple[dict[str, Any], ...] = ({},)
WITH_PARAMETERS = "HTTPRoute"


class RouteTarget(NamedTuple):
    """The fork that requests are led to: its own name, the run's, and the run as an owner reference."""

    name: str
    run: str
    owner: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return {ROUTE_LABEL: self.name, RUN_LABEL: self.run, "app.kubernetes.io/managed-by": "dayfly"}


class Beside(NamedTuple):
    """What is to stand beside one route: manifests, and the rules of it (by number) that have no room for a key."""

    manifests: tuple[dict[str, Any], ...]
    crowded: tuple[int, ...]
    cut: bool = False


def leading(services: Iterable[ForkService], labels: Mapping[str, str]) -> tuple[ForkService, ...]:
    """The Services that lead to pods with these labels; those that belong to forks are not among them."""
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


def concerned(routes: Iterable[RouteObject], services: Sequence[str]) -> Iterator[RouteObject]:
    """Those routes of others that lead to any of these Services, of their own namespace, the oldest first."""
    for route in sorted(routes, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name)):
        meta = route.metadata
        if RUN_LABEL in (meta.labels or {}) or meta.deletion_timestamp:
            continue
        if (meta.annotations or {}).get(IGNORE_ANNOTATION) == "ignore":
            continue
        if any(leads_to(rule, services, meta.namespace) for rule in route.rules):
            yield route


def from_elsewhere(routes: Iterable[RouteObject], services: Sequence[str], namespace: str) -> list[RouteObject]:
    """Those of other namespaces that lead to any of these Services: beside them nothing of ours can stand."""
    return [
        each
        for each in routes
        if each.metadata.namespace != namespace
        and any(ref.get("namespace") == namespace and ref.get("name") in services for ref in refs(each.rules))
    ]


def refs(rules: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The Services, each as it is named there, to which these rules lead."""
    return (ref for rule in rules for ref in rule.get("backendRefs") or ())


def named(rules: Sequence[Mapping[str, Any]], services: Sequence[str], namespace: str) -> list[str]:
    """Which of the Services these rules lead to."""
    return [name for name in services if any(leads_to(rule, (name,), namespace) for rule in rules)]


def service(like: ForkService, fork: RouteTarget) -> dict[str, Any]:
    """A Service with the ports of one of the baseline's, beside the one that the fork has anyway."""
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
    """The name of that Service; the fork's own is derived from the UID of its sandbox, so this one is nobody else's."""
    return derive_name("f", like, "route service", fork.name, like)


def beside(
    kind: Resource[RouteObject], route: RouteObject, fork: RouteTarget, leads: RuleTargets, signs: Sequence[Sign]
) -> Beside:
    """The routes of ours beside that one, of its own kind.

    Its Gateways and its hosts are theirs. Of its labels and annotations none is: they are instructions to other tools.
    """
    meta = route.metadata
    # Of a GRPCRoute's match the server would drop a parameter without a word, and what is left would fit everything.
    fitting = [sign for sign in signs if kind.kind == WITH_PARAMETERS or not sign.query]
    made: Copied = copied(route.rules, fitting, leads, meta.namespace, MOST_MATCHES)
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
    return Beside(manifests, made.crowded, made.cut)


def withdrawn(kind: Resource[RouteObject], seen: RouteObject) -> dict[str, Any]:
    """A route of ours that no request fits any more, and which leads where it led.

    Data planes may forget where a route leads before they forget the route; whatever fitted it would be answered 503.
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
    """Whether no request fits it any more."""
    return (seen.metadata.annotations or {}).get(WITHDRAWN_ANNOTATION) == seen.metadata.uid


def _name(kind: Resource[RouteObject], route: RouteObject, fork: RouteTarget, number: int) -> str:
    """Derived from the UID of the other: one that is made again under its name is another one, and older than ours."""
    hashed = derive_name("", "", "route", fork.name, kind.kind, route.metadata.uid)
    return f"{route.metadata.name[:_READABLE].rstrip('.-')}-{hashed}-{number:02}"
