"""The subject of a command: a sandbox as `NAME`, or a route group as `routegroup/NAME` (`rg/NAME`)."""

from __future__ import annotations

from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import names

PREFIX = names.GROUP

_SHORT = "rg/"
_SANDBOX = ("sandbox/", "sandboxes/", "sb/")
_GROUP = ("routegroups/",)

PUBLISHED = {"lifecyclehook": "lifecycle hook", "resourceplugin": "resource plugin"}
"""Kinds with a status but without a run, and their names in sentences."""
_PUBLISHED_AS = {**{kind: kind for kind in PUBLISHED}, "hook": "lifecyclehook", "plugin": "resourceplugin"}


def group_subject(name: str) -> str:
    """Return the subject of a route group."""
    return f"{PREFIX}{name}"


def normalize(subject: str) -> str:
    """Return the form that commands work with: `NAME` for `sandbox/NAME`, `routegroup/NAME` for its plural."""
    prefix, slash, name = subject.partition("/")
    if f"{prefix}/" in _GROUP:
        return group_subject(name)
    return name if slash and f"{prefix}/" in _SANDBOX else subject


def parse_published(subject: str) -> tuple[str, str] | None:
    """Return the kind and the name of a lifecycle hook or a resource plugin; None for anything else."""
    prefix, slash, name = subject.partition("/")
    kind = _PUBLISHED_AS.get(prefix.removesuffix("s"))
    return (kind, name) if slash and kind else None


def is_group(subject: str) -> bool:
    """Return whether the subject is a route group."""
    return subject.startswith((PREFIX, _SHORT))


def bare_name(subject: str) -> str:
    """Return the name within the kind."""
    return subject.partition("/")[2] if is_group(subject) else subject


def path(subject: str) -> tuple[str, str]:
    """Return the path below the organisation."""
    return "routegroups" if is_group(subject) else "sandboxes", bare_name(subject)


def kind(subject: str) -> str:
    """Return the name of the kind in a sentence."""
    return "route group" if is_group(subject) else "sandbox"


def title(subject: str) -> str:
    """Return kind and name for a sentence."""
    return f'{kind(subject)} "{bare_name(subject)}"'


def command(subject: str) -> str:
    """Return the command for the kind."""
    return "routegroup" if is_group(subject) else "sandbox"


def check(subject: str) -> None:
    """Refuse a subject that no sandbox or route group can have.

    Raises:
        SpecError: the name is invalid, or the kind has no run.
    """
    if "/" in subject and not is_group(subject):
        prefix = quote(subject.partition("/")[0])
        raise SpecError(f"{prefix} is not a kind with steps: write a sandbox's NAME, or routegroup/NAME")
    names.check(kind(subject), bare_name(subject))
