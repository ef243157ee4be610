"""A Kubernetes client and controller framework: client, watch cache, controllers, Lease, Events.

It knows nothing of Dayfly except `lib`; callers bring the kinds (`objects.ApiResource`). No change is sent twice: a
lost response to a change raises `errors.OutcomeUnknown`. A cache may be stale, so each write is guarded by UID and
resource version. `execute` and `operator` call it. The names in `__all__` are also for other projects
(docs/guides/controllers.md); each is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dayfly.kube import errors
    from dayfly.kube.cache import Cache, ObjectChange
    from dayfly.kube.client import KubeClient, Limits
    from dayfly.kube.controller import Controller, Resync
    from dayfly.kube.events import Recorder
    from dayfly.kube.forms import Propagation, Style
    from dayfly.kube.lease import Elector, LeaseTerms
    from dayfly.kube.manager import Controlled, Manager, Runnable, connect, run_to_signal
    from dayfly.kube.objects import (
        PODS,
        SECRETS,
        AnnotatedMeta,
        ApiResource,
        ContainerStatus,
        Key,
        KubeStruct,
        ObjectCondition,
        ObjectMeta,
        OwnerReference,
        Pod,
        to_json,
        untyped_resource,
    )
    from dayfly.kube.ownership import (
        NameConflictError,
        add_finalizer,
        controller_of,
        controls,
        create_owned,
        drop_finalizer,
        owner_reference,
    )
    from dayfly.kube.status import StatusWriter, condition
    from dayfly.lib.queue import Backoff

_HOMES = {
    "cache": ("Cache", "ObjectChange"),
    "client": ("KubeClient", "Limits"),
    "controller": ("Controller", "Resync"),
    "events": ("Recorder",),
    "forms": ("Propagation", "Style"),
    "lease": ("Elector", "LeaseTerms"),
    "manager": ("Controlled", "Manager", "Runnable", "connect", "run_to_signal"),
    "objects": (
        "PODS", "SECRETS", "AnnotatedMeta", "ObjectCondition", "ContainerStatus", "Key", "ObjectMeta",
        "OwnerReference", "Pod", "ApiResource", "KubeStruct", "untyped_resource", "to_json",
    ),
    "ownership": (
        "NameConflictError", "add_finalizer", "controller_of", "controls", "create_owned", "drop_finalizer",
        "owner_reference",
    ),
    "status": ("StatusWriter", "condition"),
}  # fmt: skip
_HOME = {name: f"dayfly.kube.{module}" for module, names in _HOMES.items() for name in names}
_HOME["Backoff"] = "dayfly.lib.queue"

__all__ = [
    "PODS",
    "SECRETS",
    "AnnotatedMeta",
    "ApiResource",
    "Backoff",
    "Cache",
    "ContainerStatus",
    "Controlled",
    "Controller",
    "Elector",
    "Key",
    "KubeClient",
    "KubeStruct",
    "LeaseTerms",
    "Limits",
    "Manager",
    "NameConflictError",
    "ObjectChange",
    "ObjectCondition",
    "ObjectMeta",
    "OwnerReference",
    "Pod",
    "Propagation",
    "Recorder",
    "Resync",
    "Runnable",
    "StatusWriter",
    "Style",
    "add_finalizer",
    "condition",
    "connect",
    "controller_of",
    "controls",
    "create_owned",
    "drop_finalizer",
    "errors",
    "owner_reference",
    "run_to_signal",
    "to_json",
    "untyped_resource",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("dayfly.kube.errors")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
