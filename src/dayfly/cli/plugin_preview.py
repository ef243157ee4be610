"""`dayfly plugin plan` and `plugin diff`: the steps of a plugin, and its differences from the published version."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from dayfly import compile as compiler
from dayfly.cli.output import plan_lines, show
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec import documents
from dayfly.spec.sandbox import Resource, Sandbox, SandboxSpec
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.cli.backends.target_server import ServerClient
    from dayfly.spec.plugin import Plugin

_NAME = "example"
_GENERATED = "drawn-at-apply"
"""Shown instead of values that are generated when a sandbox is created."""


def print_plan(plugin: Plugin, given: Mapping[str, str], output: str | None) -> None:
    """Print the steps of a plugin in a sandbox that has only this plugin. Missing params are shown as `<NAME>`.

    Raises:
        DayflyError: a param is unknown.
    """
    rules = plugin.spec.params()
    if unknown := [name for name in given if name not in rules]:
        known = ", ".join(rules) or "it has none"
        raise DayflyError(Exit.USAGE, f"{plugin.wire_name} has no param {', '.join(unknown)}", f"its params: {known}")
    missing = {name: f"<{name}>" for name, rule in rules.items() if rule.default is None and not rule.secret}
    resource = Resource(name=plugin.name, plugin=plugin.wire_name, params={**missing, **given})
    sandbox = Sandbox(name=_NAME, spec=SandboxSpec(cluster="local", resources=(resource,)))
    known_plugins = {(plugin.name, plugin.version): plugin}
    preview = compiler.preview(
        compiler.compile(sandbox, known_plugins, uid="drawn-at-apply", routing_key="drawn-at-apply")
    )
    if output:
        show.emit({"plugin": plugin.wire_name, **msgspec.to_builtins(preview)}, output)
        return
    show.print_line(f'Resource plugin "{plugin.wire_name}"')
    _title, *lines = plan_lines.sandbox_lines(sandbox, preview)
    for line in lines:
        show.print_block(line)


def print_difference(client: ServerClient, plugin: Plugin) -> bool:
    """Print how a plugin differs from its published version, or from the highest if it is new; return whether it does.

    Raises:
        DayflyError: no version of the plugin is published.
    """
    stored = _published(client, plugin)
    published = documents.from_wire(stored, "ResourcePlugin")
    name = f'resource plugin "{stored["name"]}"'
    before, after = (show.yaml_lines(_content(each)) for each in (published, plugin))
    lines = list(difflib.unified_diff(before, after, f"published {stored['name']}", plugin.wire_name, lineterm=""))
    for line in lines:
        show.print_difference(line)
    if not lines:
        show.print_message(f"The file and {name} are the same.")
    return bool(lines)


def _content(plugin: Any) -> Any:
    """Return what a plugin does, without its name and README."""
    return documents.export(plugin)["spec"]


def _published(client: ServerClient, plugin: Plugin) -> Any:
    for version in (plugin.version, semver.LATEST):
        try:
            return client.get("resource-plugins", plugin.name, version=version)
        except DayflyError as fault:
            if fault.code != Exit.NOT_FOUND:
                raise
    message = f'no version of the resource plugin "{plugin.name}" is published'
    raise DayflyError(Exit.NOT_FOUND, message, "publish it with: dayfly plugin apply -f FILE")
