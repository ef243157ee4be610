"""Where a step finds its inputs: each in a variable or a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.scalars import names

if TYPE_CHECKING:
    from collections.abc import Iterable


class InjectionFields(Protocol):
    """The variable that somebody chose for it."""

    @property
    def env(self) -> str: ...


class InputFields(Protocol):
    """What an input of a step says of where it lies."""

    @property
    def name(self) -> str: ...
    @property
    def as_(self) -> InjectionFields | None: ...
    @property
    def env(self) -> str: ...
    @property
    def path(self) -> str: ...


_OTHER = "give it another variable: as: {env: ...}"
_PLACES = {"an object": "with set", "a webhook": "with {$input: name}"}


def refuse(inputs: Iterable[InputFields], keys: Path, what: str) -> None:
    """No input of a step that is `what` (an object, a webhook) says where it lies."""
    for index, wanted in enumerate(inputs):
        if wanted.as_ is not None:
            raise SpecError(f"{what} places its inputs {_PLACES[what]}; leave as out", (*keys, index, "as"))


OURS = ("DAYFLY_", "SIGNADOT_")
"""Prefixes of the variables that Dayfly sets in each step. No input may have one."""
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
"""Variables for which a shell shows its own value, not that of the environment."""
_LOADER = "LD_"


def check_variables(inputs: Iterable[InputFields], keys: Path) -> None:
    """Refuse inputs of a script or command that would replace variables of Dayfly, or by accident of programs.

    An explicit `as: {env: PATH}` is no accident.
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
    """No two inputs of a step in one variable or file, and no file where another needs a folder."""
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
                raise SpecError(f"{quote(path)} lies in {quote(folder)}, which is another input's file", here)
