"""Answers of the API, as types: for the document in which the server describes itself, and for the Python client.

Times are aware datetimes; in reports they are unix milliseconds, 0 for not yet. A server of another release may send
more: unknown fields are ignored, and a field that is added later has a default.
"""

from __future__ import annotations

import base64
import datetime as dt
from typing import Annotated, Any, Literal

import msgspec

from dayfly.spec import run
from dayfly.spec.meta import doc
from dayfly.spec.report import PoolReport, UnitReport, with_reason
from dayfly.spec.run_data import HistoryEntry, LogInfo
from dayfly.spec.scalars import semver
from dayfly.spec.workload import Workload


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object."""


class Condition(ApiObject, frozen=True, kw_only=True):
    """A condition, as in Kubernetes."""

    type: Annotated[str, doc("Type of the condition, such as `ExpiresSoon`.")]
    status: Annotated[str, doc("`True`, `False` or `Unknown`.")]
    reason: Annotated[str, doc("Reason of the status, in one word.")] = ""
    message: Annotated[str, doc("Explanation of the status.")] = ""


class Endpoint(ApiObject, frozen=True, kw_only=True):
    """An address of a sandbox or a route group; `url` is empty if nothing routes to it."""

    name: Annotated[str, doc("Name of the endpoint.")] = ""
    url: Annotated[str, doc("URL that reaches it; empty while nothing answers there.")] = ""
    target: Annotated[str, doc("The address behind it, like `http://shop.default.svc:8080`.")] = ""
    route_type: Annotated[str, doc("`host` for an endpoint of a sandbox.")] = ""
    cluster: Annotated[str, doc("Cluster of a route group's endpoint, if its spec names one.")] = ""


class Status(ApiObject, frozen=True, kw_only=True):
    """The state of a sandbox or a route group."""

    ready: Annotated[bool, doc("Whether everything in the spec is ready.")]
    reason: Annotated[str, doc("Reason of the state, as in `/meta/reasons`.")]
    message: Annotated[str, doc("Explanation of the state.")]
    conditions: Annotated[tuple[Condition, ...], doc("Conditions; a sandbox has one only if its end is near.")] = ()
    unsupported: Annotated[tuple[str, ...], doc("Parts of the spec without effect here, each with the reason.")] = ()
    scheduled_delete_time: Annotated[dt.datetime | None, doc("End of the time to live; absent without one.")] = None


class ResourceStatus(ApiObject, frozen=True, kw_only=True):
    """A resource of a sandbox that is a member of a pool, or has a shared parent."""

    name: Annotated[str, doc("Name of the resource.")]
    parent: Annotated[str, doc("Name of its shared parent; absent if it has none.")] = ""
    member: Annotated[str, doc("Name of the member; absent if it is none.")] = ""
    pool: Annotated[str, doc("Name of the pool; absent if it had no ready member, so that this one was created.")] = ""
    hit: Annotated[bool, doc("Whether the member was ready when the sandbox took it.")] = False


class SandboxStatus(Status, frozen=True, kw_only=True):
    """The state of a sandbox, and its resources that are members of pools or have shared parents."""

    resources: Annotated[
        tuple[ResourceStatus, ...], doc("Resources that are members of pools, or have shared parents.")
    ] = ()


class Progress(ApiObject, frozen=True, kw_only=True):
    """The number of finished units in the current phase."""

    phase: Annotated[str, doc("Phase of the run: `open`, `closed`, `cleaned` or `abandoned`.")]
    done: Annotated[int, doc("Number of finished units of this phase.")]
    total: Annotated[int, doc("Number of units of this phase.")]
    severity: Annotated[str, doc("Severity of the reason: `progress`, `trouble`, `warning` or `failed`.")]


class Sandbox(ApiObject, frozen=True, kw_only=True):
    """A sandbox and its current state."""

    name: Annotated[str, doc("Name of the sandbox.")]
    routing_key: Annotated[str, doc("Routing key that routes requests to its forks.")]
    created_at: Annotated[dt.datetime, doc("Time of its creation.")]
    created_by: Annotated[str, doc("Name of the key that created it; absent if it is unknown.")] = ""
    updated_at: Annotated[dt.datetime, doc("Time of the last change of its spec.")]
    spec: Annotated[dict[str, Any], doc("Spec as applied, with defaults.")]
    endpoints: Annotated[tuple[Endpoint, ...], doc("Endpoints of the spec and of its forks.")]
    status: Annotated[SandboxStatus, doc("Current state.")]
    progress: Annotated[Progress, doc("Number of finished units in the current phase.")]
    report: Annotated[Report | None, doc("The state of each unit; only in a list with `reports=true`.")] = None
    warnings: Annotated[tuple[str, ...], doc("Warnings about the spec; only in the answer to a PUT.")] = ()
    namespace: Annotated[str, doc("Namespace of its object; only on the page of a cluster without a server.")] = ""


class RouteGroupStatus(Status, frozen=True, kw_only=True):
    """The state of a route group and its sandboxes.

    A stream of changes names only the first 256 sandboxes, and so does the object in a cluster.
    """

    conditions: Annotated[tuple[Condition, ...], doc("Conditions; `ForkConflict` is always present.")]
    matched_sandboxes: Annotated[tuple[str, ...], doc("Names of its sandboxes; in a stream of changes, at most 256.")]
    matched: Annotated[int, doc("Number of its sandboxes.")]
    conflicts: Annotated[tuple[dict[str, Any], ...], doc("Baselines that several of its sandboxes fork.")] = ()


class RouteGroup(ApiObject, frozen=True, kw_only=True):
    """A route group and its current state."""

    name: Annotated[str, doc("Name of the route group.")]
    routing_key: Annotated[str, doc("Routing key that routes requests to the forks of its sandboxes.")]
    created_at: Annotated[dt.datetime, doc("Time of its creation.")]
    updated_at: Annotated[dt.datetime, doc("Time of the last change of its spec.")]
    spec: Annotated[dict[str, Any], doc("Spec as applied, with defaults.")]
    endpoints: Annotated[tuple[Endpoint, ...], doc("Endpoints of the spec.")]
    status: Annotated[RouteGroupStatus, doc("Current state.")]
    progress: Annotated[Progress, doc("Number of finished hooks in the current phase.")]
    report: Annotated[Report | None, doc("The state of each unit; only in a list with `reports=true`.")] = None
    namespace: Annotated[str, doc("Namespace of its object; only on the page of a cluster without a server.")] = ""


class PoolCounts(ApiObject, frozen=True, kw_only=True):
    """The numbers of a pool's members. `wanted` is the number of ready members that it keeps now."""

    wanted: Annotated[int, doc("Number of ready members that the pool keeps now.")] = 0
    ready: Annotated[int, doc("Number of ready members that no sandbox uses.")] = 0
    creating: Annotated[int, doc("Number of members that are being created.")] = 0
    held: Annotated[int, doc("Number of members that sandboxes use.")] = 0
    failed: Annotated[int, doc("Number of members that could not be created.")] = 0


class PoolMember(ApiObject, frozen=True, kw_only=True):
    """A member of a pool: one resource, which at most one sandbox uses."""

    name: Annotated[str, doc("Name of the member.")]
    state: Annotated[str, doc("`creating`, `ready`, `held`, `failed` or `ending`.")]
    created_at: Annotated[dt.datetime | None, doc("Time of its creation; absent before it has started.")] = None
    reason: Annotated[str, doc("Reason of the state, as in `/meta/reasons`.")] = ""
    message: Annotated[str, doc("Explanation of the state.")] = ""
    holder: Annotated[
        str, doc("Resource that uses it, as `sandbox/resource`; not named if it is outside the scope of the key.")
    ] = ""


class PoolStatus(ApiObject, frozen=True, kw_only=True):
    """The state of a pool and its members."""

    ready: Annotated[bool, doc("Whether it has as many ready members as it keeps.")]
    reason: Annotated[str, doc("Reason of the state, as in `/meta/reasons`.")]
    message: Annotated[str, doc("Explanation of the state.")]
    counts: Annotated[PoolCounts, doc("Numbers of members.")]
    paused: Annotated[str, doc("Why no members are created; empty if they are.")]
    hits: Annotated[int, doc("Number of resources that found a ready member.")]
    misses: Annotated[int, doc("Number of resources that found none.")]
    refill_seconds: Annotated[float, doc("Usual time to create a member; 0 if it was not measured yet.")]
    members: Annotated[tuple[PoolMember, ...], doc("Members, the oldest first.")]


class Pool(ApiObject, frozen=True, kw_only=True):
    """A resource pool and its current state."""

    name: Annotated[str, doc("Name of the pool.")]
    created_at: Annotated[dt.datetime, doc("Time of its creation.")]
    updated_at: Annotated[dt.datetime, doc("Time of the last change of its spec, or of the version that it follows.")]
    spec: Annotated[dict[str, Any], doc("Spec as applied, with defaults.")]
    status: Annotated[PoolStatus, doc("Current state.")]
    progress: Annotated[Progress, doc("Number of finished members in the current phase.")]
    namespace: Annotated[str, doc("Namespace of its object; only on the page of a cluster without a server.")] = ""


class LeakFinding(ApiObject, frozen=True, kw_only=True):
    """An item that a leak check has found, or a resource that is missing."""

    verdict: Annotated[str, doc("`ending`, `orphan`, `missing`, `foreign` or `unknown`.")]
    id: Annotated[str, doc("Resource ID; empty if the item has none.")] = ""
    name: Annotated[str, doc("Name of the item, or sandbox and resource if it is missing.")]
    reason: Annotated[str, doc("Why, in a phrase.")] = ""
    plugin: Annotated[str, doc("Plugin with version that has made it; empty if it is not known.")] = ""
    deletable: Annotated[bool, doc("Whether `dayfly leaks --apply` deletes it.")] = False
    created_at: Annotated[dt.datetime | None, doc("When it was created or first listed.")] = None
    sandbox: Annotated[str, doc("Sandbox that it was made for, if the server has a record of it.")] = ""
    cluster: Annotated[str, doc("Cluster of that sandbox.")] = ""
    created_by: Annotated[str, doc("Name of the key that created that sandbox; empty if unknown.")] = ""
    estimated_cost: Annotated[str, doc("`pricePerHour` of the check times its age, for orphans.")] = ""


class LeakStatus(ApiObject, frozen=True, kw_only=True):
    """The findings of a leak check in its latest complete list."""

    number: Annotated[int, doc("Number of sweeps that have ended.")]
    sweeping: Annotated[bool, doc("Whether a sweep is under way.")]
    swept_at: Annotated[dt.datetime | None, doc("Begin of the latest sweep.")] = None
    listed_at: Annotated[dt.datetime | None, doc("Begin of the latest complete list.")] = None
    error: Annotated[str, doc("Why the latest sweep has no complete list; empty if it has one.")] = ""
    counts: Annotated[dict[str, int], doc("Number of findings by verdict.")] = {}
    estimated_cost: Annotated[str, doc("Sum of `estimatedCost` of the findings; empty without a price.")] = ""
    findings: Annotated[tuple[LeakFinding, ...], doc("At most 1,000 findings, without `held` ones.")] = ()
    plan: Annotated[str, doc("Digest of everything that may be deleted; empty if nothing, or over 1,000 items.")] = ""
    left: Annotated[int, doc("Number of resources that were too many for one sweep, and wait for a plan.")] = 0
    deleted: Annotated[tuple[str, ...], doc("Resource IDs that the latest sweep has deleted.")] = ()
    applied: Annotated[str, doc("Result of the latest plan: `done`, or why it was refused.")] = ""
    applied_plan: Annotated[str, doc("Digest of the latest plan.")] = ""
    applied_number: Annotated[int, doc("Number of the sweep that had the latest plan; 0 without a plan.")] = 0


class LeakCheck(ApiObject, frozen=True, kw_only=True):
    """A leak check and what it has found."""

    name: Annotated[str, doc("Name of the check.")]
    spec: Annotated[dict[str, Any], doc("Spec as applied, with defaults.")]
    plugin: Annotated[str, doc("The plugin with the version that lists.")]
    status: Annotated[LeakStatus, doc("Its findings.")]


class PoolSize(ApiObject, frozen=True, kw_only=True):
    """A possible size of a pool."""

    ready: Annotated[int, doc("Number of ready members.")]
    miss_ratio: Annotated[float, doc("Predicted share of resources that find no ready member.")]


class PoolExplanation(ApiObject, frozen=True, kw_only=True):
    """The use of a pool, and predictions for other sizes. They assume requests that do not depend on each other."""

    name: Annotated[str, doc("Name of the pool.")]
    wanted: Annotated[int, doc("Number of ready members that the pool keeps now.")]
    hits: Annotated[int, doc("Number of resources that found a ready member.")]
    misses: Annotated[int, doc("Number of resources that found none.")]
    rate_per_hour: Annotated[float, doc("Recent number of resources per hour that needed a member.")]
    refill_seconds: Annotated[float, doc("Usual time to create a member; 0 if it was not measured yet.")]
    load: Annotated[float, doc("Members that are in creation on average: rate times refill time.")]
    idle_seconds: Annotated[float, doc("Time for which the existing members were ready and unused.")]
    sizes: Annotated[tuple[PoolSize, ...], doc("Predictions; empty without a load.")]


class Plugin(ApiObject, frozen=True, kw_only=True):
    """A published version of a resource plugin; `name` is like `db@1.2.0`. In lists it comes without its README."""

    name: Annotated[str, doc("Name and version, like `db@1.2.0`.")]
    spec: Annotated[dict[str, Any], doc("Spec as published, with defaults.")]
    created_at: Annotated[dt.datetime, doc("Time of its publication.")]
    updated_at: Annotated[dt.datetime, doc("Time of the last change of its README, or of its publication.")]
    status: Annotated[dict[str, Any], doc("`resources`: the resources that use this version, with their sandboxes.")]
    readme: Annotated[str, doc("README in Markdown; absent in lists.")] = ""

    @property
    def version(self) -> str:
        """The part behind the `@`; 0.0.0 if there is none."""
        return self.name.partition("@")[2] or semver.UNVERSIONED


class Baseline(Workload, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A workload of a machine from which forks are derived."""

    created_at: Annotated[dt.datetime | None, doc("Time of its declaration.")] = None
    updated_at: Annotated[dt.datetime | None, doc("Time of its last change.")] = None


class Request(run.EndRequest, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The request that a run ends, and its reason."""


class Unit(UnitReport, frozen=True, kw_only=True):
    """One step or fork. Its reasons are in docs/reference/reasons.md."""


class Report(ApiObject, frozen=True, kw_only=True):
    """The state of each unit of a run. A run that the server no longer knows has the defaults."""

    uid: Annotated[str, doc("Identity of the run. A later sandbox with the same name has another UID.")]
    name: Annotated[str, doc("Name of the sandbox or route group.")]
    cluster: Annotated[str, doc("Cluster in which it runs.")]
    routing_key: Annotated[str, doc("Its routing key.")]
    version: Annotated[int, doc("Version of the report, for the query parameter `after`.")]
    endpoints: Annotated[tuple[Endpoint, ...], doc("Endpoints, as in the sandbox or route group.")] = ()
    phase: Annotated[str, doc("`open`, `closed` (it is being deleted), `cleaned` or `abandoned`.")] = "cleaned"
    ready: Annotated[bool, doc("Whether everything in the spec is ready.")] = False
    reason: Annotated[str, doc("Reason of the state, as in `/meta/reasons`.")] = "Cleaned"
    message: Annotated[str, doc("Explanation of the state.")] = ""
    about: Annotated[str, doc("ID of the unit that `message` is about, if any.")] = ""
    done: Annotated[int, doc("Number of finished units of this phase.")] = 0
    total: Annotated[int, doc("Number of units of this phase.")] = 0
    units: Annotated[tuple[Unit, ...], doc("The state of each unit; empty after the end.")] = ()
    closed: Annotated[Request | None, doc("Request to end the run; absent while it is open.")] = None
    abandon: Annotated[Request | None, doc("Request to abandon its cleanup; absent without one.")] = None
    born_at: Annotated[int, doc("Time of its creation, in Unix milliseconds.")] = 0
    unsupported: Annotated[tuple[str, ...], doc("Parts of the spec without effect, each with the reason.")] = ()
    pool: Annotated[PoolReport | None, doc("Numbers of a pool and its members; absent for other runs.")] = None
    denied: Annotated[
        dict[str, str],
        doc("Actions that the caller may not do, and why; only on the page of a cluster."),
    ] = {}

    @property
    def is_over(self) -> bool:
        """Whether the run has ended completely."""
        return self.phase in ("cleaned", "abandoned")


class Blocker(ApiObject, frozen=True, kw_only=True):
    """An obstacle and its causes; empty if there is none."""

    subject: Annotated[str, doc("The blocked unit, sandbox or route group.")] = ""
    reason: Annotated[str, doc("Reason, as in `/meta/reasons`.")] = ""
    message: Annotated[str, doc("Explanation of the reason.")] = ""
    since: Annotated[int, doc("Time since which it is blocked, in Unix milliseconds; 0 if unknown.")] = 0
    next: Annotated[str, doc("Advice: the next step of the user.")] = ""
    because: Annotated[tuple[Blocker, ...], doc("Causes of this obstacle, down to the root causes.")] = ()

    @property
    def roots(self) -> tuple[Blocker, ...]:
        """The root causes."""
        return tuple(root for each in self.because for root in each.roots) or (self,)

    def __str__(self) -> str:
        return f"{self.subject}: {with_reason(self.reason, self.message)}"


class Attempt(LogInfo, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """An attempt that has a log, and the length of the log so far."""


class LogTime(ApiObject, frozen=True, kw_only=True):
    """The time at which a log was printed from this byte on, until the next entry."""

    offset: Annotated[int, doc("First byte of the log with this time.")]
    time: Annotated[dt.datetime, doc("Time at which it was printed.")]


class Move(HistoryEntry, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One move of a ledger."""


class Output(ApiObject, frozen=True, kw_only=True):
    """An output of a step. A withheld output never leaves its cluster, so its `value` is empty."""

    resource: Annotated[str, doc("Name of the resource; empty for a hook.")]
    step: Annotated[str, doc("Name of the step.")]
    output: Annotated[str, doc("Name of the output.")]
    value: Annotated[str, doc("Value in the encoding `encoding`; empty if withheld.")]
    encoding: Annotated[Literal["utf-8", "base64"], doc("`base64` if the bytes are not valid UTF-8.")]
    sensitive: Annotated[bool, doc("Whether the plugin declares it as sensitive.")]
    withheld: Annotated[bool, doc("Whether the value stays in its cluster.")] = False

    @property
    def content(self) -> bytes:
        """The value as bytes."""
        return base64.b64decode(self.value) if self.encoding == "base64" else self.value.encode()
