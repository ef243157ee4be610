"""Sandboxes that live as long as a command or a test, from files, under a unique name and without publishing plugins.

Plugins in the files are embedded in the sandbox, so their authors need not raise the version at each change.
"""

from __future__ import annotations

import secrets
import string
from typing import TYPE_CHECKING, Any

from dayfly.client.errors import DayflyError, Exit
from dayfly.compile.references import suggest
from dayfly.spec import documents
from dayfly.spec.plugin import Plugin
from dayfly.spec.sandbox import Sandbox
from dayfly.spec.scalars import names, semver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dayfly.client.files import LoadedDocument

CLUSTER = "local"
_RANDOM_CHARS = 6


def unique_name(first: str, of: str) -> str:
    """Return a unique name: `FIRST-OF-` and six random characters."""
    chance = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_RANDOM_CHARS))
    room = names.LIMITS["sandbox"] - len(first) - len("--") - _RANDOM_CHARS
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in of)[:room].strip("-")
    return "-".join(part for part in (first, plain, chance) if part)


def sandbox_of_plugins(
    plugins: Sequence[Plugin], params: Mapping[str, Mapping[str, str]], description: str
) -> dict[str, Any]:
    """Return the body of a sandbox with one resource for each plugin; `params` are by plugin name.

    Raises:
        DayflyError: two plugins would get the same resource name.
    """
    resources: list[dict[str, Any]] = []
    for plugin in plugins:
        short = resource_name(plugin)
        if any(each["name"] == short for each in resources):
            advice = "write a sandbox file, in which each resource has its own name"
            raise DayflyError(Exit.USAGE, f'two plugins would both be the resource "{short}"', advice)
        spec = documents.export(plugin)["spec"]
        resources.append({"name": short, "spec": spec, "params": dict(params.get(plugin.name, {}))})
    return {"spec": {"cluster": CLUSTER, "description": description, "forks": [], "resources": resources}}


def resource_name(plugin: Plugin) -> str:
    """Return the name of the resource for a plugin."""
    return plugin.name[: names.LIMITS["resource"]].rstrip("-")


def sandbox_with_plugins(found: Sequence[LoadedDocument]) -> dict[str, Any]:
    """Return the body of the only sandbox among the documents, with their plugins embedded.

    Raises:
        DayflyError: there is not exactly one sandbox.
    """
    sandboxes = [each.content for each in found if isinstance(each.content, Sandbox)]
    if len(sandboxes) != 1:
        files = ", ".join(dict.fromkeys(each.document.file for each in found))
        raise DayflyError(Exit.USAGE, f"{files}: there are {len(sandboxes)} sandboxes", "give exactly one")
    body = documents.export(sandboxes[0])
    plugins = {
        (each.content.name, each.content.version): each.content for each in found if isinstance(each.content, Plugin)
    }
    for resource in body["spec"]["resources"]:
        if resource.get("plugin") and (plugin := _referenced_plugin(plugins, resource["plugin"])) is not None:
            del resource["plugin"]
            resource["spec"] = documents.export(plugin)["spec"]
    return body


def _referenced_plugin(plugins: Mapping[tuple[str, str], Plugin], reference: str) -> Plugin | None:
    """Return the plugin of a reference `name[@version]`; without a version the highest, as on a server."""
    name, version = semver.split_reference(reference)
    if version == semver.LATEST:
        known = [version for of, version in plugins if of == name]
        version = max(known, key=semver.order, default=version)
    return plugins.get((name, version))


def params_by_plugin(
    plugins: Iterable[Plugin], params: Iterable[tuple[str, str]], option: str = "-p"
) -> dict[str, dict[str, str]]:
    """Return params by plugin; a param is given as `NAME` or `PLUGIN.NAME`.

    Args:
        plugins: The plugins of the sandbox.
        params: Names and values.
        option: The option of the command line that gives params; empty for a call from Python.

    Raises:
        DayflyError: no plugin has the param, several have it, it is a secret, or a required param is missing.
    """
    known = {plugin.name: plugin.spec.params() for plugin in plugins}
    found: dict[str, dict[str, str]] = {plugin: {} for plugin in known}
    for written, value in params:
        of, dot, bare = written.rpartition(".")
        takers = [plugin for plugin, takes in known.items() if bare in takes and (not dot or plugin == of)]
        if not takers:
            every = [param for takes in known.values() for param in takes]
            whom = " or ".join(f'"{plugin}"' for plugin in known)
            said = f'no step of {whom} has the param "{written}"{f" from {option}" if option else ""}'
            raise DayflyError(Exit.USAGE, said, suggest(bare, every))
        if len(takers) > 1:
            advice = f"write {' or '.join(f'{plugin}.{bare}' for plugin in takers)}"
            raise DayflyError(Exit.USAGE, f'"{bare}" is a param of {len(takers)} plugins', advice)
        if known[takers[0]][bare].secret:
            others = f"other users can read the values of {option}" if option else "documents contain params"
            advice = "write it to a file and pass the file with --secrets-file"
            advice = advice if option else f'give it as secrets={{"{bare}": ...}}'
            raise DayflyError(Exit.USAGE, f'"{bare}" is a secret of "{takers[0]}", but {others}', advice)
        found[takers[0]][bare] = value
    for plugin, takes in known.items():
        for param, rule in takes.items():
            if rule.required and param not in found[plugin]:
                message = f'"{plugin}" needs the param "{param}" (its step "{rule.step}")'
                advice = f"give it with {option} {param}=VALUE" if option else f"give it as {param}=..."
                raise DayflyError(Exit.USAGE, message, advice)
    return found
