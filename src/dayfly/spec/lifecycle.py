"""The compiled document, ObjectLifecycleMethods: for each event the work units; all that an executor understands.

A run is governed by several documents: one for each resource and one for the target itself (its own hooks).
References cross documents by resource name. Documents are immutable; their digest is what a run pins. All durations
are milliseconds.
"""

import enum
import hashlib
from typing import Any, Final

import msgspec

API_VERSION: Final = "dayfly.dev/v1alpha1"
MAX_UNITS_PER_RUN = 256
MAX_DOCUMENT_BYTES = 1 << 20
# A preStop unit that keeps failing is given up: the target has to go.
PRE_STOP_TRIES = 5
# How long a fork outlives its route, so that requests which came by it are answered.
DRAIN_MS = 5_000


class LifecycleEvent(enum.StrEnum):
    """The four moments around the target's own start and stop, in the order in which they happen."""

    PRE_START = "preStart"
    POST_START = "postStart"
    PRE_STOP = "preStop"
    POST_STOP = "postStop"


CREATING = frozenset({LifecycleEvent.PRE_START, LifecycleEvent.POST_START})


class Kind(enum.StrEnum):
    """What a unit's work is. A host refuses a document with a kind it cannot run; the core does not care."""

    EXEC = "exec"
    WEBHOOK = "webhook"
    OBJECT = "object"
    FORK = "fork"
    ROUTE = "route"
    PREVIEW = "preview"


STEP_KINDS = frozenset({Kind.EXEC, Kind.WEBHOOK})
"""The kinds that are carried out by a program that runs once, with a log of its own."""


class WireStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Frozen wire data: camelCase outside, unknown fields refused, defaults left out."""


class Target(WireStruct, frozen=True, kw_only=True):
    """The object to whose life the hooks are tied."""

    api_version: str = ""
    kind: str
    namespace: str = ""
    name: str
    uid: str


class StepOrigin(WireStruct, frozen=True, kw_only=True):
    """Who wrote a document's steps: a published plugin, or (both empty) whoever wrote the target itself."""

    publisher: str = ""
    plugin: str = ""

    @property
    def inline(self) -> bool:
        """Whether its steps have the rights of the target's author and no more."""
        return not self.plugin

    @property
    def name(self) -> str:
        """`publisher:plugin`, as grants name it; empty if it is inline."""
        return f"{self.publisher}:{self.plugin}" if self.plugin else ""


class Ref(WireStruct, frozen=True, kw_only=True):
    """An output of another unit. Without `resource` it is a unit of the same document."""

    unit: str
    output: str
    resource: str = ""


class As(WireStruct, frozen=True, kw_only=True):
    """Where an input appears in the unit: an environment variable, a file, or both."""

    env: str = ""
    path: str = ""


class Baseline(WireStruct, frozen=True, kw_only=True):
    """The workload a fork derives from."""

    kind: str
    namespace: str
    name: str


class ForkValue(WireStruct, frozen=True, kw_only=True):
    """What the fork of a baseline tells when the unit is made ready, put into the places of an expression."""

    fork_of: Baseline
    expression: str


class UnitInput(WireStruct, frozen=True, kw_only=True):
    """One named input: a constant, another unit's output, what its target or a fork tells, or (none) a value not given.

    `target` is a JSONPath into the target object, which is asked when an attempt is prepared. The value of a `secret`
    must not stand in a log; where nothing else says what it is, it comes with the run, and is in no document.
    """

    name: str
    value: str | None = None
    from_: Ref | None = msgspec.field(name="from", default=None)
    target: str = ""
    fork: ForkValue | None = None
    secret: bool = False
    as_: As = msgspec.field(name="as", default=As())

    @property
    def comes_with_run(self) -> bool:
        """Whether it is a secret that whoever wishes for the run hands over beside the documents."""
        return self.secret and self.from_ is None


class SecretKey(WireStruct, frozen=True, kw_only=True):
    """A key of a Secret whose name is constant, or what `json_path` finds in the object beside which it lies."""

    key: str
    name: str = ""
    json_path: str = ""


class UnitOutput(WireStruct, frozen=True, kw_only=True):
    """One named output: of a script the file at `path`, byte for byte, once its work has ended.

    Of a webhook it is what `json_path` or `header` finds in its answer, or the answer's `status`. Of an object it is
    what `json_path` finds in it, or a key of a `secret` beside it.
    """

    name: str
    path: str = ""
    json_path: str = ""
    header: str = ""
    status: bool = False
    secret: SecretKey | None = None
    sensitive: bool = False


class UnitRetry(WireStruct, frozen=True, kw_only=True):
    """May the unit start again after a failed attempt, how often (0 = without end), and how soon."""

    idempotent: bool = False
    limit: int = 1
    backoff_ms: int = 5_000


class UnitTimeouts(WireStruct, frozen=True, kw_only=True):
    """Three clocks (time to be placed, time to fetch, time to run) and the grace between asking and forcing."""

    schedule_ms: int = 600_000
    pull_ms: int = 600_000
    run_ms: int = 3_600_000
    grace_ms: int = 10_000


class Exec(WireStruct, frozen=True, kw_only=True):
    """A script, or a program with its arguments, in a container or in a process of the embedded host.

    `env` is the built-in environment. `$(NAME)` in an argument is a variable of the step, as in a pod's containers.
    With `state` it is told where the Terraform state of its resource is kept, and given the right to it.
    """

    script: str = ""
    command: tuple[str, ...] = ()
    image: str = ""
    namespace: str = ""
    pod_template: dict[str, Any] | None = None
    env: dict[str, str] = {}
    state: bool = False


class WebhookUnit(WireStruct, frozen=True, kw_only=True):
    """A request to a server, as it was written. `env` is the built-in environment, of which it may take values."""

    request: dict[str, Any]
    namespace: str = ""
    env: dict[str, str] = {}


class Object(WireStruct, frozen=True, kw_only=True):
    """A Kubernetes object in the target's namespace, as it was written; or the unit whose object is removed.

    What it tells is kept in `namespace`, for the other units of its document.
    """

    written: dict[str, Any] = {}
    remove: str = ""
    namespace: str = ""


class EnvChange(WireStruct, frozen=True, kw_only=True):
    """One ordered change to a fork's environment: a constant, the value of the input of that name, or a `source`.

    A source is what only the host can look up: `{configMap | secret: {name, key, optional}}` in the fork's namespace,
    or `{fork: {forkOf, expression}}` with `{{.Service.Host}}` and `{{.Service.Port}}` of another fork.
    """

    name: str
    value: str = ""
    input: str = ""
    source: dict[str, Any] | None = None
    container: str = ""
    delete: bool = False


class ForkUnit(WireStruct, frozen=True, kw_only=True):
    """An object derived from a baseline, kept as long as the target lives."""

    baseline: Baseline
    env: tuple[EnvChange, ...] = ()
    images: tuple[dict[str, Any], ...] = ()
    patch: dict[str, Any] | None = None


class Route(WireStruct, frozen=True, kw_only=True):
    """Requests for the baseline that carry one of these keys go to its fork, as long as the target lives.

    The first key is the target's own, the others are of groups that it is in. Keys that come or go change the route
    where it is: it is never replaced for them. Once it is gone the fork lives on for `drain_ms`. With `local_port` they
    go to a program of the developer's own machine instead, where that is the host.
    """

    baseline: Baseline
    keys: tuple[str, ...]
    drain_ms: int = DRAIN_MS
    local_port: int = 0


class PreviewUnit(WireStruct, frozen=True, kw_only=True):
    """An address of its own, kept as long as the target lives: what comes there is given `key`, and goes to `host`.

    `host` and `port` are those of a workload or Service, as a request without a key would name it.
    """

    scheme: str
    host: str
    port: int
    key: str


class Unit(WireStruct, frozen=True, kw_only=True):
    """One step of one event."""

    name: str
    kind: str
    inputs: tuple[UnitInput, ...] = ()
    outputs: tuple[UnitOutput, ...] = ()
    retry: UnitRetry = UnitRetry()
    timeouts: UnitTimeouts = UnitTimeouts()
    exec: Exec | None = None
    webhook: WebhookUnit | None = None
    object: Object | None = None
    fork: ForkUnit | None = None
    route: Route | None = None
    preview: PreviewUnit | None = None
    # Of a kept unit: the kept units, by their names within the run, that answer before it is begun and outlive it.
    after: tuple[str, ...] = ()
    # Of a postStop unit: the create unit whose work it undoes. Of a hook that is removed from a target which lives on
    # these alone run.
    undoes: str = ""


class Lifecycle(WireStruct, frozen=True, kw_only=True):
    """One document's `spec`. `resource` is the resource it makes; empty means the target's own hooks."""

    target: Target
    resource: str = ""
    origin: StepOrigin = StepOrigin()
    pre_start: tuple[Unit, ...] = ()
    post_start: tuple[Unit, ...] = ()
    pre_stop: tuple[Unit, ...] = ()
    post_stop: tuple[Unit, ...] = ()

    def secrets(self) -> tuple[str, ...]:
        """The names of those that must come with the run, each once."""
        units = (unit for event in LifecycleEvent for unit in self.units(event))
        return tuple(dict.fromkeys(item.name for unit in units for item in unit.inputs if item.comes_with_run))

    def units(self, event: LifecycleEvent) -> tuple[Unit, ...]:
        """The units of one event, in the order they were written."""
        match event:
            case LifecycleEvent.PRE_START:
                return self.pre_start
            case LifecycleEvent.POST_START:
                return self.post_start
            case LifecycleEvent.PRE_STOP:
                return self.pre_stop
            case LifecycleEvent.POST_STOP:
                return self.post_stop


_encoder = msgspec.json.Encoder(order="deterministic")


def canonical(value: msgspec.Struct | tuple[msgspec.Struct, ...]) -> bytes:
    """The one byte form of a document, on which its digest rests."""
    return _encoder.encode(value)


def digest(value: msgspec.Struct | tuple[msgspec.Struct, ...]) -> str:
    """`sha256:<hex>` of the canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def unit_id(resource: str, unit: str) -> str:
    """A unit's name within its run: `db/seed` for a resource's step, plain `seed` for the target's own hook."""
    return f"{resource}/{unit}" if resource else unit


_FORK: Final = f"{Kind.FORK}:"


def fork_id(baseline: Baseline) -> str:
    """A fork's name within its run. The colon keeps it apart from every unit name."""
    return f"{_FORK}{baseline.namespace}/{baseline.name}"


def route_id(baseline: Baseline) -> str:
    """The name within its run of the route to the fork of a baseline."""
    return f"{Kind.ROUTE}:{baseline.namespace}/{baseline.name}"


def preview_id(name: str) -> str:
    """The name within its run of the preview address of an endpoint."""
    return f"{Kind.PREVIEW}:{name}"


def kept_id(unit: Unit) -> str:
    """The name within its run of a unit that is kept, whatever its kind."""
    if unit.fork is not None:
        return fork_id(unit.fork.baseline)
    return route_id(unit.route.baseline) if unit.route is not None else f"{unit.kind}:{unit.name}"


def workload_of(name: str) -> Baseline | None:
    """What a fork derives from, by its name within its run; None for the name of any other unit."""
    if not name.startswith(_FORK):
        return None
    namespace, _, workload = name.removeprefix(_FORK).partition("/")
    return Baseline(kind="Deployment", namespace=namespace, name=workload)


def kind_by_name(name: str) -> str:
    """The kind of a unit in a ledger of the days when records had none: exec and fork were all there was."""
    return Kind.FORK if name.startswith(_FORK) else Kind.EXEC
