"""The compiled document, ObjectLifecycleMethods: the units of each event, complete for any executor.

A run has several documents: one for each resource, and one for the hooks of the target itself. References cross
documents by resource name. Documents are immutable, and a run stores their digests. All durations are milliseconds.
"""

import enum
import hashlib
from typing import Annotated, Any, Final

import msgspec

from dayfly.spec.meta import LONG, MANY, dns_label, dns_name, doc, list_of, or_empty
from dayfly.spec.scalars import kube_names

API_VERSION: Final = "dayfly.dev/v1alpha1"
MAX_UNITS_PER_RUN = 256
MAX_EXPRESSION_LENGTH = 4096
MAX_DOCUMENT_BYTES = 1 << 20
# A preStop unit stops retrying after this many attempts, so that its target can end.
PRE_STOP_TRIES = 5
# Time for which a fork outlives its route, so that it can answer pending requests.
DRAIN_MS = 5_000


class LifecycleEvent(enum.StrEnum):
    """The four moments around the start and stop of the target, in their order."""

    PRE_START = "preStart"
    POST_START = "postStart"
    PRE_STOP = "preStop"
    POST_STOP = "postStop"


CREATE_EVENTS = frozenset({LifecycleEvent.PRE_START, LifecycleEvent.POST_START})


class Kind(enum.StrEnum):
    """The kind of a unit's work. A host refuses a document with a kind that it does not support."""

    EXEC = "exec"
    WEBHOOK = "webhook"
    OBJECT = "object"
    FORK = "fork"
    ROUTE = "route"
    PREVIEW = "preview"
    ACQUIRE = "acquire"


STEP_KINDS = frozenset({Kind.EXEC, Kind.WEBHOOK})
"""The kinds that a program executes once, with a log of its own."""


class WireStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Immutable wire data: camelCase names, no unknown fields, defaults left out."""


class Target(WireStruct, frozen=True, kw_only=True):
    """The object whose life determines the events."""

    api_version: Annotated[
        str,
        doc(
            "API version of the target object.",
            kube_names.MAX_QUALIFIED_LENGTH,
            pattern=f"^({kube_names.API_VERSION})?$",
        ),
    ] = ""
    kind: Annotated[str, doc("Kind of the target object.", 63, pattern="^[A-Z][A-Za-z0-9]*$")]
    namespace: Annotated[str, or_empty(dns_label("Namespace of the target; empty for cluster-wide kinds."))] = ""
    name: Annotated[str, doc("Name of the target.", 253, pattern="^[^/%]*$")]
    uid: Annotated[str, doc("UID of the target. A later object with the same name is a different one.", 128)]


class StepOrigin(WireStruct, frozen=True, kw_only=True):
    """The author of a document's steps: a published plugin, or, without a plugin, the target's author."""

    publisher: Annotated[str, doc("Publisher of the plugin; empty if the target's author wrote the steps.", 253)] = ""
    plugin: Annotated[str, doc("Name of the plugin, without its version.", 253)] = ""
    version: Annotated[str, doc("Version of the plugin.", 128)] = ""
    inventory: Annotated[
        str,
        doc("Digest of the params that its inventory reads: they select the account; empty if it is not known.", 64),
    ] = ""

    @property
    def inline(self) -> bool:
        """Return whether its steps have only the rights of the target's author."""
        return not self.plugin

    @property
    def name(self) -> str:
        """`publisher:plugin`, as in grants; empty if the steps are inline."""
        return f"{self.publisher}:{self.plugin}" if self.plugin else ""


class Ref(WireStruct, frozen=True, kw_only=True):
    """An output of another unit, in the same document unless `resource` names another."""

    unit: Annotated[str, doc("Name of the other unit.", 253)]
    output: Annotated[str, doc("Name of the output.", 253)]
    resource: Annotated[str, doc("The resource of the unit; empty for the same document.", 253)] = ""


class As(WireStruct, frozen=True, kw_only=True):
    """The place of an input: an environment variable, a file, or both."""

    env: Annotated[str, doc("Environment variable; empty for none.", 253)] = ""
    path: Annotated[str, doc("File; empty for none.", 4096)] = ""


class Baseline(WireStruct, frozen=True, kw_only=True):
    """The workload from which a fork is derived."""

    kind: Annotated[str, doc("Kind of the workload.")]
    namespace: Annotated[str, dns_label("Namespace of the workload.")]
    name: Annotated[str, dns_name("Name of the workload.")]


class ForkValue(WireStruct, frozen=True, kw_only=True):
    """An expression over fields of a fork, evaluated when the unit is prepared."""

    fork_of: Annotated[Baseline, doc("The baseline of the fork.")]
    expression: Annotated[str, doc("Text with placeholders for fields of the fork.", MAX_EXPRESSION_LENGTH)]


class UnitInput(WireStruct, frozen=True, kw_only=True):
    """A named input: a constant, another unit's output, a field of the target or a fork, or no value.

    `target` is a JSONPath into the target object, evaluated when an attempt is prepared. The value of a `secret` must
    not appear in logs. A secret without another source is sent with the run and is in no document.
    """

    name: Annotated[str, doc("Name of the input.", 253)]
    value: Annotated[str | None, doc("A constant.", MAX_DOCUMENT_BYTES)] = None
    from_: Annotated[Ref | None, doc("Output of another unit.")] = msgspec.field(name="from", default=None)
    target: Annotated[str, doc("A JSONPath into the target object; empty for another source.", 1024)] = ""
    fork: Annotated[ForkValue | None, doc("A field of a fork.")] = None
    secret: Annotated[
        bool, doc("Whether the value must not appear in logs. A secret without another source is sent with the run.")
    ] = False
    as_: Annotated[As, doc("The places of the value.")] = msgspec.field(name="as", default=As())

    @property
    def comes_with_run(self) -> bool:
        """Return whether it is a secret whose value is sent with the run, beside the documents."""
        return self.secret and self.from_ is None


class SecretKey(WireStruct, frozen=True, kw_only=True):
    """A key of a Secret with a constant name, or with a name that `json_path` finds in the object."""

    key: Annotated[str, doc("The key.", 253, pattern=f"^{kube_names.KEY}$")]
    name: Annotated[str, or_empty(dns_name("Name of the Secret."))] = ""
    json_path: Annotated[str, doc("JSONPath of the Secret's name in the object.", 1024)] = ""


class UnitOutput(WireStruct, frozen=True, kw_only=True):
    """A named output. For a script it is the content of the file at `path`, read when the script has ended.

    For a webhook it is a value at `json_path` or a `header` of the response, or the response's `status`. For an object
    it is a value at `json_path`, or a key of a `secret` beside it.
    """

    name: Annotated[str, doc("Name of the output.", 253)]
    path: Annotated[str, doc("File with the value.", 4096)] = ""
    json_path: Annotated[str, doc("JSONPath of the value in a webhook's response or in an object.", 1024)] = ""
    header: Annotated[str, doc("For a webhook: the response header with the value.", 128)] = ""
    status: Annotated[bool, doc("For a webhook: whether the value is the response's status code.")] = False
    secret: Annotated[SecretKey | None, doc("For an object: a key of a Secret in its namespace.")] = None
    sensitive: Annotated[bool, doc("Whether the value is never displayed and stored only in Secrets.")] = False


class UnitRetry(WireStruct, frozen=True, kw_only=True):
    """Retries after failed attempts: whether, how many (0: unlimited), and the back-off."""

    idempotent: Annotated[bool, doc("Whether the unit may start again after a failed attempt.")] = False
    limit: Annotated[int, doc("Maximum number of attempts; 0 is unlimited.", minimum=0)] = 1
    backoff_ms: Annotated[
        int, doc("Milliseconds before the second attempt; doubled for each further attempt.", minimum=0)
    ] = 5_000


class UnitTimeouts(WireStruct, frozen=True, kw_only=True):
    """The limits of an attempt: to be scheduled, to pull its image, to run, and the grace period until it is killed."""

    schedule_ms: Annotated[int, doc("Maximum time until it is scheduled, in milliseconds.", minimum=0)] = 600_000
    pull_ms: Annotated[int, doc("Maximum time to pull the image, in milliseconds.", minimum=0)] = 600_000
    run_ms: Annotated[int, doc("Maximum time to run, in milliseconds.", minimum=0)] = 3_600_000
    grace_ms: Annotated[int, doc("Grace period between SIGTERM and SIGKILL, in milliseconds.", minimum=0)] = 10_000


class Exec(WireStruct, frozen=True, kw_only=True):
    """A script, or a program with its arguments, in a container or in a process of the embedded host.

    `env` is the built-in environment. `$(NAME)` in an argument is a variable of the step, as in a pod's containers.
    With `state` the step gets the address of its resource's Terraform state, and access to it.
    """

    script: Annotated[str, doc("Program text that begins with #!.", MAX_DOCUMENT_BYTES)] = ""
    command: Annotated[tuple[str, ...], doc("A program of the image with its arguments, instead of a script.")] = ()
    image: Annotated[str, doc("Image of the pod.")] = ""
    namespace: Annotated[str, or_empty(dns_label("Namespace of the pod."))] = ""
    pod_template: Annotated[
        dict[str, Any] | None, doc("Partial pod template, merged into the pod as Kubernetes merges.")
    ] = None
    env: Annotated[
        dict[str, str],
        doc("Built-in environment of the script.", maxProperties=MANY, additionalProperties={"maxLength": LONG}),
    ] = {}
    state: Annotated[bool, doc("Whether the step has access to the Terraform state of its resource.")] = False


class WebhookUnit(WireStruct, frozen=True, kw_only=True):
    """A request to a server, as written. `env` has the built-in variables that the request may use."""

    request: Annotated[dict[str, Any], doc("The request, as written.")]
    namespace: Annotated[str, or_empty(dns_label("Namespace of the pod that sends it."))] = ""
    env: Annotated[
        dict[str, str],
        doc(
            "Built-in variables for the request.",
            maxProperties=MANY,
            additionalProperties={"maxLength": LONG},
        ),
    ] = {}


class Object(WireStruct, frozen=True, kw_only=True):
    """A Kubernetes object in the target's namespace, as written; or the unit whose object is removed.

    The values of its outputs are stored in `namespace`, for the other units of its document.
    """

    written: Annotated[dict[str, Any], doc("The object, as written.")] = {}
    remove: Annotated[str, doc("For a unit that removes an object: the unit that created it.", 253)] = ""
    namespace: Annotated[str, or_empty(dns_label("Namespace of the Secret with its outputs."))] = ""


class EnvChange(WireStruct, frozen=True, kw_only=True):
    """One change to a fork's environment, applied in order: a constant, an input's value, or a `source`.

    Only the host can resolve a source: `{configMap | secret: {name, key, optional}}` in the fork's namespace, or
    `{fork: {forkOf, expression}}` with `{{.Service.Host}}` and `{{.Service.Port}}` of another fork.
    """

    name: Annotated[str, doc("Name of the variable.")]
    value: Annotated[str, doc("A constant.", MAX_DOCUMENT_BYTES)] = ""
    input: Annotated[str, doc("The input with the value.")] = ""
    source: Annotated[dict[str, Any] | None, doc("A source that the host resolves: configMap, secret or fork.")] = None
    container: Annotated[str, doc("Name of the container; empty means the main one.")] = ""
    delete: Annotated[bool, doc("Remove the variable.")] = False


class ForkUnit(WireStruct, frozen=True, kw_only=True):
    """A workload derived from a baseline, kept as long as the target exists."""

    baseline: Annotated[Baseline, doc("The workload from which it is derived.")]
    env: Annotated[tuple[EnvChange, ...], list_of("Changes to the environment, in this order.")] = ()
    images: Annotated[tuple[dict[str, Any], ...], list_of("Changed images.")] = ()
    patch: Annotated[dict[str, Any] | None, doc("A patch to the whole workload, applied last.")] = None


class Route(WireStruct, frozen=True, kw_only=True):
    """A route for requests to the baseline that have one of these keys. They reach its fork while the target exists.

    The first key is the target's own; the others are those of its route groups. A change of keys updates the route in
    place. After the route is removed, the fork lives for `drain_ms`. With `local_port` requests reach a program on the
    developer's machine, if that is the host.
    """

    baseline: Annotated[Baseline, doc("The workload whose requests are routed.")]
    keys: Annotated[tuple[str, ...], list_of("The routing keys of such requests; the first is the target's own.")]
    drain_ms: Annotated[int, doc("Milliseconds for which the fork outlives the route.", minimum=0)] = DRAIN_MS
    local_port: Annotated[
        int, doc("A port on the developer's machine, if that is the host; 0: requests reach the fork.")
    ] = 0


class PreviewUnit(WireStruct, frozen=True, kw_only=True):
    """An address that adds `key` to each request and sends it to `host`, kept as long as the target exists.

    `host` and `port` are those of a workload or Service, as in a request without a key.
    """

    scheme: Annotated[str, doc("http, https or grpc.", 8)]
    host: Annotated[
        str,
        doc(
            "Host of the workload or Service, as in a request without a key.",
            253,
            pattern=f"^{kube_names.HOST}$",
        ),
    ]
    port: Annotated[int, doc("Port of the workload or Service.", minimum=1)]
    key: Annotated[str, doc("The routing key that is added to requests.", 32)]


class AcquireUnit(WireStruct, frozen=True, kw_only=True):
    """A step that another run executes instead of this run, or the release of that run.

    The other run is a pool member or a shared parent. `step` is the step of the document's `template`. The unit ends as
    that step does, and has its outputs. Without a step, the unit releases the other run. The release of a member ends
    when the member's cleanup is complete, and that of a parent at once.
    """

    step: Annotated[str, doc("Name of the step; empty for the release of the member or parent.", 253)] = ""
    # Its outputs belong to other sandboxes, too, and there is nothing of the resource to clean up after it.
    parent: Annotated[bool, doc("Whether it is a step of a shared parent, or the release of one.")] = False


class Sharing(WireStruct, frozen=True, kw_only=True):
    """The limits of a shared parent: its number of holders, and the time for which it stays without one."""

    linger_ms: Annotated[int, doc("Milliseconds for which it stays without holders.", minimum=0)] = 0
    capacity: Annotated[int, doc("Maximum number of holders of one parent.", minimum=1)] = 1
    max_parents: Annotated[int, doc("Maximum number of such parents at the same time.", minimum=1)] = 1


class Unit(WireStruct, frozen=True, kw_only=True):
    """One step of an event."""

    name: Annotated[str, doc("Name of the unit, unique in its document.", 253)]
    kind: Annotated[
        str, doc("The kind of its work. An operator that does not know the kind reports that and runs nothing.", 63)
    ]
    inputs: Annotated[tuple[UnitInput, ...], list_of("Input values.")] = ()
    outputs: Annotated[tuple[UnitOutput, ...], list_of("Output values.")] = ()
    retry: Annotated[UnitRetry, doc("Retries after failures.")] = UnitRetry()
    timeouts: Annotated[UnitTimeouts, doc("Time limits of an attempt.")] = UnitTimeouts()
    exec: Annotated[Exec | None, doc("A script in a pod.")] = None
    webhook: Annotated[WebhookUnit | None, doc("A request to a server.")] = None
    object: Annotated[Object | None, doc("A Kubernetes object.")] = None
    fork: Annotated[ForkUnit | None, doc("A workload derived from a baseline.")] = None
    route: Annotated[Route | None, doc("A route for requests with a routing key.")] = None
    preview: Annotated[PreviewUnit | None, doc("An address that adds a routing key to requests.")] = None
    acquire: Annotated[AcquireUnit | None, doc("A step of a pool member or parent, or its release.")] = None
    # Names of kept units are those in the run; names of steps are those in the document.
    after: Annotated[
        tuple[str, ...],
        list_of(
            "For a kept unit: the units that must answer before it starts, and that outlive it. For a step: the "
            "steps of its document that must succeed before it starts, in addition to those whose outputs it reads."
        ),
    ] = ()
    # For a postStop unit: the create unit that it undoes. If a hook is removed and its target lives on, only these run.
    undoes: Annotated[str, doc("For a postStop unit: the create unit that it undoes.", 253)] = ""


class Lifecycle(WireStruct, frozen=True, kw_only=True):
    """The `spec` of one document. `resource` names its resource; empty means the target's own hooks."""

    target: Annotated[Target, doc("The object whose life determines the events.")]
    resource: Annotated[str, doc("The resource of this document; empty for the target's own hooks.", 253)] = ""
    origin: Annotated[StepOrigin, doc("The author of the steps, as in grants.")] = StepOrigin()
    pre_start: Annotated[tuple[Unit, ...], list_of("Steps before the target starts.")] = ()
    post_start: Annotated[tuple[Unit, ...], list_of("Steps after the target is ready.")] = ()
    pre_stop: Annotated[tuple[Unit, ...], list_of("Steps before the target stops.")] = ()
    post_stop: Annotated[tuple[Unit, ...], list_of("Steps after the target has stopped.")] = ()
    template: Annotated[
        tuple[dict[str, Any], ...],
        list_of(
            "Documents of the pool member or parent that the units of kind acquire obtain. A host needs no server to "
            "create it."
        ),
    ] = ()
    sharing: Annotated[Sharing | None, doc("Limits of a shared parent, in its own document.")] = None
    resource_id: Annotated[
        str | None,
        doc("The resource ID of the steps, instead of that of the run; empty for an inventory of all resources.", 64),
    ] = None

    def template_documents(self) -> "tuple[Lifecycle, ...]":
        """Return the documents of the pool member or parent. Their digest identifies those that this document accepts.

        Raises:
            msgspec.ValidationError: They are not documents, or an unknown field is among them.
        """
        return msgspec.convert(self.template, tuple[Lifecycle, ...])

    def secrets(self) -> tuple[str, ...]:
        """Return the names of the secrets that must be sent with the run, without duplicates."""
        units = (unit for event in LifecycleEvent for unit in self.units(event))
        return tuple(dict.fromkeys(item.name for unit in units for item in unit.inputs if item.comes_with_run))

    def units(self, event: LifecycleEvent) -> tuple[Unit, ...]:
        """Return the units of one event, in document order."""
        match event:
            case LifecycleEvent.PRE_START:
                return self.pre_start
            case LifecycleEvent.POST_START:
                return self.post_start
            case LifecycleEvent.PRE_STOP:
                return self.pre_stop
            case LifecycleEvent.POST_STOP:
                return self.post_stop


MEMBER_KIND: Final = "PoolMember"
"""The kind of the target object of a pool member's run."""
MEMBER_TARGET: Final = Target(kind=MEMBER_KIND, name="", uid="")
"""The target in the documents of a template, which is the same for all members."""
PARENT_KIND: Final = "SharedParent"
"""The kind of the target object of a shared parent's run."""
PARENT_TARGET: Final = Target(kind=PARENT_KIND, name="", uid="")
"""The target in the documents of a parent, which is the same for all parents."""
LEAK_CHECK_KIND: Final = "LeakCheck"
"""The kind of the target object of the runs of a leak check."""
LEAK_CHECK_TARGET: Final = Target(kind=LEAK_CHECK_KIND, name="", uid="")
"""The target in the documents of a leak check, which is the same for all its runs."""
PARENT_PREFIX: Final = "parent."
"""Prefix of the units of kind acquire for the steps of a parent. The names of steps have no dots."""

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical(value: msgspec.Struct | tuple[msgspec.Struct, ...]) -> bytes:
    """Return the canonical bytes of a document, from which its digest is computed."""
    return _encoder.encode(value)


def digest(value: msgspec.Struct | tuple[msgspec.Struct, ...]) -> str:
    """Return `sha256:<hex>` of the canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def unit_id(resource: str, unit: str) -> str:
    """Return the name of a unit in its run: `db/seed` for a resource's step, `seed` for the target's own hook."""
    return f"{resource}/{unit}" if resource else unit


_FORK: Final = f"{Kind.FORK}:"


def is_parent_unit(name: str) -> bool:
    """Return whether a name in a run belongs to a unit of kind acquire for a step of a shared parent."""
    return name.rpartition("/")[2].startswith(PARENT_PREFIX)


def fork_id(baseline: Baseline) -> str:
    """Return the name of a fork in its run. The colon distinguishes it from other units."""
    return f"{_FORK}{baseline.namespace}/{baseline.name}"


def route_id(baseline: Baseline) -> str:
    """Return the name in its run of the route to the fork of a baseline."""
    return f"{Kind.ROUTE}:{baseline.namespace}/{baseline.name}"


def preview_id(name: str) -> str:
    """Return the name in its run of the preview address of an endpoint."""
    return f"{Kind.PREVIEW}:{name}"


def kept_id(unit: Unit) -> str:
    """Return the name in its run of a kept unit of any kind."""
    if unit.fork is not None:
        return fork_id(unit.fork.baseline)
    return route_id(unit.route.baseline) if unit.route is not None else f"{unit.kind}:{unit.name}"


def workload_of(name: str) -> Baseline | None:
    """Return the baseline of a fork from the fork's name in its run; None for any other unit."""
    if not name.startswith(_FORK):
        return None
    namespace, _, workload = name.removeprefix(_FORK).partition("/")
    return Baseline(kind="Deployment", namespace=namespace, name=workload)


def kind_by_name(name: str) -> str:
    """Return the kind of a unit in a record without a kind, which can only be exec or fork."""
    return Kind.FORK if name.startswith(_FORK) else Kind.EXEC
