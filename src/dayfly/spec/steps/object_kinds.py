"""The kinds that no step may create, regardless of granted rights.

They could give their author more than the namespace (rights, tokens, admission, the API itself), are the work of the
cluster's own controllers, or are Dayfly's. A cluster-scoped kind outside this table is refused when the cluster reports
its scope.
"""

from __future__ import annotations

from typing import Final

_RIGHTS = "it gives rights"
_CREDENTIAL = "it issues a token or a certificate"
_ADMISSION = "it changes the cluster's admission"
_API = "it changes what the API serves"
_CLUSTER = "it belongs to no namespace"
_REVIEW = "it is a query, and nothing is stored"
_CONTROLLER = "the cluster's own controllers write it"
_PODS = "it is a pod, which a Job or a Deployment creates under the cluster's rules"
_OURS = "it is one of Dayfly's own kinds"
ANY: Final = "*"

_TABLE: Final[dict[str, dict[str, str]]] = {
    "": {
        "Pod": _PODS,
        "Binding": "it places pods",
        "Node": _CLUSTER,
        "Namespace": _CLUSTER,
        "PersistentVolume": _CLUSTER,
        "ComponentStatus": _CLUSTER,
        "List": "kubectl unpacks it, and no server accepts it: write a step for each of its objects",
        "ServiceAccount": "pods that use it get its token",
        "Endpoints": _CONTROLLER,
        "Event": _CONTROLLER,
        "ResourceQuota": "an administrator limits a namespace with it",
        "LimitRange": "an administrator limits a namespace with it",
    },
    "rbac.authorization.k8s.io": dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), _RIGHTS),
    "autoscaling": {"Scale": "it is a part of other objects: set spec.replicas in them"},
    "authentication.k8s.io": dict.fromkeys(("TokenRequest", "TokenReview", "SelfSubjectReview"), _CREDENTIAL),
    "authorization.k8s.io": dict.fromkeys(
        ("SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview"),
        _REVIEW,
    ),
    "certificates.k8s.io": dict.fromkeys(
        ("CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"), _CREDENTIAL
    ),
    "admissionregistration.k8s.io": dict.fromkeys(
        (
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        ),
        _ADMISSION,
    ),
    "apiextensions.k8s.io": {"CustomResourceDefinition": _API},
    "apiregistration.k8s.io": {"APIService": _API},
    "apps": {"ControllerRevision": _CONTROLLER, "DaemonSet": "it runs on every node"},
    "coordination.k8s.io": dict.fromkeys(("Lease", "LeaseCandidate"), _CONTROLLER),
    "discovery.k8s.io": {"EndpointSlice": _CONTROLLER},
    "events.k8s.io": {"Event": _CONTROLLER},
    "flowcontrol.apiserver.k8s.io": dict.fromkeys(("FlowSchema", "PriorityLevelConfiguration"), _CLUSTER),
    "internal.apiserver.k8s.io": {"StorageVersion": _API},
    "metrics.k8s.io": dict.fromkeys(("NodeMetrics", "PodMetrics"), _REVIEW),
    "networking.k8s.io": {
        "IngressClass": _CLUSTER,
        "IPAddress": _CLUSTER,
        "ServiceCIDR": _CLUSTER,
        "NetworkPolicy": "it opens or closes the namespace's network",
    },
    "node.k8s.io": {"RuntimeClass": _CLUSTER},
    "policy": {"Eviction": "it ends pods", "PodDisruptionBudget": "it prevents the draining of nodes"},
    "resource.k8s.io": dict.fromkeys(("ResourceSlice", "DeviceClass", "DeviceTaintRule"), _CLUSTER),
    "scheduling.k8s.io": {"PriorityClass": _CLUSTER},
    "storage.k8s.io": dict.fromkeys(
        (
            "StorageClass",
            "VolumeAttachment",
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "VolumeAttributesClass",
        ),
        _CLUSTER,
    ),
    "storagemigration.k8s.io": {"StorageVersionMigration": _API},
    "gateway.networking.k8s.io": {
        "GatewayClass": _CLUSTER,
        "ReferenceGrant": "it lets other namespaces refer into this one",
    },
    "snapshot.storage.k8s.io": dict.fromkeys(("VolumeSnapshotContent", "VolumeSnapshotClass"), _CLUSTER),
    "kubernetes.crossplane.io": {ANY: "it creates other objects with rights that are not this namespace's"},
    "kubernetes.m.crossplane.io": {ANY: "it creates other objects with rights that are not this namespace's"},
    "argoproj.io": {"Application": "it creates other objects with rights that are not this namespace's"},
    "dayfly.dev": {ANY: _OURS},
}

TOKEN_SECRETS: Final = (
    "kubernetes.io/service-account-token",
    "bootstrap.kubernetes.io/token",
    "dayfly.dev/outputs",
)
"""Types of Secrets that no step may create: the cluster writes a token into them, or Dayfly trusts their content."""


def group_of(api_version: str) -> str:
    """Return `batch` for `batch/v1`, and an empty string for `v1`."""
    return api_version.rpartition("/")[0]


def refused() -> list[tuple[str, str]]:
    """Return every group and kind of the table; the kind is `*` for all kinds of a group."""
    return [(group, kind) for group, kinds in _TABLE.items() for kind in kinds]


def why_refused(api_version: str, kind: str) -> str:
    """Return why no step may create this kind; empty if the table does not have it."""
    kinds = _TABLE.get(group_of(api_version), {})
    return kinds.get(kind) or kinds.get(ANY, "")


# Kinds without lifecycle hooks. A hook creates nothing: it reads an object, and adds a finalizer and a hold to it.
_HELD_BACK = "blocking its deletion would stop the cluster's own work"
_NO_TARGETS: Final[dict[tuple[str, str], str]] = {
    ("", "Secret"): "its content would be copied into pods and ledgers",
    ("", "Pod"): "each step is a pod itself, and a node cannot be drained while pods are blocked",
    ("", "ServiceAccount"): "pods that use it get its token, so only its namespace's owners should change it",
    ("", "Event"): _HELD_BACK,
    ("", "Endpoints"): _HELD_BACK,
    ("apps", "ControllerRevision"): _HELD_BACK,
    ("coordination.k8s.io", ANY): _HELD_BACK,
    ("discovery.k8s.io", ANY): _HELD_BACK,
    ("events.k8s.io", ANY): _HELD_BACK,
}
# Kinds that no step may create, but to which a hook may apply.
_TARGETS: Final = frozenset(
    {
        ("", "ResourceQuota"),
        ("", "LimitRange"),
        ("apps", "DaemonSet"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("policy", "PodDisruptionBudget"),
        ("gateway.networking.k8s.io", "ReferenceGrant"),
        ("kubernetes.crossplane.io", ANY),
        ("kubernetes.m.crossplane.io", ANY),
        ("argoproj.io", "Application"),
    }
)


def no_targets() -> list[tuple[str, str]]:
    """Return every group and kind that `why_no_target` refuses; the kind is `*` for all kinds of a group."""
    both = {*_NO_TARGETS, *refused()} - _TARGETS
    return sorted(both)


def why_no_target(api_version: str, kind: str) -> str:
    """Return why no lifecycle hook may apply to objects of this kind; empty if one may."""
    group = group_of(api_version)
    for key in ((group, kind), (group, ANY)):
        if key in _NO_TARGETS:
            return _NO_TARGETS[key]
        if key in _TARGETS:
            return ""
    return why_refused(api_version, kind)
