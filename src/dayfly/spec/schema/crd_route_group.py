"""As `crd_schema` says, for route groups. Structural schemas cannot nest without end: reading refuses a wrong match."""

from dayfly.spec import route_group
from dayfly.spec.routing import label_match
from dayfly.spec.sandbox import Endpoint, Ttl
from dayfly.spec.schema.crd_sandbox import FIELDS as OF_SANDBOXES
from dayfly.spec.schema.crd_sandbox import entries, immutable
from dayfly.spec.schema.crd_schema import Row, Schema, many, rule, rules, text

_FIXED = "cannot change while the route group lives; delete it and create it again"

GROUP_RULES = (
    rule(
        "size(self.metadata.name) <= 30 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "metadata.name: a route group name has at most 30 letters, digits and -, a letter first and a letter or digit "
        "last",
    ),
)

STRUCTS: dict[type, Schema] = {
    route_group.RouteGroupSpec: {
        "required": ["match"],
        **rules(
            *(each for field in ("cluster", "description", "hooks", "runner") for each in immutable(field, _FIXED))
        ),
    }
}

FIELDS: dict[type, Row] = {
    route_group.GroupTtl: {
        "duration": OF_SANDBOXES[Ttl]["duration"],
        "offset_from": text("What it is counted from.", enum=list(route_group.OFFSETS)),
    },
    route_group.GroupEndpoint: {
        **OF_SANDBOXES[Endpoint],
        "cluster": text("In which of several clusters.", 255),
    },
    route_group.RouteGroupSpec: {
        "cluster": text("Name of the cluster of its sandboxes. It cannot change.", 255),
        "description": text("For readers. It cannot change.", 4096),
        "labels": entries("Labels of the group itself.", 1024),
        "match": {
            **text(
                "Which sandboxes of its namespace it has: label {key, value}, value being a pattern (* ? [a-z]), and "
                "no star crosses a slash; any of several matches; or all of several."
            ),
            **rules(
                rule(
                    "(has(self.label) ? 1 : 0) + (has(self.any) ? 1 : 0) + (has(self.all) ? 1 : 0) == 1",
                    "needs exactly one of label, any and all",
                )
            ),
            "properties": {
                "label": {
                    "type": "object",
                    "description": "A label that they have.",
                    "required": ["key", "value"],
                    "properties": {
                        "key": {
                            "type": "string",
                            "description": "The label's key, as it is.",
                            "minLength": 1,
                            "maxLength": label_match.LONGEST_KEY,
                        },
                        "value": {"type": "string", "description": "A pattern of its value.", "maxLength": 256},
                    },
                },
                **{
                    form: {
                        "type": "array",
                        "description": about,
                        "maxItems": label_match.MOST_LABELS,
                        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    }
                    for form, about in (("any", "At least one of these."), ("all", "Each of these."))
                },
            },
            "x-kubernetes-preserve-unknown-fields": None,
        },
        "ttl": text("How long the group lives; left out, until it is deleted."),
        "endpoints": many("Ways in, by name.", route_group.MOST_ENDPOINTS, key="name"),
        "hooks": text("Steps of the group itself: before and after it starts, before and after it stops."),
        "runner": text("Where the hooks' steps run. It cannot change."),
    },
}
