"""What is to be applied, from a mapping or from files, and a refusal of it with its places."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dayfly.client import files
from dayfly.client.errors import Exit, InvalidError, RefusedError
from dayfly.spec import documents
from dayfly.spec.errors import SpecError, quote
from dayfly.spec.parsing.text import ParsedDocument

if TYPE_CHECKING:
    from dayfly.client.types import Baseline, Plugin, RouteGroup, Sandbox

Source: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str]"
"""A wish as the API takes it (`{"name": ..., "spec": ...}`), or a file or folder with exactly one."""
Variables: TypeAlias = "Mapping[str, object]"


class LoadedSource(NamedTuple):
    """A wish in its form on the wire, and the document it was read from, if it was."""

    body: dict[str, Any]
    document: ParsedDocument | None = None

    @property
    def name(self) -> str:
        """As it stands in the wish; empty if it does not."""
        return str(self.body.get("name", ""))


def read(source: Source, variables: Variables, kind: str) -> LoadedSource:
    """The only wish of a source, which must be of one kind.

    Raises:
        InvalidError: all mistakes, with their places.
        DayflyError: a file that cannot be read.
    """
    if isinstance(source, Mapping):
        if variables:
            raise InvalidError([SpecError("variables are for files; write the values into the mapping")])
        return LoadedSource({**source})
    with placed(None):
        found = files.load_one([os.fspath(source)], sets(variables), kind)
        return LoadedSource(documents.export(found.wish), found.document)


def sets(variables: Variables) -> list[str]:
    """As `--set` has them."""
    return [f"{name}={value}" for name, value in variables.items()]


@contextlib.contextmanager
def placed(document: ParsedDocument | None) -> Iterator[None]:
    """Within this, what is wrong with a wish is an `InvalidError` with its places."""
    try:
        yield
    except SpecError as fault:
        raise InvalidError([fault, *fault.others]) from None
    except InvalidError as fault:  # of a mapping that came out of this document
        raise InvalidError([_again(each, document) for each in fault.problems], fault.advice) from None
    except RefusedError as fault:
        if fault.code != Exit.USAGE:
            raise
        lines = fault.message.split("\n")
        raise InvalidError([files.located(line, document) for line in lines], fault.advice) from None


def _again(problem: SpecError, document: ParsedDocument | None) -> SpecError:
    return files.located(str(problem), document) if document is not None and not problem.file else problem


class Applied(NamedTuple):
    """What was in some files, as the server has it now."""

    plugins: tuple[Plugin, ...]
    baselines: tuple[Baseline, ...]
    sandboxes: tuple[Sandbox, ...]
    route_groups: tuple[RouteGroup, ...]


async def apply_all(ways: dict[str, Any], paths: Iterable[str | os.PathLike[str]], variables: Variables) -> Applied:
    """Apply all that is in the files, each kind in its way.

    Raises:
        InvalidError: all mistakes, with their places.
    """
    with placed(None):
        found = files.load(map(str, paths), sets(variables))
        for wished in found:
            if wished.kind == "lifecycle hook":
                problem = f"{quote(wished.name)} is a lifecycle hook, which goes with objects of a cluster"
                raise wished.document.error(f"{problem}: apply it to one with {wished.way} {wished.document.file}")
    made: dict[str, list[Any]] = {kind: [] for kind in ways}
    for wished in found:
        with placed(wished.document):
            made[wished.kind].append(await ways[wished.kind](documents.export(wished.wish)))
    return Applied(*(tuple(each) for each in made.values()))
