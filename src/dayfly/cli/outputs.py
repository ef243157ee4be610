"""A sandbox's outputs as environment variables: `<RESOURCE>_<STEP>_<OUTPUT>`, and their form in a dotenv file."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dayfly.cli.exits import CliError, Exit

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_MISREAD_IN_SINGLE_QUOTES = re.compile(r"\\\\|\\\Z")
_EXPANDED = re.compile(r"[$`]")
_ESCAPED_IN_DOUBLE_QUOTES = re.compile(r'(["\\$`])')


class Variable(NamedTuple):
    """One output under its variable's name. `value` is None for bytes that are no text, and for what is withheld."""

    name: str
    value: str | None
    resource: str
    step: str
    output: str
    size: int
    withheld: bool = False

    @property
    def lacks(self) -> str:
        """Why there is no value."""
        if self.withheld:
            return f"{self.name} is sensitive and never leaves its cluster"
        return f"{self.name} is binary ({self.size} bytes)"


def variables(found: list[Any]) -> list[Variable]:
    """The variables of a sandbox's outputs, in the order of the outputs.

    Raises:
        CliError: two outputs would have the same name.
    """
    named: dict[str, Variable] = {}
    for each in found:
        resource, step, output = each.get("resource", ""), each["step"], each["output"]
        words = "_".join(part for part in (resource, step, output) if part)
        name = re.sub(r"[^A-Z0-9]", "_", words.upper())
        value, size = _decoded(each)
        withheld = bool(each.get("withheld"))
        variable = Variable(name, None if withheld else value, resource, step, output, size, withheld)
        if twin := named.get(name):
            message = f"{_place(twin)} and {_place(variable)} would both be {name}"
            raise CliError(Exit.FAILED, message, "take them from: dayfly env SANDBOX -o json")
        named[name] = variable
    return list(named.values())


def dotenv(variable: Variable) -> str:
    """One line (or more, if the value has more) from which `sh` reads the value, and other readers nearly any.

    Plain words stand as they are: `docker run --env-file` takes quotes for a part of the value. Anything else is in
    single quotes, or in double ones if it holds a single quote itself. Dotenv readers take two backslashes in single
    quotes for one, and know no backslash before `$` in double ones: where a value has both, `sh` comes first.
    """
    value = variable.value
    if value is None:
        return f"# {variable.lacks}{'' if variable.withheld else '; take it from: dayfly env SANDBOX -o json'}"
    if _SAFE.fullmatch(value):
        return f"{variable.name}={value}"
    if "'" not in value and (_EXPANDED.search(value) or not _MISREAD_IN_SINGLE_QUOTES.search(value)):
        return f"{variable.name}='{value}'"
    return f'{variable.name}="{_ESCAPED_IN_DOUBLE_QUOTES.sub(_backslash, value)}"'


def _backslash(match: re.Match[str]) -> str:
    return "\\" + match[0]


def _decoded(each: Any) -> tuple[str | None, int]:
    """The text of an output and its size in bytes; no text if it has none that a variable can carry."""
    value: str = each["value"]
    if each.get("encoding", "utf-8") != "utf-8":
        import base64

        return None, len(base64.b64decode(value))
    size = len(value.encode())
    return (None if "\0" in value else value), size


def _place(variable: Variable) -> str:
    return "/".join(part for part in (variable.resource, variable.step) if part) + f".{variable.output}"
