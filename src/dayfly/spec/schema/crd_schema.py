"""Words of a schema that the types cannot say: sentences for `kubectl explain`, bounds, patterns, rules in CEL.

The tables are `crd_plugin`, `crd_webhook`, `crd_object`, `crd_sandbox`, `crd_hook` for what people write, and
`crd_written` for what Dayfly does; rows are found by class and field. Bounds are generous but finite, for the API
server prices each rule at its worst. Where a rule can be a plain pattern it is one (they cost nothing); a CEL rule is
written where its sentence helps.
"""

from typing import Any

from dayfly.spec.scalars import kube_names, names

Schema = dict[str, Any]
Row = dict[str, Schema]

NAME = r"^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$"
VALUES = 64


def rule(cel: str, message: str, **more: Any) -> Schema:
    return {"rule": cel, "message": message, **more}


def text(about: str, longest: int | None = None, **more: Any) -> Schema:
    """A field's description, its bound and more words of its schema."""
    bound = {} if longest is None else {"maxLength": longest}
    return {"description": about, **bound, **more}


def rules(*rules: Schema) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(rules)}


def name(kind: str, about: str, **more: Any) -> Schema:
    return {"description": about, "maxLength": names.LIMITS[kind], "pattern": NAME, **more}


def label(about: str, **more: Any) -> Schema:
    """A field that holds a DNS label: the name of a namespace or container."""
    return text(about, kube_names.LONGEST_LABEL, pattern=f"^{kube_names.LABEL}$", **more)


def object_name(about: str, **more: Any) -> Schema:
    """A field that holds a DNS subdomain: the name of an object."""
    return text(about, kube_names.LONGEST_OBJECT, pattern=f"^{kube_names.OBJECT}$", **more)


def optional(field: Schema) -> Schema:
    """The same field, which may also be empty."""
    return {**field, "pattern": f"^({field['pattern'][1:-1]})?$"}


def many(about: str, most: int, key: str = "", **more: Any) -> Schema:
    """A list; with a key no two of its items share that key."""
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return {"description": about, "maxItems": most, **keyed, **more}


def exactly_one(fields: str) -> str:
    """CEL that counts which of these fields are there."""
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields.split()) + " == 1"
