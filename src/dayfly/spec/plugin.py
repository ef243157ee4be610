"""What a platform team writes: a plugin's runner and its steps, with every rule that one plugin alone can break.

Unknown references and cycles between steps are found by `compile`, where hooks and other resources are known too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MOST_VALUES, dns_label, doc, file_path, identifier, list_of, or_empty
from dayfly.spec.scalars import kube_names, names, semver
from dayfly.spec.scalars.duration import milliseconds
from dayfly.spec.steps import command, injections, kube_object, param_rules, script, step_output, webhook
from dayfly.spec.steps.kube_object import FromSecret, KubeObject
from dayfly.spec.steps.overlay import check_overlay
from dayfly.spec.steps.value_from import HookSource
from dayfly.spec.steps.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORKS = ("script", "command", "webhook", "object")
_CLOCKS = ("schedule", "pull", "run", "grace")
MAX_SCRIPT_BYTES = script.MAX_BYTES
# Steps of one list. With the limits of resources and values it keeps the CEL rules within the budget of the API server.
MOST_STEPS = 32
_STATE_VARIABLES = ("TF_WORKSPACE", "TF_DATA_DIR", "TF_STATE_PERSIST_INTERVAL")


class Runner(WireStruct, frozen=True, kw_only=True):
    """Where steps run on a cluster: image and namespace of their pods, and a partial pod template as YAML text.

    The embedded host needs none of it, so no field is required here; a cluster without an image says so.
    """

    image: Annotated[str, doc("Image in which the steps run.")] = ""
    namespace: Annotated[str, or_empty(dns_label("Namespace of the steps' pods; empty means dayfly-runners."))] = ""
    pod_template_overlay: Annotated[
        str, doc("Partial pod template as YAML text, merged into each step's pod.", 65_536)
    ] = ""


class StepOutput(WireStruct, frozen=True, kw_only=True):
    """An output of another step of the same plugin, or of another hook of the same sandbox."""

    name: Annotated[str, identifier("step", "Name of the other step.")]
    output: Annotated[str, identifier("output", "Name of its output.")]


class Injection(WireStruct, frozen=True, kw_only=True):
    """Where an input appears: an environment variable, a file with the value as its bytes, or both."""

    env: Annotated[
        str, doc("Environment variable that carries the value.", 253, pattern="^([A-Za-z_][A-Za-z0-9_]*)?$")
    ] = ""
    path: Annotated[str, or_empty(file_path("File whose bytes are the value."))] = ""


class Input(WireStruct, frozen=True, kw_only=True):
    """One input of a step, with exactly one source.

    A plugin's step takes it from the sandbox's params or another step; a hook from a constant, another hook, a resource
    or a fork. Of a param one of its steps may say that it is required, what it is if it is not given, or that it is a
    secret, which no document holds; that holds for all steps that take it.
    """

    name: Annotated[
        str, identifier("input", "Name of the input, unique in its step; for valueFromSandbox also the param's name.")
    ]
    type: Annotated[str, doc("A note for readers.", 64)] = ""
    value: Annotated[str | None, doc("A constant; only in a sandbox's hooks.", 131_072)] = None
    value_from_sandbox: Annotated[bool, doc("Taken from the sandbox's param of the same name.")] = False
    required: Annotated[bool, doc("Whether the sandbox must give the param; it holds for all steps that take it.")] = (
        False
    )
    default: Annotated[
        str | None, doc("What the param is if the sandbox does not give it; for all steps that take it.", 65_536)
    ] = None
    secret: Annotated[
        bool,
        doc(
            "Whether the param is a secret: always needed, in no document, masked in logs; for all steps that take it. "
            "It is given with --secrets-file, or is another resource's output."
        ),
    ] = False
    value_from_step: Annotated[StepOutput | None, doc("Taken from another step.")] = None
    value_from: Annotated[HookSource | None, doc("Taken from a resource or a fork; only in a sandbox's hooks.")] = None
    as_: Annotated[
        Injection | None, doc("Where the value appears; the input's name in capitals, as a variable, if left out.")
    ] = msgspec.field(name="as", default=None)

    @property
    def env(self) -> str:
        """The variable that carries the value: the one given, the name in capitals if nothing is given, else none."""
        if self.as_ is None or not (self.as_.env or self.as_.path):
            return self.name.upper().replace("-", "_")
        return self.as_.env

    @property
    def path(self) -> str:
        """The file that carries the value, or nothing."""
        return self.as_.path if self.as_ else ""


class Output(WireStruct, frozen=True, kw_only=True):
    """One output of a step: of a script the bytes of a file once it has ended, of a webhook a part of its answer.

    Of an object it is a field of it, or a key of a Secret beside it. A sensitive one is never shown; what comes from a
    Secret always is.
    """

    name: Annotated[str, identifier("output", "Name of the output, unique in its step.")]
    value_from_path: Annotated[
        str | None, file_path("Of a script: the file whose bytes are the value once it has ended.")
    ] = None
    value_from_json_path: Annotated[
        str | None,
        doc(
            "A JSONPath (RFC 9535) that finds the value: of a webhook in its answer, of an object in it.",
            1024,
            pattern=r"^\$",
        ),
    ] = msgspec.field(name="valueFromJSONPath", default=None)
    value_from_header: Annotated[
        str | None,
        doc(
            "Of a webhook: the header of its answer that is the value.", 128, minLength=1, pattern=f"^{webhook.HEADER}$"
        ),
    ] = None
    value_from_status: Annotated[bool, doc("Of a webhook: the value is its answer's status.")] = False
    value_from_secret: Annotated[
        FromSecret | None, doc("Of an object: a key of a Secret in its namespace. Always sensitive.")
    ] = None
    description: Annotated[str, doc("For readers.", 4096)] = ""
    type: Annotated[str, doc("A note for readers.", 64)] = ""
    sensitive: Annotated[bool, doc("Never shown; it is kept in Secrets only.")] = False


class Retry(WireStruct, frozen=True, kw_only=True):
    """Whether a step may start again after a failed attempt, how often, and how soon."""

    idempotent: Annotated[
        bool | None, doc("Whether the step may run again after a failure. Create steps: false, delete steps: true.")
    ] = None
    limit: Annotated[
        int | None,
        doc(
            "How often a create step may start: once, or if idempotent 3 times, if left out.",
            minimum=1,
            maximum=1_000_000,
        ),
    ] = None
    backoff: Annotated[
        str,
        doc(
            "Wait before the second start, like 5s (left out, 5s); it doubles each time, up to 10m.",
            16,
            pattern="^([0-9]+[smh])?$",
        ),
    ] = ""


def _duration(about: str, usual: str) -> msgspec.Meta:
    return doc(f"{about}, like 10s, 5m or 1h; left out, {usual}.", 16, pattern="^([0-9]{1,9}[smh])?$")


class Timeouts(WireStruct, frozen=True, kw_only=True):
    """Durations like `10s`, `5m`, `1h`: to be placed, to fetch the image, to run, and from asking to forcing."""

    schedule: Annotated[str, _duration("Longest time to be placed on a node", "10m")] = ""
    pull: Annotated[str, _duration("Longest time to fetch the image", "10m")] = ""
    run: Annotated[str, _duration("Longest time to run", "1h")] = ""
    grace: Annotated[str, _duration("Time between asking the script to end and ending it", "10s")] = ""


INPUTS = list_of("Values the step is given.", MOST_VALUES, key="name")


class Step(WireStruct, frozen=True, kw_only=True):
    """One script, command, webhook or Kubernetes object, with its inputs and outputs.

    A command is a program that its image has, and its arguments.
    """

    name: Annotated[str, identifier("step", "Name of the step, unique in its document.")]
    inputs: Annotated[tuple[Input, ...], INPUTS] = ()
    outputs: Annotated[tuple[Output, ...], list_of("Values the step makes.", MOST_VALUES, key="name")] = ()
    script: Annotated[
        str | None, doc("A program text that begins with #!; at most 128 KiB.", MAX_SCRIPT_BYTES, minLength=1)
    ] = None
    command: Annotated[
        tuple[str, ...] | None,
        list_of(
            "A program of the image and its arguments, instead of a script.",
            command.MOST_WORDS,
            minItems=1,
            items={"maxLength": command.MAX_WORD_BYTES},
        ),
    ] = None
    webhook: Annotated[Webhook | None, doc("A request to a server, instead of a script.")] = None
    object: Annotated[KubeObject | None, doc("A Kubernetes object, instead of a script.")] = None
    retry: Annotated[Retry | None, doc("What follows a failure.")] = None
    timeouts: Annotated[Timeouts | None, doc("The three clocks of an attempt, and the grace at its end.")] = None


class PluginSpec(WireStruct, frozen=True, kw_only=True):
    """`create` runs before the sandbox's workloads start, `delete` after they have stopped.

    With `state` its scripts find a Terraform state of the resource's own, which outlives them. `inventory` scripts say
    what is there of a resource; `plugin test` alone runs them.
    """

    description: Annotated[str, doc("For readers.", 4096)] = ""
    runner: Annotated[Runner, doc("Where the steps run.")] = Runner()
    state: Annotated[
        bool, doc("Keep a Terraform state for its programs, from create to delete (TF_HTTP_ADDRESS and its like).")
    ] = False
    create: Annotated[
        tuple[Step, ...], list_of("Steps that make the resource, each as soon as its inputs exist.", MOST_STEPS, "name")
    ] = ()
    delete: Annotated[
        tuple[Step, ...], list_of("Steps that remove it; tried until they succeed.", MOST_STEPS, "name")
    ] = ()
    inventory: Annotated[
        tuple[Step, ...],
        list_of(
            "Scripts that print a line for each thing there is of a resource; only dayfly plugin test runs them.",
            MOST_STEPS,
            "name",
        ),
    ] = ()

    def params(self) -> dict[str, ParamRule]:
        """What its steps say of the params they take, in the order of the first who takes each."""
        found: dict[str, ParamRule] = {}
        for step in (*self.create, *self.delete):
            for wanted in step.inputs:
                if wanted.value_from_sandbox:
                    rule = found.setdefault(wanted.name, ParamRule(step.name))
                    default = wanted.default if rule.default is None else rule.default
                    required, secret = wanted.required or rule.required, wanted.secret or rule.secret
                    found[wanted.name] = ParamRule(rule.step, required, default, secret)
        return found

    def secrets(self) -> frozenset[str]:
        """Those params whose values stand in no document."""
        return frozenset(name for name, rule in self.params().items() if rule.secret)


class ParamRule(NamedTuple):
    """What is said of a param: the first step that takes it, whether it must be given, what it is if it is not.

    A secret one must be given always, and never in a document.
    """

    step: str
    required: bool = False
    default: str | None = None
    secret: bool = False


class Plugin(WireStruct, frozen=True, kw_only=True):
    """One version of a plugin: bare name, canonical version and what it does. Published, only its README changes."""

    name: str
    version: str = semver.UNVERSIONED
    spec: PluginSpec
    readme: str | None = None

    @property
    def wire_name(self) -> str:
        """`name` for version 0.0.0, else `name@x.y.z`."""
        return semver.join_name(self.name, self.version)


def check_plugin(plugin: Plugin) -> None:
    """Hold a plugin to every rule that needs no other document.

    Raises:
        SpecError: the first fault found, its keys counted from the document's root.
    """
    check_plugin_spec(plugin.spec, ("spec",))


def check_plugin_spec(spec: PluginSpec, keys: Path) -> None:
    """The rules of a plugin's `spec`, which may also stand inside a sandbox; `keys` leads to it."""
    faults = Faults()
    with faults:
        check_runner(spec.runner, (*keys, "runner"))
    workflows = [("create", spec.create), ("delete", spec.delete)]
    with faults:
        if not spec.create and not spec.delete:
            raise SpecError("has neither create nor delete steps: write at least one", keys)
    for workflow, steps in workflows:
        for index, step in enumerate(steps):
            here = (*keys, workflow, index)
            with faults:
                check_step(step, here, repeats=workflow == "delete")
            for position, wanted in enumerate(step.inputs):
                with faults:
                    _check_plugin_source(wanted, (*here, "inputs", position))
    with faults:
        check_step_names((steps, (*keys, workflow)) for workflow, steps in [*workflows, ("inventory", spec.inventory)])
    for index, step in enumerate(spec.inventory):
        with faults:
            _check_inventory(step, (*keys, "inventory", index))
    with faults:
        param_rules.check(
            (wanted, (*keys, workflow, index, "inputs", position))
            for workflow, steps in workflows
            for index, step in enumerate(steps)
            for position, wanted in enumerate(step.inputs)
        )
    with faults:
        if spec.state:
            _check_state(workflows, (*keys, "state"))
    faults.settle()


def _check_inventory(step: Step, keys: Path) -> None:
    """An inventory is a script that only looks, by what a sandbox gives and by the resource's own identity."""
    check_step(step, keys, repeats=False)
    if step.script is None or step.outputs or step.retry or step.timeouts:
        raise SpecError(
            "must be a script with inputs and nothing else, which prints one line for each thing that exists", keys
        )
    for position, wanted in enumerate(step.inputs):
        here = (*keys, "inputs", position)
        _check_plugin_source(wanted, here)
        if wanted.value_from_step is not None or wanted.path:
            raise SpecError("an inventory reads params, in variables: write valueFromSandbox: true, and no path", here)


def _check_state(workflows: Iterable[tuple[str, tuple[Step, ...]]], keys: Path) -> None:
    """Who writes a state is a program, and it goes only once another has destroyed what it knows."""
    for workflow, steps in workflows:
        if all(step.script is None and step.command is None for step in steps):
            problem = f"is for programs that make and that destroy; no {workflow} step has a script or command"
            raise SpecError(problem, keys)
        for index, step in enumerate(steps):
            for position, wanted in enumerate(step.inputs):
                if step.webhook is None and (wanted.env.startswith("TF_HTTP_") or wanted.env in _STATE_VARIABLES):
                    problem = f"{wanted.env} configures the state, and Dayfly sets it; remove the input"
                    raise SpecError(problem, (*keys[:-1], workflow, index, "inputs", position))


def check_runner(runner: Runner, keys: Path) -> None:
    """Refuse a namespace that can be none, and an overlay that contradicts it or the image, or is no pod template."""
    if runner.namespace:
        kube_names.check_namespace(runner.namespace, (*keys, "namespace"))
    overlay = runner.pod_template_overlay
    check_overlay(overlay, (*keys, "podTemplateOverlay"), image=runner.image, namespace=runner.namespace)


def check_step_output(reference: StepOutput, keys: Path) -> None:
    """The names in a reference to another step could be names."""
    names.check("step", reference.name, (*keys, "name"))
    names.check("output", reference.output, (*keys, "output"))


def check_step_names(workflows: Iterable[tuple[tuple[Step, ...], Path]]) -> None:
    """Step names are unique over all workflows of one document; each workflow comes with the way to it."""
    found = [(step.name, (*keys, index, "name")) for steps, keys in workflows for index, step in enumerate(steps)]
    names.check_unique("the step name", found)


def check_step(
    step: Step, keys: Path, *, repeats: bool, variables: tuple[str, ...] = webhook.BUILT_IN_VARIABLES
) -> None:
    """The rules of one step but for the sources of its inputs.

    Args:
        step: The step.
        keys: The way to it.
        repeats: Whether its event is one that is tried until it succeeds (`delete`, `postStop`).
        variables: What a webhook may take from its environment.
    """
    faults = Faults()
    with faults:
        names.check("step", step.name, (*keys, "name"))
    with faults:
        _check_work(step, keys, repeats=repeats, variables=variables)
    named = Faults()  # what lies in whose way is asked of names that are ones
    for index, wanted in enumerate(step.inputs):
        with named:
            names.check("input", wanted.name, (*keys, "inputs", index, "name"))
    for index, output in enumerate(step.outputs):
        with named:
            names.check("output", output.name, (*keys, "outputs", index, "name"))
        with named:
            step_output.check(output, (*keys, "outputs", index), _work_of(step))
    with named:
        names.check_unique("the input", [(i.name, (*keys, "inputs", n, "name")) for n, i in enumerate(step.inputs)])
    with named:
        names.check_unique("the output", [(o.name, (*keys, "outputs", n, "name")) for n, o in enumerate(step.outputs)])
    with faults:
        named.settle()
        if step.webhook is not None or step.object is not None:
            injections.refuse(step.inputs, (*keys, "inputs"), "an object" if step.object else "a webhook")
        else:
            injections.check_variables(step.inputs, (*keys, "inputs"))
        injections.check(step.inputs, (*keys, "inputs"))
    with faults:
        _check_retry(step.retry or Retry(), (*keys, "retry"), repeats=repeats)
    timeouts = step.timeouts or Timeouts()
    with faults:
        if step.object is not None:
            clocks = [field for field in _CLOCKS if getattr(timeouts, field)]
            again = bool(step.retry and step.retry.idempotent)
            kube_object.check_settings(step.object, clocks, again=again, keys=keys)
    with faults:
        if step.webhook is not None and timeouts.grace:
            problem = "a request that was sent cannot be called back: it goes on until timeouts.run; leave grace out"
            raise SpecError(problem, (*keys, "timeouts", "grace"))
    for field in _CLOCKS:
        with faults:
            if duration := getattr(timeouts, field):
                milliseconds(duration, (*keys, "timeouts", field))
    faults.settle()


def _check_work(step: Step, keys: Path, *, repeats: bool, variables: tuple[str, ...]) -> None:
    """A step does exactly one thing."""
    given = [field for field in _WORKS if getattr(step, field) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are" if given else "none is"
        raise SpecError(f"needs exactly one of script, command, webhook and object; {found} given", keys)
    if step.script is not None:
        script.check(step.script, (*keys, "script"))
    if step.command is not None:
        command.check(step.command, (*keys, "command"))
    if step.webhook is not None:
        again = repeats or bool(step.retry and step.retry.idempotent)
        inputs = [item.name for item in step.inputs]
        webhook.check(step.webhook, inputs, (*keys, "webhook"), repeats=again, variables=variables)
    if step.object is not None:
        kube_object.check(step.object, [item.name for item in step.inputs], (*keys, "object"))
        if step.object.remove and step.outputs:
            problem = f"a step that removes tells {kube_object.GONE} by itself, and nothing else; leave outputs out"
            raise SpecError(problem, (*keys, "outputs"))


def _work_of(step: Step) -> Literal["script", "command", "webhook", "object"]:
    """What the step does; of one that does not say so, a script."""
    if step.object is not None:
        return "object"
    if step.webhook is not None:
        return "webhook"
    return "script" if step.command is None else "command"


def _check_retry(retry: Retry, keys: Path, *, repeats: bool) -> None:
    if retry.backoff:
        milliseconds(retry.backoff, (*keys, "backoff"))
    if retry.limit is None:
        return
    here = (*keys, "limit")
    if repeats:
        raise SpecError("a cleanup is retried until it succeeds; leave the limit out", here)
    if retry.limit < 1:
        raise SpecError(f"{retry.limit} is not a limit: write how often the step may start, 1 or more", here)
    if retry.limit > 1 and not retry.idempotent:
        raise SpecError("only a step that may run twice can be retried; add idempotent: true", here)


def _check_plugin_source(wanted: Input, keys: Path) -> None:
    if wanted.value is not None or wanted.value_from is not None:
        field = "value" if wanted.value is not None else "valueFrom"
        problem = f"{field} belongs to a sandbox's hook; a plugin's input has valueFromSandbox or valueFromStep"
        raise SpecError(problem, (*keys, field))
    if wanted.value_from_sandbox == (wanted.value_from_step is not None):
        found = "both are" if wanted.value_from_sandbox else "neither is"
        raise SpecError(f"needs exactly one of valueFromSandbox and valueFromStep; {found} given", keys)
    if wanted.value_from_step is not None:
        param_rules.refuse(wanted, keys)
        check_step_output(wanted.value_from_step, (*keys, "valueFromStep"))
    else:
        param_rules.check_default(wanted, keys)
