"""The forms of requests: the Accept header, patch types, query parameters and DeleteOptions."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from dayfly.kube.transport import JSON

if TYPE_CHECKING:
    from dayfly.kube.objects import ApiResource

_PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
METADATA = _PARTIAL.format("")
"""The Accept header of a reader that needs only metadata."""


class Style(enum.Enum):
    """The type of a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.Enum):
    """The treatment of objects that a deleted object owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


def accept(resource: ApiResource[Any], suffix: str = "") -> str:
    """Return the Accept header for a kind; `suffix` is List for a list."""
    return _PARTIAL.format(suffix) if resource.partial else JSON


def query_params(**parameters: str) -> dict[str, str]:
    """Return the query parameters that are not empty."""
    return {name: value for name, value in parameters.items() if value}


def writing(dry_run: bool, manager: str) -> dict[str, str]:
    """Return the query parameters of a change."""
    return query_params(dryRun="All" if dry_run else "", fieldManager=manager)


def deletion(uid: str, resource_version: str, grace: int | None, propagation: Propagation | None) -> dict[str, Any]:
    """Return the DeleteOptions: preconditions, grace period in seconds, and propagation policy."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions := query_params(uid=uid, resourceVersion=resource_version):
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation:
        options["propagationPolicy"] = propagation.value
    return options
