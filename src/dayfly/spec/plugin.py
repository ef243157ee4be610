"""What a platform team writes: a plugin's runner and its steps, with every rule that one plugin alone can break.

Unknown references and cycles between steps are found by `compile`, where hooks and other resources are known too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError
from dayfly.spec.lifecycle import WireStruct
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
_STATE_VARIABLES = ("TF_WORKSPACE", "TF_DATA_DIR", "TF_STATE_PERSIST_INTERVAL")


class Runner(WireStruct, frozen=True, kw_only=True):
    """Where steps run on a cluster: image and namespace of their pods, and a partial pod template as YAML text.

    The embedded host needs none of it, so no field is required here; a cluster without an image says so.
    """

    image: str = ""
    namespace: str = ""
    pod_template_overlay: str = ""


class StepOutput(WireStruct, frozen=True, kw_only=True):
    """An output of another step of the same plugin, or of another hook of the same sandbox."""

    name: str
    output: str


class Injection(WireStruct, frozen=True, kw_only=True):
    """Where an input appears: an environment variable, a file with the value as its bytes, or both."""

    env: str = ""
    path: str = ""


class Input(WireStruct, frozen=True, kw_only=True):
    """One input of a step, with exactly one source.

    A plugin's step takes it from the sandbox's params or another step; a hook from a constant, another hook, a resource
    or a fork. Of a param one of its steps may say that it is required, what it is if it is not given, or that it is a
    secret, which no document holds; that holds for all steps that take it.
    """

    name: str
    type: str = ""
    value: str | None = None
    value_from_sandbox: bool = False
    required: bool = False
    default: str | None = None
    secret: bool = False
    value_from_step: StepOutput | None = None
    value_from: HookSource | None = None
    as_: Injection | None = msgspec.field(name="as", default=None)

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

    name: str
    value_from_path: str | None = None
    value_from_json_path: str | None = msgspec.field(name="valueFromJSONPath", default=None)
    value_from_header: str | None = None
    value_from_status: bool = False
    value_from_secret: FromSecret | None = None
    description: str = ""
    type: str = ""
    sensitive: bool = False


class Retry(WireStruct, frozen=True, kw_only=True):
    """Whether a step may start again after a failed attempt, how often, and how soon."""

    idempotent: bool | None = None
    limit: int | None = None
    backoff: str = ""


class Timeouts(WireStruct, frozen=True, kw_only=True):
    """Durations like `10s`, `5m`, `1h`: to be placed, to fetch the image, to run, and from asking to forcing."""

    schedule: str = ""
    pull: str = ""
    run: str = ""
    grace: str = ""


class Step(WireStruct, frozen=True, kw_only=True):
    """One script, command, webhook or Kubernetes object, with its inputs and outputs.

    A command is a program that its image has, and its arguments.
    """

    name: str
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    script: str | None = None
    command: tuple[str, ...] | None = None
    webhook: Webhook | None = None
    object: KubeObject | None = None
    retry: Retry | None = None
    timeouts: Timeouts | None = None


class PluginSpec(WireStruct, frozen=True, kw_only=True):
    """`create` runs before the sandbox's workloads start, `delete` after they have stopped.

    With `state` its scripts find a Terraform state of the resource's own, which outlives them. `census` scripts say
    what is there of a resource; `plugin test` alone runs them.
    """

    description: str = ""
    runner: Runner = Runner()
    state: bool = False
    create: tuple[Step, ...] = ()
    delete: tuple[Step, ...] = ()
    census: tuple[Step, ...] = ()

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
        check_step_names((steps, (*keys, workflow)) for workflow, steps in [*workflows, ("census", spec.census)])
    for index, step in enumerate(spec.census):
        with faults:
            _check_census(step, (*keys, "census", index))
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


def _check_census(step: Step, keys: Path) -> None:
    """A census is a script that only looks, by what a sandbox gives and by the resource's own identity."""
    check_step(step, keys, repeats=False)
    if step.script is None or step.outputs or step.retry or step.timeouts:
        raise SpecError(
            "must be a script with inputs and nothing else, which prints one line for each thing that exists", keys
        )
    for position, wanted in enumerate(step.inputs):
        here = (*keys, "inputs", position)
        _check_plugin_source(wanted, here)
        if wanted.value_from_step is not None or wanted.path:
            raise SpecError("a census reads params, in variables: write valueFromSandbox: true, and no path", here)


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
