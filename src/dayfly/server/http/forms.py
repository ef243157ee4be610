"""Types of the API's bodies and answers, for the OpenAPI document and for the test that compares answers with it.

Specs are only objects here: `spec.documents` parses them, with better error messages than a schema gives.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dayfly.compile.preview import CompilePreview
from dayfly.spec import api
from dayfly.spec.routing.rules import RoutingRule

Time = str
"""RFC 3339."""
RoleWord = Literal["viewer", "member", "admin"]


class Form(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object. Fields with a default are optional."""


class Nothing(Form):
    """An empty object."""


class Error(Form):
    """An error. Nothing was changed, unless the message says otherwise."""

    error: str
    requestId: str  # noqa: N815 # the name in JSON


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
    severity: str
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
    """A token of a cluster. Only the answer that creates it contains the secret `token`."""

    id: str
    masked_value: str
    created_at: Time
    status: dict[str, str]
    token: str = ""


class NewKey(Form):
    """A key to create. `scope` has at least one term such as `name:ci-*`; without it the scope is the organisation."""

    name: str
    role: RoleWord
    expires_in_seconds: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    scope: Annotated[list[str], msgspec.Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET


class Key(Form):
    """A key. Only the answer that creates it contains the secret `key`."""

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
    """A version to publish. `readme` is Markdown; it is the only field that can change after the publication."""

    spec: dict[str, Any]
    name: str = ""
    readme: str | None = None


class RoutingRules(Form):
    routing_rules: list[RoutingRule]


class Seconds(Form):
    seconds: int


class NewSandbox(Form):
    """A sandbox. `secrets` are values of secret params by resource and name; only `dayfly up` accepts them."""

    spec: dict[str, Any]
    name: str = ""
    lease: Seconds | None = None
    secrets: dict[str, dict[str, str]] = {}


class Extend(Form):
    """The new end: `seconds` from now, or `until`; with neither, the current time to live starts again now."""

    seconds: int = 0
    until: Time = ""


class NewRouteGroup(Form):
    spec: dict[str, Any]
    name: str = ""


class WhyAbandon(Form):
    """Why the cleanup is abandoned. Without `force`, the sandbox or route group must already be being deleted."""

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
    """Present if requested; parts of the log without an entry have no known time."""


class LogLine(Form):
    message: str
    time: Time = ""
    """Present if requested; empty if it is not known."""


class ContainerLog(Form):
    container: str
    logs: list[LogLine]


class Events(Form):
    """Server-sent events, not JSON."""


class Frozen(Form):
    """The state of a frozen cluster. Once `compared`, `onlyInCluster` has UIDs and `onlyHere` names of runs."""

    frozen: bool
    compared: bool = False
    why: str = ""
    since: Time = ""
    only_in_cluster: list[str] = []
    only_here: list[str] = []


# --- the page ---------------------------------------------------------------------------------------------------------

Plan = CompilePreview


class PageLink(Form):
    """A link that signs in on the page once. `path` is relative to the server's address."""

    path: str
    expires_in_seconds: int


class PageCode(Form):
    code: str


class PagePlace(Form):
    """A cluster without a server, by its context in the kubeconfig. An empty namespace means all namespaces."""

    context: str
    namespace: str


class PageSession(Form):
    """The signed-in key. `expiresAt` is missing if the request has a key and no session.

    `place` is given for the page of a cluster without a server.
    """

    org: str
    role: RoleWord
    name: str
    key: str
    expires_at: Time = ""
    place: PagePlace | None = None


class OutputName(Form):
    unit: str
    output: str


class Ended(Form):
    """A sandbox that has ended."""

    uid: str
    name: str
    cluster: str
    routing_key: str
    created_at: Time
    ended_at: Time
