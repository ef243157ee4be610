"""LifecycleHooks: steps for objects of any kind, written by an administrator, with every rule for one hook.

A hook selects objects and has steps for the four events around each object's start and stop. It is cluster-scoped, so
its author acts on the objects of all teams. `compile` checks references between its steps.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from dayfly.spec.errors import Faults, Path, SpecError, quote, with_article
from dayfly.spec.lifecycle import LifecycleEvent, WireStruct
from dayfly.spec.meta import DNS_LABEL, NAME_PATTERN, doc, identifier, list_of
from dayfly.spec.plugin import (
    INPUTS,
    MAX_STEPS,
    Input,
    Runner,
    Step,
    check_runner,
    check_step,
    check_step_names,
    check_step_output,
)
from dayfly.spec.scalars import jsonpath, kube_names, names
from dayfly.spec.steps import param_rules
from dayfly.spec.steps.kube_object import ReadyRule, check_type, check_verdict, is_ours, is_pointer, pointer_parts
from dayfly.spec.steps.object_kinds import why_no_target
from dayfly.spec.steps.webhook import EVERY_STEPS_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

FINALIZER_PREFIX = "lifecycle.dayfly.dev/"
MAX_NAME_LENGTH = 63
MAX_NAMESPACES, MAX_LABELS = 256, 32
MAX_HOLD_LENGTH = 1024
OWN_NAMESPACES = ("dayfly-system", "dayfly-runners")
"""Dayfly's own namespaces, which are never selected."""
CLUSTERS_PREFIX = "kube-"
"""Kubernetes' own namespaces have this prefix. A hook selects them only if it names them."""

TARGET_VARIABLES = (
    "DAYFLY_HOOK_NAME",
    "DAYFLY_TARGET_API_VERSION",
    "DAYFLY_TARGET_KIND",
    "DAYFLY_TARGET_NAMESPACE",
    "DAYFLY_TARGET_NAME",
    "DAYFLY_TARGET_UID",
)
"""Variables of each step that identify the object."""

_VARIABLES = (*TARGET_VARIABLES, *EVERY_STEPS_VARIABLES)
_INDEX = re.compile(r"-|[0-9]+")


class Selector(WireStruct, frozen=True, kw_only=True):
    """The objects that a hook selects: of one kind, in these namespaces (none: all), with all of these labels.

    Without namespaces, those of Kubernetes itself (kube-*) are excluded. Dayfly's own namespaces are always excluded.
    So are cluster-scoped objects, because no namespace's limits would apply to their steps.
    """

    api_version: Annotated[
        str,
        doc(
            "API version of the objects, like apps/v1. It cannot change.",
            kube_names.MAX_QUALIFIED_LENGTH,
            minLength=1,
            pattern=f"^{kube_names.API_VERSION}$",
        ),
    ]
    kind: Annotated[str, doc("Kind of the objects. It cannot change.", 63, pattern="^[A-Z][A-Za-z0-9]*$")]
    namespaces: Annotated[
        tuple[str, ...],
        list_of(
            "Namespaces of the objects. By default all except kube-* and Dayfly's own.",
            MAX_NAMESPACES,
            minItems=1,
            items=DNS_LABEL,
            **{"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    labels: Annotated[
        dict[str, str],
        doc(
            "Labels that the objects must have.",
            maxProperties=MAX_LABELS,
            additionalProperties={"maxLength": kube_names.MAX_LABEL_LENGTH, "pattern": f"^{kube_names.LABEL_VALUE}$"},
        ),
    ] = {}

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it selects an object of its kind with this namespace and these labels."""
        if not namespace or namespace in OWN_NAMESPACES:
            return False
        if self.namespaces:
            meant = namespace in self.namespaces
        else:
            meant = not namespace.startswith(CLUSTERS_PREFIX)
        return meant and all(labels.get(key) == value for key, value in self.labels.items())


class Hold(WireStruct, frozen=True, kw_only=True):
    """The setting that makes the object's own controller wait: an annotation, or a field at `path` (JSON Pointer).

    Dayfly sets it to `value` first, and removes it when preStop is done.
    """

    annotation: Annotated[
        str,
        doc(
            "Annotation that makes the object's controller wait.",
            kube_names.MAX_QUALIFIED_LENGTH,
            pattern=f"^({kube_names.QUALIFIED})?$",
        ),
    ] = ""
    path: Annotated[
        str,
        doc(
            "JSON Pointer to the field that makes the controller wait, instead of an annotation.",
            512,
            pattern="^(/[^/]+)+$",
        ),
    ] = ""
    value: Annotated[
        str | int | float | bool | None, doc("The value: a string for an annotation, any plain value for a field.")
    ] = None


class HookInput(Input, frozen=True, kw_only=True):
    """One input of a step, with exactly one source: a constant, another step, or a field of the object.

    `value_from_target` is a JSONPath into the object. It is evaluated just before the step starts.
    """

    value: Annotated[str | None, doc("A constant.", 131_072)] = None
    value_from_target: Annotated[
        str | None, doc("A field of the object, as a JSONPath (RFC 9535) into it.", 1024, pattern=r"^\$", minLength=1)
    ] = None


class HookStep(Step, frozen=True, kw_only=True):
    """One script, command, webhook or Kubernetes object, with its inputs and outputs.

    For a postStop step, `undoes` names the preStart or postStart step that it undoes. If the hook is removed while the
    object lives on, only such steps run.
    """

    inputs: Annotated[tuple[HookInput, ...], INPUTS] = ()
    undoes: Annotated[
        str,
        identifier(
            "step",
            "For a postStop step: the preStart or postStart step that it undoes. If the hook is removed, "
            "only such steps run for objects that live on.",
            pattern=f"^({NAME_PATTERN[1:-1]})?$",
        ),
    ] = ""


class LifecycleHookSpec(WireStruct, frozen=True, kw_only=True):
    """Steps around the lives of the selected objects. Each object has its own run."""

    selector: Annotated[Selector, doc("The objects to which the hook applies.")]
    started: Annotated[
        ReadyRule | None, doc("The rule for a started object. By default an object has started once it exists.")
    ] = None
    stopped: Annotated[
        ReadyRule | None,
        doc(
            "The rule for a stopped object. By default an object has stopped once it is being deleted and "
            "only Dayfly's finalizer is left on it."
        ),
    ] = None
    hold: Annotated[Hold | None, doc("How the object's own controller is made to wait until preStop is done.")] = None
    runner: Annotated[Runner, doc("Image and namespace of the steps.")] = Runner()
    pre_start: Annotated[
        tuple[HookStep, ...], list_of("Steps when an object is first observed.", MAX_STEPS, "name")
    ] = ()
    post_start: Annotated[tuple[HookStep, ...], list_of("Steps after the object has started.", MAX_STEPS, "name")] = ()
    pre_stop: Annotated[
        tuple[HookStep, ...], list_of("Steps when the object is being deleted, before it stops.", MAX_STEPS, "name")
    ] = ()
    post_stop: Annotated[
        tuple[HookStep, ...],
        list_of("Steps after the object has stopped. They are retried until they succeed.", MAX_STEPS, "name"),
    ] = ()

    def steps(self, event: LifecycleEvent) -> tuple[HookStep, ...]:
        """Return the steps of one event, in document order."""
        match event:
            case LifecycleEvent.PRE_START:
                return self.pre_start
            case LifecycleEvent.POST_START:
                return self.post_start
            case LifecycleEvent.PRE_STOP:
                return self.pre_stop
            case LifecycleEvent.POST_STOP:
                return self.post_stop


class LifecycleHook(WireStruct, frozen=True, kw_only=True):
    """A hook: its name and spec."""

    name: str
    spec: LifecycleHookSpec

    @property
    def finalizer(self) -> str:
        """The finalizer that the hook adds to each of its targets."""
        return FINALIZER_PREFIX + self.name


def check_lifecycle_hook(hook: LifecycleHook, name_at: Path = ("metadata", "name")) -> None:
    """Check a hook by every rule that needs no other document.

    Args:
        hook: The hook as written.
        name_at: The path to its name.

    Raises:
        SpecError: Every fault, each with a path from the document's root.
    """
    spec = hook.spec
    root: Path = ("spec",)
    faults = Faults()
    with faults:
        if not kube_names.is_label(hook.name):
            problem = f"is not the name of a hook: at most {MAX_NAME_LENGTH} lower-case letters, digits and -"
            raise SpecError(f"{quote(hook.name)} {problem}, a letter or digit first and last", name_at)
    with faults:
        _check_selector(spec.selector, (*root, "selector"))
    with faults:
        _check_moments(spec, root)
    with faults:
        if spec.hold is not None:
            _check_hold(spec.hold, (*root, "hold"))
    with faults:
        if spec.hold is not None and not spec.pre_stop:
            problem = "makes the controller wait until preStop is done, but there are no preStop steps; leave it out"
            raise SpecError(problem, (*root, "hold"))
    with faults:
        check_runner(spec.runner, (*root, "runner"))
    with faults:
        _check_steps(spec, root)
    faults.settle()


def _check_selector(selector: Selector, keys: Path) -> None:
    faults = Faults()
    with faults:
        check_type({"apiVersion": selector.api_version, "kind": selector.kind}, keys)
        if reason := why_no_target(selector.api_version, selector.kind):
            raise SpecError(f"hooks are not allowed for {with_article(selector.kind)}: {reason}", (*keys, "kind"))
    with faults:
        if (count := len(selector.namespaces)) > MAX_NAMESPACES:
            problem = f"has {count} items; at most {MAX_NAMESPACES} are allowed: leave them out and select by labels"
            raise SpecError(problem, (*keys, "namespaces"))
    found = [(name, (*keys, "namespaces", index)) for index, name in enumerate(selector.namespaces)]
    for name, here in found:
        with faults:
            kube_names.check_namespace(name, here)
            if name in OWN_NAMESPACES:
                raise SpecError(f"namespace {name} is Dayfly's own; choose another", here)
    with faults:
        names.check_unique("the namespace", found)
    with faults:
        _check_labels(selector.labels, (*keys, "labels"))
    faults.settle()


def _check_labels(labels: dict[str, str], keys: Path) -> None:
    if len(labels) > MAX_LABELS:
        raise SpecError(f"has {len(labels)} labels; at most {MAX_LABELS} are allowed", keys)
    for key, value in labels.items():
        if not kube_names.is_qualified(key):
            raise SpecError(f"{quote(key)} is not a valid label key", (*keys, key))
        if len(value) > kube_names.MAX_LABEL_LENGTH or not re.fullmatch(kube_names.LABEL_VALUE, value):
            raise SpecError(f"{quote(value)} is not a valid label value", (*keys, key))


def _check_moments(spec: LifecycleHookSpec, root: Path) -> None:
    """Check the rules for a started and a stopped object."""
    faults = Faults()
    for field, verdict in (("started", spec.started), ("stopped", spec.stopped)):
        if verdict is not None:
            with faults:
                check_verdict(verdict, (*root, field))
    with faults:
        if spec.stopped is not None and spec.stopped.contract:
            problem = "the contract states when an object is ready, not when it has stopped; write condition or when"
            raise SpecError(problem, (*root, "stopped", "contract"))
    faults.settle()


def _check_hold(hold: Hold, keys: Path) -> None:
    if bool(hold.annotation) == bool(hold.path):
        raise SpecError(f"needs exactly one of annotation and path; {'both' if hold.path else 'neither'} given", keys)
    if isinstance(hold.value, str) and len(hold.value) > MAX_HOLD_LENGTH:
        raise SpecError(f"has {len(hold.value)} characters; at most {MAX_HOLD_LENGTH} are allowed", (*keys, "value"))
    if hold.annotation:
        if not kube_names.is_qualified(hold.annotation):
            raise SpecError(f"{quote(hold.annotation)} is not a valid annotation key", (*keys, "annotation"))
        if is_ours(hold.annotation):
            raise SpecError("keys with dayfly.dev/ are Dayfly's own; choose another", (*keys, "annotation"))
        if hold.value is not None and not isinstance(hold.value, str):
            raise SpecError("the value of an annotation must be a string (in quotes)", (*keys, "value"))
        return
    if hold.value is None:
        raise SpecError("needs the value of the field", keys)
    _check_field(hold.path, (*keys, "path"))


def _check_field(path: str, keys: Path) -> None:
    if not is_pointer(path):
        raise SpecError(f"{quote(path)} is not a JSON Pointer like /spec/hold", keys)
    way = pointer_parts(path)
    if way[0] == "metadata":
        raise SpecError("in metadata, only an annotation is allowed: write annotation", keys)
    if way[0] in ("apiVersion", "kind", "status"):
        raise SpecError(f"{way[0]} is not allowed; choose a field that the object's controller reads", keys)
    for part in way:
        if _INDEX.fullmatch(part):
            raise SpecError("the items of a list have no fixed positions; choose a field outside lists", keys)


def _check_steps(spec: LifecycleHookSpec, root: Path) -> None:
    workflows = [(spec.steps(event), (*root, str(event))) for event in LifecycleEvent]
    if not any(steps for steps, _ in workflows):
        raise SpecError(f"has no steps: write at least one under {', '.join(LifecycleEvent)}", root)
    faults = Faults()
    for steps, keys in workflows:
        for index, step in enumerate(steps):
            here = (*keys, index)
            with faults:
                check_step(step, here, repeats=keys[-1] == LifecycleEvent.POST_STOP, variables=_VARIABLES)
            with faults:
                _check_undoing(step, here)
            for position, wanted in enumerate(step.inputs):
                with faults:
                    _check_source(wanted, (*here, "inputs", position))
    with faults:
        check_step_names(workflows)
    faults.settle()


def _check_undoing(step: HookStep, keys: Path) -> None:
    event = keys[-2]
    if step.object is not None and event == LifecycleEvent.PRE_STOP:
        problem = "a preStop step neither creates nor removes an object: it does not run when the hook is removed"
        raise SpecError(f"{problem}; write a script or a webhook, or remove it under postStop", (*keys, "object"))
    if not step.undoes:
        return
    here = (*keys, "undoes")
    if event != LifecycleEvent.POST_STOP:
        raise SpecError("belongs to a postStop step; leave it out", here)
    if step.object is not None:
        raise SpecError("the removal of an object undoes the step that creates it; leave it out", here)
    names.check("step", step.undoes, here)


def _check_source(wanted: HookInput, keys: Path) -> None:
    if wanted.value_from_sandbox:
        problem = "a lifecycle hook has no params; write value, valueFromStep or valueFromTarget"
        raise SpecError(problem, (*keys, "valueFromSandbox"))
    if wanted.value_from is not None:
        problem = "a lifecycle hook has no resources; write value, valueFromStep or valueFromTarget"
        raise SpecError(problem, (*keys, "valueFrom"))
    if wanted.value_from_parent is not None:
        problem = "a lifecycle hook has no parent; write value, valueFromStep or valueFromTarget"
        raise SpecError(problem, (*keys, "valueFromParent"))
    param_rules.refuse_rules(wanted, keys)
    sources = (wanted.value, wanted.value_from_step, wanted.value_from_target)
    if (given := sum(source is not None for source in sources)) != 1:
        raise SpecError(f"needs exactly one of value, valueFromStep and valueFromTarget; {given} are given", keys)
    if wanted.value_from_step is not None:
        check_step_output(wanted.value_from_step, (*keys, "valueFromStep"))
    if wanted.value_from_target is not None:
        jsonpath.check(wanted.value_from_target, (*keys, "valueFromTarget"), regex=False)
