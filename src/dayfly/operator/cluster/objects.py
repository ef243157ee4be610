"""Our own kinds as the API serves them."""

import base64
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from dayfly.execute.pod import names
from dayfly.execute.pod.names import GROUP
from dayfly.kube.answers import MAX_DEPTH, is_cut
from dayfly.kube.objects import AnnotatedMeta, Key, ObjectMeta, Resource, Slim
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.kinds import RunSpec, StepLogsSpec
from dayfly.spec.lifecycle import API_VERSION, Lifecycle
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.plugin import Plugin
from dayfly.spec.route_group import RouteGroup
from dayfly.spec.run import Run
from dayfly.spec.scalars.numbers import whole

VERSION = API_VERSION.removeprefix(f"{GROUP}/")
RUN_FINALIZER = f"{GROUP}/run"
TARGET_FINALIZER = f"{GROUP}/lifecycle"
DOCUMENT_FINALIZER = f"{GROUP}/plan"
# On a LifecycleHook, as long as it owes anybody anything.
HOOK_FINALIZER = f"{GROUP}/hook"
# On a hook's targets, followed by the hook's name: hooks do not wait for each other, so each has its own.
HOOKED_PREFIX = f"lifecycle.{GROUP}/"
# On what belongs to a hook's run: the hook's UID.
HOOK_LABEL = f"{GROUP}/hook"
ABANDON_ANNOTATION = f"{GROUP}/abandon"
# On a Sandbox that a server has: its UID there. Beside it, in annotations, who has it, and its name there.
SERVED_LABEL = f"{GROUP}/served"
SERVED_FOR_ANNOTATION = f"served.{GROUP}/for"
SERVED_NAME_ANNOTATION = f"served.{GROUP}/name"
SERVED_KEY_ANNOTATION = f"served.{GROUP}/routing-key"
# How its run ended, for as long as its server has not noted that.
SERVED_END_ANNOTATION = f"served.{GROUP}/end"
# Until then it stays, so that nothing is begun anew under its UID.
SERVED_FINALIZER = f"{GROUP}/served"
# Lets one that is over go without that, where there is no server any more that could note it.
FORGET_ANNOTATION = f"{GROUP}/forget"
# Units and the attempts after which nobody wants to wait: `db/drop=3 cache/remove=1`.
RETRY_ANNOTATION = f"{GROUP}/retry"
_MOST_ATTEMPTS = 999_999_999
_FORCE = "force"


def check_depth(spec: dict[str, Any]) -> None:
    """Let nobody act by a spec of which a part is missing.

    Raises:
        SpecError: it is nested so deeply that a part of it could not be read.
    """
    if is_cut(spec):
        raise SpecError(f"is nested too deeply to be read: nest no field more than {MAX_DEPTH} deep", ("spec",))


def retries(annotation: str) -> dict[str, int]:
    """What the annotation of that name says; what is no unit with an attempt is passed over."""
    parts = (entry.rpartition("=") for entry in annotation.split())
    found = ((unit, whole(number, _MOST_ATTEMPTS)) for unit, _, number in parts)
    return {unit: number for unit, number in found if unit and number is not None}


class AbandonAnnotation(NamedTuple):
    """The request in the annotation `dayfly.dev/abandon`, and whether the operator follows it now."""

    reason: str
    applies: bool


def abandonment(annotations: Mapping[str, str] | None, *, closing: bool) -> AbandonAnnotation | None:
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


class RunObject(Slim, frozen=True, omit_defaults=False):
    """The ledger as an object. It has no status subresource: finalizer and ledger change in one write."""

    metadata: AnnotatedMeta
    ledger: Run
    spec: RunSpec = RunSpec()
    api_version: Literal["dayfly.dev/v1alpha1"] = API_VERSION  # as literals all objects share one string
    kind: Literal["Run"] = "Run"


class DocumentObject(Slim, frozen=True, omit_defaults=False):
    """ObjectLifecycleMethods: one compiled document."""

    metadata: AnnotatedMeta
    spec: Lifecycle
    api_version: Literal["dayfly.dev/v1alpha1"] = API_VERSION
    kind: Literal["ObjectLifecycleMethods"] = "ObjectLifecycleMethods"


class WrittenCondition(Slim, frozen=True):
    """Since when what is said holds."""

    type: str = ""
    status: str = ""
    last_transition_time: str = ""


class WrittenUnit(Slim, frozen=True):
    """How a step or fork stands."""

    id: str
    state: str = ""
    attempt: int = 0


class WrittenEndpoint(Slim, frozen=True):
    """A way in that was said to work."""

    name: str = ""
    url: str = ""


class WrittenStatus(Slim, frozen=True):
    """What a status says, as far as a new process must know it: of `kinds.SandboxStatus`, the part that is compared."""

    observed_generation: int = 0
    phase: str = ""
    ready: bool = False
    reason: str = ""
    message: str = ""
    progress: str = ""
    conditions: tuple[WrittenCondition, ...] = ()
    units: tuple[WrittenUnit, ...] = ()
    endpoints: tuple[WrittenEndpoint, ...] = ()


class SandboxObject(Slim, frozen=True):
    """A Sandbox as its owner wrote it; `spec` is parsed by `spec.documents`.

    Its status is only spoken. A process that begins looks at it once, so as not to say the same again.
    """

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: WrittenStatus | None = None


class PluginObject(Slim, frozen=True):
    """A published ResourcePlugin: `spec.name` is its name with version, the rest the plugin's spec."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    def parsed(self) -> Plugin:
        """As the compiler takes it.

        Raises:
            SpecError: it is wrong in a way that the API server's schema does not see.
        """
        body = {"name": self.spec.get("name", ""), "spec": {k: v for k, v in self.spec.items() if k != "name"}}
        check_depth(self.spec)
        plugin = documents.from_wire(body, "ResourcePlugin")
        assert isinstance(plugin, Plugin), "asked for by its kind"
        return plugin


class HookObject(Slim, frozen=True):
    """A LifecycleHook as an administrator wrote it; `spec` is parsed by `spec.documents`. Its status is only spoken."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: WrittenStatus | None = None

    def parsed(self) -> LifecycleHook:
        """As the compiler takes it.

        Raises:
            SpecError: it is wrong in a way that the API server's schema does not see.
        """
        name = self.metadata.name
        check_depth(self.spec)
        hook = documents.from_wire({"name": name, "spec": self.spec}, "LifecycleHook", name=name)
        assert isinstance(hook, LifecycleHook), "asked for by its kind"
        return hook


class RouteGroupObject(Slim, frozen=True):
    """A RouteGroup as its owner wrote it; `spec` is parsed by `spec.documents`. Its status is only spoken."""

    metadata: AnnotatedMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: WrittenStatus | None = None

    def parsed(self) -> RouteGroup:
        """As the compiler takes it.

        Raises:
            SpecError: it is wrong in a way that the API server's schema does not see.
        """
        name = self.metadata.name
        check_depth(self.spec)
        group = documents.from_wire({"name": name, "spec": self.spec}, "RouteGroup", name=name)
        assert isinstance(group, RouteGroup), "asked for by its kind"
        return group


class StepLogsObject(Slim, frozen=True):
    """What some steps of a Sandbox printed."""

    metadata: ObjectMeta
    spec: StepLogsSpec


RUNS = Resource(GROUP, VERSION, "runs", "Run", RunObject, namespaced=False)
DOCUMENTS = Resource(
    GROUP, VERSION, "objectlifecyclemethods", "ObjectLifecycleMethods", DocumentObject, namespaced=False
)
SANDBOXES = Resource(GROUP, VERSION, "sandboxes", "Sandbox", SandboxObject)
STEP_LOGS = Resource(GROUP, VERSION, "steplogs", "StepLogs", StepLogsObject)
PLUGINS = Resource(GROUP, VERSION, "resourceplugins", "ResourcePlugin", PluginObject, namespaced=False)
GROUPS = Resource(GROUP, VERSION, "routegroups", "RouteGroup", RouteGroupObject)
HOOKS = Resource(GROUP, VERSION, "lifecyclehooks", "LifecycleHook", HookObject, namespaced=False)


def is_served(meta: ObjectMeta) -> str:
    """The UID of a Sandbox at its server; empty for one of this cluster's own."""
    return (meta.labels or {}).get(SERVED_LABEL, "")


def served_for(meta: AnnotatedMeta) -> str:
    """Whose such a Sandbox is: the organisation and its name there."""
    notes = meta.annotations or {}
    if not is_served(meta):
        return ""
    return f"{notes.get(SERVED_FOR_ANNOTATION, '')}/{notes.get(SERVED_NAME_ANNOTATION, '')}"


def owner(run: RunObject) -> dict[str, Any]:
    """The owner reference for everything that belongs to a run."""
    return {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "blockOwnerDeletion": False,
    }


def secret_of(
    run: RunObject, key: Key, type_: str, data: Mapping[str, bytes], labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """A Secret that belongs to a run, and goes with it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {names.RUN_LABEL: run.metadata.name, **labels},
            "ownerReferences": [owner(run)],
        },
        "type": type_,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def finalizer_of(run: RunObject) -> str:
    """What keeps the run's target as long as the run is not over."""
    return HOOKED_PREFIX + run.spec.hook.name if run.spec.hook is not None else TARGET_FINALIZER


def holds(meta: ObjectMeta) -> list[str]:
    """The finalizers on a target that are ours, whoever's runs they stand for."""
    return [each for each in meta.finalizers or () if each == TARGET_FINALIZER or each.startswith(HOOKED_PREFIX)]


def owned(meta: ObjectMeta, run: RunObject) -> bool:
    """Whether that very run is an owner, not another of its name."""
    return any(reference.uid == run.metadata.uid for reference in meta.owner_references or ())


def resource_name(run: RunObject, resource: str) -> str:
    """Of the Resource object, and of the Secret of its outputs in the Sandbox's namespace."""
    target = run.ledger.target
    return names.derive_name("", f"{target.name}-{resource}", "resource", target.uid, resource)
