"""What goes over the API, as types: for the document that describes it, and for the test that holds answers against it.

Wishes are read by `spec.documents`, which says more of a mistake than a schema can; here stands only their outer form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dayfly.spec.report import UnitReport
from dayfly.spec.routing.rules import RoutingRule
from dayfly.spec.run import Request

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


class Plugin(Form):
    """`readme` is there where one version is asked for, and it has one. Lists are without."""

    name: str
    spec: dict[str, Any]
    created_at: Time
    updated_at: Time
    status: dict[str, Any]
    readme: str = ""


class NewBaseline(Form):
    kind: Literal["Deployment"]
    name: str
    command: list[str]
    namespace: str = "default"
    env: dict[str, str] = {}
    port: int | None = None
    workdir: str = ""
    routed_port: int | None = None


class Baseline(NewBaseline):
    created_at: Time = ""
    updated_at: Time = ""


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


class SandboxStatus(Form):
    ready: bool
    reason: str
    message: str
    unserved: list[str] = []
    scheduled_delete_time: Time = ""
    conditions: list[dict[str, Any]] = []


class Progress(Form):
    """`done` of `total` units of the `phase` that it is in; `tone` says how its reason stands."""

    phase: str
    done: int
    total: int
    tone: str


class Sandbox(Form):
    """`namespace` is where its object lies, on the page of a plain cluster alone."""

    name: str
    routing_key: str
    created_at: Time
    updated_at: Time
    spec: dict[str, Any]
    endpoints: list[dict[str, Any]]
    status: SandboxStatus
    progress: Progress
    warnings: list[str] = []
    namespace: str = ""


class Extend(Form):
    """`seconds` from now, or `until`; neither for as long again as its time to live says."""

    seconds: int = 0
    until: Time = ""


class NewRouteGroup(Form):
    spec: dict[str, Any]
    name: str = ""


class RouteGroupStatus(Form):
    """`matched` counts its sandboxes. A stream of changes names the first 256 of them alone, as does a cluster."""

    ready: bool
    reason: str
    message: str
    matched_sandboxes: list[str]
    matched: int
    conditions: list[dict[str, Any]]
    conflicts: list[dict[str, Any]] = []
    unserved: list[str] = []
    scheduled_delete_time: Time = ""


class RouteGroup(Form):
    """`namespace` as in `Sandbox`."""

    name: str
    routing_key: str
    created_at: Time
    updated_at: Time
    spec: dict[str, Any]
    endpoints: list[dict[str, Any]]
    status: RouteGroupStatus
    progress: Progress
    namespace: str = ""


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


class Report(Form):
    """Without `phase` and what belongs to it for one of which nobody knows any more.

    `denied`: what whoever asks may not do with it, and why; on the page of a plain cluster alone.
    """

    uid: str
    name: str
    cluster: str
    routing_key: str
    version: int
    endpoints: list[dict[str, Any]]
    phase: str = ""
    ready: bool = False
    reason: str = ""
    message: str = ""
    about: str = ""
    done: int = 0
    total: int = 0
    units: list[UnitReport] = []
    closed: Request | None = None
    abandon: Request | None = None
    born_at: int = 0
    unserved: list[str] = []
    denied: dict[str, str] = {}


class Blocker(Form):
    """Empty for nothing."""

    subject: str = ""
    reason: str = ""
    message: str = ""
    since: int = 0
    next: str = ""
    because: "list[Blocker]" = []


class Output(Form):
    resource: str
    step: str
    output: str
    value: str
    encoding: Literal["utf-8", "base64"]
    sensitive: bool
    withheld: bool = False
    """It never leaves its cluster; `value` is empty."""


class Attempt(Form):
    unit: str
    attempt: int
    size: int
    sealed: bool


class LogTime(Form):
    """From this byte of a log on it was printed at this time, until the next."""

    offset: int
    time: Time


class LogPiece(Form):
    unit: str
    attempt: int
    offset: int
    next: int
    sealed: bool
    data: str
    encoding: Literal["utf-8", "base64"]
    times: list[LogTime] = []
    """Where they are asked for; of what no entry tells of nobody knows when it was printed."""


class LogLine(Form):
    message: str
    time: Time = ""
    """Where it is asked for; empty where nobody knows."""


class ContainerLog(Form):
    container: str
    logs: list[LogLine]


class Move(Form):
    seq: int
    at: int
    unit: str
    attempt: int
    move: str
    reason: str
    message: str


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
