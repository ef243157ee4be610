"""Dayfly's own kinds as the Kubernetes API serves them."""

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.names import GROUP
from dayfly.kube.answers import MAX_DEPTH, is_truncated
from dayfly.kube.objects import AnnotatedMeta, ApiResource, Key, KubeStruct, ObjectMeta
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.kinds import PoolMemberSpec, RunSpec, StepLogsSpec
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.lifecycle import (
    API_VERSION,
    LEAK_CHECK_KIND,
    MEMBER_KIND,
    PARENT_KIND,
    Kind,
    Lifecycle,
    Target,
    digest,
    unit_id,
)
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import KIND as POOL_KIND
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.route_group import RouteGroup
from dayfly.spec.run import Run
from dayfly.spec.scalars.numbers import parse_whole

VERSION = API_VERSION.removeprefix(f"{GROUP}/")
RUN_FINALIZER = f"{GROUP}/run"
TARGET_FINALIZER = f"{GROUP}/lifecycle"
DOCUMENT_FINALIZER = f"{GROUP}/plan"
# On a LifecycleHook, as long as it has runs.
HOOK_FINALIZER = f"{GROUP}/hook"
# On a hook's targets, followed by the hook's name: one finalizer for each hook, so hooks do not wait for each other.
HOOKED_PREFIX = f"lifecycle.{GROUP}/"
# On objects of a hook's run. The value is the hook's UID.
HOOK_LABEL = f"{GROUP}/hook"
# On a pool member: the UID of its pool.
POOL_LABEL = f"{GROUP}/pool"
# On a pool: the latest request, as ACTION AUTHOR. The action is pause, resume or drain.
POOL_REQUEST_ANNOTATION = f"{GROUP}/pool-request"
# On a leak check: the latest request, as `sweep AUTHOR` or `apply PLAN AUTHOR`. PLAN is `status.plan`.
LEAK_REQUEST_ANNOTATION = f"{GROUP}/leak-request"
# On a run of a leak check: the resource ID that the run deletes. It is empty if the run lists.
LEAK_LABEL = f"{GROUP}/leak"
ABANDON_ANNOTATION = f"{GROUP}/abandon"
# On a document that does not name its target: the target's namespace, name and UID.
TARGET_ANNOTATION = f"{GROUP}/target"
# On a Sandbox that a server created: its UID on the server. Annotations contain the organisation and its name there.
SERVED_LABEL = f"{GROUP}/served"
SERVED_FOR_ANNOTATION = f"served.{GROUP}/for"
SERVED_NAME_ANNOTATION = f"served.{GROUP}/name"
SERVED_KEY_ANNOTATION = f"served.{GROUP}/routing-key"
# How the run of such a Sandbox ended, until the server has confirmed it.
SERVED_END_ANNOTATION = f"served.{GROUP}/end"
# Keeps such a Sandbox until that confirmation, so that no second run starts with its UID.
SERVED_FINALIZER = f"{GROUP}/served"
# Releases such a Sandbox without the confirmation, for clusters whose server no longer exists.
FORGET_ANNOTATION = f"{GROUP}/forget"
# Units to retry now, each with its latest attempt: `db/drop=3 cache/remove=1`.
RETRY_ANNOTATION = f"{GROUP}/retry"
RESET_ANNOTATION = f"{GROUP}/reset"
_MAX_ATTEMPT = 999_999_999
_MAX_LEAK_REQUEST_LENGTH = 1_000
_FORCE = "force"


def check_depth(spec: dict[str, Any]) -> None:
    """Refuse a spec from which the decoder has cut deeply nested parts.

    Raises:
        SpecError: the spec is nested too deeply.
    """
    if is_truncated(spec):
        raise SpecError(f"is nested too deeply to be read: nest no field more than {MAX_DEPTH} deep", ("spec",))


def parse_retries(annotation: str) -> dict[str, int]:
    """Parse the retry annotation into attempts by unit. Invalid entries are ignored."""
    parts = (entry.rpartition("=") for entry in annotation.split())
    found = ((unit, parse_whole(number, _MAX_ATTEMPT)) for unit, _, number in parts)
    return {unit: number for unit, number in found if unit and number is not None}


def parse_resets(annotation: str) -> dict[str, str]:
    """Parse the reset annotation into names of pool members by resource. Invalid entries are ignored."""
    parts = (entry.partition("=") for entry in annotation.split())
    return {resource: member for resource, _, member in parts if resource and member}


def format_resets(annotation: str, resource: str, member: str) -> str:
    """Return the reset annotation with an entry for a resource, which replaces an earlier one."""
    entries = parse_resets(annotation) | {resource: member}
    return " ".join(f"{name}={entries[name]}" for name in sorted(entries))


class AbandonAnnotation(NamedTuple):
    """The request in the annotation `dayfly.dev/abandon`, and whether the operator follows it now."""

    reason: str
    applies: bool


def parse_abandonment(annotations: Mapping[str, str] | None, *, closing: bool) -> AbandonAnnotation | None:
    """Return the request to give up a cleanup, or None if there is none.

    It applies once the end has begun (`closing`). The values `force` and `force: REASON` apply before that, too.
    """
    text = (annotations or {}).get(ABANDON_ANNOTATION, "").strip()
    if not text:
        return None
    word, _, reason = text.partition(":")
    if word.strip().lower() == _FORCE:
        return AbandonAnnotation(reason.strip() or "forced", applies=True)
    return AbandonAnnotation(text, applies=closing)


def forced_abandonment(reason: str) -> str:
    """Return the value of the annotation that gives up a cleanup which has not begun."""
    return f"{_FORCE}: {reason}"


class RunObject(KubeStruct, frozen=True, omit_defaults=False):
    """The ledger as an object. Without a status subresource, one write changes finalizer and ledger together."""

    metadata: AnnotatedMeta
    ledger: Run
    spec: RunSpec = RunSpec()
    api_version: Literal["dayfly.dev/v1alpha1"] = API_VERSION  # as literals all objects share one string
    kind: Literal["Run"] = "Run"

    def inline_documents(self) -> tuple[Lifecycle, ...] | None:
        """Return the documents in the run itself; None if they are invalid or are not the sealed ones."""
        try:
            found = msgspec.convert(self.spec.inline, tuple[Lifecycle, ...])
        except msgspec.ValidationError:
            return None
        return found if not found or digest(found) == self.ledger.plan else None


class DocumentObject(KubeStruct, frozen=True, omit_defaults=False):
    """ObjectLifecycleMethods: one compiled document."""

    metadata: AnnotatedMeta
    spec: Lifecycle
    api_version: Literal["dayfly.dev/v1alpha1"] = API_VERSION
    kind: Literal["ObjectLifecycleMethods"] = "ObjectLifecycleMethods"


class WrittenCondition(KubeStruct, frozen=True):
    """A condition of a status, without reason and message."""

    type: str = ""
    status: str = ""
    last_transition_time: str = ""


class WrittenUnit(KubeStruct, frozen=True):
    """The state of a unit in a status."""

    id: str
    state: str = ""
    attempt: int = 0
    pod: str = ""
    member: str = ""


class WrittenEndpoint(KubeStruct, frozen=True):
    """A working endpoint in a status."""

    name: str = ""
    url: str = ""


class StoredStatus(KubeStruct, frozen=True):
    """The part of a status that a new process compares before it writes."""

    observed_generation: int = 0
    phase: str = ""
    ready: bool = False
    reason: str = ""
    message: str = ""
    progress: str = ""
    conditions: tuple[WrittenCondition, ...] = ()
    units: tuple[WrittenUnit, ...] = ()
    endpoints: tuple[WrittenEndpoint, ...] = ()


class SandboxObject(KubeStruct, frozen=True):
    """A Sandbox as its owner wrote it; `spec.documents` parses the spec.

    The status is output only. A new process compares it once, to avoid writing the same status again.
    """

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StoredStatus | None = None


class PluginObject(KubeStruct, frozen=True):
    """A published ResourcePlugin: `spec.name` is its name with version, the rest the plugin's spec."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    def parsed(self) -> Plugin:
        """Parse the spec.

        Raises:
            SpecError: the spec has a fault that the CRD's schema does not detect.
        """
        body = {"name": self.spec.get("name", ""), "spec": {k: v for k, v in self.spec.items() if k != "name"}}
        check_depth(self.spec)
        plugin = documents.from_wire(body, "ResourcePlugin")
        assert isinstance(plugin, Plugin), "parsed as this kind"
        return plugin


class HookObject(KubeStruct, frozen=True):
    """A LifecycleHook as an administrator wrote it; `spec.documents` parses the spec. The status is output only."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StoredStatus | None = None

    def parsed(self) -> LifecycleHook:
        """Parse the spec.

        Raises:
            SpecError: the spec has a fault that the CRD's schema does not detect.
        """
        name = self.metadata.name
        check_depth(self.spec)
        hook = documents.from_wire({"name": name, "spec": self.spec}, "LifecycleHook", name=name)
        assert isinstance(hook, LifecycleHook), "parsed as this kind"
        return hook


class RouteGroupObject(KubeStruct, frozen=True):
    """A RouteGroup as its owner wrote it; `spec.documents` parses the spec. The status is output only."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StoredStatus | None = None

    def parsed(self) -> RouteGroup:
        """Parse the spec.

        Raises:
            SpecError: the spec has a fault that the CRD's schema does not detect.
        """
        name = self.metadata.name
        check_depth(self.spec)
        group = documents.from_wire({"name": name, "spec": self.spec}, "RouteGroup", name=name)
        assert isinstance(group, RouteGroup), "parsed as this kind"
        return group


class StoredMemberStatus(StoredStatus, frozen=True):
    """The same of a pool member."""

    state: str = ""
    holder: str = ""


class StoredCheckStatus(StoredStatus, frozen=True):
    """The same of a leak check, with the numbers for metrics."""

    counts: dict[str, int] = {}
    error: str = ""


class ResourcePoolObject(KubeStruct, frozen=True):
    """A ResourcePool as its owner wrote it; `spec.documents` parses the spec. The status is output only."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StoredStatus | None = None

    def parsed(self) -> ResourcePool:
        """Parse the spec.

        Raises:
            SpecError: the spec has a fault that the CRD's schema does not detect.
        """
        name = self.metadata.name
        check_depth(self.spec)
        pool = documents.from_wire({"name": name, "spec": self.spec}, POOL_KIND, name=name)
        assert isinstance(pool, ResourcePool), "parsed as this kind"
        return pool


class PoolMemberObject(KubeStruct, frozen=True):
    """A pool member, the target of its run. The status is output only."""

    metadata: AnnotatedMeta
    spec: PoolMemberSpec
    status: StoredMemberStatus | None = None


class LeakCheckObject(KubeStruct, frozen=True):
    """A LeakCheck as an administrator wrote it; `spec.documents` parses the spec. The status is output only."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: StoredCheckStatus | None = None

    def parsed(self) -> LeakCheck:
        """Parse the spec. Its `cluster` means nothing here: all objects are about the cluster in which they are.

        Raises:
            SpecError: the spec has a fault that the CRD's schema does not detect.
        """
        name = self.metadata.name
        check_depth(self.spec)
        spec = {**self.spec, "cluster": self.spec.get("cluster") or "cluster"}
        check = documents.from_wire({"name": name, "spec": spec}, LEAK_CHECK_KIND, name=name)
        assert isinstance(check, LeakCheck), "parsed as this kind"
        return check


def leak_request(check: LeakCheckObject) -> str:
    """Return the latest request in the annotation of a check, which an administrator has written."""
    return (check.metadata.annotations or {}).get(LEAK_REQUEST_ANNOTATION, "").strip()[:_MAX_LEAK_REQUEST_LENGTH]


class StepLogsObject(KubeStruct, frozen=True):
    """The logs of steps of a Sandbox."""

    metadata: ObjectMeta
    spec: StepLogsSpec


RUNS = ApiResource(GROUP, VERSION, "runs", "Run", RunObject, namespaced=False)
DOCUMENTS = ApiResource(
    GROUP, VERSION, "objectlifecyclemethods", "ObjectLifecycleMethods", DocumentObject, namespaced=False
)
SANDBOXES = ApiResource(GROUP, VERSION, "sandboxes", "Sandbox", SandboxObject)
STEP_LOGS = ApiResource(GROUP, VERSION, "steplogs", "StepLogs", StepLogsObject)
PLUGINS = ApiResource(GROUP, VERSION, "resourceplugins", "ResourcePlugin", PluginObject, namespaced=False)
GROUPS = ApiResource(GROUP, VERSION, "routegroups", "RouteGroup", RouteGroupObject)
POOLS = ApiResource(GROUP, VERSION, "resourcepools", POOL_KIND, ResourcePoolObject)
POOL_MEMBERS = ApiResource(GROUP, VERSION, "poolmembers", MEMBER_KIND, PoolMemberObject)
LEAK_CHECKS = ApiResource(GROUP, VERSION, "leakchecks", LEAK_CHECK_KIND, LeakCheckObject, namespaced=False)
HOOKS = ApiResource(GROUP, VERSION, "lifecyclehooks", "LifecycleHook", HookObject, namespaced=False)


def object_kind(target: Target) -> str:
    """Return the kind of a target's object. The object of a shared parent is a PoolMember."""
    return MEMBER_KIND if target.kind == PARENT_KIND else target.kind


class MemberRef(NamedTuple):
    """The identity of a member or parent in the ledger of its holder, from which both of its objects can be read."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def from_target(cls, target: Target) -> "MemberRef":
        return cls(target.namespace, target.name, target.uid)

    @classmethod
    def parse(cls, ref: str) -> "MemberRef":
        """Return the member that a unit of kind acquire refers to."""
        namespace, name, uid = ref.split("/")
        return cls(namespace, name, uid)

    def __str__(self) -> str:
        return "/".join(self)

    def name_in(self, namespace: str) -> str:
        """Return its name for users of a namespace: in another namespace it is `<namespace>/<name>`."""
        return self.name if namespace == self.namespace else f"{self.namespace}/{self.name}"

    @property
    def run(self) -> str:
        """The name of its Run."""
        return names.run_name(self.name, self.uid)


def target_of(document: DocumentObject) -> Target:
    """Return the target of a document. The documents of a pool member do not name it, so an annotation does."""
    named = (document.metadata.annotations or {}).get(TARGET_ANNOTATION, "").split("/")
    if len(named) != len(MemberRef._fields):
        return document.spec.target
    namespace, name, uid = named
    return msgspec.structs.replace(document.spec.target, namespace=namespace, name=name, uid=uid)


def served_uid(meta: ObjectMeta) -> str:
    """Return the UID of a Sandbox on its server; empty for a Sandbox that was applied in this cluster."""
    return (meta.labels or {}).get(SERVED_LABEL, "")


def served_for(meta: AnnotatedMeta) -> str:
    """Return organisation and name of such a Sandbox on its server; empty for other Sandboxes."""
    notes = meta.annotations or {}
    if not served_uid(meta):
        return ""
    return f"{notes.get(SERVED_FOR_ANNOTATION, '')}/{notes.get(SERVED_NAME_ANNOTATION, '')}"


def run_owner_reference(run: RunObject) -> dict[str, Any]:
    """Return an owner reference to a run."""
    return {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "blockOwnerDeletion": False,
    }


def owned_secret(
    run: RunObject, key: Key, type_: str, data: Mapping[str, bytes], labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return a Secret that the run owns."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {names.RUN_LABEL: run.metadata.name, **labels},
            "ownerReferences": [run_owner_reference(run)],
        },
        "type": type_,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def finalizer_of(run: RunObject) -> str:
    """Return the finalizer that a run puts on its target."""
    return HOOKED_PREFIX + run.spec.hook.name if run.spec.hook is not None else TARGET_FINALIZER


def dayfly_finalizers(meta: ObjectMeta) -> list[str]:
    """Return all finalizers of Dayfly on a target, of any run."""
    return [each for each in meta.finalizers or () if each == TARGET_FINALIZER or each.startswith(HOOKED_PREFIX)]


def is_owned_by(meta: ObjectMeta, run: RunObject) -> bool:
    """Return whether this run owns the object; UIDs are compared, since another run may have had the same name."""
    return any(reference.uid == run.metadata.uid for reference in meta.owner_references or ())


def resource_name(run: RunObject, resource: str) -> str:
    """Return the name of the Resource object, which its Secret of outputs has too."""
    target = run.ledger.target
    return names.derive_name("", f"{target.name}-{resource}", "resource", target.uid, resource)


def secret_name(run: RunObject, document: Lifecycle) -> str:
    """Return the name of the Secret with the outputs of a resource. After each reset it is another one."""
    name = resource_name(run, document.resource)
    stand_ins = (unit_id(document.resource, unit.name) for unit in document.pre_start if unit.kind == Kind.ACQUIRE)
    attempt = max((run.ledger.unit(each).attempt for each in stand_ins), default=0)
    return name if attempt < 2 else f"{name}-{attempt}"
