"""As `crd_schema` says, for objects. The schema takes any manifest; `spec.steps.kube_object` does not."""

from dayfly.spec.scalars import kube_names
from dayfly.spec.schema.crd_schema import VALUES, Row, Schema, exactly_one, name, object_name, optional, rule, text
from dayfly.spec.steps import kube_object

# Of all of them, beside what a list of steps asks of its own.
RULES = (
    rule(exactly_one("manifest remove"), "needs exactly one of manifest and remove"),
    rule(
        "!has(self.remove) || !(has(self.set) || has(self.ready) || has(self.failed))",
        "set, ready and failed belong to a step that makes an object",
    ),
)

STRUCTS: dict[type, Schema] = {
    kube_object.ReadyRule: {
        "x-kubernetes-validations": [
            rule(
                "(has(self.contract) && self.contract ? 1 : 0) + " + exactly_one("condition when"),
                "needs exactly one of condition, when and contract",
            )
        ]
    },
    kube_object.FromSecret: {
        "x-kubernetes-validations": [
            rule(exactly_one("name nameFromJSONPath"), "needs exactly one of name and nameFromJSONPath")
        ]
    },
}

FIELDS: dict[type, Row] = {
    kube_object.Placed: {
        "input": name("input", "Name of the input whose value it is."),
        "as_": text("What the value is read as.", enum=list(kube_object.FORMS), default="string"),
    },
    kube_object.ReadyRule: {
        "condition": text(
            "Type of a condition of the object.", kube_names.LONGEST_CONDITION, pattern=f"^({kube_names.CONDITION})?$"
        ),
        "status": text("The status that the condition has.", enum=list(kube_object.STATUSES), default="True"),
        "when": text("A JSONPath into the object, and the values of which it finds one."),
        "contract": text("Go by status.ready or the condition Ready, and by status.failureReason."),
    },
    kube_object.FromSecret: {
        "key": text("Key of the Secret.", 253, pattern=f"^{kube_names.KEY}$"),
        "name": optional(object_name("Name of the Secret, in the object's namespace.")),
        "name_from_json_path": text("A JSONPath (RFC 9535) that finds its name in the object.", 1024),
    },
    kube_object.KubeObject: {
        "manifest": text("The object as kubectl apply takes it, without namespace; Dayfly names it if it has no name."),
        "set": {
            "description": "By JSON Pointer: fields of the manifest whose values are inputs.",
            "maxProperties": VALUES,
        },
        "ready": text("What tells that the object is ready; left out, it is ready once it exists."),
        "failed": text("What tells that the object has failed for good."),
        "remove": optional(name("step", "Of a delete step: the create step whose object it removes.")),
    },
}
