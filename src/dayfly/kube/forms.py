"""How requests are written: what comes back, how a patch is meant, what a deletion asks for."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from dayfly.kube.transport import JSON

if TYPE_CHECKING:
    from dayfly.kube.objects import Resource

_PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
METADATA = _PARTIAL.format("")
"""The Accept header of who reads no more of an object than its metadata."""


class Style(enum.Enum):
    """How a patch is meant; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.Enum):
    """What becomes of the objects owned by a deleted one."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


def accept(resource: Resource[Any], suffix: str = "") -> str:
    """The Accept header that has the server send what the model reads; `suffix` is List for a list."""
    return _PARTIAL.format(suffix) if resource.partial else JSON


def given(**parameters: str) -> dict[str, str]:
    """Those query parameters that say something."""
    return {name: value for name, value in parameters.items() if value}


def writing(dry_run: bool, manager: str) -> dict[str, str]:
    """The query of every change."""
    return given(dryRun="All" if dry_run else "", fieldManager=manager)


def deletion(uid: str, resource_version: str, grace: int | None, propagation: Propagation | None) -> dict[str, Any]:
    """The DeleteOptions: which very object, how soon, and what becomes of those that it owns."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions := given(uid=uid, resourceVersion=resource_version):
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation:
        options["propagationPolicy"] = propagation.value
    return options
