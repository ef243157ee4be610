"""A mutant in a process that has the package loaded already: the code of one function is another from now on.

Whoever holds the function, under whatever name, calls the mutant. What a function gave while the package was loaded
stays as it was (`Reach.at_import` knows those).
"""

from __future__ import annotations

import ast
import gc
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from mutation.mutants import Mutant
from mutation.plant import SOURCE


class NotInPlaceError(Exception):
    """This one needs a package that is loaded anew."""


class Functions:
    """All functions of the package that are loaded."""

    def __init__(self) -> None:
        gc.unfreeze()  # what is frozen is not told of
        self._known: dict[tuple[str, int, str], list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename.startswith(str(SOURCE)):
                code = each.__code__
                self._known[code.co_filename, code.co_firstlineno, code.co_name].append(each)
        gc.freeze()

    def prepare(self, mutant: Mutant) -> Callable[[], None]:
        """What makes the change, once it is called.

        Raises:
            NotInPlaceError: it is in no function, or in one that is not loaded, or changes what that closes over.
        """
        path = str(SOURCE / mutant.file)
        for code in _outermost(compile(mutant.text, path, "exec")):
            if code.co_firstlineno == mutant.function:
                functions = self._known[path, mutant.function, code.co_name]
                if functions and all(len(each.__code__.co_freevars) == len(code.co_freevars) for each in functions):
                    return partial(_replace, functions, code, mutant)
        raise NotInPlaceError(mutant.name)


def _replace(functions: list[FunctionType], code: CodeType, mutant: Mutant) -> None:
    positional, named = _defaults(mutant)
    for each in functions:
        each.__code__ = code
        if each.__defaults__:
            each.__defaults__ = tuple(map(_or_new, each.__defaults__, positional))
        for name, value in (each.__kwdefaults__ or {}).items():
            each.__kwdefaults__[name] = _or_new(value, named.get(name))


def _outermost(module: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, not what they hold themselves."""
    for code in module.co_consts:
        if not isinstance(code, CodeType):
            continue
        if not code.co_flags & inspect.CO_OPTIMIZED:  # a class
            yield from _outermost(code)
        elif not code.co_name.startswith("<"):
            yield code


def _defaults(mutant: Mutant) -> tuple[list[ast.expr | None], dict[str, ast.expr | None]]:
    for node in ast.walk(ast.parse(mutant.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min((each.lineno for each in node.decorator_list), default=node.lineno)
            if first == mutant.function:
                names = [each.arg for each in node.args.kwonlyargs]
                return list(node.args.defaults), dict(zip(names, node.args.kw_defaults, strict=True))
    raise NotInPlaceError(mutant.name)


def _or_new(value: Any, written: ast.expr | None) -> Any:
    """What a constant says now; of anything else mutants change nothing."""
    return written.value if isinstance(written, ast.Constant) and type(written.value) is type(value) else value
