"""What of an offer is refused, whatever the executors here could do: a server is a tenant of its namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dayfly.execute.pod import pod_precheck
from dayfly.execute.pod.names import namespace_of
from dayfly.operator.agent.local_keys import LocalKeys
from dayfly.operator.cluster.objects import SANDBOXES
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import MAX_UNITS_PER_RUN, Kind, Lifecycle, LifecycleEvent, Unit, kept_id
from dayfly.spec.route_group import KIND as GROUP
from dayfly.spec.routing.endpoints import is_host
from dayfly.spec.routing.routing_keys import check_key
from dayfly.spec.scalars import kube_names
from dayfly.spec.unsupported_fields import PREVIEWED


def check_documents(documents: tuple[Lifecycle, ...], org: str) -> None:
    """Refuse documents that no sandbox or route group of that organisation has.

    Raises:
        RefusedError: the first thing that is refused.
    """
    if (
        not documents
        or sum(len(each.units(event)) for each in documents for event in LifecycleEvent) > MAX_UNITS_PER_RUN
    ):
        raise DocumentsRefusedError(f"a run has documents, and at most {MAX_UNITS_PER_RUN} units")
    kinds = {document.target.kind for document in documents}
    if kinds not in ({SANDBOXES.kind}, {GROUP}):
        raise DocumentsRefusedError("its operator carries out sandboxes and route groups, and nothing else")
    for document in documents:
        # What this cluster grants, it grants to an organisation's plugins by its name: nobody takes another one's.
        if not document.origin.inline and document.origin.publisher != org:
            raise DocumentsRefusedError(f"the plugin {document.origin.name} is not one of {org}")
        for unit in (unit for event in LifecycleEvent for unit in document.units(event)):
            if not kube_names.is_label(namespace := namespace_of(unit)):
                raise DocumentsRefusedError(f"step {unit.name}: {quote(namespace)} is not the name of a namespace")
        if found := pod_precheck.objections(document):
            raise DocumentsRefusedError(found[0])


def check_kept(forks: Iterable[Unit], *, group: bool, foreign: LocalKeys) -> None:
    """Refuse what would lead requests in a way that no compiler has said, or those of somebody else.

    Args:
        forks: The kept units of a run.
        group: Whether that is a route group's, which has no forks of its own.
        foreign: Whose keys are not the server's.

    Raises:
        RefusedError: the first thing that is refused.
    """
    for unit in forks:
        if group and unit.kind != Kind.PREVIEW:
            raise DocumentsRefusedError(f"{kept_id(unit)}: a route group has no forks, and no routes to any")
        if not _has_names(unit):
            raise DocumentsRefusedError(
                f"{quote(kept_id(unit))}: its baseline or target cannot be the name of a workload or host"
            )
        for key in _keys(unit):
            try:
                check_key(key)
            except SpecError as fault:
                raise DocumentsRefusedError(f"{kept_id(unit)}: {fault}") from None
            if foreign.has(key):
                raise DocumentsRefusedError(
                    f"{kept_id(unit)}: {quote(key)} is the routing key of a sandbox applied here"
                )
        if unit.preview is not None and unit.preview.scheme not in PREVIEWED:
            raise DocumentsRefusedError(
                f"{kept_id(unit)}: no key can stand in what is sent by {quote(unit.preview.scheme)}"
            )


def _has_names(unit: Unit) -> bool:
    """Whether the parts of it that requests to the API server contain are names."""
    baselines = [each.baseline for each in (unit.fork, unit.route) if each is not None]
    hosts = [unit.preview.host] if unit.preview is not None else []
    return all(kube_names.is_label(of.namespace) and kube_names.is_object(of.name) for of in baselines) and all(
        map(is_host, hosts)
    )


def _keys(unit: Unit) -> Iterator[str]:
    if unit.route is not None:
        yield from unit.route.keys
    if unit.preview is not None:
        yield unit.preview.key
