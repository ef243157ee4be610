"""A sandbox for the time of a command or a test: what is in some files under a name of its own, with nothing published.

A plugin that is in the files stands in the sandbox itself, so whoever works on it need not count up its version.
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

    from dayfly.client.files import Wished

CLUSTER = "local"
_CHANCE = 6


def name(first: str, of: str) -> str:
    """A name that nobody else has: `first-of-` and six characters of chance."""
    chance = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_CHANCE))
    room = names.LIMITS["sandbox"] - len(first) - len("--") - _CHANCE
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in of)[:room].strip("-")
    return "-".join(part for part in (first, plain, chance) if part)


def of_plugins(plugins: Sequence[Plugin], params: Mapping[str, Mapping[str, str]], description: str) -> dict[str, Any]:
    """The wish for a sandbox with a resource of each plugin, named as they are; `params` by the plugin's name.

    Raises:
        DayflyError: two of them have one name.
    """
    resources: list[dict[str, Any]] = []
    for plugin in plugins:
        short = resource_name(plugin)
        if any(each["name"] == short for each in resources):
            advice = "write a sandbox file, in which each resource has a name of its own"
            raise DayflyError(Exit.USAGE, f'two plugins would both be the resource "{short}"', advice)
        spec = documents.export(plugin)["spec"]
        resources.append({"name": short, "spec": spec, "params": dict(params.get(plugin.name, {}))})
    return {"spec": {"cluster": CLUSTER, "description": description, "forks": [], "resources": resources}}


def resource_name(plugin: Plugin) -> str:
    """What the resource of a plugin is called."""
    return plugin.name[: names.LIMITS["resource"]].rstrip("-")


def of_sandbox(found: Sequence[Wished]) -> dict[str, Any]:
    """The wish for the only sandbox among some wishes, with the plugins among them in place.

    Raises:
        DayflyError: there is none, or there are several.
    """
    sandboxes = [each.wish for each in found if isinstance(each.wish, Sandbox)]
    if len(sandboxes) != 1:
        files = ", ".join(dict.fromkeys(each.document.file for each in found))
        raise DayflyError(Exit.USAGE, f"{files}: there are {len(sandboxes)} sandboxes", "one is what is taken")
    body = documents.export(sandboxes[0])
    plugins = {(each.wish.name, each.wish.version): each.wish for each in found if isinstance(each.wish, Plugin)}
    for resource in body["spec"]["resources"]:
        if resource.get("plugin") and (plugin := _meant(plugins, resource["plugin"])) is not None:
            del resource["plugin"]
            resource["spec"] = documents.export(plugin)["spec"]
    return body


def _meant(plugins: Mapping[tuple[str, str], Plugin], reference: str) -> Plugin | None:
    """The one of these that `name[@version]` means: without a version the highest, as on a server that has them."""
    name, version = semver.split_reference(reference)
    if version == semver.LATEST:
        known = [version for of, version in plugins if of == name]
        version = max(known, key=semver.order, default=version)
    return plugins.get((name, version))


def given(
    plugins: Iterable[Plugin], params: Iterable[tuple[str, str]], option: str = "-p"
) -> dict[str, dict[str, str]]:
    """Params as they were given, `NAME` or `PLUGIN.NAME`, by plugin.

    Args:
        plugins: Those that may take them.
        params: Names and values.
        option: What gives them on the command line; empty for a call.

    Raises:
        DayflyError: a name that none takes or several do, or one that is required and not given.
    """
    known = {plugin.name: plugin.spec.params() for plugin in plugins}
    found: dict[str, dict[str, str]] = {plugin: {} for plugin in known}
    for written, value in params:
        of, dot, bare = written.rpartition(".")
        takers = [plugin for plugin, takes in known.items() if bare in takes and (not dot or plugin == of)]
        if not takers:
            every = [param for takes in known.values() for param in takes]
            whom = " or ".join(f'"{plugin}"' for plugin in known)
            said = f'no step of {whom} takes "{written}"{f" from {option}" if option else ""}'
            raise DayflyError(Exit.USAGE, said, suggest(bare, every))
        if len(takers) > 1:
            advice = f"write {' or '.join(f'{plugin}.{bare}' for plugin in takers)}"
            raise DayflyError(Exit.USAGE, f'"{bare}" is a param of {len(takers)} plugins', advice)
        if known[takers[0]][bare].secret:
            others = f"others can read what {option} gives" if option else "a param stands in documents"
            advice = "write it into a file, and give that with --secrets-file"
            advice = advice if option else f'give it as secrets={{"{bare}": ...}}'
            raise DayflyError(Exit.USAGE, f'"{bare}" is a secret of "{takers[0]}", and {others}', advice)
        found[takers[0]][bare] = value
    for plugin, takes in known.items():
        for param, rule in takes.items():
            if rule.required and param not in found[plugin]:
                message = f'"{plugin}" needs the param "{param}" (its step "{rule.step}")'
                advice = f"give it with {option} {param}=VALUE" if option else f"give it as {param}=..."
                raise DayflyError(Exit.USAGE, message, advice)
    return found
