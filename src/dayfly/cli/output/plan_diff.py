"""The difference between a plan and the existing sandbox, and whether the changes are allowed."""

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
    """Fields of `spec` that differ: changed by the file, and immutable ones."""

    changes: tuple[str, ...]
    immutable: tuple[str, ...]

    def sentence(self, name: str) -> str:
        """Return the difference as one sentence."""
        if self.immutable:
            fixed = ", ".join(self.immutable)
            return f'"{name}" is immutable in {fixed}: delete it and apply the file again'
        if self.changes:
            return f'Applying the file changes {", ".join(self.changes)} of "{name}".'
        return f'"{name}" matches the file.'


def parse_existing(spec: Any, name: str) -> Sandbox:
    """Parse the spec of an existing sandbox."""
    sandbox = documents.from_wire({"name": name, "spec": spec}, "Sandbox")
    assert isinstance(sandbox, Sandbox), "the kind is an argument"
    return sandbox


def find_difference(now: Sandbox, wished: Sandbox) -> Difference:
    """Compare an existing sandbox with a file. A plugin without a version means the existing version."""
    has = {resource.name: resource.plugin for resource in now.spec.resources}
    resources = tuple(
        msgspec.structs.replace(each, plugin=_resolve_version(each.plugin, has.get(each.name, "")))
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


def _resolve_version(wished: str, has: str) -> str:
    """Return the existing reference if the file's reference matches it, as the server resolves references."""
    if not wished or not has:
        return wished
    (name, version), (of, lives) = semver.split_reference(wished), semver.split_reference(has)
    return has if name == of and version in (semver.LATEST, lives) else wished


def diff_lines(now: Iterable[str], wished: Iterable[str]) -> list[str]:
    """Return the line diff between the existing plan and the plan of the files."""
    before, after = ("\n".join(each).split("\n") for each in (now, wished))
    return [line for line in difflib.ndiff(before, after) if not line.startswith("?")]
