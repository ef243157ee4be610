"""The places of a step's inputs: each has a variable or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.scalars import names

if TYPE_CHECKING:
    from collections.abc import Iterable


class InjectionFields(Protocol):
    """The environment variable, if one is given."""

    @property
    def env(self) -> str: ...


class InputFields(Protocol):
    """The place of an input, as the step gives it."""

    @property
    def name(self) -> str: ...
    @property
    def as_(self) -> InjectionFields | None: ...
    @property
    def env(self) -> str: ...
    @property
    def path(self) -> str: ...


_OTHER = "choose another variable: as: {env: ...}"
_PLACES = {"an object": "with set", "a webhook": "with {$input: name}"}


def refuse_injections(inputs: Iterable[InputFields], keys: Path, what: str) -> None:
    """Refuse places of inputs in a step that is `what` (an object, a webhook)."""
    for index, wanted in enumerate(inputs):
        if wanted.as_ is not None:
            raise SpecError(f"{what} places its inputs {_PLACES[what]}; leave as out", (*keys, index, "as"))


OURS = ("DAYFLY_", "SIGNADOT_")
"""Prefixes of Dayfly's own variables in each step. No input may use them."""
_STEERING = frozenset(
    {
        *("PATH", "HOME", "SHELL", "TMPDIR", "IFS", "CDPATH", "POSIXLY_CORRECT"),
        *("BASHOPTS", "BASH_ENV", "SHELLOPTS", "PS4", "GCONV_PATH", "LOCPATH", "GLIBC_TUNABLES", "HOSTALIASES"),
        *("NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "GEM_HOME", "GEM_PATH"),
        *("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "LUA_INIT", "LUA_PATH", "PHP_INI_SCAN_DIR", "JAVA_TOOL_OPTIONS"),
        *("TRACEPARENT", "TRACESTATE"),
    }
)
_SET_BY_SHELLS = frozenset({"LINENO", "OPTIND", "PPID", "PWD", "RANDOM"})
"""Variables that a shell sets itself, regardless of the environment."""
_LOADER = "LD_"


def check_variables(inputs: Iterable[InputFields], keys: Path) -> None:
    """Refuse inputs of a script or command that would replace variables of Dayfly, or of programs by accident.

    An explicit `as: {env: PATH}` is not an accident.
    """
    for index, wanted in enumerate(inputs):
        given = wanted.as_ is not None and bool(wanted.as_.env)
        here = (*keys, index, "as", "env") if given else (*keys, index, "name")
        what = f"the input {quote(wanted.name)} would be ${wanted.env}"
        if wanted.env.startswith(OURS):
            raise SpecError(f"{what}, and Dayfly sets variables of that name; {_OTHER}", here)
        if not given and (wanted.env in _STEERING or wanted.env.startswith(_LOADER)):
            raise SpecError(f"{what}, which changes how the step's programs run; {_OTHER}", here)
        if not given and wanted.env in _SET_BY_SHELLS:
            raise SpecError(f"{what}, which shells set themselves; {_OTHER}", here)


def check(inputs: Iterable[InputFields], keys: Path) -> None:
    """Refuse two inputs of a step in one variable or file, and a file where another input needs a folder."""
    variables: list[tuple[str, Path]] = []
    files: list[tuple[str, Path]] = []
    for index, wanted in enumerate(inputs):
        given = wanted.as_ is not None and bool(wanted.as_.env)
        here = (*keys, index, "as", "env") if given else (*keys, index, "name")
        if wanted.env:
            names.check_environment(wanted.env, here)
            variables.append((wanted.env, here))
        if wanted.path:
            names.check_path(wanted.path, (*keys, index, "as", "path"))
            files.append((wanted.path, (*keys, index, "as", "path")))
    names.check_unique("the environment variable", variables)
    names.check_unique("the file", files)
    paths = {path for path, _ in files}
    for path, here in files:
        parts = path.split("/")
        for end in range(2, len(parts)):
            if (folder := "/".join(parts[:end])) in paths:
                raise SpecError(f"{quote(path)} is in {quote(folder)}, which is another input's file", here)
