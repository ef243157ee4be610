"""Applying files: plugins first, then baselines, sandboxes and route groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client import files, wishes
from dayfly.spec import documents
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from dayfly.client.types import Baseline, Plugin, RouteGroup, Sandbox


class Applied(NamedTuple):
    """What was in some files, as the server has it now."""

    plugins: tuple[Plugin, ...]
    baselines: tuple[Baseline, ...]
    sandboxes: tuple[Sandbox, ...]
    route_groups: tuple[RouteGroup, ...]


async def apply(ways: dict[str, Any], paths: Iterable[str | os.PathLike[str]], variables: wishes.Variables) -> Applied:
    """Apply all that is in the files, each kind in its way.

    Raises:
        InvalidError: all mistakes, with their places.
    """
    with wishes.placed(None):
        found = files.load(map(str, paths), wishes.sets(variables))
        for wished in found:
            if wished.kind == "lifecycle hook":
                problem = f"{quote(wished.name)} is a lifecycle hook, which goes with objects of a cluster"
                raise wished.document.error(f"{problem}: apply it to one with {wished.way} {wished.document.file}")
    made: dict[str, list[Any]] = {kind: [] for kind in ways}
    for wished in found:
        with wishes.placed(wished.document):
            made[wished.kind].append(await ways[wished.kind](documents.export(wished.wish)))
    return Applied(*(tuple(each) for each in made.values()))
