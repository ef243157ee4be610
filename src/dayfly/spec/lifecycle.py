"""The compiled document, ObjectLifecycleMethods: for each event the work units; all that an executor understands.

A run is governed by several documents: one for each resource and one for the target itself (its own hooks).
References cross documents by resource name. Documents are immutable; their digest is what a run pins. All durations
are milliseconds.
"""

import enum
import hashlib
from typing import Annotated, Any, Final

import msgspec

from dayfly.spec.meta import LONG, MANY, dns_label, dns_name, doc, list_of, or_empty
from dayfly.spec.scalars import kube_names

API_VERSION: Final = "dayfly.dev/v1alpha1"
MAX_UNITS_PER_RUN = 256
LONGEST_EXPRESSION = 4096
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

    api_version: Annotated[
        str,
        doc(
            "API version of the target object.",
            kube_names.LONGEST_QUALIFIED,
            pattern=f"^({kube_names.API_VERSION})?$",
        ),
    ] = ""
    kind: Annotated[str, doc("Kind of the target object.", 63, pattern="^[A-Z][A-Za-z0-9]*$")]
    namespace: Annotated[str, or_empty(dns_label("Its namespace; empty for cluster-wide kinds."))] = ""
    name: Annotated[str, doc("Its name.", 253, pattern="^[^/%]*$")]
    uid: Annotated[str, doc("Its UID; an object of the same name made later is another one.", 128)]


class StepOrigin(WireStruct, frozen=True, kw_only=True):
    """Who wrote a document's steps: a published plugin, or (both empty) whoever wrote the target itself."""

    publisher: Annotated[
        str, doc("Who has published the plugin; empty: whoever wrote the target has written the steps.", 253)
    ] = ""
    plugin: Annotated[str, doc("Name of the plugin, without its version.", 253)] = ""

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

    unit: Annotated[str, doc("Name of the other unit.", 253)]
    output: Annotated[str, doc("Name of its output.", 253)]
    resource: Annotated[str, doc("The resource whose unit it is; empty: this document's.", 253)] = ""


class As(WireStruct, frozen=True, kw_only=True):
    """Where an input appears in the unit: an environment variable, a file, or both."""

    env: Annotated[str, doc("Environment variable; empty for none.", 253)] = ""
    path: Annotated[str, doc("File; empty for none.", 4096)] = ""


class Baseline(WireStruct, frozen=True, kw_only=True):
    """The workload a fork derives from."""

    kind: Annotated[str, doc("Kind of the baseline workload.")]
    namespace: Annotated[str, dns_label("Its namespace.")]
    name: Annotated[str, dns_name("Its name.")]


class ForkValue(WireStruct, frozen=True, kw_only=True):
    """What the fork of a baseline tells when the unit is made ready, put into the places of an expression."""

    fork_of: Annotated[Baseline, doc("The baseline of the fork.")]
    expression: Annotated[str, doc("Text with places for what it tells.", LONGEST_EXPRESSION)]


class UnitInput(WireStruct, frozen=True, kw_only=True):
    """One named input: a constant, another unit's output, what its target or a fork tells, or (none) a value not given.

    `target` is a JSONPath into the target object, which is asked when an attempt is prepared. The value of a `secret`
    must not stand in a log; where nothing else says what it is, it comes with the run, and is in no document.
    """

    name: Annotated[str, doc("Name of the input.", 253)]
    value: Annotated[str | None, doc("A constant.", MAX_DOCUMENT_BYTES)] = None
    from_: Annotated[Ref | None, doc("Another unit's output.")] = msgspec.field(name="from", default=None)
    target: Annotated[
        str, doc("A JSONPath into the target object that finds the value; empty: it comes from elsewhere.", 1024)
    ] = ""
    fork: Annotated[ForkValue | None, doc("What a fork tells.")] = None
    secret: Annotated[
        bool, doc("Whether it must not stand in a log; if nothing else says what it is, it comes with the run.")
    ] = False
    as_: Annotated[As, doc("Where the value appears.")] = msgspec.field(name="as", default=As())

    @property
    def comes_with_run(self) -> bool:
        """Whether it is a secret that whoever wishes for the run hands over beside the documents."""
        return self.secret and self.from_ is None


class SecretKey(WireStruct, frozen=True, kw_only=True):
    """A key of a Secret whose name is constant, or what `json_path` finds in the object beside which it lies."""

    key: Annotated[str, doc("The key.", 253, pattern=f"^{kube_names.KEY}$")]
    name: Annotated[str, or_empty(dns_name("Name of the Secret."))] = ""
    json_path: Annotated[str, doc("What finds its name in the object.", 1024)] = ""


class UnitOutput(WireStruct, frozen=True, kw_only=True):
    """One named output: of a script the file at `path`, byte for byte, once its work has ended.

    Of a webhook it is what `json_path` or `header` finds in its answer, or the answer's `status`. Of an object it is
    what `json_path` finds in it, or a key of a `secret` beside it.
    """

    name: Annotated[str, doc("Name of the output.", 253)]
    path: Annotated[str, doc("File whose bytes are the value.", 4096)] = ""
    json_path: Annotated[str, doc("What finds the value in a webhook's answer, or in an object.", 1024)] = ""
    header: Annotated[str, doc("Of a webhook: the answer's header that is the value.", 128)] = ""
    status: Annotated[bool, doc("Of a webhook: whether the value is the answer's status.")] = False
    secret: Annotated[SecretKey | None, doc("Of an object: a key of a Secret beside it.")] = None
    sensitive: Annotated[bool, doc("Never shown; it is kept in Secrets only.")] = False


class UnitRetry(WireStruct, frozen=True, kw_only=True):
    """May the unit start again after a failed attempt, how often (0 = without end), and how soon."""

    idempotent: Annotated[bool, doc("Whether the unit may start again after a failed attempt.")] = False
    limit: Annotated[int, doc("How often it may start; 0 is without end.", minimum=0)] = 1
    backoff_ms: Annotated[int, doc("Milliseconds before the second start; doubled each time.", minimum=0)] = 5_000


class UnitTimeouts(WireStruct, frozen=True, kw_only=True):
    """Three clocks (time to be placed, time to fetch, time to run) and the grace between asking and forcing."""

    schedule_ms: Annotated[int, doc("Longest time to be placed, in milliseconds.", minimum=0)] = 600_000
    pull_ms: Annotated[int, doc("Longest time to fetch the image, in milliseconds.", minimum=0)] = 600_000
    run_ms: Annotated[int, doc("Longest time to run, in milliseconds.", minimum=0)] = 3_600_000
    grace_ms: Annotated[
        int, doc("Time between asking the script to end and ending it, in milliseconds.", minimum=0)
    ] = 10_000


class Exec(WireStruct, frozen=True, kw_only=True):
    """A script, or a program with its arguments, in a container or in a process of the embedded host.

    `env` is the built-in environment. `$(NAME)` in an argument is a variable of the step, as in a pod's containers.
    With `state` it is told where the Terraform state of its resource is kept, and given the right to it.
    """

    script: Annotated[str, doc("Program text that begins with #!.", MAX_DOCUMENT_BYTES)] = ""
    command: Annotated[tuple[str, ...], doc("A program of the image and its arguments, instead of a script.")] = ()
    image: Annotated[str, doc("Image of the pod.")] = ""
    namespace: Annotated[str, or_empty(dns_label("Namespace of the pod."))] = ""
    pod_template: Annotated[
        dict[str, Any] | None, doc("Partial pod template, merged into the pod as Kubernetes merges.")
    ] = None
    env: Annotated[
        dict[str, str],
        doc(
            "Environment that Dayfly gives to the script.", maxProperties=MANY, additionalProperties={"maxLength": LONG}
        ),
    ] = {}
    state: Annotated[bool, doc("Whether it is told where the Terraform state of its resource is kept.")] = False


class WebhookUnit(WireStruct, frozen=True, kw_only=True):
    """A request to a server, as it was written. `env` is the built-in environment, of which it may take values."""

    request: Annotated[dict[str, Any], doc("The request, as it was written.")]
    namespace: Annotated[str, or_empty(dns_label("Namespace of the pod that sends it."))] = ""
    env: Annotated[
        dict[str, str],
        doc(
            "What Dayfly tells of the run, for those of its values that name it.",
            maxProperties=MANY,
            additionalProperties={"maxLength": LONG},
        ),
    ] = {}


class Object(WireStruct, frozen=True, kw_only=True):
    """A Kubernetes object in the target's namespace, as it was written; or the unit whose object is removed.

    What it tells is kept in `namespace`, for the other units of its document.
    """

    written: Annotated[dict[str, Any], doc("The object, as it was written.")] = {}
    remove: Annotated[str, doc("Of a unit that removes: the unit whose object goes.", 253)] = ""
    namespace: Annotated[str, or_empty(dns_label("Where what it tells is kept."))] = ""


class EnvChange(WireStruct, frozen=True, kw_only=True):
    """One ordered change to a fork's environment: a constant, the value of the input of that name, or a `source`.

    A source is what only the host can look up: `{configMap | secret: {name, key, optional}}` in the fork's namespace,
    or `{fork: {forkOf, expression}}` with `{{.Service.Host}}` and `{{.Service.Port}}` of another fork.
    """

    name: Annotated[str, doc("Name of the variable.")]
    value: Annotated[str, doc("A constant.", MAX_DOCUMENT_BYTES)] = ""
    input: Annotated[str, doc("The input whose value it is.")] = ""
    source: Annotated[dict[str, Any] | None, doc("What only the host can look up: configMap, secret or fork.")] = None
    container: Annotated[str, doc("Name of the container; empty means the main one.")] = ""
    delete: Annotated[bool, doc("Remove the variable.")] = False


class ForkUnit(WireStruct, frozen=True, kw_only=True):
    """An object derived from a baseline, kept as long as the target lives."""

    baseline: Annotated[Baseline, doc("The workload from which it derives.")]
    env: Annotated[tuple[EnvChange, ...], list_of("Changes to the environment, in this order.")] = ()
    images: Annotated[tuple[dict[str, Any], ...], list_of("Other images.")] = ()
    patch: Annotated[dict[str, Any] | None, doc("A patch to the whole workload, laid over it last.")] = None


class Route(WireStruct, frozen=True, kw_only=True):
    """Requests for the baseline that carry one of these keys go to its fork, as long as the target lives.

    The first key is the target's own, the others are of groups that it is in. Keys that come or go change the route
    where it is: it is never replaced for them. Once it is gone the fork lives on for `drain_ms`. With `local_port` they
    go to a program of the developer's own machine instead, where that is the host.
    """

    baseline: Annotated[Baseline, doc("The workload whose requests it leads to the fork.")]
    keys: Annotated[
        tuple[str, ...], list_of("The routing keys that a request may carry for that; the first is the target's own.")
    ]
    drain_ms: Annotated[int, doc("Milliseconds that the fork lives on once the route is gone.", minimum=0)] = DRAIN_MS
    local_port: Annotated[
        int, doc("A port of the developer's own machine, where that is the host; 0: it leads to the fork.")
    ] = 0


class PreviewUnit(WireStruct, frozen=True, kw_only=True):
    """An address of its own, kept as long as the target lives: what comes there is given `key`, and goes to `host`.

    `host` and `port` are those of a workload or Service, as a request without a key would name it.
    """

    scheme: Annotated[str, doc("http, https or grpc.", 8)]
    host: Annotated[
        str,
        doc(
            "Host of the workload or Service, as a request without a key would name it.",
            253,
            pattern=f"^{kube_names.HOST}$",
        ),
    ]
    port: Annotated[int, doc("Its port.", minimum=1)]
    key: Annotated[str, doc("The routing key that requests are given.", 32)]


class Unit(WireStruct, frozen=True, kw_only=True):
    """One step of one event."""

    name: Annotated[str, doc("Name of the unit, unique in its document.", 253)]
    kind: Annotated[
        str, doc("What its work is. Of a kind that it does not know the operator says so, and runs nothing.", 63)
    ]
    inputs: Annotated[tuple[UnitInput, ...], list_of("Values it is given.")] = ()
    outputs: Annotated[tuple[UnitOutput, ...], list_of("Values it makes.")] = ()
    retry: Annotated[UnitRetry, doc("What follows a failure.")] = UnitRetry()
    timeouts: Annotated[UnitTimeouts, doc("The clocks of an attempt.")] = UnitTimeouts()
    exec: Annotated[Exec | None, doc("A script in a pod.")] = None
    webhook: Annotated[WebhookUnit | None, doc("A call to a server.")] = None
    object: Annotated[Object | None, doc("A Kubernetes object.")] = None
    fork: Annotated[ForkUnit | None, doc("An object derived from a baseline.")] = None
    route: Annotated[Route | None, doc("Requests with a key that go to a fork.")] = None
    preview: Annotated[PreviewUnit | None, doc("An address that gives requests a key.")] = None
    # Of a kept unit: the kept units, by their names within the run, that answer before it is begun and outlive it.
    after: Annotated[
        tuple[str, ...], list_of("Of a kept unit: those that answer before it begins, and outlive it.")
    ] = ()
    # Of a postStop unit: the create unit whose work it undoes. Of a hook that is removed from a target which lives on
    # these alone run.
    undoes: Annotated[str, doc("Of a postStop unit: the create unit whose work it takes back.", 253)] = ""


class Lifecycle(WireStruct, frozen=True, kw_only=True):
    """One document's `spec`. `resource` is the resource it makes; empty means the target's own hooks."""

    target: Annotated[Target, doc("The object to whose life the units are tied.")]
    resource: Annotated[str, doc("The resource that this document makes; empty: the target's own hooks.", 253)] = ""
    origin: Annotated[StepOrigin, doc("Who wrote these steps; grants name it.")] = StepOrigin()
    pre_start: Annotated[tuple[Unit, ...], list_of("Before the target starts.")] = ()
    post_start: Annotated[tuple[Unit, ...], list_of("Once it is ready.")] = ()
    pre_stop: Annotated[tuple[Unit, ...], list_of("Before it stops.")] = ()
    post_stop: Annotated[tuple[Unit, ...], list_of("After it has stopped.")] = ()

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
