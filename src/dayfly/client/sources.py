"""Documents to apply, from a mapping or from files, and errors with their places."""

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
    from dayfly.client.types import Baseline, Plugin, Pool, RouteGroup, Sandbox

Source: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str]"
"""An object in the form of the REST API (`{"name": ..., "spec": ...}`), or a file or folder with exactly one."""
Variables: TypeAlias = "Mapping[str, object]"


class LoadedSource(NamedTuple):
    """The body of a request, and the document that it was read from, if any."""

    body: dict[str, Any]
    document: ParsedDocument | None = None

    @property
    def name(self) -> str:
        """The name in the body; empty if it has none."""
        return str(self.body.get("name", ""))


def read(source: Source, variables: Variables, kind: str) -> LoadedSource:
    """Return the only document of a source, which must be of one kind.

    Raises:
        InvalidError: the source is invalid; the error has all problems with their places.
        DayflyError: a file cannot be read.
    """
    if isinstance(source, Mapping):
        if variables:
            raise InvalidError([SpecError("variables are only for files; write the values into the mapping")])
        return LoadedSource({**source})
    with errors_with_places(None):
        found = files.load_one([os.fspath(source)], to_sets(variables), kind)
        return LoadedSource(documents.export(found.content), found.document)


def to_sets(variables: Variables) -> list[str]:
    """Return variables in the form of `--set`."""
    return [f"{name}={value}" for name, value in variables.items()]


@contextlib.contextmanager
def errors_with_places(document: ParsedDocument | None) -> Iterator[None]:
    """Turn errors about a document into an `InvalidError` with places."""
    try:
        yield
    except SpecError as fault:
        raise InvalidError([fault, *fault.others]) from None
    except InvalidError as fault:  # about a mapping that was read from this document
        raise InvalidError([_relocated(each, document) for each in fault.problems], fault.advice) from None
    except RefusedError as fault:
        if fault.code != Exit.USAGE:
            raise
        lines = fault.message.split("\n")
        raise InvalidError([files.with_place(line, document) for line in lines], fault.advice) from None


def _relocated(problem: SpecError, document: ParsedDocument | None) -> SpecError:
    return files.with_place(str(problem), document) if document is not None and not problem.file else problem


class Applied(NamedTuple):
    """The objects of some files, as the server returned them."""

    plugins: tuple[Plugin, ...]
    baselines: tuple[Baseline, ...]
    sandboxes: tuple[Sandbox, ...]
    route_groups: tuple[RouteGroup, ...]
    pools: tuple[Pool, ...]


async def apply_all(appliers: dict[str, Any], paths: Iterable[str | os.PathLike[str]], variables: Variables) -> Applied:
    """Apply all documents of files with the function of their kind.

    Raises:
        InvalidError: some documents are invalid; the error has all problems with their places.
    """
    with errors_with_places(None):
        found = files.load(map(str, paths), to_sets(variables))
        for wished in found:
            if wished.kind == "lifecycle hook":
                problem = f"{quote(wished.name)} is a lifecycle hook, which only clusters support"
                raise wished.document.error(f"{problem}: apply it with {wished.apply_command}")
    made: dict[str, list[Any]] = {kind: [] for kind in appliers}
    for wished in found:
        with errors_with_places(wished.document):
            made[wished.kind].append(await appliers[wished.kind](documents.export(wished.content)))
    return Applied(*(tuple(each) for each in made.values()))
