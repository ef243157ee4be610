"""What `plugin test` wishes for on a cluster: a sandbox for each life, and one for each look of the inventory."""

from __future__ import annotations

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
from dayfly.testing.fault_scripts import listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.testing import Life

LABEL = "dayfly-plugin-test"
VERSION = "0.0.0-test-"
# By then the test that has made it is over, or was killed.
OLD_S = 86_400
_CHANCE = 8


class PluginSpecs(NamedTuple):
    """What is made: a sandbox, and before it a version of the plugin if that does not stand within the sandbox."""

    sandbox: dict[str, Any]
    plugin: dict[str, Any] | None


class Wishes:
    """Those of one test.

    Attributes:
        publish: Whether the plugin is published for each: under its own name, so with what was granted to it, in a
            version that comes before all others.
        resource: What the resource is called.
    """

    def __init__(self, plugin: Plugin, *, publish: bool) -> None:
        self.publish = publish
        self.resource = temporary.resource_name(plugin)
        self._plugin = plugin
        self._id = "".join(secrets.choice(string.ascii_lowercase) for _ in range(_CHANCE))
        self._number = 0

    def of_life(self, life: Life, minutes: int) -> PluginSpecs:
        """A sandbox with the plugin as it is in a life."""
        return self._wish(life.spec, life.params, minutes)

    def of_inventory(self, life: Life, name: str, uid: str, key: str, minutes: int) -> PluginSpecs:
        """A sandbox beside a life's, whose steps are the inventory, and are told of that one."""
        told = {
            **step_environment(name, key, "", self.resource),
            "DAYFLY_RESOURCE_ID": resource_id(uid, self.resource),
        }
        told = {name: value for name, value in told.items() if value}
        rules = self._plugin.spec.params()
        given = {name: rule.default for name, rule in rules.items() if rule.default is not None} | {**life.params}
        steps = tuple(_looking(step, given, told) for step in self._plugin.spec.inventory)
        spec = PluginSpec(runner=self._plugin.spec.runner, create=steps)
        taken = {wanted.name for step in steps for wanted in step.inputs}
        return self._wish(spec, {name: value for name, value in given.items() if name in taken}, minutes)

    def see(self, flags: str) -> str:
        """How to find what was made."""
        kinds = "sandboxes.dayfly.dev,resourceplugins" if self.publish else "sandboxes.dayfly.dev"
        return f"see: kubectl{flags} get {kinds} -l {LABEL}={self._id}"

    def _wish(self, spec: PluginSpec, params: Mapping[str, str], minutes: int) -> PluginSpecs:
        self._number += 1
        labels = {LABEL: self._id}
        made = msgspec.structs.replace(self._plugin, spec=spec, version=f"{VERSION}{self._id}.{self._number}")
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


def _looking(step: Step, given: Mapping[str, str], told: Mapping[str, str]) -> Step:
    """A step of the inventory, as a create step that prints the same."""
    inputs = tuple(
        msgspec.structs.replace(wanted, required=False, default=None) for wanted in step.inputs if wanted.name in given
    )
    return msgspec.structs.replace(step, inputs=inputs, script=listing(step.script or "", told.items()))
