"""Fields that no step may set in an object, because their effect reaches beyond the object's namespace.

A field is refused regardless of the account's rights: a right covers a whole kind, and its owner cannot exclude a
field. A value that is null, false, 0 or empty counts as not set. The rules for pods are those of Pod Security
`baseline`. They apply to pod templates in all kinds, also in kinds that this table does not know.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dayfly.spec.steps.object_kinds import ANY, group_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dayfly.spec.errors import Path

Keys = tuple[str, ...]


class RefusedField(NamedTuple):
    """A field by its path (`*` in a key matches any text, and as a whole any key or index), and why it is refused.

    `allowed` has values that are allowed; `only` is the pattern of the refused texts. If `needed`, its absence is
    refused, too.
    """

    keys: Keys
    why: str
    allowed: tuple[Any, ...] = ()
    only: str = ANY
    needed: bool = False

    @property
    def path(self) -> str:
        """The path as people write it."""
        return ".".join(self.keys)


_TAKES_TRAFFIC = "it receives traffic of addresses that belong to the whole cluster"
_OPENS_PORTS = "it opens ports of every node"
_LEADS_OUT = "it gives a name in this namespace to an address outside of it"
_STATIC_IP = "the cluster assigns it; another value could be the address of a future Service"
_BALANCER = "load balancers belong to the platform team"
_NODE = "it gives access to the node, which pods of other namespaces share"
_KERNEL = "it weakens the isolation of the container from its node"
_VOLUME = "the volume belongs to no namespace and may have another team's data"
_MESH = 'without ["."] it changes the traffic of all namespaces'

_MESH_KINDS = ("VirtualService", "DestinationRule", "ServiceEntry")
_SAFE_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
_BASELINE_CAPABILITIES: Final = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
_SELINUX_TYPES: Final = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")


def _spec(path: str, why: str, *allowed: Any, needed: bool = False) -> RefusedField:
    return RefusedField(("spec", *path.split(".")), why, allowed, needed=needed)


OF_KIND: Final[Mapping[tuple[str, str], tuple[RefusedField, ...]]] = {
    ("", "Service"): (
        _spec("type", "only Services of type ClusterIP stay within the cluster's network", "ClusterIP"),
        _spec("externalIPs", _TAKES_TRAFFIC),
        _spec("externalName", _LEADS_OUT),
        _spec("loadBalancerIP", _TAKES_TRAFFIC),
        _spec("loadBalancerClass", _BALANCER),
        _spec("loadBalancerSourceRanges", _BALANCER),
        _spec("ports.*.nodePort", _OPENS_PORTS),
        _spec("healthCheckNodePort", _OPENS_PORTS),
        _spec("clusterIP", _STATIC_IP, "None"),
        _spec("clusterIPs.*", _STATIC_IP, "None"),
    ),
    ("", "PersistentVolumeClaim"): (_spec("volumeName", _VOLUME),),
    ("snapshot.storage.k8s.io", "VolumeSnapshot"): (_spec("source.volumeSnapshotContentName", _VOLUME),),
    ("gateway.networking.k8s.io", "Gateway"): (_spec("addresses", _TAKES_TRAFFIC),),
    ("networking.k8s.io", "Ingress"): (
        RefusedField(
            ("metadata", "annotations", "nginx.ingress.kubernetes.io/*-snippet"),
            "it becomes part of the configuration of an ingress controller that all namespaces share",
        ),
    ),
    **{("networking.istio.io", kind): (_spec("exportTo", _MESH, ["."], needed=True),) for kind in _MESH_KINDS},
}
"""By group and kind, from the object's root."""

ANYWHERE: Final[tuple[RefusedField, ...]] = (
    *(RefusedField((field,), _NODE) for field in ("hostNetwork", "hostPID", "hostIPC")),
    RefusedField(("ports", "*", "hostPort"), _NODE),
    RefusedField(("volumes", "*", "hostPath"), _NODE),
    RefusedField(("windowsOptions", "hostProcess"), _NODE),
    RefusedField(("securityContext", "privileged"), _KERNEL),
    RefusedField(("securityContext", "procMount"), _KERNEL, ("Default",)),
    RefusedField(("securityContext", "capabilities", "add", "*"), _KERNEL, _BASELINE_CAPABILITIES),
    RefusedField(("securityContext", "seccompProfile", "type"), _KERNEL, only="Unconfined"),
    RefusedField(("securityContext", "appArmorProfile", "type"), _KERNEL, only="Unconfined"),
    RefusedField(("annotations", "container.apparmor.security.beta.kubernetes.io/*"), _KERNEL, only="unconfined"),
    RefusedField(("securityContext", "seLinuxOptions", "type"), _KERNEL, _SELINUX_TYPES),
    RefusedField(("securityContext", "seLinuxOptions", "user"), _KERNEL),
    RefusedField(("securityContext", "seLinuxOptions", "role"), _KERNEL),
    RefusedField(("securityContext", "sysctls", "*", "name"), _KERNEL, _SAFE_SYSCTLS),
    *(
        RefusedField((probe, action, "host"), "the node sends the request, from its own network")
        for probe in ("livenessProbe", "readinessProbe", "startupProbe", "postStart", "preStop")
        for action in ("httpGet", "tcpSocket")
    ),
    RefusedField(("priorityClassName",), "pods of other namespaces are evicted for it", only="system-*"),
    RefusedField(("volumeClaimTemplate", "spec", "volumeName"), _VOLUME),
    RefusedField(("volumeClaimTemplates", "*", "spec", "volumeName"), _VOLUME),
    RefusedField(("dataSourceRef", "namespace"), "it reads a volume of another namespace"),
    RefusedField(("adminAccess",), "it gives access to devices that other namespaces use"),
)
"""For every kind, at any depth."""

_PLAIN_DATA: Final = (("", "ConfigMap"), ("", "Secret"))
_DEEP: Final = {first: [row for row in ANYWHERE if row.keys[0] == first] for first in {row.keys[0] for row in ANYWHERE}}


def find_refused(manifest: Mapping[str, Any]) -> tuple[Path, str]:
    """Return the path to the first field that no step may set and why; an empty path and text if there is none."""
    key = group_of(str(manifest.get("apiVersion", ""))), str(manifest.get("kind", ""))
    for row in OF_KIND.get(key, ()):
        found = list(_values(manifest, row.keys, ()))
        if row.needed and not any(value for _, value in found):
            return ("spec",), f"needs {row.path} with the value {row.allowed[0]}: {row.why}"
        for path, value in found:
            if not _is_allowed(row, value):
                return path, _explain_refusal(row)
    return ((), "") if key in _PLAIN_DATA else next(_find_refused_below(manifest, ()), ((), ""))


def _find_refused_below(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    for key, inner in _members(value):
        for row in _DEEP.get(key, ()) if isinstance(key, str) else ():
            for place, found in _values(inner, row.keys[1:], (*path, key)):
                if not _is_allowed(row, found):
                    yield place, _explain_refusal(row)
        yield from _find_refused_below(inner, (*path, key))


def _values(value: Any, keys: Keys, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the values at a path. A value that is no list or mapping is judged like each of its members would be."""
    if not keys:
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if fnmatchcase(str(key), keys[0]):
                yield from _values(inner, keys[1:], (*path, key))
    elif isinstance(value, list) and keys[0] == ANY:
        for index, inner in enumerate(value):
            yield from _values(inner, keys[1:], (*path, index))
    elif keys == (ANY,):
        yield path, value


def _members(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _is_allowed(row: RefusedField, value: Any) -> bool:
    if not value or any(type(value) is type(each) and value == each for each in row.allowed):
        return True
    return isinstance(value, str) and not fnmatchcase(value, row.only)


def _explain_refusal(row: RefusedField) -> str:
    if row.allowed:
        shown = ", ".join(str(each) for each in row.allowed)
        return f"no step may set it to this value: {row.why}; allowed is {shown}"
    return f"no step may set it: {row.why}; leave it out"
