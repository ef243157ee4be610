"""Rules for a merged pod that its shape cannot express. Each rule assumes that the pod has passed the shapes."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.policy import object_references
from dayfly.execute.pod.policy.rows import Problem, exactly, record
from dayfly.execute.pod.policy.shape import MAX_CONTAINERS, METADATA, SPEC
from dayfly.execute.pod.render import MAIN, MOUNT, MOUNTS, STATE_VOLUME, VOLUME

Level = Literal["restricted", "baseline"]
OURS = "dayfly.dev/"
RESERVED_PATHS = (MOUNT, "/dayfly-state", "/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")

_MAX_DESCRIBED = 3
_COMMAND = [f"{MOUNT}/runner", "pod"]
_OWN_LABELS = frozenset({names.RUN_LABEL, names.READS_LABEL})
# Keys that a plugin may set in every namespace. The administrator of a namespace can allow more.
_FREE_KEYS = {
    "labels": frozenset(f"app.kubernetes.io/{key}" for key in ("name", "instance", "version", "component", "part-of")),
    "annotations": frozenset(
        {"cluster-autoscaler.kubernetes.io/safe-to-evict", "kubectl.kubernetes.io/default-container"}
    ),
}
_OWN_ANNOTATIONS = frozenset(
    {names.UNIT_ANNOTATION, names.ATTEMPT_ANNOTATION, names.NONCE_ANNOTATION, names.ORDER_ANNOTATION}
)
_UNLISTED = (
    "is not allowed on pods of steps: remove it, or request that an administrator adds it to the annotation "
    f"{names.KEYS_ANNOTATION} of namespace {{}}"
)
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


class Violation(msgspec.Struct, frozen=True):
    """A field that is not allowed, such as `spec.containers[1].securityContext.privileged`, and the reason."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path} {self.sentence}"


class PodTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms for one pod.

    `secrets` contain its inputs, and `runner` is the ConfigMap with the runner program. The administrator grants
    service accounts, tokens, a level below `restricted`, and `keys` of labels and annotations (`key` or `domain/*`) to
    the namespace. An `inline` plugin reads no objects of the namespace. Only pods that are `cleaning` have Dayfly's
    priority class, for the quota.
    """

    namespace: str
    runner: str
    secrets: frozenset[str] = frozenset()
    level: Level = "restricted"
    service_accounts: frozenset[str] = frozenset()
    tokens: bool = False
    keys: frozenset[str] = frozenset()
    inline: bool = False
    cleaning: bool = False


def describe(found: list[Violation]) -> str:
    """Return one line with the first three violations and the number of others."""
    more = f" (and {len(found) - _MAX_DESCRIBED} more)" if len(found) > _MAX_DESCRIBED else ""
    return "; ".join(map(str, found[:_MAX_DESCRIBED])) + more


def check(pod: dict[str, Any], terms: PodTerms) -> list[Violation]:
    """Return all violations of a merged pod, which may be any JSON value."""
    root = {"apiVersion": exactly("v1"), "kind": exactly("Pod"), "metadata": METADATA, "spec": SPEC}
    found = [Violation(path, sentence) for path, sentence in record(root, needs=tuple(root))(pod, "")]
    if found:
        return found  # the rules assume correct shapes
    rules = (_identity, _keys, _volumes, _reads, _containers, _security, _users, _priority, _accounts, _taints)
    return [Violation(path, sentence) for rule in rules for path, sentence in rule(pod, terms)]


def _identity(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    """Check the namespace, the owner and Dayfly's own labels and annotations."""
    meta = pod["metadata"]
    if meta["namespace"] != terms.namespace:
        yield "metadata.namespace", f"is {meta['namespace']!r}; pods of this unit must be in {terms.namespace}"
    if len(meta["ownerReferences"]) != 1:
        yield "metadata.ownerReferences", "must name the Run"
    for field, own in (("labels", _OWN_LABELS), ("annotations", _OWN_ANNOTATIONS)):
        yield from ((f"metadata.{field}", f"lacks {key}") for key in sorted(own - meta[field].keys()))


def _keys(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    """Check each key against the allowed ones.

    A label can add the pod to another team's Service, and an annotation can give it rights.
    """
    for field, own in (("labels", _OWN_LABELS), ("annotations", _OWN_ANNOTATIONS)):
        for key, value in pod["metadata"][field].items():
            here = f"metadata.{field}[{key}]"
            domain, slash, _ = key.rpartition("/")
            if key in own | _FREE_KEYS[field] or (key, value) == ("app.kubernetes.io/managed-by", "dayfly"):
                continue
            if key.startswith(OURS):
                yield here, "is reserved for Dayfly; choose another key"
            elif slash and _is_system(domain):
                yield here, "controls Kubernetes itself; remove it"
            elif terms.keys.isdisjoint({key, f"{domain}/*", "*"}):
                yield here, _UNLISTED.format(terms.namespace)


def _is_system(domain: str) -> bool:
    return any(domain == name or domain.endswith(f".{name}") for name in ("kubernetes.io", "k8s.io"))


def _reads(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    yield from object_references.check(pod, inline=terms.inline)


def _volumes(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    """Check that Dayfly's volumes are unchanged and that each other volume has one allowed source."""
    found: dict[str, Any] = {}
    for index, volume in enumerate(pod["spec"]["volumes"]):
        here, name = f"spec.volumes[{index}]", volume["name"]
        sources = [field for field, value in volume.items() if field != "name" and value is not None]
        if len(sources) != 1:
            yield here, f"needs exactly one source; {len(sources)} are given"
        if name in found:
            yield f"{here}.name", f"{name} appears twice"
        found[name] = volume
        if name not in (VOLUME, STATE_VOLUME):
            if name.startswith("dayfly-"):
                yield f"{here}.name", f"{name} is a reserved name; choose another"
            yield from _sources(volume, here, terms)
    yield from _own_volumes(found, terms)


def _own_volumes(found: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    if found.get(STATE_VOLUME, {}).get("emptyDir") != {}:
        yield f"spec.volumes ({STATE_VOLUME})", "contains the start marker; do not change it"
    projected = found.get(VOLUME, {}).get("projected") or {}
    sources = projected.get("sources") or []
    runner = {"name": terms.runner, "items": [{"key": "runner", "path": "runner", "mode": 0o555}]}
    fields = {
        item["path"]: (item.get("fieldRef") or {}).get("fieldPath")
        for item in ((sources[1].get("downwardAPI") or {}).get("items") or [] if len(sources) > 1 else [])
    }
    order = {"order": f"metadata.annotations['{names.ORDER_ANNOTATION}']", "uid": "metadata.uid"}
    ours = (
        projected.get("defaultMode") == 0o444
        and len(sources) > 1
        and sources[0] == {"configMap": runner}
        and set(sources[1]) == {"downwardAPI"}
        and fields.items() <= order.items()
        and "order" in fields
        and all(set(each) == {"secret"} and (each["secret"] or {}).get("name") in terms.secrets for each in sources[2:])
    )
    if not ours:
        yield f"spec.volumes ({VOLUME})", "contains the runner and its work order; do not change it"


def _sources(volume: dict[str, Any], here: str, terms: PodTerms) -> Iterator[Problem]:
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or []):
        if source.get("serviceAccountToken") is not None and not terms.tokens:
            yield f"{here}.projected.sources[{index}]", "contains a service account token, which is not granted"
        if len([value for value in source.values() if value is not None]) != 1:
            yield f"{here}.projected.sources[{index}]", "needs exactly one kind of source"


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all containers, init containers first."""
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def main_of(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the container that runs the script; empty if there is none."""
    return next((each for each in (pod.get("spec") or {}).get("containers") or [] if each.get("name") == MAIN), {})


def _containers(pod: dict[str, Any], _: PodTerms) -> Iterator[Problem]:
    spec = pod["spec"]
    if len(containers_of(pod)) > MAX_CONTAINERS:
        yield "spec.containers", f"are {len(containers_of(pod))}; at most {MAX_CONTAINERS} are allowed"
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or []):
            here, name = f"spec.{field}[{index}]", container["name"]
            if name in seen or name.startswith("dayfly-") or (name == MAIN and field != "containers"):
                yield f"{here}.name", f"{name} is used twice or reserved; choose another"
            seen.add(name)
            yield from _container(container, here)
    if MAIN not in seen:
        yield "spec.containers", f"lacks {MAIN}, which runs the script"
    yield from _runner(main_of(pod))


def _container(container: dict[str, Any], here: str) -> Iterator[Problem]:
    if not container.get("image"):
        yield f"{here}.image", "is missing: set an image in the plugin's runner"
    for position, mount in enumerate(container.get("volumeMounts") or []):
        if uses_reserved_path(mount) and not (container["name"] == MAIN and has_mount(mount, MOUNTS)):
            yield f"{here}.volumeMounts[{position}]", "uses a volume or path of the runner or the kernel"


def _runner(main: dict[str, Any]) -> Iterator[Problem]:
    """Check that the script's container starts Dayfly's runner."""
    here = f"container {MAIN}"
    if main.get("command") != _COMMAND or main.get("args"):
        yield f"{here}: command", "is set by Dayfly; remove command and args: the container runs the script"
    if main.get("terminationMessagePolicy") != "File":
        yield f"{here}: terminationMessagePolicy", "must stay File"
    if not all(has_mount(mount, main.get("volumeMounts")) for mount in MOUNTS):
        yield f"{here}: volumeMounts", f"lack {MOUNT} or /dayfly-state"


def has_mount(mount: dict[str, Any], mounts: Iterable[dict[str, Any]] | None) -> bool:
    """Return whether an equal mount is in `mounts`; null counts as absent."""
    kept = {key: value for key, value in mount.items() if value is not None}
    return any(kept == other for other in mounts or [])


def uses_reserved_path(mount: dict[str, Any]) -> bool:
    """Return whether a mount uses one of Dayfly's volumes, or a path that contains or is below a reserved path."""
    parts = [part for part in str(mount.get("mountPath")).split("/") if part not in ("", ".")]
    if mount.get("name") in (VOLUME, STATE_VOLUME) or ".." in parts:
        return True
    return any(
        own.strip("/").split("/")[: len(parts)] == parts or parts[: own.count("/")] == own.strip("/").split("/")
        for own in RESERVED_PATHS
    )


def _security(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    """Check Pod Security `restricted`. The shapes are sufficient for `baseline`."""
    if terms.level == "baseline":
        return
    shared = pod["spec"].get("securityContext") or {}
    yield from _not_root(shared, "spec.securityContext")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(field) or []):
            here, own = f"spec.{field}[{index}].securityContext", container.get("securityContext") or {}
            yield from _not_root(own, here)
            yield from _confined(own, shared, here)


def _not_root(scope: dict[str, Any], here: str) -> Iterator[Problem]:
    if scope.get("runAsNonRoot") is False:
        yield f"{here}.runAsNonRoot", "must not be false"
    if scope.get("runAsUser") == 0:
        yield f"{here}.runAsUser", "must not be 0 (root)"


def _confined(own: dict[str, Any], shared: dict[str, Any], here: str) -> Iterator[Problem]:
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{here}.allowPrivilegeEscalation", "must be false"
    if "ALL" not in ((own.get("capabilities") or {}).get("drop") or []):
        yield f"{here}.capabilities.drop", "must contain ALL"
    effective = {key: value for scope in (shared, own) for key, value in scope.items() if value is not None}
    if effective.get("runAsNonRoot") is not True:
        yield f"{here}.runAsNonRoot", "must be true here or for the pod"
    if "seccompProfile" not in effective:
        yield f"{here}.seccompProfile", "must be RuntimeDefault here or for the pod"


def _users(pod: dict[str, Any], _: PodTerms) -> Iterator[Problem]:
    """Check that each group has a user. Container runtimes refuse a group without a user."""
    shared = pod["spec"].get("securityContext") or {}
    scopes = [("spec.securityContext", shared)]
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(field) or []):
            own = {key: value for key, value in (container.get("securityContext") or {}).items() if value is not None}
            scopes.append((f"spec.{field}[{index}].securityContext", shared | own if "runAsGroup" in own else {}))
    for here, scope in scopes:
        if scope.get("runAsGroup") is not None and scope.get("runAsUser") is None:
            yield f"{here}.runAsGroup", "needs a runAsUser in the same context"


def _priority(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    if pod["spec"].get("priorityClassName") != (names.CLEANUP_CLASS if terms.cleaning else None):
        yield "spec.priorityClassName", "is set by Dayfly; remove it"


def _accounts(pod: dict[str, Any], terms: PodTerms) -> Iterator[Problem]:
    spec = pod["spec"]
    for field in ("serviceAccountName", "serviceAccount"):
        if (name := spec.get(field)) and name not in terms.service_accounts:
            granted = ", ".join(sorted(terms.service_accounts)) or "none"
            yield f"spec.{field}", f"{name} is not granted to plugins in {terms.namespace} (granted: {granted})"
    if spec["automountServiceAccountToken"] and not terms.tokens:
        yield "spec.automountServiceAccountToken", "must be false: no token is granted"


def _taints(pod: dict[str, Any], _: PodTerms) -> Iterator[Problem]:
    for index, toleration in enumerate(pod["spec"].get("tolerations") or []):
        if not toleration.get("key") or toleration["key"] in _CONTROL_PLANE:
            yield f"spec.tolerations[{index}]", "tolerates taints of the control plane; set the key of another taint"
