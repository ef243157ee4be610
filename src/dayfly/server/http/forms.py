"""Types of the API's bodies and answers, for the OpenAPI document and for the test that compares answers with it.

Specs are only objects here: `spec.documents` parses them, with better error messages than a schema gives.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dayfly.compile.preview import CompilePreview
from dayfly.server.access.agent_limits import AgentLimits
from dayfly.spec import api
from dayfly.spec.meta import doc
from dayfly.spec.routing.rules import RoutingRule

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
RoleWord = Literal["viewer", "member", "admin", "agent"]


class Form(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object. Fields with a default are optional."""


class Nothing(Form):
    """An empty object."""


class Error(Form):
    """An error. Nothing was changed, unless the message says otherwise."""

    error: Annotated[str, doc("The problem; several problems are on separate lines, each with its place.")]
    requestId: Annotated[str, doc("ID of the request in the log of the server.")]  # noqa: N815 # the name in JSON


class Document(Form):
    """An OpenAPI document."""

    openapi: Annotated[str, doc("Version of OpenAPI.")]
    info: Annotated[dict[str, Any], doc("Title and version.")]
    paths: Annotated[dict[str, Any], doc("Operations by path.")]
    components: Annotated[dict[str, Any], doc("Schemas, responses and security schemes.")]
    servers: Annotated[list[dict[str, Any]], doc("Prefix of all paths.")] = []


class Health(Form):
    """The state of a server that responds."""

    version: Annotated[str, doc("Version of the server.")]
    ok: Annotated[bool, doc("Always true: a server without its store returns an error.")]


class ReasonMeaning(Form):
    """A reason of reports, conditions and errors, and its meaning."""

    reason: Annotated[str, doc("Reason, in one word.")]
    of: Annotated[str, doc("Subject of the reason, such as `run`, `wait` or `webhook`.")]
    severity: Annotated[str, doc("`progress`, `trouble`, `warning` or `failed`.")]
    meaning: Annotated[str, doc("Meaning, in one sentence.")]


class Organisation(Form):
    """An organisation."""

    name: Annotated[str, doc("Name, as in paths.")]
    display_name: Annotated[str, doc("Name for people.")]


class AgentUsage(Form):
    """The limits of a key for agents, and the part that is used. They are common to all sessions of the key."""

    limits: Annotated[AgentLimits, doc("Limits of the key.")]
    sandboxes: Annotated[int, doc("Number of its sandboxes.")]
    hours_left: Annotated[float, doc("Unused hours of its budget.")]
    prefix: Annotated[str, doc("The start of the names of its sandboxes.")]
    session: Annotated[str, doc("Name of the session; absent without one.")] = ""


class User(Form):
    """The caller: its role and scope."""

    role: Annotated[RoleWord, doc("Role of the key.")]
    scope: Annotated[list[str], doc("Terms of the key's scope; absent for the whole organisation.")] = []
    agent: Annotated[AgentUsage | None, doc("Limits of a key for agents; absent for others.")] = None


class Organisations(Form):
    """The organisation and the rights of a key."""

    orgs: Annotated[list[Organisation], doc("The organisation of the key.")]
    user: Annotated[User, doc("Role and scope of the key.")]
    feature_flags: Annotated[dict[str, bool], doc("Always empty; clients of Signadot expect it.")]


class OperatorVersion(Form):
    """The operator of a cluster."""

    version: Annotated[str, doc("Version of the operator; empty before it has connected.")]


class Cluster(Form):
    """A cluster in which sandboxes run."""

    name: Annotated[str, doc("Name of the cluster.")]
    created_at: Annotated[Time, doc("Time at which it was added.")]
    operator: Annotated[OperatorVersion, doc("Its operator.")]
    cluster_config: Annotated[dict[str, Any], doc("Always empty; clients of Signadot expect it.")]


class ClusterToken(Form):
    """A token of a cluster. Only the answer that creates it contains the secret `token`."""

    id: Annotated[str, doc("ID of the token.")]
    masked_value: Annotated[str, doc("Token with its secret replaced by stars.")]
    created_at: Annotated[Time, doc("Time of its creation.")]
    status: Annotated[dict[str, str], doc("`lastConnectedAt` and `lastConnectedIp`, once connected.")]
    token: Annotated[str, doc("The token itself; only in the answer that creates it.")] = ""


class NewKey(Form):
    """A key to create. A scope has terms `cluster:PATTERN`, `name:PATTERN` and `plugin:PATTERN`."""

    name: Annotated[str, doc("Name for people.")]
    role: Annotated[RoleWord, doc("Role of the key.")]
    expires_in_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType,
        doc("Seconds until it expires; without it, it does not expire."),
    ] = msgspec.UNSET
    scope: Annotated[
        Annotated[list[str], msgspec.Meta(min_length=1)] | msgspec.UnsetType,
        doc("Terms like `name:ci-*`; without it, the organisation. For agents only `cluster:PATTERN`."),
    ] = msgspec.UNSET
    limits: Annotated[AgentLimits | msgspec.UnsetType, doc("Limits of a key for agents.")] = msgspec.UNSET


class ApiKey(Form):
    """A key. Only the answer that creates it contains the secret `key`."""

    id: Annotated[str, doc("ID of the key.")]
    name: Annotated[str, doc("Name for people.")]
    role: Annotated[RoleWord, doc("Role of the key.")]
    created_at: Annotated[Time, doc("Time of its creation.")]
    created_by: Annotated[str, doc("ID of the key that created it.")]
    expires_at: Annotated[Time, doc("Time of its expiry; absent if it does not expire.")] = ""
    last_used_at: Annotated[Time, doc("Time of its last use, to the minute; absent if it was not used.")] = ""
    key: Annotated[str, doc("The key itself; only in the answer that creates it.")] = ""
    scope: Annotated[list[str], doc("Terms of its scope; absent for the whole organisation.")] = []
    limits: Annotated[AgentLimits | None, doc("Limits of a key for agents.")] = None
    used_hours: Annotated[float | None, doc("Hours that its ended sandboxes lived; only for agents.")] = None


class Seconds(Form):
    """A lease."""

    seconds: Annotated[int, doc("Seconds from now, at most 86400.")]


class NewSession(Form):
    """A session of an agent to start."""

    lease: Annotated[Seconds | None, doc("Lease after which the session ends, unless it is renewed.")] = None


class AgentSession(Form):
    """A session of an agent. The names of its sandboxes begin with its name and `-`."""

    name: Annotated[str, doc("Name of the session.")]
    key_name: Annotated[str, doc("Name of the key that started it.")]
    created_at: Annotated[Time, doc("Time of its start.")]
    expires_at: Annotated[Time, doc("End of its lease.")]
    sandboxes: Annotated[int, doc("Number of its sandboxes.")]
    key: Annotated[str, doc("The key of the session; only in the answer that starts it.")] = ""


class AuditEntry(Form):
    """One change of one object."""

    number: Annotated[int, doc("Number of the entry, from 1 on, without gaps.")]
    at: Annotated[int, doc("Time of the change, in Unix milliseconds.")]
    key: Annotated[str, doc("ID of the key.")]
    name: Annotated[str, doc("Name of the key.")]
    program: Annotated[str, doc("User-Agent of the client.")]
    action: Annotated[str, doc("Action, such as `create`.")]
    object: Annotated[str, doc("Object, as in its path below the organisation.")]
    spec: Annotated[str, doc("SHA-256 of the stored spec; empty if there is none.")]
    previous: Annotated[str, doc("Digest of the previous entry.")]
    digest: Annotated[str, doc("SHA-256 of the organisation and all other fields.")]


class AuditHead(Form):
    """The last entry of an audit log."""

    number: Annotated[int, doc("Number of the last entry.")]
    digest: Annotated[str, doc("Digest of the last entry.")]


class AuditPage(Form):
    """Entries of the audit log."""

    entries: Annotated[list[AuditEntry], doc("Entries, the oldest first.")]
    head: Annotated[AuditHead, doc("The last entry of the log.")]


class NewPlugin(Form):
    """A version to publish. `readme` is the only field that can change after the publication."""

    spec: Annotated[dict[str, Any], doc("Spec of the plugin, as in its file.")]
    name: Annotated[str, doc("Name, with or without a version: `db@1.2.0`.")] = ""
    readme: Annotated[str | None, doc("README in Markdown, at most 64 KiB; empty removes it.")] = None


class RoutingRules(Form):
    """The current routing rules."""

    routing_rules: Annotated[list[RoutingRule], doc("Rules of all forks that answer now.")]


class NewSandbox(Form):
    """A sandbox to create or change. Only `dayfly up` accepts `secrets`."""

    spec: Annotated[dict[str, Any], doc("Spec of the sandbox, as in its file.")]
    name: Annotated[str, doc("Name; if given, the same as in the path.")] = ""
    lease: Annotated[Seconds | None, doc("Lease after which the sandbox is deleted, unless it is renewed.")] = None
    secrets: Annotated[dict[str, dict[str, str]], doc("Values of secret params, by resource and name.")] = {}


class Extend(Form):
    """The new end: `seconds` from now, or `until`; with neither, the current time to live starts again now."""

    seconds: Annotated[int, doc("Seconds from now.")] = 0
    until: Annotated[Time, doc("New end.")] = ""


class NewRouteGroup(Form):
    """A route group to create or change."""

    spec: Annotated[dict[str, Any], doc("Spec of the route group, as in its file.")]
    name: Annotated[str, doc("Name; if given, the same as in the path.")] = ""


class NewResourcePool(Form):
    """A resource pool to create or change."""

    spec: Annotated[dict[str, Any], doc("Spec of the pool, as in its file.")]
    name: Annotated[str, doc("Name; if given, the same as in the path.")] = ""


class NewLeakCheck(Form):
    """A leak check to create or change."""

    spec: Annotated[dict[str, Any], doc("Spec of the check, as in its file.")]
    name: Annotated[str, doc("Name; if given, the same as in the path.")] = ""


class SweepRequest(Form):
    """A request to list soon."""

    plan: Annotated[
        str, doc("The `plan` of a report: all its orphans are deleted, unless they have changed since.")
    ] = ""


class WhyAbandon(Form):
    """Why the cleanup is abandoned. Without `force`, the object must already be being deleted."""

    reason: Annotated[str, doc("Reason for the record: one line, at most 1000 characters.")]
    force: Annotated[bool, doc("Whether to end it even if it is not being deleted.")] = False


class Units(Form):
    """Units to retry."""

    unit: Annotated[str, doc("ID of one unit, like `db/drop`; without it, all units that wait for a retry.")] = ""


class RetriedUnit(Form):
    """A unit that is retried now."""

    unit: Annotated[str, doc("ID of the unit.")]
    attempt: Annotated[int, doc("Number of its last attempt, after which the delay is skipped.")]


class Retried(Form):
    """Units that are retried now."""

    retried: Annotated[list[RetriedUnit], doc("Units whose delay was skipped.")]


class ResourceName(Form):
    """A resource of a sandbox."""

    resource: Annotated[str, doc("Name of the resource.")]


class Replaced(Form):
    """A resource that gets another pool member."""

    resource: Annotated[str, doc("Name of the resource.")]
    replaced: Annotated[str, doc("Name of the pool member that is replaced.")]


class Until(Form):
    """A renewed lease."""

    seconds: Annotated[int, doc("Duration of the lease, in seconds.")]
    until: Annotated[Time, doc("End of the lease.")]


class LogChunk(Form):
    """A part of one log. Parts of the log without an entry in `times` have no known time."""

    unit: Annotated[str, doc("ID of the unit.")]
    attempt: Annotated[int, doc("Number of the attempt.")]
    offset: Annotated[int, doc("Offset of the first byte in `data`.")]
    next: Annotated[int, doc("Offset for the next request.")]
    sealed: Annotated[bool, doc("Whether this is the end of the log.")]
    data: Annotated[str, doc("Part of the log, at most 256 KiB.")]
    encoding: Annotated[Literal["utf-8", "base64"], doc("`base64` if the bytes are not valid UTF-8.")]
    times: Annotated[list[api.LogTime], doc("Times of lines, if requested.")] = []


class LogLine(Form):
    """A line of a log."""

    message: Annotated[str, doc("The line.")]
    time: Annotated[str, doc("Time of the line; empty if unknown, absent with `timestamps=false`.")] = ""


class ContainerLog(Form):
    """The last part of the log of one unit."""

    container: Annotated[str, doc("Always `main`.")]
    logs: Annotated[list[LogLine], doc("Lines of the last 256 KiB.")]


class Events(Form):
    """Server-sent events, not JSON."""


class Metrics(Form):
    """Metrics in the text format of Prometheus, not JSON."""


class Frozen(Form):
    """The state of a frozen cluster. Once `compared`, it has the runs that only one side has."""

    frozen: Annotated[bool, doc("Whether the cluster is frozen.")]
    compared: Annotated[bool, doc("Whether the cluster has reported its runs since then.")] = False
    why: Annotated[str, doc("Reason, in one sentence.")] = ""
    since: Annotated[Time, doc("Time at which it was frozen.")] = ""
    only_in_cluster: Annotated[list[str], doc("UIDs of runs that only the cluster has.")] = []
    only_here: Annotated[list[str], doc("Names of runs that only the server has.")] = []


# --- the page ---------------------------------------------------------------------------------------------------------

Plan = CompilePreview


class PageLink(Form):
    """A link that signs in on the web page once."""

    path: Annotated[str, doc("Path of the link, relative to the address of the server.")]
    expires_in_seconds: Annotated[int, doc("Seconds until the link expires.")]


class PageCode(Form):
    """The code of a sign-in link."""

    code: Annotated[str, doc("Code of the link: the part after `#`.")]


class PagePlace(Form):
    """A cluster without a server, by its context in the kubeconfig."""

    context: Annotated[str, doc("Context in the kubeconfig.")]
    namespace: Annotated[str, doc("Namespace; empty for all.")]


class PageSession(Form):
    """The signed-in key."""

    org: Annotated[str, doc("Organisation of the key.")]
    role: Annotated[RoleWord, doc("Role of the key.")]
    name: Annotated[str, doc("Name of the key.")]
    key: Annotated[str, doc("ID of the key.")]
    expires_at: Annotated[Time, doc("End of the session; absent if the request has a key and no session.")] = ""
    scoped: Annotated[bool, doc("Whether the key has a scope, so that it changes no pools.")] = False
    place: Annotated[PagePlace | None, doc("Cluster of a page without a server.")] = None


class OutputName(Form):
    """An output to reveal."""

    unit: Annotated[str, doc("ID of the unit, like `db/create`.")]
    output: Annotated[str, doc("Name of the output.")]


class UsageSum(Form):
    """The usage of the sandboxes with one value of a label."""

    value: Annotated[str, doc("Value of the label; empty for sandboxes without it.")]
    sandboxes: Annotated[int, doc("Number of sandboxes.")]
    hours: Annotated[float, doc("Hours that they lived within the period.")]


class Usage(Form):
    """The usage of sandboxes within a period."""

    by: Annotated[str, doc("Key of the label, `createdBy` or `cluster`.")]
    since: Annotated[Time, doc("Begin of the period.")]
    until: Annotated[Time, doc("End of the period.")]
    sums: Annotated[list[UsageSum], doc("Sums, the most hours first.")]


class EndedRun(Form):
    """A sandbox that has ended."""

    uid: Annotated[str, doc("Identity of the run, for the query parameter `uid`.")]
    name: Annotated[str, doc("Name of the sandbox.")]
    cluster: Annotated[str, doc("Cluster in which it ran.")]
    routing_key: Annotated[str, doc("Its routing key.")]
    created_at: Annotated[Time, doc("Time of its creation.")]
    ended_at: Annotated[Time, doc("Time of its end.")]
    reason: Annotated[str, doc("Why it ended, in one word like `Deleted` or `Expired`; empty if unknown.")] = ""
    message: Annotated[str, doc("The reason of the person who ended it; empty without one.")] = ""
    by: Annotated[str, doc("Author of the request that ended it; empty if unknown.")] = ""
    failed: Annotated[bool, doc("Whether a create step is known to have failed before.")] = False
    abandoned: Annotated[bool, doc("Whether its cleanup was abandoned.")] = False
    units: Annotated[
        tuple[str, ...], doc("IDs of the units of an abandoned sandbox that may have left something.")
    ] = ()
    plugins: Annotated[tuple[str, ...], doc("Published plugins of its resources, like `db@1.2.3`.")] = ()
