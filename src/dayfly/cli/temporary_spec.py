"""The sandbox that `dayfly with` creates from plugins or from a sandbox's file, with a generated name."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client import files as reading
from dayfly.client import temporary
from dayfly.client.errors import DayflyError, Exit
from dayfly.compile.references import suggest
from dayfly.spec.parsing import text
from dayfly.spec.plugin import Plugin
from dayfly.spec.scalars import names
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_SUFFIX_LENGTH = 10


class TemporarySpec(NamedTuple):
    """The spec of a sandbox for one command.

    Attributes:
        body: The spec without name and lease.
        base_name: The readable part of its generated name.
        baselines: Baselines to declare before the sandbox is created.
        aliases: More names for outputs: the output by variable.
        source: The sandbox's file, which names its cluster; None for plugins.
    """

    body: dict[str, Any]
    base_name: str
    baselines: tuple[reading.LoadedDocument, ...]
    aliases: dict[str, str]
    source: text.ParsedDocument | None = None

    @property
    def is_self_contained(self) -> bool:
        """Whether all of its plugins are inline."""
        return all("spec" in resource for resource in self.body["spec"].get("resources", ()))

    def in_cluster(self, cluster: str) -> TemporarySpec:
        """Return a copy for another cluster."""
        return self._replace(body={**self.body, "spec": {**self.body["spec"], "cluster": cluster}})

    def unique_name(self) -> str:
        """Return a new unique name."""
        return temporary.unique_name("with", self.base_name)

    def stable_name(self, key: str, secrets: Mapping[str, Mapping[str, str]]) -> str:
        """Return a name that is the same for equal specs and secrets.

        The name is an HMAC under `key`, so that it reveals neither params nor secrets.
        """
        content = {**self.body, "secrets": secrets} if secrets else self.body
        encoded = json.dumps(content, sort_keys=True).encode()
        number = int.from_bytes(hmac.new(key.encode(), encoded, hashlib.sha256).digest()[:8])
        letters = "".join(_LETTERS[number >> 5 * place & 31] for place in range(_SUFFIX_LENGTH))
        plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in self.base_name)
        return f"with-{plain[: names.LIMITS['sandbox'] - len('with--') - _SUFFIX_LENGTH].strip('-')}-{letters}"


def read(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    params: tuple[str, ...],
    param_files: tuple[str, ...],
    renames: tuple[str, ...],
) -> TemporarySpec:
    """Build the spec from files and options.

    Raises:
        SpecError: a file is invalid.
        DayflyError: an option is invalid, or the files contain neither a plugin nor a sandbox.
    """
    found = reading.load(files, sets)
    for wished in found:
        if wished.kind in ("pool", "route group", "lifecycle hook"):
            raise wished.document.error(
                f"is a {wished.kind}, which cannot be created for one command: {wished.apply_command}"
            )
    plugins = [wished.content for wished in found if isinstance(wished.content, Plugin)]
    given = [*pairs("-p", params), *_contents(param_files)]
    source = next((wished.document for wished in found if wished.kind == "sandbox"), None)
    if source is not None:
        if given:
            raise DayflyError(Exit.USAGE, "a sandbox's file contains its params", "set them with --set NAME=VALUE")
        body = temporary.sandbox_with_plugins(found)
        base_name = str(body.pop("name"))
        body["spec"].setdefault("description", "dayfly with")
    else:
        if not plugins:
            raise DayflyError(
                Exit.USAGE, f"{', '.join(files)}: no plugin and no sandbox", "name a file that contains one"
            )
        body = temporary.sandbox_of_plugins(plugins, temporary.params_by_plugin(plugins, given), "dayfly with")
        base_name = plugins[0].name if len(plugins) == 1 else "-".join(plugin.name[:8] for plugin in plugins)
    baselines = tuple(wished for wished in found if isinstance(wished.content, Workload))
    return TemporarySpec(body, base_name, baselines, _aliases(body, plugins, renames), source)


def plugin_params(plugin: Plugin, params: tuple[str, ...], param_files: tuple[str, ...]) -> dict[str, str]:
    """Return the params of `-p` and `--param-file` for a single plugin.

    Raises:
        DayflyError: a pair is malformed, its name is unknown, or a required param is missing.
    """
    return temporary.params_by_plugin([plugin], [*pairs("-p", params), *_contents(param_files)])[plugin.name]


def pairs(option: str, given: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names and values of a repeatable option with `NAME=VALUE`.

    Raises:
        DayflyError: a value has no `=`.
    """
    found = []
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            example = "size=3" if option == "-p" else "key=./key.pem"
            message = f"{option} expects NAME={'VALUE' if option == '-p' else 'PATH'}, got {pair!r}"
            raise DayflyError(Exit.USAGE, message, f"write e.g. {option} {example}")
        found.append((name, value))
    return found


def _contents(given: Iterable[str]) -> list[tuple[str, str]]:
    """Return the text of each file, without a byte order mark."""
    found = []
    for name, path in pairs("--param-file", given):
        try:
            found.append((name, text.decode(reading.read(path, "name the file that has the text of the param"))))
        except text.NotTextError as fault:
            raise DayflyError(Exit.USAGE, f"{path}: is {fault}", "a param is text; save it as UTF-8") from None
    return found


def _aliases(body: Any, plugins: list[Plugin], renames: tuple[str, ...]) -> dict[str, str]:
    """Return the outputs of `VAR=step.output` pairs, by variable.

    Raises:
        DayflyError: a pair is malformed, or its output does not exist.
        SpecError: the name of a variable is invalid.
    """
    resources = body["spec"].get("resources", ())
    known = [
        f"{each['name']}/{step['name']}.{output['name']}"
        for each in resources
        for step in each.get("spec", {}).get("create", ())
        for output in step.get("outputs", ())
    ]
    whole = all("spec" in each for each in resources)
    found = {}
    for pair in renames:
        variable, equals, key = pair.partition("=")
        if not equals:
            raise DayflyError(Exit.USAGE, f"-e expects VAR=STEP.OUTPUT, got {pair!r}", "write e.g. -e DB=provision.url")
        names.check_environment(variable)
        meant = [each for each in known if each == key or each.endswith(f"/{key}")]
        if len(meant) > 1:
            raise DayflyError(
                Exit.USAGE, f'"{key}" is an output of {len(meant)} resources', f"write {' or '.join(meant)}"
            )
        if not meant and whole:
            short = known if len(resources) > 1 else [each.partition("/")[2] for each in known]
            whose = f'"{plugins[0].name}"' if len(plugins) == 1 else "the plugins"
            has = "has" if len(plugins) == 1 else "have"
            raise DayflyError(Exit.USAGE, f'{whose} {has} no output "{key}"', suggest(key, short))
        found[variable] = meant[0] if meant else key
    return found
