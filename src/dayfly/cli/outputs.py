"""A sandbox's outputs as environment variables: `<RESOURCE>_<STEP>_<OUTPUT>`, in the forms that readers take."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit
from dayfly.client.variables import check_variable, variable_name

_LONGEST = 32 * os.sysconf("SC_PAGE_SIZE") - len("=\0")
"""Limit of a variable's name and value in bytes: with a longer variable the kernel starts no program."""
GITHUB, GITLAB = "github", "gitlab"
_PREFIXES = {GITHUB: ("GITHUB_", "RUNNER_", "ACTIONS_"), GITLAB: ("GITLAB_", "CI_")}
"""Variables by which these systems control a job."""
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_MISREAD_IN_SINGLE_QUOTES = re.compile(r"\\\\|\\\Z")
_EXPANDED = re.compile(r"[$`]")
_LINE_BREAK = re.compile(r"[\r\n]")
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

    @property
    def is_too_long(self) -> bool:
        """Whether no program can be started with it."""
        return len(self.name) + self.size > _LONGEST


def variables(found: list[Any], form: str = "") -> list[Variable]:
    """The variables of a sandbox's outputs, in the order of the outputs.

    Raises:
        DayflyError: two outputs would have the same name, or one a name that changes how programs run.
    """
    named: dict[str, Variable] = {}
    for each in found:
        resource, step, output = each.get("resource", ""), each["step"], each["output"]
        name = variable_name(resource, step, output)
        value, size = _decoded(each)
        withheld = bool(each.get("withheld"))
        variable = Variable(name, None if withheld else value, resource, step, output, size, withheld)
        if twin := named.get(name):
            message = f"{_place(twin)} and {_place(variable)} would both be {name}"
            raise DayflyError(Exit.FAILED, message, "take them from: dayfly env SANDBOX -o json")
        check_variable(name, _place(variable), *_PREFIXES.get(form, ()))
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


def for_github(variable: Variable) -> str:
    """The lines for the file `$GITHUB_ENV` or `$GITHUB_OUTPUT`, from which GitHub's runner reads the value verbatim."""
    import secrets

    assert variable.value is not None, "checked before"
    if not _LINE_BREAK.search(variable.value):
        return f"{variable.name}={variable.value}\n"
    # Drawn by chance: no value can contain it, and set another variable behind it.
    delimiter = f"dayfly_{secrets.token_hex(16)}"
    return f"{variable.name}<<{delimiter}\n{variable.value}\n{delimiter}\n"


def for_gitlab(found: list[Variable]) -> str:
    """The lines of a dotenv report, from which GitLab reads values verbatim, but for blanks at both ends.

    Raises:
        DayflyError: values that it would not read back. A line break at the end is left out, as in a shell's `$(...)`.
    """
    plain = [(each.name, (each.value or "").rstrip("\n")) for each in found]
    if wrong := [name for name, value in plain if _LINE_BREAK.search(value) or value != value.strip()]:
        are = (
            "has several lines, or a blank at an end" if len(wrong) == 1 else "have several lines, or a blank at an end"
        )
        message = f"{', '.join(wrong)} {are}, and a dotenv report of GitLab cannot hold that"
        raise DayflyError(
            Exit.FAILED, message, 'use it in the job that makes it, with: vars=$(dayfly env SANDBOX) && eval "$vars"'
        )
    return "".join(f"{name}={value}\n" for name, value in plain)


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
