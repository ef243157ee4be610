"""Checks of offered documents. A server may do in this cluster only what a tenant of its namespace may do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from dayfly.execute.pod import pod_precheck
from dayfly.execute.pod.names import namespace_of
from dayfly.kube.cache import ObjectChange
from dayfly.operator.cluster.caches import ClusterWatches
from dayfly.operator.cluster.objects import SANDBOXES, served_uid
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import (
    MAX_UNITS_PER_RUN,
    MEMBER_KIND,
    MEMBER_TARGET,
    PARENT_KIND,
    PARENT_TARGET,
    Kind,
    Lifecycle,
    LifecycleEvent,
    Unit,
    kept_id,
)
from dayfly.spec.route_group import KIND as GROUP
from dayfly.spec.routing.endpoints import is_host
from dayfly.spec.routing.routing_keys import check_key
from dayfly.spec.scalars import kube_names
from dayfly.spec.shared_parent import MAX_CAPACITY, MAX_PARENTS
from dayfly.spec.unsupported_fields import PREVIEWED

# The template of a pool member may have the templates of its parents.
MAX_TEMPLATE_DEPTH: Final = 3


class LocalKeys:
    """The routing keys of Sandboxes and RouteGroups that were applied in this cluster with kubectl.

    A key is derived from the UID of its object. A server must not route requests that carry one.
    """

    def __init__(self, cluster: ClusterWatches) -> None:
        self._keys: set[str] = set()
        cluster.sandboxes.listen(self._on_change)
        cluster.groups.listen(self._on_change)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def _on_change(self, change: ObjectChange[Any]) -> None:
        meta = change.latest.metadata
        key = routing_key(meta.uid)
        if change.new is None:
            self._keys.discard(key)
        elif not served_uid(meta):
            self._keys.add(key)


def check_documents(documents: tuple[Lifecycle, ...], org: str) -> None:
    """Refuse documents that cannot belong to a sandbox, route group or pool of the organisation.

    The templates of pool members in them are checked by the same rules.

    Raises:
        DocumentsRefusedError: for the first problem.
    """
    kinds = {document.target.kind for document in documents}
    if documents and kinds not in ({SANDBOXES.kind}, {GROUP}, {MEMBER_KIND}):
        raise DocumentsRefusedError("the operator runs only sandboxes, route groups and pools for a server")
    nested = tuple(templates(documents))
    check_run(documents, org)
    for found in (*((documents,) if kinds == {MEMBER_KIND} else ()), *nested):
        _check_template(found)
        check_run(found, org)


def _check_template(documents: tuple[Lifecycle, ...]) -> None:
    """Refuse a template that is neither that of a pool member nor that of a shared parent.

    A parent has limits of its own, which bound the work of the operator for it.
    """
    for document in documents:
        sharing = document.sharing
        if document.target != (MEMBER_TARGET if sharing is None else PARENT_TARGET):
            message = f"a template must have the kind {MEMBER_KIND}, or {PARENT_KIND} with its limits, and no name"
            raise DocumentsRefusedError(message)
        if sharing is None:
            continue
        if len(documents) > 1:
            raise DocumentsRefusedError("the template of a shared parent must have one document")
        is_bounded = 1 <= sharing.capacity <= MAX_CAPACITY and 1 <= sharing.max_parents <= MAX_PARENTS
        if not is_bounded or sharing.linger_ms < 0:
            raise DocumentsRefusedError(
                f"a shared parent must have a capacity of 1 to {MAX_CAPACITY}, 1 to {MAX_PARENTS} equal parents and "
                "no negative linger"
            )


def templates(documents: tuple[Lifecycle, ...], depth: int = MAX_TEMPLATE_DEPTH) -> Iterator[tuple[Lifecycle, ...]]:
    """Yield the documents of each pool member that a host may create for these documents.

    Raises:
        DocumentsRefusedError: a template cannot be read, or templates are nested too deeply.
    """
    for document in documents:
        acquires = any(unit.kind == Kind.ACQUIRE for event in LifecycleEvent for unit in document.units(event))
        if acquires != bool(document.template):
            raise DocumentsRefusedError(
                f"resource {quote(document.resource)}: a template and its units must be together"
            )
        if not document.template:
            continue
        if depth == 0:
            raise DocumentsRefusedError(f"templates of pool members may be nested {MAX_TEMPLATE_DEPTH} deep")
        try:
            found = document.template_documents()
        except msgspec.ValidationError as fault:
            raise DocumentsRefusedError(
                f"resource {quote(document.resource)}: cannot read its template: {fault}"
            ) from None
        yield found
        yield from templates(found, depth - 1)


def check_run(documents: tuple[Lifecycle, ...], org: str) -> None:
    """Refuse documents that no plugin of the organisation can have, whatever their target is.

    Raises:
        DocumentsRefusedError: for the first problem.
    """
    if (
        not documents
        or sum(len(each.units(event)) for each in documents for event in LifecycleEvent) > MAX_UNITS_PER_RUN
    ):
        raise DocumentsRefusedError(f"a run must have documents, and at most {MAX_UNITS_PER_RUN} units")
    for document in documents:
        # Administrators grant rights to an organisation's plugins by name, so no other organisation may use that name.
        if not document.origin.inline and document.origin.publisher != org:
            raise DocumentsRefusedError(f"the plugin {document.origin.name} was not published by {org}")
        for unit in (unit for event in LifecycleEvent for unit in document.units(event)):
            if not kube_names.is_label(namespace := namespace_of(unit)):
                raise DocumentsRefusedError(f"step {unit.name}: {quote(namespace)} is not the name of a namespace")
        if found := pod_precheck.objections(document):
            raise DocumentsRefusedError(found[0])


def check_kept_units(kept: Iterable[Unit], *, group: bool, local_keys: LocalKeys) -> None:
    """Refuse forks, routes and previews that no compiler makes, or that use a routing key of this cluster.

    Args:
        kept: The forks, routes and previews of a run.
        group: Whether the run belongs to a route group, which has no forks.
        local_keys: The routing keys of objects that were applied in this cluster.

    Raises:
        DocumentsRefusedError: for the first problem.
    """
    for unit in kept:
        if group and unit.kind != Kind.PREVIEW:
            raise DocumentsRefusedError(f"{kept_id(unit)}: a route group has no forks and no routes to forks")
        if not _has_names(unit):
            raise DocumentsRefusedError(
                f"{quote(kept_id(unit))}: its baseline or target cannot be the name of a workload or host"
            )
        for key in _keys(unit):
            try:
                check_key(key)
            except SpecError as fault:
                raise DocumentsRefusedError(f"{kept_id(unit)}: {fault}") from None
            if key in local_keys:
                raise DocumentsRefusedError(
                    f"{kept_id(unit)}: {quote(key)} is the routing key of a sandbox applied in this cluster"
                )
        if unit.preview is not None and unit.preview.scheme not in PREVIEWED:
            raise DocumentsRefusedError(
                f"{kept_id(unit)}: requests over {quote(unit.preview.scheme)} cannot carry a routing key"
            )


def _has_names(unit: Unit) -> bool:
    """Return whether the parts of a unit that become part of API request paths are valid names."""
    baselines = [each.baseline for each in (unit.fork, unit.route) if each is not None]
    hosts = [unit.preview.host] if unit.preview is not None else []
    return all(
        kube_names.is_label(baseline.namespace) and kube_names.is_object(baseline.name) for baseline in baselines
    ) and all(map(is_host, hosts))


def _keys(unit: Unit) -> Iterator[str]:
    if unit.route is not None:
        yield from unit.route.keys
    if unit.preview is not None:
        yield unit.preview.key
