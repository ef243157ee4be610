"""What `dayfly with` is to make: of plugins or of a sandbox's file, under a name of its own, with params and lease."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client import files as reading
from dayfly.client import temporary
from dayfly.client.errors import DayflyError, Exit
from dayfly.compile.references import nearest
from dayfly.spec.parsing import text
from dayfly.spec.plugin import Plugin
from dayfly.spec.scalars import names
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_SAME = 10


class Borrowed(NamedTuple):
    """What is made.

    Attributes:
        body: The wish, without name and lease.
        of: What its name tells.
        baselines: To be declared before it.
        aliases: More names for outputs: the output that is meant, by variable.
        is_sandbox: Whether a sandbox's file says where it lives.
    """

    body: dict[str, Any]
    of: str
    baselines: tuple[reading.Wished, ...]
    aliases: dict[str, str]
    is_sandbox: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it names no plugin that only the server has."""
        return all("spec" in resource for resource in self.body["spec"].get("resources", ()))

    def placed(self, cluster: str) -> Borrowed:
        """The same in that cluster."""
        return self._replace(body={**self.body, "spec": {**self.body["spec"], "cluster": cluster}})

    def name(self) -> str:
        """One that nobody has."""
        return temporary.unique_name("with", self.of)

    def same_name(self, key: str, secrets: Mapping[str, Mapping[str, str]]) -> str:
        """The same for the same wish. `key` keeps others from telling by it which params and secrets were given."""
        wish = {**self.body, "secrets": secrets} if secrets else self.body
        said = json.dumps(wish, sort_keys=True).encode()
        number = int.from_bytes(hmac.new(key.encode(), said, hashlib.sha256).digest()[:8])
        letters = "".join(_LETTERS[number >> 5 * place & 31] for place in range(_SAME))
        plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in self.of)
        return f"with-{plain[: names.LIMITS['sandbox'] - len('with--') - _SAME].strip('-')}-{letters}"


def read(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    params: tuple[str, ...],
    param_files: tuple[str, ...],
    renames: tuple[str, ...],
) -> Borrowed:
    """What the files and options wish for.

    Raises:
        SpecError: what is wrong in the files.
        DayflyError: what is wrong with the options, or nothing in the files that can be made.
    """
    found = reading.load(files, sets)
    for wished in found:
        if wished.kind in ("route group", "lifecycle hook"):
            raise wished.document.error(
                f"is a {wished.kind}, which is not made for one command: {wished.apply_command}"
            )
    plugins = [wished.wish for wished in found if isinstance(wished.wish, Plugin)]
    given = [*_pairs("-p", params), *_contents(param_files)]
    is_sandbox = any(wished.kind == "sandbox" for wished in found)
    if is_sandbox:
        if given:
            raise DayflyError(Exit.USAGE, "a sandbox's file has its params in it", "fill them in with --set NAME=VALUE")
        body = temporary.sandbox_with_plugins(found)
        of = str(body.pop("name"))
        body["spec"].setdefault("description", "dayfly with")
    else:
        if not plugins:
            raise DayflyError(Exit.USAGE, f"{', '.join(files)}: no plugin and no sandbox", "name the file of one")
        body = temporary.sandbox_of_plugins(plugins, temporary.params_by_plugin(plugins, given), "dayfly with")
        of = plugins[0].name if len(plugins) == 1 else "-".join(plugin.name[:8] for plugin in plugins)
    baselines = tuple(wished for wished in found if isinstance(wished.wish, Workload))
    return Borrowed(body, of, baselines, _aliases(body, plugins, renames), is_sandbox)


def params_of(plugin: Plugin, params: tuple[str, ...]) -> dict[str, str]:
    """The `NAME=VALUE` of `-p`, for one plugin.

    Raises:
        DayflyError: one of another form or name, or one that is required and not given.
    """
    return temporary.params_by_plugin([plugin], _pairs("-p", params))[plugin.name]


def _pairs(option: str, given: Iterable[str]) -> list[tuple[str, str]]:
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
    """The whole text of each file; a byte order mark is no part of it."""
    found = []
    for name, path in _pairs("--param-file", given):
        try:
            found.append((name, text.decode(reading.read(path))))
        except text.NotTextError as fault:
            raise DayflyError(Exit.USAGE, f"{path}: is {fault}", "a param is text; save it as UTF-8") from None
    return found


def _aliases(body: Any, plugins: list[Plugin], renames: tuple[str, ...]) -> dict[str, str]:
    """`VAR=step.output` pairs, by variable.

    Raises:
        DayflyError: another form, or an output that nothing has.
        SpecError: no name for a variable.
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
            whose = f'"{plugins[0].name}"' if len(plugins) == 1 else "what is in the files"
            raise DayflyError(Exit.USAGE, f'{whose} has no output "{key}"', nearest(key, short))
        found[variable] = meant[0] if meant else key
    return found
