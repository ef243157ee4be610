"""Outputs of a sandbox as environment variables, `<RESOURCE>_<STEP>_<OUTPUT>`, in the syntax of each reader."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit
from dayfly.client.variables import check_variable, variable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MAX_VARIABLE_BYTES = 32 * os.sysconf("SC_PAGE_SIZE") - len("=\0")
"""Limit of a variable's name and value in bytes: with a longer variable the kernel starts no program."""
GITHUB, GITLAB, DOCKER = "github", "gitlab", "docker"
_PREFIXES = {GITHUB: ("GITHUB_", "RUNNER_", "ACTIONS_"), GITLAB: ("GITLAB_", "CI_")}
"""Variables by which these systems control a job."""
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_MISREAD_IN_SINGLE_QUOTES = re.compile(r"\\\\|\\\Z")
_EXPANDED = re.compile(r"[$`]")
_LINE_BREAK = re.compile(r"[\r\n]")
_ESCAPED_IN_DOUBLE_QUOTES = re.compile(r'(["\\$`])')


class Variable(NamedTuple):
    """An output as a variable. `value` is None if it is binary or withheld."""

    name: str
    value: str | None
    resource: str
    step: str
    output: str
    size: int
    withheld: bool = False
    sensitive: bool = False

    @property
    def missing_reason(self) -> str:
        """Why `value` is None."""
        if self.withheld:
            return f"{self.name} is sensitive and never leaves its cluster"
        return f"{self.name} is binary ({self.size} bytes)"

    @property
    def is_too_long(self) -> bool:
        """Whether no program can start with this variable in its environment."""
        return len(self.name) + self.size > _MAX_VARIABLE_BYTES


def variables(found: list[Any], form: str = "") -> list[Variable]:
    """Return the variables of a sandbox's outputs, in the order of the outputs.

    Raises:
        DayflyError: two outputs have the same variable name, or a name would change how programs run.
    """
    named: dict[str, Variable] = {}
    for each in found:
        resource, step, output = each.get("resource", ""), each["step"], each["output"]
        name = variable_name(resource, step, output)
        value, size = _decode(each)
        withheld = bool(each.get("withheld"))
        sensitive = bool(each.get("sensitive"))
        variable = Variable(name, None if withheld else value, resource, step, output, size, withheld, sensitive)
        if twin := named.get(name):
            message = f"{_full_name(twin)} and {_full_name(variable)} have the same variable name, {name}"
            raise DayflyError(Exit.FAILED, message, "read them with: dayfly env SANDBOX -o json")
        check_variable(name, _full_name(variable), *_PREFIXES.get(form, ()))
        named[name] = variable
    return list(named.values())


def settable_variables(found: Iterable[Variable], report: Callable[[str], None]) -> Iterator[Variable]:
    """Yield the variables that an environment can hold. Report the others."""
    for each in found:
        if each.value is None:
            report(f"{each.missing_reason}, so it is left out")
        elif each.is_too_long:
            report(f"{each.name} has {each.size} bytes, which is more than a variable can hold")
        else:
            yield each


def format_dotenv(variable: Variable) -> str:
    """Return the assignment that `sh` reads exactly, and other dotenv readers for nearly all values.

    Plain words have no quotes, because `docker run --env-file` reads quotes as part of the value. Other values are in
    single quotes, or in double quotes if they contain a single quote. Dotenv readers read two backslashes in single
    quotes as one, and do not support escapes of `$` in double quotes. If a value has both, `sh` takes priority.
    """
    value = variable.value
    if value is None:
        return f"# {variable.missing_reason}{'' if variable.withheld else '; read it with: dayfly env SANDBOX -o json'}"
    if _SAFE.fullmatch(value):
        return f"{variable.name}={value}"
    if "'" not in value and (_EXPANDED.search(value) or not _MISREAD_IN_SINGLE_QUOTES.search(value)):
        return f"{variable.name}='{value}'"
    return f'{variable.name}="{_ESCAPED_IN_DOUBLE_QUOTES.sub(_escape, value)}"'


def format_github(variable: Variable) -> str:
    """Return lines for the file `$GITHUB_ENV` or `$GITHUB_OUTPUT`. The runner reads the value verbatim."""
    import secrets

    assert variable.value is not None, "checked before"
    if not _LINE_BREAK.search(variable.value):
        return f"{variable.name}={variable.value}\n"
    # Random, so that no value can contain the delimiter and set another variable after it.
    delimiter = f"dayfly_{secrets.token_hex(16)}"
    return f"{variable.name}<<{delimiter}\n{variable.value}\n{delimiter}\n"


def format_gitlab(found: list[Variable]) -> str:
    """Return the lines of a dotenv report. GitLab reads the values verbatim, except for spaces at both ends.

    Sensitive outputs are left out: GitLab cannot mask them, and everyone who may read the job can read its reports.
    Line breaks at the end of a value are left out, as in a shell's `$(...)`.

    Raises:
        DayflyError: GitLab would read a value differently.
    """
    plain = [(each.name, (each.value or "").rstrip("\n")) for each in found if not each.sensitive]
    if wrong := [name for name, value in plain if _LINE_BREAK.search(value) or value != value.strip()]:
        have = "has" if len(wrong) == 1 else "have"
        message = (
            f"{', '.join(wrong)} {have} several lines or a space at an end, which GitLab's dotenv reports cannot hold"
        )
        raise DayflyError(
            Exit.FAILED, message, 'use it in the same job, with: vars=$(dayfly env SANDBOX) && eval "$vars"'
        )
    return "".join(f"{name}={value}\n" for name, value in plain)


def format_docker(found: list[Variable]) -> str:
    """Return the lines of a file for `docker run --env-file`, which reads the values verbatim.

    Raises:
        DayflyError: a value has several lines.
    """
    if wrong := [each.name for each in found if _LINE_BREAK.search(each.value or "")]:
        message = f"{', '.join(wrong)}: docker --env-file cannot hold values with several lines"
        raise DayflyError(Exit.FAILED, message, 'pass them one by one: -e NAME="$(dayfly env SANDBOX STEP.OUTPUT)"')
    return "".join(f"{each.name}={each.value}\n" for each in found)


def github_masks(found: list[Variable]) -> list[str]:
    """Return the commands with which GitHub masks each line of the sensitive values in the log of a job."""
    lines = (line for each in found if each.sensitive for line in (each.value or "").splitlines())
    return [f"::add-mask::{line.replace('%', '%25')}" for line in dict.fromkeys(lines) if line.strip()]


def find_output(found: list[Any], wanted: str) -> bytes:
    """Return the value of one output, which is named RESOURCE.OUTPUT, STEP.OUTPUT or RESOURCE/STEP.OUTPUT.

    Raises:
        DayflyError: there is no such output, there are several, or the value stays in its cluster.
    """
    import base64

    from dayfly.compile.references import suggest

    full = {f"{each.get('resource', '')}/{each['step']}.{each['output']}".lstrip("/"): each for each in found}
    chosen = [name for name, each in full.items() if wanted in _short_names(each) or wanted == name]
    if not chosen:
        raise DayflyError(Exit.NOT_FOUND, f'no output "{wanted}"', suggest(wanted, full))
    if len(chosen) > 1:
        raise DayflyError(Exit.USAGE, f'"{wanted}" is the name of several outputs', f"use one of {', '.join(chosen)}")
    each = full[chosen[0]]
    if each.get("withheld"):
        message = f"{chosen[0]} is sensitive and never leaves its cluster"
        raise DayflyError(Exit.DENIED, message, "read it with the option --context of that cluster")
    is_binary = each.get("encoding", "utf-8") != "utf-8"
    return base64.b64decode(each["value"]) if is_binary else each["value"].encode()


def _short_names(each: Any) -> tuple[str, ...]:
    resource, step, output = each.get("resource", ""), each["step"], each["output"]
    return f"{resource}.{output}", f"{step}.{output}", variable_name(resource, step, output)


def _escape(match: re.Match[str]) -> str:
    return "\\" + match[0]


def _decode(each: Any) -> tuple[str | None, int]:
    """Return the text of an output, or None if no variable can hold it, and its size in bytes."""
    value: str = each["value"]
    if each.get("encoding", "utf-8") != "utf-8":
        import base64

        return None, len(base64.b64decode(value))
    size = len(value.encode())
    return (None if "\0" in value else value), size


def _full_name(variable: Variable) -> str:
    return "/".join(part for part in (variable.resource, variable.step) if part) + f".{variable.output}"
