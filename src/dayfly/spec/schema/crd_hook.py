"""As `crd_schema` says, for lifecycle hooks. What it leaves open (kinds that are refused, JSONPath) reading refuses."""

import copy

from dayfly.spec import lifecycle_hook, plugin
from dayfly.spec.scalars import kube_names
from dayfly.spec.schema import crd_object, crd_plugin
from dayfly.spec.schema.crd_schema import NAME, Row, Schema, exactly_one, many, name, rule, rules, text

_FROM_TARGET = rule(
    "!(has(self.valueFromSandbox) && self.valueFromSandbox) && !(has(self.required) && self.required) && "
    "!has(self.default) && !(has(self.secret) && self.secret) && !has(self.valueFrom) && ("
    + exactly_one("value valueFromStep valueFromTarget")
    + ")",
    "a lifecycle hook's input needs exactly one of value, valueFromStep and valueFromTarget, and neither "
    "valueFromSandbox, valueFrom, required, default nor secret",
)
_NO_OBJECT = rule("!has(self.manifest) && !has(self.remove)", "a preStop step neither makes nor removes an object")
_NOT_UNDOING = rule("self == ''", "belongs to a postStop step; leave it out")

HOOK_RULES = (
    rule(
        f"size(self.metadata.name) <= {lifecycle_hook.LONGEST_NAME} && "
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        f"metadata.name: a hook's name has at most {lifecycle_hook.LONGEST_NAME} lower-case letters, digits and -",
    ),
)


def _steps(about: str, event: str) -> Schema:
    made = crd_plugin.steps(about, _FROM_TARGET, repeats=event == "postStop", stops=event == "preStop")
    more = made["items"]["properties"]
    if event == "preStop":
        more["object"] = rules(*crd_object.RULES, _NO_OBJECT)
    if event != "postStop":
        more["undoes"] = rules(_NOT_UNDOING)
    return made


STRUCTS: dict[type, Schema] = {
    lifecycle_hook.Selector: rules(
        rule(
            "self.apiVersion == oldSelf.apiVersion && self.kind == oldSelf.kind",
            "apiVersion and kind of a hook's objects never change; write another hook",
        )
    ),
    lifecycle_hook.Hold: rules(rule(exactly_one("annotation path"), "needs exactly one of annotation and path")),
    lifecycle_hook.HookStep: copy.deepcopy(crd_plugin.STRUCTS[plugin.Step]),
    lifecycle_hook.LifecycleHookSpec: rules(
        rule(
            " + ".join(f"size(self.?{event}.orValue([]))" for event in ("preStart", "postStart", "preStop", "postStop"))
            + " > 0",
            "has no steps: write at least one under preStart, postStart, preStop, postStop",
        ),
        rule(
            "!has(self.hold) || size(self.?preStop.orValue([])) > 0",
            "holds the object back until preStop is done, and there are no preStop steps; leave it out",
            fieldPath=".hold",
        ),
        rule(
            "!has(self.stopped) || !(has(self.stopped.contract) && self.stopped.contract)",
            "the contract says when an object is ready, not when it has stopped; write condition or when",
            fieldPath=".stopped",
        ),
    ),
}

FIELDS: dict[type, Row] = {
    lifecycle_hook.Selector: {
        "api_version": text(
            "API version of the objects, like apps/v1. It cannot change.",
            kube_names.LONGEST_QUALIFIED,
            minLength=1,
            pattern=f"^{kube_names.API_VERSION}$",
        ),
        "kind": text("Kind of the objects. It cannot change.", 63, pattern="^[A-Z][A-Za-z0-9]*$"),
        "namespaces": many(
            "Namespaces in which they lie; left out, all but kube-* and Dayfly's own.",
            lifecycle_hook.MOST_NAMESPACES,
            minItems=1,
            items={"maxLength": kube_names.LONGEST_LABEL, "pattern": f"^{kube_names.LABEL}$"},
        )
        | {"x-kubernetes-list-type": "set"},
        "labels": {
            "description": "Labels that they all have.",
            "maxProperties": lifecycle_hook.MOST_LABELS,
            "additionalProperties": {"maxLength": kube_names.LONGEST_LABEL, "pattern": f"^{kube_names.LABEL_VALUE}$"},
        },
    },
    lifecycle_hook.Hold: {
        "annotation": text(
            "Annotation that makes the object's controller wait.",
            kube_names.LONGEST_QUALIFIED,
            pattern=f"^({kube_names.QUALIFIED})?$",
        ),
        "path": text("JSON Pointer to the field that does, instead of an annotation.", 512, pattern="^(/[^/]+)+$"),
        "value": text("The value: of an annotation a string, of a field any plain value."),
    },
    lifecycle_hook.HookInput: {
        "value": text("A constant.", 131_072),
        "value_from_target": text(
            "Taken from the object: a JSONPath (RFC 9535) into it.", 1024, pattern=r"^\$", minLength=1
        ),
    },
    lifecycle_hook.HookStep: {
        "undoes": name(
            "step",
            "Of a postStop step: the preStart or postStart step whose work it takes back. When the hook is removed, "
            "only such steps run for objects that live on.",
            pattern=f"^({NAME[1:-1]})?$",
        ),
    },
    lifecycle_hook.LifecycleHookSpec: {
        "selector": text("Which objects the steps go with."),
        "started": text("What tells that an object has started; left out, it has once it exists."),
        "stopped": text(
            "What tells that an object has stopped; left out, it has once it is being deleted and no finalizer but "
            "Dayfly's is left on it."
        ),
        "hold": text("What makes the object's own controller wait until preStop is done."),
        "runner": text("Where the steps run."),
        "pre_start": _steps("When an object is first seen.", "preStart"),
        "post_start": _steps("Once it has started.", "postStart"),
        "pre_stop": _steps("When it is deleted, before it goes.", "preStop"),
        "post_stop": _steps("After it has stopped; tried until they succeed.", "postStop"),
    },
}
