"""Metadata of fields: their meaning and their valid values.

A field declares these once, as `Annotated[type, doc(...)]`, for the cluster's schemas (`crd`), the editors'
(`json_schema`) and the reference. Its limits are for schemas only: the parser has rules of its own with better
messages. Limits are generous but finite, because the API server estimates each CEL rule at its worst case. A pattern
costs nothing.
"""

from typing import Any

import msgspec

from dayfly.spec.scalars import kube_names, names

_PART = r"([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+)"
NAME_PATTERN = r"^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$"
DNS_LABEL: dict[str, Any] = {"maxLength": kube_names.MAX_LABEL_LENGTH, "pattern": f"^{kube_names.LABEL}$"}
"""The schema keywords of a namespace or container name, also for the items of a list."""
MAX_VALUES = 64
MANY = 512
LONG = 65_536
RFC3339 = "RFC 3339, empty for not yet."
MILLISECONDS = "unix milliseconds, 0 for not yet."


def doc(about: str, longest: int | None = None, **more: Any) -> msgspec.Meta:
    """Describe a field, with its maximum length and further schema keywords; None removes a keyword."""
    bound = {} if longest is None else {"maxLength": longest}
    return msgspec.Meta(description=about, extra=bound | more)


def identifier(kind: str, about: str, **more: Any) -> msgspec.Meta:
    """Describe a field that holds the name of a step, input, output, resource or endpoint."""
    return doc(about, names.LIMITS[kind], **{"pattern": NAME_PATTERN} | more)


def dns_label(about: str, **more: Any) -> msgspec.Meta:
    """Describe a field that holds a DNS label: the name of a namespace or container."""
    return doc(about, **DNS_LABEL, **more)


def dns_name(about: str, **more: Any) -> msgspec.Meta:
    """Describe a field that holds a DNS subdomain: the name of an object."""
    return doc(about, kube_names.MAX_OBJECT_LENGTH, pattern=f"^{kube_names.OBJECT}$", **more)


def or_empty(field: msgspec.Meta) -> msgspec.Meta:
    """Describe the same field with the empty value allowed."""
    extra = field.extra or {}
    return doc(field.description or "", **extra | {"pattern": f"^({extra['pattern'][1:-1]})?$"})


def list_of(about: str, most: int = MANY, key: str = "", **more: Any) -> msgspec.Meta:
    """Describe a list; with a key no two of its items share that key."""
    keyed: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return doc(about, maxItems=most, **keyed, **more)


def map_of(about: str, longest: int, most: int = MAX_VALUES) -> msgspec.Meta:
    """Describe a mapping, with the maximum length of its values."""
    return doc(about, maxProperties=most, additionalProperties={"maxLength": longest})


def file_path(about: str) -> msgspec.Meta:
    """Describe a field that holds the absolute path of a file."""
    return doc(about, names.MAX_PATH_BYTES, pattern=f"^(/{_PART})+$")


def schema_keywords(field: msgspec.Meta) -> dict[str, Any]:
    """Return the keywords of a field's schema."""
    return {"description": field.description, **(field.extra or {})}
