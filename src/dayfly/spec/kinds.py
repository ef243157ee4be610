"""Our kinds as a cluster keeps them, where they hold more than a wish, a document or a ledger.

Every status is spoken for people and never read back: `plan.status` finds the words, a host writes them here. What
must be remembered is in the ledger (`run`).
"""

from typing import Annotated

from dayfly.spec.lifecycle import Unit, WireStruct
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.meta import (
    DNS_LABEL,
    LONG,
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
from dayfly.spec.run import EndRequest, Run
from dayfly.spec.steps.kube_object import ReadyRule

_DIGEST = "^sha256:[0-9a-f]{64}$"
_VERSION = (
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)

# What every status says, whatever of.
_Generation = Annotated[int, doc("The generation that this status speaks of.")]
_Phase = Annotated[str, doc("The part of its life it is in: Pending, Creating, Ready, Failed or Deleting.")]
_Ready = Annotated[bool, doc("Whether it can be used; the condition Ready says the same.")]
_Reason = Annotated[str, doc("The reason for its state, in one word.")]
_Message = Annotated[str, doc("The reason in one sentence.", LONG)]
_Progress = Annotated[str, doc("Steps done, out of all in this part of its life, like 2/5.")]
_RunName = Annotated[str, doc("Name of the Run, its ledger.")]


class NamedPluginSpec(PluginSpec, frozen=True, kw_only=True):
    """One version of a plugin: create runs before a sandbox's workloads start, delete after they have stopped.

    Published, it never changes: publish a new version beside it.
    """

    name: Annotated[
        str,
        doc(
            "Name and version as sandboxes write them: name@1.2.3, or the bare name for an unversioned plugin.",
            253,
            pattern=f"{NAME_PATTERN[:-1]}(@{_VERSION})?$",
        ),
    ]


class RunResource(Run, frozen=True, kw_only=True):
    """What was allowed to start and how it ended. Only Dayfly's operator writes it, by compare-and-swap."""


class Pin(WireStruct, frozen=True, kw_only=True):
    """One document that a run has sealed: that very object, with these very bytes."""

    name: Annotated[str, dns_name("Name of the ObjectLifecycleMethods.")]
    uid: Annotated[str, doc("Its UID.", 128)]
    digest: Annotated[str, doc("Digest of its spec.", 71, pattern=_DIGEST)]


class Hooked(WireStruct, frozen=True, kw_only=True):
    """The LifecycleHook that a run carries out, that very object, and what it said when the run was sealed.

    `older`: its target was there before it, so preStart was passed over. `definition` is the UID of the
    CustomResourceDefinition of the target's kind; empty if there was none.
    """

    name: Annotated[str, dns_label("Name of the hook.")]
    uid: Annotated[str, doc("Its UID; a hook of the same name made later is another one.", 128)]
    started: Annotated[ReadyRule | None, doc("What tells that the target has started, as the hook said then.")] = None
    stopped: Annotated[ReadyRule | None, doc("What tells that the target has stopped.")] = None
    hold: Annotated[Hold | None, doc("What makes the target's own controller wait.")] = None
    older: Annotated[bool, doc("Whether the target was there before the hook, so that preStart was passed over.")] = (
        False
    )
    definition: Annotated[
        str, doc("UID of the CustomResourceDefinition of the target's kind; empty for none.", 128)
    ] = ""


class Offered(WireStruct, frozen=True, kw_only=True):
    """A sandbox or route group of a server that a run carries out: by its UID there, and what was ordered of it.

    `kind` is empty where an operator wrote it that knew sandboxes alone. Times are unix milliseconds, 0 for never.
    `generation` is that of the wish that was taken up last.
    """

    uid: Annotated[str, doc("Its UID at the server.", 36)]
    org: Annotated[str, doc("The organisation that has it.", 253)] = ""
    name: Annotated[str, doc("Its name there.", 30)] = ""
    kind: Annotated[str, doc("What it is there, Sandbox or RouteGroup; empty for a sandbox.", 63)] = ""
    generation: Annotated[int, doc("The newest wish that was taken up.", minimum=0)] = 0
    expires_at: Annotated[int, doc("When its time to live is over, " + MILLISECONDS)] = 0
    lease_until: Annotated[int, doc("Until when it was renewed, " + MILLISECONDS)] = 0
    stop: Annotated[EndRequest | None, doc("Who asked there for its end.")] = None


class RunSpec(WireStruct, frozen=True, kw_only=True):
    """What a run has pinned, and the newest revision of its target's forks."""

    documents: Annotated[tuple[Pin, ...], list_of("The sealed documents.")] = ()
    forks: Annotated[tuple[Unit, ...], list_of("The target's forks, in their newest revision.")] = ()
    plural: Annotated[str, dns_label("The target's kind, as in its address.")] = "sandboxes"
    generation: Annotated[int, doc("The newest generation of the target that it goes by.", minimum=0)] = 0
    updated_at: Annotated[int, doc("When that was, if it is not the first one, " + MILLISECONDS)] = 0
    hook: Annotated[
        Hooked | None,
        doc("The lifecycle hook that it carries out; absent where its target says itself what is to be done."),
    ] = None
    unmatched_since: Annotated[int, doc("Since when no sandbox matches a route group, " + MILLISECONDS)] = 0
    offered: Annotated[
        Offered | None, doc("Whose sandbox it is, if a server has it; absent for one that was applied here.")
    ] = None


class StatusCondition(WireStruct, frozen=True, kw_only=True):
    """One of an object's conditions, as all Kubernetes tools read them. `kubectl wait --for=condition=Ready` does."""

    type: Annotated[str, doc("Type of the condition.", 316)]
    status: Annotated[str, doc("Whether it holds.", enum=["True", "False", "Unknown"])]
    observed_generation: Annotated[int, doc("The generation it speaks of.")] = 0
    last_transition_time: Annotated[str, doc("Since when.", None, format="date-time", maxLength=None)]
    reason: Annotated[str, doc("Why, in one word.", 1024)]
    message: Annotated[str, doc("Why, in one sentence.", LONG)] = ""


class UnitStatus(WireStruct, frozen=True, kw_only=True):
    """One step or fork as people see it. Times are RFC 3339.

    A message with clocks has them as moments, which stay true; `template` has `{since}` and `{until}` in their places.
    """

    id: Annotated[str, doc("Name of the unit in its run: resource/step, or fork:namespace/name.", 600)]
    event: Annotated[str, doc("When it is its turn: preStart, postStart, preStop or postStop.")] = ""
    kind: Annotated[str, doc("exec, webhook, object or fork.")] = ""
    state: Annotated[str, doc("waiting, running, succeeded, failed, retrying, unknown, stopped or skipped.")]
    attempt: Annotated[int, doc("Number of the latest attempt.")] = 0
    reason: Annotated[str, doc("The reason in one word.")] = ""
    message: Annotated[str, doc("What there is to say of it, in one sentence.", LONG)] = ""
    template: Annotated[
        str, doc("The message with {since} and {until} in its clocks' places; empty if it has none.", LONG)
    ] = ""
    pod: Annotated[str, doc("Its pod, as namespace/name.")] = ""
    since: Annotated[str, doc("Since when it has been in this state, " + RFC3339)] = ""
    until: Annotated[
        str, doc("When that changes by itself: it is retried, or is certain to have ended; empty for never.")
    ] = ""
    started_at: Annotated[str, doc("When it began, " + RFC3339)] = ""
    ended_at: Annotated[str, doc("When it ended, " + RFC3339)] = ""
    reads: Annotated[tuple[str, ...], list_of("Units whose outputs it is given.")] = ()
    waits_on: Annotated[tuple[str, ...], list_of("Units it is waiting for now.")] = ()


_Conditions = Annotated[tuple[StatusCondition, ...], list_of("What holds of the object; Ready above all.", key="type")]
_Units = Annotated[tuple[UnitStatus, ...], list_of("Every step and fork, in the order of the document.", key="id")]


class Binding(WireStruct, frozen=True, kw_only=True):
    """Where the outputs lie: a Secret of this name, keys `<step>.<output>` (Service Binding's provisioned service)."""

    name: Annotated[str, dns_name("Name of the Secret.")]


class EndpointStatus(WireStruct, frozen=True, kw_only=True):
    """A way in that works now."""

    name: Annotated[str, doc("Name of the endpoint.")]
    url: Annotated[str, doc("Where it answers.", 4096)]


class SandboxStatus(WireStruct, frozen=True, kw_only=True):
    """How a sandbox stands. Where its message is a unit's, `about` is that unit's id and `others` counts more such."""

    observed_generation: _Generation = 0
    phase: _Phase = ""
    ready: _Ready = False
    reason: _Reason = ""
    message: _Message = ""
    about: Annotated[str, doc("The unit that the message is about; empty if there is none.", 600)] = ""
    others: Annotated[int, doc("How many more units the same applies to.", minimum=0)] = 0
    progress: _Progress = ""
    routing_key: Annotated[str, doc("Key by which requests find the sandbox.")] = ""
    served_for: Annotated[str, doc("Whose it is at the server that has it, as ORGANISATION/NAME.", 300)] = ""
    run: _RunName = ""
    expires_at: Annotated[str, doc("When it will be deleted, " + RFC3339)] = ""
    conditions: _Conditions = ()
    units: _Units = ()
    endpoints: Annotated[tuple[EndpointStatus, ...], list_of("Ways in.")] = ()


class PluginStatus(WireStruct, frozen=True, kw_only=True):
    """Whether sandboxes can use a plugin."""

    observed_generation: _Generation = 0
    accepted: Annotated[bool, doc("Whether sandboxes can use it; the condition Accepted says the same.")] = False
    reason: _Reason = ""
    message: _Message = ""
    conditions: _Conditions = ()


class LifecycleHookStatus(WireStruct, frozen=True, kw_only=True):
    """How a lifecycle hook stands, and how many objects it goes with.

    `objects` counts those whose run is not over; among them `ending` are closed, `troubled` in want of a look, and
    `older` were there before the hook.
    """

    observed_generation: _Generation = 0
    ready: Annotated[
        bool, doc("Whether its steps run for each object that it selects; the condition Ready says the same.")
    ] = False
    reason: _Reason = ""
    message: _Message = ""
    objects: Annotated[int, doc("How many objects it goes with.", minimum=0)] = 0
    ending: Annotated[int, doc("How many of them are being cleaned up.", minimum=0)] = 0
    troubled: Annotated[int, doc("How many of them somebody should look at; the message names one.", minimum=0)] = 0
    older: Annotated[
        int, doc("How many of them were there before the hook: their preStart was passed over.", minimum=0)
    ] = 0
    conditions: _Conditions = ()


class ConflictStatus(WireStruct, frozen=True, kw_only=True):
    """A baseline that several sandboxes of a route group fork: the fork of `sandbox` is meant, not of the `others`."""

    baseline: Annotated[str, doc("The baseline, as namespace/name.", 320)]
    sandbox: Annotated[str, doc("The sandbox whose fork is meant: the oldest.", 63)]
    others: Annotated[tuple[str, ...], list_of("The sandboxes whose forks are not.")] = ()


class RouteGroupStatus(WireStruct, frozen=True, kw_only=True):
    """How a route group stands, and which sandboxes it has now, the one whose forks go first at the head."""

    observed_generation: _Generation = 0
    phase: _Phase = ""
    ready: _Ready = False
    reason: _Reason = ""
    message: _Message = ""
    progress: _Progress = ""
    routing_key: Annotated[str, doc("Key by which requests find the forks of its sandboxes.")] = ""
    run: _RunName = ""
    expires_at: Annotated[str, doc("When it will be deleted as things stand, " + RFC3339)] = ""
    matched_sandboxes: Annotated[
        tuple[str, ...], list_of("The sandboxes that it has now; of very many the first ones.")
    ] = ()
    matched: Annotated[int, doc("How many they are.", minimum=0)] = 0
    conflicts: Annotated[tuple[ConflictStatus, ...], list_of("Baselines that several of them fork.")] = ()
    conditions: _Conditions = ()
    units: _Units = ()
    endpoints: Annotated[tuple[EndpointStatus, ...], list_of("Ways in.")] = ()


class SandboxRef(WireStruct, frozen=True, kw_only=True):
    """The sandbox a resource belongs to: that very object."""

    namespace: Annotated[str, dns_label("Namespace of the sandbox.")]
    name: Annotated[str, dns_name("Its name.")]
    uid: Annotated[str, doc("Its UID.", 128)]


class ResourceSpec(WireStruct, frozen=True, kw_only=True):
    """One instance of a plugin inside one sandbox. Written by the operator; people write it into the Sandbox."""

    name: Annotated[str, doc("Name of the resource in its sandbox.", 253)]
    sandbox: Annotated[SandboxRef, doc("The sandbox it belongs to.")]
    plugin: Annotated[str, doc("The plugin as name@version; empty for one written in place.")] = ""
    document: Annotated[str, or_empty(dns_name("Name of the ObjectLifecycleMethods that make and remove it."))] = ""
    output_namespaces: Annotated[
        tuple[str, ...], list_of("Namespaces in which a Secret with the outputs lies.", items=DNS_LABEL)
    ] = ()


class ResourceStatus(WireStruct, frozen=True, kw_only=True):
    """How a resource stands."""

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
    """The end of what one attempt of a step printed. It is text, or base64 where it is no text.

    `times` says when: a row of pairs, as `spec.log_times.flat` makes it.
    """

    unit: Annotated[str, doc("Name of the unit in its run: resource/step, or the name of a hook.", 600)]
    attempt: Annotated[int, doc("Which of its attempts, from 1.")]
    size: Annotated[
        int, doc("Bytes that it printed in all, of which the text holds the end; 0 if that is not known.")
    ] = 0
    encoding: Annotated[str, doc("How the text is to be read.", enum=["utf-8", "base64"])] = "utf-8"
    text: Annotated[str, doc("The end of what it printed.", 131_072)]
    times: Annotated[
        tuple[int, ...],
        doc(
            "When the text was printed: pairs of numbers, from which of its bytes on, and Unix time in milliseconds.",
            maxItems=1_024,
        ),
    ] = ()


class StepLogsSpec(WireStruct, frozen=True, kw_only=True):
    """What some steps of a sandbox printed, kept beyond their pods as long as the sandbox is there."""

    sandbox: Annotated[SandboxRef, doc("The sandbox whose steps they are: that very object.")]
    logs: Annotated[tuple[StepLog, ...], list_of("One for each attempt.")] = ()
