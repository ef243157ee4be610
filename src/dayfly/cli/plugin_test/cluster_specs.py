"""The specs of `plugin test` in a cluster: a sandbox for each scenario, and one for each run of the inventory."""

from __future__ import annotations

import itertools
import secrets
import string
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.cli.backends.target_server import CLUSTER
from dayfly.client import temporary
from dayfly.compile.compiler import step_environment
from dayfly.spec import documents
from dayfly.spec.identity import resource_id
from dayfly.spec.lifecycle import API_VERSION
from dayfly.spec.plugin import Plugin, PluginSpec, Step
from dayfly.testing.fault_scripts import inventory_script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.testing import Scenario

LABEL = "dayfly-plugin-test"
VERSION = "0.0.0-test-"
# The test that published an older version has ended or was killed.
MAX_VERSION_AGE_S = 86_400
_ID_LENGTH = 8


class PluginSpecs(NamedTuple):
    """A sandbox, and a version of the plugin to publish before, unless the plugin is inline."""

    sandbox: dict[str, Any]
    plugin: dict[str, Any] | None


class SpecBuilder:
    """Builds the specs of one test.

    Attributes:
        publish: Whether the plugin is published for each scenario: under its own name, which has its grants, in a
            version that sorts below all others.
        resource: The name of the resource.
    """

    def __init__(self, plugin: Plugin, *, publish: bool) -> None:
        self.publish = publish
        self.resource = temporary.resource_name(plugin)
        self._plugin = plugin
        self._id = "".join(secrets.choice(string.ascii_lowercase) for _ in range(_ID_LENGTH))
        self._numbers = itertools.count(1)  # threads can share it

    def build(self, scenario: Scenario, minutes: int) -> PluginSpecs:
        """Return a sandbox with the plugin of a scenario."""
        return self._specs(scenario.spec, scenario.params, minutes)

    def build_inventory(self, scenario: Scenario, name: str, uid: str, key: str, minutes: int) -> PluginSpecs:
        """Return a second sandbox whose steps are the inventory of a scenario's sandbox."""
        variables = {
            **step_environment(name, key, "", self.resource),
            "DAYFLY_RESOURCE_ID": resource_id(uid, self.resource),
        }
        variables = {name: value for name, value in variables.items() if value}
        rules = self._plugin.spec.params()
        given = {name: rule.default for name, rule in rules.items() if rule.default is not None} | {**scenario.params}
        steps = tuple(_inventory_step(step, given, variables) for step in self._plugin.spec.inventory)
        spec = PluginSpec(runner=self._plugin.spec.runner, create=steps)
        taken = {wanted.name for step in steps for wanted in step.inputs}
        return self._specs(spec, {name: value for name, value in given.items() if name in taken}, minutes)

    def find_command(self, flags: str) -> str:
        """Return the advice how to find what was created."""
        kinds = "sandboxes.dayfly.dev,resourceplugins" if self.publish else "sandboxes.dayfly.dev"
        return f"see: kubectl{flags} get {kinds} -l {LABEL}={self._id}"

    def _specs(self, spec: PluginSpec, params: Mapping[str, str], minutes: int) -> PluginSpecs:
        labels = {LABEL: self._id}
        made = msgspec.structs.replace(self._plugin, spec=spec, version=f"{VERSION}{self._id}.{next(self._numbers)}")
        body = documents.export(made)["spec"]
        version = None
        resource: dict[str, Any] = {"name": self.resource, "params": dict(params)}
        if self.publish:
            resource["plugin"] = made.wire_name
            version = {
                "apiVersion": API_VERSION,
                "kind": "ResourcePlugin",
                "metadata": {"name": documents.object_name(made), "labels": labels},
                "spec": {"name": made.wire_name, **body},
            }
        else:
            resource["spec"] = body
        sandbox = {
            "apiVersion": API_VERSION,
            "kind": "Sandbox",
            "metadata": {"name": temporary.unique_name("test", self._plugin.name), "labels": labels},
            "spec": {
                "cluster": CLUSTER,
                "description": f"dayfly plugin test of {self._plugin.wire_name}",
                "ttl": {"duration": f"{minutes}m"},
                "resources": [resource],
            },
        }
        return PluginSpecs(sandbox, version)


def _inventory_step(step: Step, given: Mapping[str, str], variables: Mapping[str, str]) -> Step:
    """Return a step of the inventory as a create step with the same output."""
    inputs = tuple(
        msgspec.structs.replace(wanted, required=False, default=None, test="")
        for wanted in step.inputs
        if wanted.name in given
    )
    return msgspec.structs.replace(step, inputs=inputs, script=inventory_script(step.script or "", variables.items()))
