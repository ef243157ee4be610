"""What goes over the API, as types: for the document that describes it, and for the test that holds answers against it.

Wishes are read by `spec.documents`, which says more of a mistake than a schema can; here stands only their outer form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dayfly.spec import api
from dayfly.spec.routing.rules import RoutingRule

Time = str
"""RFC 3339."""
RoleWord = Literal["viewer", "member", "admin"]


class Form(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object; what has a default may be left out."""


class Nothing(Form):
    """Done."""


class Error(Form):
    """Why something was not done; nothing was changed, where the sentence does not say otherwise."""

    error: str
    requestId: str  # noqa: N815 # as it is written


class Document(Form):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
    servers: list[dict[str, Any]] = []


class Health(Form):
    version: str
    ok: bool


class ReasonMeaning(Form):
    reason: str
    of: str
    tone: str
    meaning: str


class Organisation(Form):
    name: str
    display_name: str


class User(Form):
    role: RoleWord
    scope: list[str] = []


class Organisations(Form):
    orgs: list[Organisation]
    user: User
    feature_flags: dict[str, bool]


class OperatorVersion(Form):
    version: str


class Cluster(Form):
    name: str
    created_at: Time
    operator: OperatorVersion
    cluster_config: dict[str, Any]


class ClusterToken(Form):
    """`token` is in the answer that makes it, and nowhere else."""

    id: str
    masked_value: str
    created_at: Time
    status: dict[str, str]
    token: str = ""


class NewKey(Form):
    """`scope` are terms as `name:ci-*`, at least one; without the field it is the whole organisation."""

    name: str
    role: RoleWord
    expires_in_seconds: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    scope: Annotated[list[str], msgspec.Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET


class Key(Form):
    """`key` is in the answer that makes it, and nowhere else."""

    id: str
    name: str
    role: RoleWord
    created_at: Time
    created_by: str
    expires_at: Time = ""
    last_used_at: Time = ""
    key: str = ""
    scope: list[str] = []


class AuditEntry(Form):
    number: int
    at: int
    key: str
    name: str
    program: str
    action: str
    object: str
    spec: str
    previous: str
    digest: str


class AuditHead(Form):
    number: int
    digest: str


class AuditPage(Form):
    entries: list[AuditEntry]
    head: AuditHead


class NewPlugin(Form):
    """`readme` is Markdown for readers. It alone may be put again, changed, for a version that is published."""

    spec: dict[str, Any]
    name: str = ""
    readme: str | None = None


class RoutingRules(Form):
    routing_rules: list[RoutingRule]


class Seconds(Form):
    seconds: int


class NewSandbox(Form):
    """`secrets` are values of params that no document holds, by resource and name; taken by `dayfly up` alone."""

    spec: dict[str, Any]
    name: str = ""
    lease: Seconds | None = None
    secrets: dict[str, dict[str, str]] = {}


class Extend(Form):
    """`seconds` from now, or `until`; neither for as long again as its time to live says."""

    seconds: int = 0
    until: Time = ""


class NewRouteGroup(Form):
    spec: dict[str, Any]
    name: str = ""


class WhyAbandon(Form):
    """Without `force` the cleanup must have begun: the sandbox or route group is being deleted."""

    reason: str
    force: bool = False


class Units(Form):
    unit: str = ""


class RetriedUnit(Form):
    unit: str
    attempt: int


class Retried(Form):
    retried: list[RetriedUnit]


class Until(Form):
    seconds: int
    until: Time


class LogPiece(Form):
    unit: str
    attempt: int
    offset: int
    next: int
    sealed: bool
    data: str
    encoding: Literal["utf-8", "base64"]
    times: list[api.LogTime] = []
    """Where they are asked for; of what no entry tells of nobody knows when it was printed."""


class LogLine(Form):
    message: str
    time: Time = ""
    """Where it is asked for; empty where nobody knows."""


class ContainerLog(Form):
    container: str
    logs: list[LogLine]


class Events(Form):
    """Server-sent events, not JSON."""


class Frozen(Form):
    """`onlyInCluster` are UIDs, `onlyHere` names; both once the cluster has said what it has (`compared`)."""

    frozen: bool
    compared: bool = False
    why: str = ""
    since: Time = ""
    only_in_cluster: list[str] = []
    only_here: list[str] = []
