"""ResourcePlugins: a plugin's runner and steps, with every rule that needs no other document.

`compile` finds unknown references and cycles between steps, because hooks and other resources are known there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from dayfly.spec import shared_inputs
from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import MAX_VALUES, NAME_PATTERN, dns_label, doc, file_path, identifier, list_of, or_empty
from dayfly.spec.scalars import kube_names, names, semver
from dayfly.spec.scalars.duration import milliseconds
from dayfly.spec.shared_parent import Parent, ParentOutput, check_output, check_parent
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
# The maximum number of steps in a list. With other limits it keeps CEL rules within the API server's cost budget.
MAX_STEPS = 32
_PLUGIN_SOURCES = "valueFromSandbox, valueFromStep and valueFromParent"
AT_POOL, AT_CLAIM = "pool", "claim"
"""The values of `at`: in which run a step of a pooled resource runs, the member's or the sandbox's."""
_STATE_VARIABLES = ("TF_WORKSPACE", "TF_DATA_DIR", "TF_STATE_PERSIST_INTERVAL")


class Runner(WireStruct, frozen=True, kw_only=True):
    """The image and namespace of a plugin's pods in a cluster, and a partial pod template as YAML text.

    The embedded host needs none of these fields, so none is required. A cluster reports a missing image.
    """

    image: Annotated[str, doc("Image of the steps.")] = ""
    namespace: Annotated[str, or_empty(dns_label("Namespace of the steps' pods; empty means dayfly-runners."))] = ""
    pod_template_overlay: Annotated[
        str, doc("Partial pod template as YAML text, merged into each step's pod.", 65_536)
    ] = ""


class StepOutput(WireStruct, frozen=True, kw_only=True):
    """An output of another step of the same plugin, or of another hook of the same sandbox."""

    name: Annotated[str, identifier("step", "Name of the other step.")]
    output: Annotated[str, identifier("output", "Name of the output.")]


class Injection(WireStruct, frozen=True, kw_only=True):
    """The place of an input: an environment variable, a file with the value, or both."""

    env: Annotated[str, doc("Environment variable with the value.", 253, pattern="^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""
    path: Annotated[str, or_empty(file_path("File with the value."))] = ""


class Input(WireStruct, frozen=True, kw_only=True):
    """One input of a step, with exactly one source.

    A plugin's step reads it from the sandbox's params, from another step or from the plugin's parent. A hook reads it
    from a constant, another hook, a resource or a fork. A step may state for a param that it is required, its default,
    that it is a secret, which is in no document, or that tests keep its value. That applies to all steps that read it.
    """

    name: Annotated[
        str,
        identifier(
            "input", "Name of the input, unique in its step; with valueFromSandbox it is the name of the param."
        ),
    ]
    type: Annotated[str, doc("Type of the value, for readers only.", 64)] = ""
    value: Annotated[str | None, doc("A constant; only in a sandbox's hooks.", 131_072)] = None
    value_from_sandbox: Annotated[bool, doc("Whether the value is the sandbox's param with the input's name.")] = False
    required: Annotated[bool, doc("Whether the sandbox must set the param, for all steps that read it.")] = False
    default: Annotated[str | None, doc("Default of the param, for all steps that read it.", 65_536)] = None
    secret: Annotated[
        bool,
        doc(
            "Whether the param is a secret: required, in no document, masked in logs; for all steps that "
            "read it. It is set with --secrets-file, or is another resource's output."
        ),
    ] = False
    test: Annotated[
        str,
        doc(
            "fixed: dayfly plugin test never replaces the param by another value, for all steps that read it. For the "
            "address of a server, or the name of an account.",
            enum=["", param_rules.FIXED],
        ),
    ] = ""
    value_from_step: Annotated[StepOutput | None, doc("An output of another step.")] = None
    value_from_parent: Annotated[
        ParentOutput | None, doc("An output of the plugin's parent; only in a plugin with spec.parent.")
    ] = None
    value_from: Annotated[
        HookSource | None, doc("An output of a resource or a field of a fork; only in a sandbox's hooks.")
    ] = None
    as_: Annotated[
        Injection | None, doc("The place of the value. By default it is a variable with the input's name in capitals.")
    ] = msgspec.field(name="as", default=None)

    @property
    def env(self) -> str:
        """Return the variable with the value: the given one, or the name in capitals if no place is given."""
        if self.as_ is None or not (self.as_.env or self.as_.path):
            return self.name.upper().replace("-", "_")
        return self.as_.env

    @property
    def path(self) -> str:
        """Return the file with the value, if there is one."""
        return self.as_.path if self.as_ else ""


class SharedInput(Input, frozen=True, kw_only=True):
    """An input that a plugin gives once for several of its steps. A step may have its own input of that name.

    All create, delete and inventory steps get it, or those in `steps`. A step does not get its own output, a webhook or
    object places the value itself, without `as`, and the removal of an object gets none.
    """

    steps: Annotated[
        tuple[str, ...],
        list_of(
            "Names of the steps that get it. By default all of them.",
            3 * MAX_STEPS,
            items={"maxLength": names.LIMITS["step"], "pattern": NAME_PATTERN},
        ),
    ] = ()

    def for_step(self, *, with_place: bool) -> Input:
        """Return the input of a step, with the place of its value or without it."""
        fields = {field: getattr(self, field) for field in Input.__struct_fields__}
        return Input(**fields if with_place else fields | {"as_": None})


class Output(WireStruct, frozen=True, kw_only=True):
    """One output of a step: for a script the content of a file after its end, for a webhook a part of its response.

    For an object it is a field of the object, or a key of a Secret beside it. A sensitive value is never displayed. A
    value from a Secret is always sensitive.
    """

    name: Annotated[str, identifier("output", "Name of the output, unique in its step.")]
    value_from_path: Annotated[
        str | None, file_path("For a script: the file with the value, read when the script has ended.")
    ] = None
    value_from_json_path: Annotated[
        str | None,
        doc(
            "A JSONPath (RFC 9535) of the value in the response of a webhook, or in the object.",
            1024,
            pattern=r"^\$",
        ),
    ] = msgspec.field(name="valueFromJSONPath", default=None)
    value_from_header: Annotated[
        str | None,
        doc("For a webhook: the response header with the value.", 128, minLength=1, pattern=f"^{webhook.HEADER}$"),
    ] = None
    value_from_status: Annotated[bool, doc("For a webhook: the value is the response's status code.")] = False
    value_from_secret: Annotated[
        FromSecret | None, doc("For an object: a key of a Secret in its namespace. Always sensitive.")
    ] = None
    description: Annotated[str, doc("Description for readers.", 4096)] = ""
    type: Annotated[str, doc("Type of the value, for readers only.", 64)] = ""
    sensitive: Annotated[bool, doc("Whether the value is never displayed and stored only in Secrets.")] = False


class Retry(WireStruct, frozen=True, kw_only=True):
    """Retries after failed attempts: whether, how many, and the back-off."""

    idempotent: Annotated[
        bool | None, doc("Whether the step may run again after a failure. Create steps: false, delete steps: true.")
    ] = None
    limit: Annotated[
        int | None,
        doc(
            "Maximum number of attempts of a create step. By default 1, or 3 if it is idempotent.",
            minimum=1,
            maximum=1_000_000,
        ),
    ] = None
    backoff: Annotated[
        str,
        doc(
            "Back-off before the second attempt, like 5s (the default); it doubles with each attempt, up to 10m.",
            16,
            pattern="^([0-9]+[smh])?$",
        ),
    ] = ""


def _duration(about: str, usual: str) -> msgspec.Meta:
    return doc(f"{about}, like 10s, 5m or 1h. Default: {usual}.", 16, pattern="^([0-9]{1,9}[smh])?$")


class Timeouts(WireStruct, frozen=True, kw_only=True):
    """The limits of an attempt, like `10s`, `5m`, `1h`: to be scheduled, to pull its image, to run, and the grace
    period.
    """

    schedule: Annotated[str, _duration("Maximum time until it is scheduled to a node", "10m")] = ""
    pull: Annotated[str, _duration("Maximum time to pull the image", "10m")] = ""
    run: Annotated[str, _duration("Maximum time to run", "1h")] = ""
    grace: Annotated[str, _duration("Grace period between SIGTERM and SIGKILL", "10s")] = ""


INPUTS = list_of("Input values.", MAX_VALUES, key="name")


class Step(WireStruct, frozen=True, kw_only=True):
    """One script, command, webhook or Kubernetes object, with its inputs and outputs.

    A command is a program of the image with its arguments.
    """

    name: Annotated[str, identifier("step", "Name of the step, unique in its document.")]
    inputs: Annotated[tuple[Input, ...], INPUTS] = ()
    outputs: Annotated[tuple[Output, ...], list_of("Output values.", MAX_VALUES, key="name")] = ()
    script: Annotated[
        str | None, doc("Program text that begins with #!; at most 128 KiB.", MAX_SCRIPT_BYTES, minLength=1)
    ] = None
    command: Annotated[
        tuple[str, ...] | None,
        list_of(
            "A program of the image with its arguments, instead of a script.",
            command.MAX_WORDS,
            minItems=1,
            items={"maxLength": command.MAX_WORD_BYTES},
        ),
    ] = None
    webhook: Annotated[Webhook | None, doc("A request to a server, instead of a script.")] = None
    object: Annotated[KubeObject | None, doc("A Kubernetes object, instead of a script.")] = None
    retry: Annotated[Retry | None, doc("Retries after failures.")] = None
    timeouts: Annotated[Timeouts | None, doc("The time limits of an attempt.")] = None
    at: Annotated[
        str,
        doc(
            "When a step of a plugin runs if a pool has the resource. pool: before a sandbox needs it, although the "
            "step mentions a variable of the sandbox. claim: for the sandbox that uses it; a delete step then undoes "
            "only steps that ran for the sandbox. By default its inputs and variables determine it.",
            enum=["", AT_POOL, AT_CLAIM],
        ),
    ] = ""


class PluginSpec(WireStruct, frozen=True, kw_only=True):
    """The steps of a plugin: `create` runs before the sandbox's workloads start, `delete` after they have stopped.

    With `state` its scripts share a Terraform state, which Dayfly stores for the resource. `inventory` scripts list
    what exists, of one resource or of all.
    """

    description: Annotated[str, doc("Description for readers.", 4096)] = ""
    runner: Annotated[Runner, doc("Image and namespace of the steps.")] = Runner()
    state: Annotated[
        bool,
        doc("Keep a Terraform state for its programs, from create to delete (TF_HTTP_ADDRESS and related variables)."),
    ] = False
    parent: Annotated[
        Parent | None, doc("A resource that all resources of this plugin share, like the server of a database.")
    ] = None
    inputs: Annotated[
        tuple[SharedInput, ...],
        list_of(
            "Inputs of all steps, or of the steps that an input lists. Each step has them in addition to its own.",
            MAX_VALUES,
            key="name",
        ),
    ] = ()
    create: Annotated[
        tuple[Step, ...],
        list_of("Steps that create the resource, each as soon as its inputs exist.", MAX_STEPS, "name"),
    ] = ()
    delete: Annotated[
        tuple[Step, ...],
        list_of("Steps that remove the resource. They are retried until they succeed.", MAX_STEPS, "name"),
    ] = ()
    inventory: Annotated[
        tuple[Step, ...],
        list_of(
            "Scripts that only read. They print a JSON line for each item of the resource DAYFLY_RESOURCE_ID, or of "
            "all resources if that is empty.",
            MAX_STEPS,
            "name",
        ),
    ] = ()

    def params(self) -> dict[str, ParamRule]:
        """Return the rules for its params, in the order of the first step that reads each, then those of its parent."""
        found: dict[str, ParamRule] = {}
        for step in (*self.create, *self.delete, *self.inventory):
            for wanted in step.inputs:
                if wanted.value_from_sandbox:
                    rule = found.setdefault(wanted.name, ParamRule(step.name))
                    default = wanted.default if rule.default is None else rule.default
                    required, secret = wanted.required or rule.required, wanted.secret or rule.secret
                    fixed = rule.fixed or wanted.test == param_rules.FIXED
                    found[wanted.name] = ParamRule(rule.step, required, default, secret, fixed)
        for name in self.parent.read_params() if self.parent is not None else ():
            found.setdefault(name, ParamRule("parent"))
        return found

    def secrets(self) -> frozenset[str]:
        """Return the params whose values are in no document."""
        return frozenset(name for name, rule in self.params().items() if rule.secret)


class ParamRule(NamedTuple):
    """The rules for a param: the first step that reads it, whether it is required, and its default.

    A secret param is always required and is in no document. `dayfly plugin test` keeps the value of a fixed one.
    """

    step: str
    required: bool = False
    default: str | None = None
    secret: bool = False
    fixed: bool = False


class Plugin(WireStruct, frozen=True, kw_only=True):
    """One version of a plugin: its name without version, its version and its steps. Once published, only the README
    changes.
    """

    name: str
    version: str = semver.UNVERSIONED
    spec: PluginSpec
    readme: str | None = None

    @property
    def wire_name(self) -> str:
        """`name` for version 0.0.0, otherwise `name@x.y.z`."""
        return semver.join_name(self.name, self.version)


def check_plugin(plugin: Plugin) -> None:
    """Check a plugin by every rule that needs no other document.

    Raises:
        SpecError: The first fault, with a path from the document's root.
    """
    check_plugin_spec(plugin.spec, ("spec",))


def check_plugin_spec(spec: PluginSpec, keys: Path) -> None:
    """Check a plugin's `spec`, which may also be inside a sandbox. `keys` is the path to it.

    Faults in copies of shared inputs have the paths of the copies.
    """
    _check_shared_inputs(spec, keys)
    spec = shared_inputs.expand(spec)
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
                check_step(step, here, repeats=workflow == "delete", pooled=True)
            for position, wanted in enumerate(step.inputs):
                with faults:
                    _check_plugin_source(wanted, spec.parent, (*here, "inputs", position))
    if spec.parent is not None:
        with faults:
            check_parent(spec.parent, (*keys, "parent"))
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


def _check_shared_inputs(spec: PluginSpec, keys: Path) -> None:
    """Check the shared inputs by every rule that no step is needed for, so that a fault is reported only once."""
    faults = Faults()
    with faults:
        shared_inputs.check(spec, keys)
    for index, wanted in enumerate(spec.inputs):
        with faults:
            _check_plugin_source(wanted, spec.parent, (*keys, "inputs", index))
    with faults:
        injections.check_variables(spec.inputs, (*keys, "inputs"))
    faults.settle()


def _check_inventory(step: Step, keys: Path) -> None:
    """Check an inventory script. It only reads, and gets only the sandbox's params and the resource's identity."""
    check_step(step, keys, repeats=False)
    if step.script is None or step.outputs or step.retry or step.timeouts:
        raise SpecError(
            "must be a script with inputs and nothing else, which prints a JSON line for each item that exists", keys
        )
    for position, wanted in enumerate(step.inputs):
        here = (*keys, "inputs", position)
        _check_plugin_source(wanted, None, here)
        if wanted.value_from_step is not None or wanted.path:
            raise SpecError("an inventory reads params, in variables: write valueFromSandbox: true, and no path", here)


def _check_state(workflows: Iterable[tuple[str, tuple[Step, ...]]], keys: Path) -> None:
    """Check that programs write the state and that another program destroys its contents."""
    for workflow, steps in workflows:
        if all(step.script is None and step.command is None for step in steps):
            problem = f"is for programs that create and destroy resources; no {workflow} step has a script or command"
            raise SpecError(problem, keys)
        for index, step in enumerate(steps):
            for position, wanted in enumerate(step.inputs):
                if step.webhook is None and (wanted.env.startswith("TF_HTTP_") or wanted.env in _STATE_VARIABLES):
                    problem = f"{wanted.env} configures the state, and Dayfly sets it; remove the input"
                    raise SpecError(problem, (*keys[:-1], workflow, index, "inputs", position))


def check_runner(runner: Runner, keys: Path) -> None:
    """Check the runner's namespace and pod template, which must not contradict each other or the image."""
    if runner.namespace:
        kube_names.check_namespace(runner.namespace, (*keys, "namespace"))
    overlay = runner.pod_template_overlay
    check_overlay(overlay, (*keys, "podTemplateOverlay"), image=runner.image, namespace=runner.namespace)


def check_step_output(reference: StepOutput, keys: Path) -> None:
    """Check that the names in a reference to another step are valid names."""
    names.check("step", reference.name, (*keys, "name"))
    names.check("output", reference.output, (*keys, "output"))


def check_step_names(workflows: Iterable[tuple[tuple[Step, ...], Path]]) -> None:
    """Check that step names are unique over all workflows of one document. Each workflow comes with its path."""
    found = [(step.name, (*keys, index, "name")) for steps, keys in workflows for index, step in enumerate(steps)]
    names.check_unique("the step name", found)


def check_step(
    step: Step,
    keys: Path,
    *,
    repeats: bool,
    variables: tuple[str, ...] = webhook.BUILT_IN_VARIABLES,
    pooled: bool = False,
) -> None:
    """Check one step by the rules that do not concern the sources of its inputs.

    Args:
        step: The step.
        keys: The path to it.
        repeats: Whether its event is retried until it succeeds (`delete`, `postStop`).
        variables: The variables of its environment that a webhook may use.
        pooled: Whether it is a create or delete step of a plugin, which a pool may run.
    """
    faults = Faults()
    with faults:
        _check_at(step.at, (*keys, "at"), pooled=pooled)
    with faults:
        names.check("step", step.name, (*keys, "name"))
    with faults:
        _check_work(step, keys, repeats=repeats, variables=variables)
    named = Faults()  # conflicts are checked only for valid names
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
            injections.refuse_injections(step.inputs, (*keys, "inputs"), "an object" if step.object else "a webhook")
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
            problem = "a request that was sent cannot be cancelled: it continues until timeouts.run; leave grace out"
            raise SpecError(problem, (*keys, "timeouts", "grace"))
    for field in _CLOCKS:
        with faults:
            if duration := getattr(timeouts, field):
                milliseconds(duration, (*keys, "timeouts", field))
    faults.settle()


def _check_at(at: str, keys: Path, *, pooled: bool) -> None:
    if at and not pooled:
        raise SpecError("is for create and delete steps of a plugin, which a pool may run; leave it out", keys)
    if at not in ("", AT_POOL, AT_CLAIM):
        raise SpecError(f"{quote(at)} is not known here; write one of {AT_POOL}, {AT_CLAIM}", keys)


def _check_work(step: Step, keys: Path, *, repeats: bool, variables: tuple[str, ...]) -> None:
    """Check that a step does exactly one thing."""
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
            problem = (
                f"a step that removes an object always has the output {kube_object.GONE} and no other; leave "
                "outputs out"
            )
            raise SpecError(problem, (*keys, "outputs"))


def _work_of(step: Step) -> Literal["script", "command", "webhook", "object"]:
    """Return the kind of the step's work; a script if it has none."""
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
        raise SpecError(f"{retry.limit} is not a limit: write the maximum number of attempts, 1 or more", here)
    if retry.limit > 1 and not retry.idempotent:
        raise SpecError("only an idempotent step can be retried; add idempotent: true", here)


def _check_plugin_source(wanted: Input, parent: Parent | None, keys: Path) -> None:
    if wanted.value is not None or wanted.value_from is not None:
        field = "value" if wanted.value is not None else "valueFrom"
        problem = f"{field} belongs to a sandbox's hook; a plugin's input has {_PLUGIN_SOURCES}"
        raise SpecError(problem, (*keys, field))
    given = [
        field
        for field, is_given in (
            ("valueFromSandbox", wanted.value_from_sandbox),
            ("valueFromStep", wanted.value_from_step is not None),
            ("valueFromParent", wanted.value_from_parent is not None),
        )
        if is_given
    ]
    if len(given) != 1:
        found = f"{' and '.join(given)} are" if given else "none is"
        raise SpecError(f"needs exactly one of {_PLUGIN_SOURCES}; {found} given", keys)
    if wanted.value_from_sandbox:
        param_rules.check_values(wanted, keys)
        return
    param_rules.refuse_rules(wanted, keys)
    if wanted.value_from_step is not None:
        check_step_output(wanted.value_from_step, (*keys, "valueFromStep"))
    elif wanted.value_from_parent is not None:
        check_output(wanted.value_from_parent, parent, (*keys, "valueFromParent"))
