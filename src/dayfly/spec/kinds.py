"""The custom resources whose specs or statuses only Dayfly writes.

A status is output for people and is never read back: `plan.status` makes its texts, and a host writes them. State that
must survive is in the ledger (`run`).
"""

from typing import Annotated, Any, Final

import msgspec

from dayfly.spec.leak_report import LeakDeletion, LeakFinding
from dayfly.spec.lifecycle import Lifecycle, Unit, WireStruct
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.meta import (
    DNS_LABEL,
    LONG,
    MAX_VALUES,
    MILLISECONDS,
    NAME_PATTERN,
    RFC3339,
    dns_label,
    dns_name,
    doc,
    list_of,
    or_empty,
)
from dayfly.spec.plugin import PluginSpec
from dayfly.spec.pool_ledger import PoolLedger
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.run import EndRequest, Holder, Run
from dayfly.spec.steps.kube_object import ReadyRule

_DIGEST = "^sha256:[0-9a-f]{64}$"
_VERSION = (
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)

# Fields of every status.
_Generation = Annotated[int, doc("The generation of the spec that this status describes.")]
_Phase = Annotated[str, doc("The phase: Pending, Creating, Ready, Failed or Deleting.")]
_Ready = Annotated[bool, doc("Whether it can be used, like the condition Ready.")]
_Reason = Annotated[str, doc("The reason for its state, in one word.")]
_Message = Annotated[str, doc("The reason, in one sentence.", LONG)]
_Progress = Annotated[str, doc("Finished steps out of all steps of this phase, like 2/5.")]
_RunName = Annotated[str, doc("Name of its Run, the ledger.")]


class NamedPluginSpec(PluginSpec, frozen=True, kw_only=True):
    """One version of a plugin. Its create steps run before a sandbox's workloads start, its delete steps after they
    have stopped.

    A published version never changes. Publish a new version instead.
    """

    name: Annotated[
        str,
        doc(
            "Name and version, as in sandboxes: name@1.2.3, or the name for an unversioned plugin.",
            253,
            pattern=f"{NAME_PATTERN[:-1]}(@{_VERSION})?$",
        ),
    ]


class RunResource(Run, frozen=True, kw_only=True):
    """The ledger of one run: its permitted attempts and their outcomes. Only Dayfly's operator writes it, by
    compare-and-swap.
    """


class Pin(WireStruct, frozen=True, kw_only=True):
    """One sealed document of a run, identified by UID and digest."""

    name: Annotated[str, dns_name("Name of the ObjectLifecycleMethods.")]
    uid: Annotated[str, doc("Its UID.", 128)]
    digest: Annotated[str, doc("Digest of its spec.", 71, pattern=_DIGEST)]


class SealedHook(WireStruct, frozen=True, kw_only=True):
    """The LifecycleHook of a run, as it was when the run was sealed.

    `older`: the target existed before the hook, so preStart was skipped. `definition` is the UID of the
    CustomResourceDefinition of the target's kind; empty if there was none.
    """

    name: Annotated[str, dns_label("Name of the hook.")]
    uid: Annotated[str, doc("UID of the hook. A later hook with the same name is a different one.", 128)]
    started: Annotated[ReadyRule | None, doc("The hook's rule for a started target, when the run was sealed.")] = None
    stopped: Annotated[ReadyRule | None, doc("The hook's rule for a stopped target.")] = None
    hold: Annotated[Hold | None, doc("How the target's own controller is made to wait.")] = None
    older: Annotated[bool, doc("Whether the target existed before the hook, so that preStart was skipped.")] = False
    definition: Annotated[
        str, doc("UID of the CustomResourceDefinition of the target's kind; empty for none.", 128)
    ] = ""


class ServerTarget(WireStruct, frozen=True, kw_only=True):
    """A server's sandbox, route group or pool that this run executes, and the server's orders for it.

    `kind` is empty in a record by an operator that knew only sandboxes. Times are unix milliseconds, 0 for never.
    `generation` is that of the last accepted spec.
    """

    uid: Annotated[str, doc("UID of the server's sandbox, route group or pool.", 36)]
    org: Annotated[str, doc("Its organisation.", 253)] = ""
    name: Annotated[str, doc("Its name on the server.", 30)] = ""
    kind: Annotated[str, doc("Its kind, Sandbox, RouteGroup or ResourcePool; empty for a sandbox.", 63)] = ""
    generation: Annotated[int, doc("The newest generation of its spec that was accepted.", minimum=0)] = 0
    expires_at: Annotated[int, doc("Time at which its time to live ends, " + MILLISECONDS)] = 0
    lease_until: Annotated[int, doc("Time until which its lease is renewed, " + MILLISECONDS)] = 0
    stop: Annotated[EndRequest | None, doc("The server's request to end it.")] = None


class PoolRecord(WireStruct, frozen=True, kw_only=True):
    """The stored state of a pool: its ledger, the newest accepted spec, and the template of its members.

    The ledger changes only together with the resource version of the Run. `template` has the documents of new members.
    """

    ledger: Annotated[PoolLedger, doc("The ledger of the pool.")]
    spec: Annotated[ResourcePoolSpec, doc("The newest accepted spec.")]
    template: Annotated[tuple[dict[str, Any], ...], list_of("The sealed documents of new members.")]

    def documents(self) -> tuple[Lifecycle, ...]:
        """Return the documents of new members.

        Raises:
            msgspec.ValidationError: another program has changed them.
        """
        return msgspec.convert(self.template, tuple[Lifecycle, ...])


def plain_documents(documents: tuple[Lifecycle, ...]) -> tuple[dict[str, Any], ...]:
    """Return documents as plain data, as a record has them."""
    return tuple(msgspec.json.decode(msgspec.json.encode(documents)))


class RunSpec(WireStruct, frozen=True, kw_only=True):
    """The sealed documents of a run, and the newest revision of its target's forks."""

    documents: Annotated[tuple[Pin, ...], list_of("The sealed documents.")] = ()
    inline: Annotated[
        tuple[dict[str, Any], ...],
        list_of("The sealed documents themselves, instead of objects. Their digest is the plan of the ledger."),
    ] = ()
    forks: Annotated[tuple[Unit, ...], list_of("The target's forks, at their newest revision.")] = ()
    plural: Annotated[str, dns_label("The target's resource name, as in API paths.")] = "sandboxes"
    generation: Annotated[int, doc("The target's newest accepted generation.", minimum=0)] = 0
    updated_at: Annotated[int, doc("Time of the last accepted revision, if it is not the first, " + MILLISECONDS)] = 0
    hook: Annotated[
        SealedHook | None,
        doc("The lifecycle hook that the run executes; absent if the target has its own steps."),
    ] = None
    unmatched_since: Annotated[int, doc("Time since which no sandbox matches the route group, " + MILLISECONDS)] = 0
    offered: Annotated[
        ServerTarget | None, doc("The server's sandbox or route group; absent if it was applied in the cluster.")
    ] = None
    pool: Annotated[PoolRecord | None, doc("The pool whose members this run creates; absent for other targets.")] = None


class PoolMemberSpec(WireStruct, frozen=True, kw_only=True):
    """One pool member: a resource that exists before a sandbox needs it, or that was created for one. Also one shared
    parent: a resource that several others share.

    Only Dayfly's operator writes it. `holder` is the run for which it was created; all other holders are in its ledger.
    """

    pool: Annotated[str, or_empty(dns_label("Name of its pool; empty if it was created for a holder."))] = ""
    pool_uid: Annotated[str, doc("UID of its pool. A later pool with the same name is a different one.", 128)] = ""
    number: Annotated[
        int,
        doc(
            "Its number in the pool, which is never used again. For a shared parent: its place among equal parents.",
            minimum=0,
        ),
    ] = 0
    parent: Annotated[bool, doc("Whether it is a shared parent.")] = False
    template: Annotated[str, doc("Digest of the template that it was created from.", 71, pattern=_DIGEST)]
    source_versions: Annotated[
        str,
        or_empty(
            doc(
                "Digest of the versions of the Secrets and ConfigMaps that its create steps read; empty if unknown.",
                71,
                pattern=_DIGEST,
            )
        ),
    ] = ""
    holder: Annotated[Holder | None, doc("The run for which it was created.")] = None


class StatusCondition(WireStruct, frozen=True, kw_only=True):
    """A condition of the object, for example for `kubectl wait --for=condition=Ready`."""

    type: Annotated[str, doc("Type of the condition.", 316)]
    status: Annotated[str, doc("Status of the condition.", enum=["True", "False", "Unknown"])]
    observed_generation: Annotated[int, doc("The generation that the condition describes.")] = 0
    last_transition_time: Annotated[
        str, doc("Time of the last change of the status.", None, format="date-time", maxLength=None)
    ]
    reason: Annotated[str, doc("The reason, in one word.", 1024)]
    message: Annotated[str, doc("The reason, in one sentence.", LONG)] = ""


class UnitStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a step or fork. Times are RFC 3339.

    A message with clocks has them as timestamps, which stay true. `template` has `{since}` and `{until}` in their
    places.
    """

    id: Annotated[str, doc("Name of the unit in its run: resource/step, or fork:namespace/name.", 600)]
    event: Annotated[str, doc("The event to which it belongs: preStart, start, postStart, preStop or postStop.")] = ""
    kind: Annotated[str, doc("exec, webhook, object, fork, or acquire for a step of a pool member or parent.")] = ""
    state: Annotated[str, doc("waiting, running, succeeded, failed, retrying, unknown, stopped or skipped.")]
    attempt: Annotated[int, doc("Number of the latest attempt.")] = 0
    reason: Annotated[str, doc("The reason, in one word.")] = ""
    message: Annotated[str, doc("Its state, in one sentence.", LONG)] = ""
    template: Annotated[
        str, doc("The message with {since} and {until} in place of its clocks; empty without clocks.", LONG)
    ] = ""
    pod: Annotated[str, doc("Its pod, as namespace/name.")] = ""
    since: Annotated[str, doc("Start of its current state, " + RFC3339)] = ""
    until: Annotated[
        str, doc("Time at which its state changes by itself: the next retry, or its certain end; empty for never.")
    ] = ""
    started_at: Annotated[str, doc("Start of the attempt, " + RFC3339)] = ""
    ended_at: Annotated[str, doc("End of the attempt, " + RFC3339)] = ""
    reads: Annotated[tuple[str, ...], list_of("Units whose outputs it reads.")] = ()
    waits_on: Annotated[tuple[str, ...], list_of("Units that it waits for now.")] = ()
    pool: Annotated[str, doc("For a step of a pool member: the name of the pool.")] = ""
    member: Annotated[str, doc("For a step of a pool member: the name of the PoolMember.")] = ""
    parent: Annotated[str, doc("For a step of a shared parent: the name of its PoolMember.")] = ""
    hit: Annotated[
        bool, doc("For a step of a pool member: whether it was complete when the sandbox took the member.")
    ] = False


_Conditions = Annotated[
    tuple[StatusCondition, ...], list_of("Conditions of the object, most importantly Ready.", key="type")
]
_Units = Annotated[tuple[UnitStatus, ...], list_of("Every step and fork, in the order of the document.", key="id")]


class Binding(WireStruct, frozen=True, kw_only=True):
    """The Secret with the outputs, with keys `<step>.<output>` (a provisioned service of Service Binding)."""

    name: Annotated[str, dns_name("Name of the Secret.")]


class EndpointStatus(WireStruct, frozen=True, kw_only=True):
    """An address at which the sandbox answers now."""

    name: Annotated[str, doc("Name of the endpoint.")]
    url: Annotated[str, doc("The address.", 4096)]


class SandboxStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a sandbox. If its message is about a unit, `about` is the unit's id, and `others` counts similar
    units.
    """

    observed_generation: _Generation = 0
    phase: _Phase = ""
    ready: _Ready = False
    reason: _Reason = ""
    message: _Message = ""
    about: Annotated[str, doc("The unit of the message; empty for none.", 600)] = ""
    others: Annotated[int, doc("Number of further units with the same problem.", minimum=0)] = 0
    progress: _Progress = ""
    routing_key: Annotated[str, doc("Routing key of requests for the sandbox.")] = ""
    served_for: Annotated[str, doc("Organisation and name on the server, as ORGANISATION/NAME.", 300)] = ""
    run: _RunName = ""
    expires_at: Annotated[str, doc("Time at which it will be deleted, " + RFC3339)] = ""
    conditions: _Conditions = ()
    units: _Units = ()
    endpoints: Annotated[tuple[EndpointStatus, ...], list_of("Addresses at which the sandbox answers.")] = ()


class PluginStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a plugin."""

    observed_generation: _Generation = 0
    accepted: Annotated[bool, doc("Whether sandboxes can use it, like the condition Accepted.")] = False
    reason: _Reason = ""
    message: _Message = ""
    conditions: _Conditions = ()


class LifecycleHookStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a lifecycle hook, with the numbers of its objects.

    `objects` counts the objects with a live run. Among them, `ending` are being cleaned up, `troubled` need attention,
    and `older` existed before the hook.
    """

    observed_generation: _Generation = 0
    ready: Annotated[bool, doc("Whether its steps run for each object that it selects, like the condition Ready.")] = (
        False
    )
    reason: _Reason = ""
    message: _Message = ""
    objects: Annotated[int, doc("Number of objects with a run.", minimum=0)] = 0
    ending: Annotated[int, doc("Number of objects that are being cleaned up.", minimum=0)] = 0
    troubled: Annotated[int, doc("Number of objects that need attention; the message names one.", minimum=0)] = 0
    older: Annotated[
        int, doc("Number of objects that existed before the hook, so that preStart was skipped.", minimum=0)
    ] = 0
    conditions: _Conditions = ()


class ConflictStatus(WireStruct, frozen=True, kw_only=True):
    """A baseline that several sandboxes of a route group fork. Requests reach the fork of `sandbox`, not of the
    `others`.
    """

    baseline: Annotated[str, doc("The baseline, as namespace/name.", 320)]
    sandbox: Annotated[str, doc("The oldest sandbox, whose fork receives the requests.", 63)]
    others: Annotated[tuple[str, ...], list_of("The sandboxes whose forks receive no requests of the group.")] = ()


class RouteGroupStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a route group, with its sandboxes in order of precedence."""

    observed_generation: _Generation = 0
    phase: _Phase = ""
    ready: _Ready = False
    reason: _Reason = ""
    message: _Message = ""
    progress: _Progress = ""
    routing_key: Annotated[str, doc("Routing key of requests for the forks of its sandboxes.")] = ""
    run: _RunName = ""
    expires_at: Annotated[str, doc("Time at which it will be deleted unless something changes, " + RFC3339)] = ""
    matched_sandboxes: Annotated[
        tuple[str, ...], list_of("Its sandboxes in order of precedence. A long list is cut off.")
    ] = ()
    matched: Annotated[int, doc("Number of its sandboxes.", minimum=0)] = 0
    conflicts: Annotated[tuple[ConflictStatus, ...], list_of("Baselines that several of its sandboxes fork.")] = ()
    conditions: _Conditions = ()
    units: _Units = ()
    endpoints: Annotated[tuple[EndpointStatus, ...], list_of("Addresses at which the group answers.")] = ()


class ResourcePoolStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a pool. `wanted` is the number of members that should be ready and unused now.

    `hit_ratio` is text, because it is for people: `98.5 %`, or empty before the first request.
    """

    observed_generation: _Generation = 0
    ready: Annotated[bool, doc("Whether it has all wanted members, like the condition Ready.")] = False
    reason: _Reason = ""
    message: _Message = ""
    template: Annotated[str, doc("Digest of the template of new members; empty for none.", 71)] = ""
    size: Annotated[str, doc("Ready members out of the wanted ones, like 4/5.", 32)] = ""
    wanted: Annotated[int, doc("Number of members that should be ready and unused now.", minimum=0)] = 0
    available: Annotated[int, doc("Number of ready members that no sandbox uses.", minimum=0)] = 0
    creating: Annotated[int, doc("Number of members that are being created.", minimum=0)] = 0
    held: Annotated[int, doc("Number of members that sandboxes use.", minimum=0)] = 0
    failures: Annotated[int, doc("Number of members that failed in a row.", minimum=0)] = 0
    paused: Annotated[bool, doc("Whether no members are created: three in a row failed, or a user paused it.")] = False
    hits: Annotated[int, doc("Number of requests that found a ready member.", minimum=0)] = 0
    misses: Annotated[int, doc("Number of requests that found no ready member.", minimum=0)] = 0
    hit_ratio: Annotated[str, doc("Share of requests that found a ready member.", 16)] = ""
    refill_milliseconds: Annotated[
        int, doc("Usual time to create a member, with two digits of precision; 0 if it was not measured.", minimum=0)
    ] = 0
    run: _RunName = ""
    conditions: _Conditions = ()


MAX_SHOWN_DELETIONS: Final = 20


class LeakCheckStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a leak check: the findings of its latest complete list."""

    observed_generation: _Generation = 0
    ready: Annotated[bool, doc("Whether its latest sweep has a complete list, like the condition Ready.")] = False
    reason: _Reason = ""
    message: _Message = ""
    plugin: Annotated[str, doc("The plugin with its version.")] = ""
    number: Annotated[int, doc("Number of sweeps that have ended.", minimum=0)] = 0
    sweeping: Annotated[bool, doc("Whether a sweep is under way.")] = False
    swept_at: Annotated[str, doc("Begin of the latest sweep, " + RFC3339)] = ""
    listed_at: Annotated[str, doc("Begin of the latest complete list, " + RFC3339)] = ""
    error: Annotated[str, doc("Why the latest sweep has no complete list; empty if it has one.", LONG)] = ""
    counts: Annotated[dict[str, int], doc("Number of findings by verdict.", maxProperties=MAX_VALUES)] = {}
    findings: Annotated[
        tuple[LeakFinding, ...], list_of("At most 1,000 findings other than held; deletable ones are first.", 1_000)
    ] = ()
    plan: Annotated[
        str, doc("Digest of everything that may be deleted; empty if that is nothing, or more than 1,000 items.")
    ] = ""
    left: Annotated[
        int, doc("Number of resources that wait for a plan, because they were too many for a sweep.", minimum=0)
    ] = 0
    deleted: Annotated[tuple[str, ...], list_of("Resource IDs that the latest sweep has deleted.", 1_000)] = ()
    deletions: Annotated[
        tuple[LeakDeletion, ...],
        list_of(
            "Latest deletions, the oldest first. Each is recorded before its run is created, so one that is not done "
            "may have run.",
            MAX_SHOWN_DELETIONS,
        ),
    ] = ()
    applied: Annotated[str, doc("Result of the latest plan: done, or why it was refused. Empty without a plan.")] = ""
    applied_plan: Annotated[str, doc("Digest of the latest plan.")] = ""
    applied_number: Annotated[int, doc("Number of the sweep that had the latest plan.", minimum=0)] = 0
    conditions: _Conditions = ()


class PoolMemberStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a pool member."""

    observed_generation: _Generation = 0
    state: Annotated[str, doc("creating, unschedulable, ready, held, ending or failed.")] = ""
    ready: Annotated[bool, doc("Whether it is ready or held, like the condition Ready.")] = False
    reason: _Reason = ""
    message: _Message = ""
    holder: Annotated[
        str,
        doc("The resource that uses it, as SANDBOX/RESOURCE; for a shared parent their number. Empty for none.", 317),
    ] = ""
    progress: _Progress = ""
    run: _RunName = ""
    conditions: _Conditions = ()
    units: _Units = ()


class SandboxRef(WireStruct, frozen=True, kw_only=True):
    """The sandbox of a resource, identified by UID."""

    namespace: Annotated[str, dns_label("Namespace of the sandbox.")]
    name: Annotated[str, dns_name("Its name.")]
    uid: Annotated[str, doc("Its UID.", 128)]


class ResourceSpec(WireStruct, frozen=True, kw_only=True):
    """One instance of a plugin in a sandbox. The operator writes it from the Sandbox."""

    name: Annotated[str, doc("Name of the resource in its sandbox.", 253)]
    sandbox: Annotated[SandboxRef, doc("The resource's sandbox.")]
    plugin: Annotated[str, doc("The plugin as name@version; empty for an inline plugin.")] = ""
    document: Annotated[str, or_empty(dns_name("Name of the ObjectLifecycleMethods with its steps."))] = ""
    output_namespaces: Annotated[
        tuple[str, ...], list_of("Namespaces with a Secret of the outputs.", items=DNS_LABEL)
    ] = ()


class ResourceStatus(WireStruct, frozen=True, kw_only=True):
    """The status of a resource."""

    observed_generation: _Generation = 0
    phase: _Phase = ""
    ready: _Ready = False
    reason: _Reason = ""
    message: _Message = ""
    progress: _Progress = ""
    run: _RunName = ""
    binding: Annotated[Binding | None, doc("The Secret with the outputs.")] = None
    conditions: _Conditions = ()
    units: _Units = ()


class StepLog(WireStruct, frozen=True, kw_only=True):
    """The end of the log of one attempt, as text, or as base64 if it is binary.

    `times` has pairs of numbers, as `spec.log_times.flatten` makes them.
    """

    unit: Annotated[str, doc("Name of the unit in its run: resource/step, or the name of a hook.", 600)]
    attempt: Annotated[int, doc("Number of the attempt, from 1.")]
    size: Annotated[int, doc("Size of the whole log in bytes, of which the text is the end; 0 if it is not known.")] = 0
    encoding: Annotated[str, doc("Encoding of the text.", enum=["utf-8", "base64"])] = "utf-8"
    text: Annotated[str, doc("The end of the log.", 131_072)]
    times: Annotated[
        tuple[int, ...],
        doc(
            "Times of the text, as pairs of numbers: an offset in bytes, and the Unix time in milliseconds "
            "from there on.",
            maxItems=1_024,
        ),
    ] = ()


class StepLogsSpec(WireStruct, frozen=True, kw_only=True):
    """Logs of a sandbox's steps, which outlive their pods and are deleted with the sandbox."""

    sandbox: Annotated[SandboxRef, doc("The sandbox of the steps.")]
    logs: Annotated[tuple[StepLog, ...], list_of("The logs, one for each attempt.")] = ()
