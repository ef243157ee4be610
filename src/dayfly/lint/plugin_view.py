"""A plugin as input for rules: each step with its script, and the sources of its variables and files."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Any

import yaml

from dayfly.lint import shell
from dayfly.lint.shell import Script, Statement
from dayfly.spec import shared_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.spec.errors import Path
    from dayfly.spec.plugin import Input, Output, PluginSpec, Step

IDENTITY, SANDBOX, PARAM, OUTPUT = "identity", "sandbox", "param", "output"
# Variables of a step that are unique to its resource, or to its sandbox.
BUILT_IN = {
    "DAYFLY_RESOURCE_ID": IDENTITY,
    "DAYFLY_ATTEMPT_NONCE": IDENTITY,
    "DAYFLY_SANDBOX_ROUTING_KEY": IDENTITY,
    "SIGNADOT_SANDBOX_ROUTING_KEY": IDENTITY,
    "SIGNADOT_SANDBOX_ID": IDENTITY,
    "DAYFLY_SANDBOX_NAME": SANDBOX,
    "SIGNADOT_SANDBOX_NAME": SANDBOX,
}
_MAX_STATEMENTS, _MAX_STATEMENT_LENGTH = 2_000, 8 * 1024
"""Limits of statements, and of characters in one. Longer text is data, and some rules visit each word repeatedly."""
_SECRET = re.compile(r"(^|[-_])(password|passwd|passphrase|token|dsn|credentials?|apikey|connection[-_]string)$")
_KEY = re.compile(r"(^|[-_])(api|secret|private|encryption|signing)[-_]?(access[-_])?key$")


def names_a_secret(name: str) -> bool:
    """Return whether a name indicates a secret. `secret` as the whole name is as often the name of a Secret."""
    return bool(_SECRET.search(name.lower()) or _KEY.search(name.lower()))


def is_secret(output: Output) -> bool:
    """Return whether an output is a secret, marked or not. A missing mark is a separate finding and hides no other."""
    return output.sensitive or (names_a_secret(output.name) and not output.value_from_status)


class StepView:
    """One step, with its path. The shared inputs of the plugin follow its own."""

    def __init__(self, plugin: PluginView, step: Step, keys: Path, own: int) -> None:
        self.plugin = plugin
        self.step = step
        self.keys = keys
        self.own_inputs = step.inputs[:own]

    @property
    def deletes(self) -> bool:
        return "delete" in self.keys[-2:]

    @property
    def script_keys(self) -> Path:
        return (*self.keys, "script")

    @functools.cached_property
    def script(self) -> Script:
        """The script of the step; an empty one without an interpreter for other kinds of steps."""
        return shell.read(self.step.script or "")

    @functools.cached_property
    def statements(self) -> list[Statement]:
        """The statements of the step's shell script, if it has one."""
        found = itertools.islice(self.script.statements, _MAX_STATEMENTS) if self.script.is_shell else ()
        return [each for each in found if len(each.text) <= _MAX_STATEMENT_LENGTH]

    @functools.cached_property
    def variable_sources(self) -> dict[str, frozenset[str]]:
        """The sources of each variable of the step's shell script."""
        known = {**BUILT_IN}
        for item in self.step.inputs:
            known[item.env] = OUTPUT if item.value_from_step or item.value_from_parent else PARAM
        return shell.value_sources(self.statements, known)

    @functools.cached_property
    def secret_variables(self) -> frozenset[str]:
        """The variables with secrets, as far as that can be determined."""
        found = {item.env for item in self.step.inputs if item.env and self.plugin.is_sensitive(item)}
        found |= self.plugin.secret_environment
        for output in self.step.outputs:
            if is_secret(output) and output.value_from_path:
                found |= self._written_to(output.value_from_path)
        found |= {
            name
            for statement in self.statements
            for name in shell.expanded_variables(statement.text)
            if names_a_secret(name)
        }
        return frozenset(found - BUILT_IN.keys())

    @functools.cached_property
    def secret_files(self) -> frozenset[str]:
        """The files with secrets, of inputs and outputs."""
        read = {item.path for item in self.step.inputs if item.path and self.plugin.is_sensitive(item)}
        return frozenset(read | {o.value_from_path for o in self.step.outputs if is_secret(o) and o.value_from_path})

    def writes(self, path: str) -> Iterator[Statement]:
        """Return the statements whose output is written to a file."""
        wanted = re.compile(rf">>?\s*[\"']?{re.escape(path)}(?![\w./-])")
        return (each for each in self.statements if wanted.search(each.text))

    def _written_to(self, path: str) -> set[str]:
        """Return the variable that is the whole content written to a file; other content may not be secret."""
        written = [shell.expanded_variables(each.text) for each in self.writes(path)]
        return set().union(*(names for names in written if len(names) == 1))


class PluginView:
    """A plugin with its steps, and its spec as written. `has_all_steps` is false if a list of steps may be misspelt."""

    def __init__(self, spec: PluginSpec, keys: Path = ("spec",), *, has_all_steps: bool = True) -> None:
        self.written = spec
        self.spec = spec = shared_inputs.expand(spec)
        self.keys = keys
        self.has_all_steps = has_all_steps
        self.create = self._views("create")
        self.delete = self._views("delete")
        self._secrets = spec.secrets()
        self._outputs = {(step.name, out.name): out for step in (*spec.create, *spec.delete) for out in step.outputs}

    def _views(self, workflow: str) -> list[StepView]:
        pairs = zip(getattr(self.spec, workflow), getattr(self.written, workflow), strict=True)
        return [
            StepView(self, step, (*self.keys, workflow, at), len(written.inputs))
            for at, (step, written) in enumerate(pairs)
        ]

    @property
    def steps(self) -> list[StepView]:
        return [*self.create, *self.delete]

    def producer(self, item: Input) -> Output | None:
        """Return the output that an input reads from another step, if it exists."""
        wanted = item.value_from_step
        return self._outputs.get((wanted.name, wanted.output)) if wanted else None

    def is_created(self, item: Input) -> bool:
        """Return whether an input is the output of a create step, which may never have been written."""
        return item.value_from_step is not None and item.value_from_step.name in {s.name for s in self.spec.create}

    def is_sensitive(self, item: Input) -> bool:
        """Return whether an input has a secret value."""
        if item.value_from_sandbox and item.name in self._secrets:
            return True
        output = self.producer(item)
        return output is not None and (is_secret(output) or output.value_from_secret is not None)

    @functools.cached_property
    def secret_environment(self) -> frozenset[str]:
        """Return the variables that the pod template reads from Secrets and whose names indicate secrets."""
        try:
            overlay: Any = yaml.safe_load(self.spec.runner.pod_template_overlay)
            containers = overlay["spec"]["containers"]
            found = [env for container in containers for env in container.get("env") or ()]
            taken = {env["name"] for env in found if "secretKeyRef" in (env.get("valueFrom") or {})}
        except (yaml.YAMLError, LookupError, TypeError, AttributeError):
            return frozenset()
        return frozenset(name for name in taken if isinstance(name, str) and names_a_secret(name))
