"""The kinds of a fake cluster, and their rules."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind; the flags are those of the real server's registries."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False  # a subresource; the main endpoint cannot change it
    custom: bool = False  # defined by a CRD: no strategic patch, no update without a resource version
    generation: bool = False

    def __hash__(self) -> int:
        """Called for each read and write; computing all fields would take a tenth of the fake cluster's time."""
        return hash(self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """The name of the kind in error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def custom(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True, status: bool = True) -> Kind:
    """A kind from a CRD without a schema."""
    return Kind(group, version, plural, kind, namespaced, status, custom=True, generation=True)


PODS = Kind("", "v1", "pods", "Pod", status=True, generation=True)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False, status=True)
SECRETS = Kind("", "v1", "secrets", "Secret")
SERVICES = Kind("", "v1", "services", "Service", status=True)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", status=True, generation=True)
BUILTIN = (
    PODS,
    NAMESPACES,
    SECRETS,
    Kind("", "v1", "configmaps", "ConfigMap"),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", status=True),
    SERVICES,
    Kind("", "v1", "nodes", "Node", namespaced=False, status=True),
    Kind("", "v1", "serviceaccounts", "ServiceAccount"),
    Kind("", "v1", "podtemplates", "PodTemplate", generation=True),
    DEPLOYMENTS,
    Kind("apps", "v1", "replicasets", "ReplicaSet", status=True, generation=True),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("events.k8s.io", "v1", "events", "Event"),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        True,
        generation=True,
    ),
)
