"""A plan beside the sandbox that lives: what applying the files would change, and whether it may."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dayfly.spec import documents
from dayfly.spec.sandbox import MAY_CHANGE, Sandbox
from dayfly.spec.scalars import semver

if TYPE_CHECKING:
    from collections.abc import Iterable


class Difference(NamedTuple):
    """Fields of `spec` that differ: those that applying the file changes, and those that cannot change any more."""

    changes: tuple[str, ...]
    refused: tuple[str, ...]

    def sentence(self, name: str) -> str:
        """What follows of it."""
        if self.refused:
            fixed = ", ".join(self.refused)
            return f'"{name}" cannot be changed so while it lives ({fixed}): delete it and apply the file again'
        if self.changes:
            return f'Applying the file changes {", ".join(self.changes)} of "{name}".'
        return f'"{name}" is as the file says.'


def living(spec: Any, name: str) -> Sandbox:
    """The wish that a sandbox was made of."""
    wish = documents.from_wire({"name": name, "spec": spec}, "Sandbox")
    assert isinstance(wish, Sandbox), "asked for by its kind"
    return wish


def difference(now: Sandbox, wished: Sandbox) -> Difference:
    """Between what lives and what a file wishes for. A plugin without a version means the one that lives."""
    has = {resource.name: resource.plugin for resource in now.spec.resources}
    resources = tuple(
        msgspec.structs.replace(each, plugin=_meant(each.plugin, has.get(each.name, "")))
        for each in wished.spec.resources
    )
    new = msgspec.structs.replace(wished.spec, resources=resources)
    differ = [
        field for field in msgspec.structs.fields(new) if getattr(new, field.name) != getattr(now.spec, field.name)
    ]
    return Difference(
        tuple(field.encode_name for field in differ if field.name in MAY_CHANGE),
        tuple(field.encode_name for field in differ if field.name not in MAY_CHANGE),
    )


def _meant(wished: str, has: str) -> str:
    """The reference that lives, if what is wished for may mean it, as a server takes it."""
    if not wished or not has:
        return wished
    (name, version), (of, lives) = semver.split_reference(wished), semver.split_reference(has)
    return has if name == of and version in (semver.LATEST, lives) else wished


def lines(now: Iterable[str], wished: Iterable[str]) -> list[str]:
    """The plan of what lives and that of the files, line by line: as it is, taken away, added."""
    before, after = ("\n".join(each).split("\n") for each in (now, wished))
    return [line for line in difflib.ndiff(before, after) if not line.startswith("?")]
