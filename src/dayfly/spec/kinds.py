"""Our kinds as a cluster keeps them, where they hold more than a wish, a document or a ledger.

Every status is spoken for people and never read back: `plan.status` finds the words, a host writes them here. What
must be remembered is in the ledger (`run`).
"""

from dayfly.spec.lifecycle import Unit, WireStruct
from dayfly.spec.lifecycle_hook import Hold
from dayfly.spec.plugin import PluginSpec
from dayfly.spec.run import Request, Run
from dayfly.spec.steps.kube_object import ReadyRule


class NamedPluginSpec(PluginSpec, frozen=True, kw_only=True):
    """One version of a plugin: create runs before a sandbox's workloads start, delete after they have stopped.

    Published, it never changes: publish a new version beside it.
    """

    name: str


class RunObject(Run, frozen=True, kw_only=True):
    """What was allowed to start and how it ended. Only Dayfly's operator writes it, by compare-and-swap."""


class Pin(WireStruct, frozen=True, kw_only=True):
    """One document that a run has sealed: that very object, with these very bytes."""

    name: str
    uid: str
    digest: str


class Hooked(WireStruct, frozen=True, kw_only=True):
    """The LifecycleHook that a run carries out, that very object, and what it said when the run was sealed.

    `older`: its target was there before it, so preStart was passed over. `definition` is the UID of the
    CustomResourceDefinition of the target's kind; empty if there was none.
    """

    name: str
    uid: str
    started: ReadyRule | None = None
    stopped: ReadyRule | None = None
    hold: Hold | None = None
    older: bool = False
    definition: str = ""


class Offered(WireStruct, frozen=True, kw_only=True):
    """A sandbox or route group of a control plane that a run carries out: by its UID there, and what was ordered of it.

    `kind` is empty where an operator wrote it that knew sandboxes alone. Times are unix milliseconds, 0 for never.
    `generation` is that of the wish that was taken up last.
    """

    uid: str
    org: str = ""
    name: str = ""
    kind: str = ""
    generation: int = 0
    expires_at: int = 0
    lease_until: int = 0
    stop: Request | None = None


class RunSpec(WireStruct, frozen=True, kw_only=True):
    """What a run has pinned, and the newest revision of its target's forks."""

    documents: tuple[Pin, ...] = ()
    forks: tuple[Unit, ...] = ()
    plural: str = "sandboxes"
    generation: int = 0
    updated_at: int = 0
    hook: Hooked | None = None
    unmatched_since: int = 0
    offered: Offered | None = None


class StatusCondition(WireStruct, frozen=True, kw_only=True):
    """One of an object's conditions, as all Kubernetes tools read them. `kubectl wait --for=condition=Ready` does."""

    type: str
    status: str
    observed_generation: int = 0
    last_transition_time: str
    reason: str
    message: str = ""


class UnitStatus(WireStruct, frozen=True, kw_only=True):
    """One step or fork as people see it. Times are RFC 3339.

    A message with clocks has them as moments, which stay true; `template` has `{since}` and `{until}` in their places.
    """

    id: str
    event: str = ""
    kind: str = ""
    state: str
    attempt: int = 0
    reason: str = ""
    message: str = ""
    template: str = ""
    pod: str = ""
    since: str = ""
    until: str = ""
    started_at: str = ""
    ended_at: str = ""
    reads: tuple[str, ...] = ()
    waits_on: tuple[str, ...] = ()


class Binding(WireStruct, frozen=True, kw_only=True):
    """Where the outputs lie: a Secret of this name, keys `<step>.<output>` (Service Binding's provisioned service)."""

    name: str


class EndpointStatus(WireStruct, frozen=True, kw_only=True):
    """A way in that works now."""

    name: str
    url: str


class SandboxStatus(WireStruct, frozen=True, kw_only=True):
    """How a sandbox stands. Where its message is a unit's, `about` is that unit's id and `others` counts more such."""

    observed_generation: int = 0
    phase: str = ""
    ready: bool = False
    reason: str = ""
    message: str = ""
    about: str = ""
    others: int = 0
    progress: str = ""
    routing_key: str = ""
    served_for: str = ""
    run: str = ""
    expires_at: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    units: tuple[UnitStatus, ...] = ()
    endpoints: tuple[EndpointStatus, ...] = ()


class PluginStatus(WireStruct, frozen=True, kw_only=True):
    """Whether sandboxes can use a plugin."""

    observed_generation: int = 0
    accepted: bool = False
    reason: str = ""
    message: str = ""
    conditions: tuple[StatusCondition, ...] = ()


class LifecycleHookStatus(WireStruct, frozen=True, kw_only=True):
    """How a lifecycle hook stands, and how many objects it goes with.

    `objects` counts those whose run is not over; among them `ending` are closed, `troubled` in want of a look, and
    `older` were there before the hook.
    """

    observed_generation: int = 0
    ready: bool = False
    reason: str = ""
    message: str = ""
    objects: int = 0
    ending: int = 0
    troubled: int = 0
    older: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ConflictStatus(WireStruct, frozen=True, kw_only=True):
    """A baseline that several sandboxes of a route group fork: the fork of `sandbox` is meant, not of the `others`."""

    baseline: str
    sandbox: str
    others: tuple[str, ...] = ()


class RouteGroupStatus(WireStruct, frozen=True, kw_only=True):
    """How a route group stands, and which sandboxes it has now, the one whose forks go first at the head."""

    observed_generation: int = 0
    phase: str = ""
    ready: bool = False
    reason: str = ""
    message: str = ""
    progress: str = ""
    routing_key: str = ""
    run: str = ""
    expires_at: str = ""
    matched_sandboxes: tuple[str, ...] = ()
    matched: int = 0
    conflicts: tuple[ConflictStatus, ...] = ()
    conditions: tuple[StatusCondition, ...] = ()
    units: tuple[UnitStatus, ...] = ()
    endpoints: tuple[EndpointStatus, ...] = ()


class SandboxRef(WireStruct, frozen=True, kw_only=True):
    """The sandbox a resource belongs to: that very object."""

    namespace: str
    name: str
    uid: str


class ResourceSpec(WireStruct, frozen=True, kw_only=True):
    """One instance of a plugin inside one sandbox. Written by the operator; people write it into the Sandbox."""

    name: str
    sandbox: SandboxRef
    plugin: str = ""
    document: str = ""
    output_namespaces: tuple[str, ...] = ()


class ResourceStatus(WireStruct, frozen=True, kw_only=True):
    """How a resource stands."""

    observed_generation: int = 0
    phase: str = ""
    ready: bool = False
    reason: str = ""
    message: str = ""
    progress: str = ""
    run: str = ""
    binding: Binding | None = None
    conditions: tuple[StatusCondition, ...] = ()
    units: tuple[UnitStatus, ...] = ()


class StepLog(WireStruct, frozen=True, kw_only=True):
    """The end of what one attempt of a step printed. It is text, or base64 where it is no text.

    `times` says when: a row of pairs, as `spec.log_times.flat` makes it.
    """

    unit: str
    attempt: int
    size: int = 0
    encoding: str = "utf-8"
    text: str
    times: tuple[int, ...] = ()


class StepLogsSpec(WireStruct, frozen=True, kw_only=True):
    """What some steps of a sandbox printed, kept beyond their pods as long as the sandbox is there."""

    sandbox: SandboxRef
    logs: tuple[StepLog, ...] = ()
