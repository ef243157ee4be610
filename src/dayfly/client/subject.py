"""The subject of a command: a sandbox as `NAME`, a route group as `routegroup/NAME`, a pool as `pool/NAME`."""

from __future__ import annotations

from typing import NamedTuple

from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import names


class _Kind(NamedTuple):
    """A kind of subject.

    Attributes:
        title: Its name in a sentence, and in `names.LIMITS`.
        plural: Its name in paths.
        command: The command for it.
        prefix: The prefix of its subjects; empty for sandboxes.
        aliases: Further prefixes.
    """

    title: str
    plural: str
    command: str
    prefix: str
    aliases: tuple[str, ...]


_SANDBOX = _Kind("sandbox", "sandboxes", "sandbox", "", ("sandbox/", "sandboxes/", "sb/"))
_GROUP = _Kind("route group", "routegroups", "routegroup", names.GROUP, ("routegroups/", "rg/"))
_POOL = _Kind("pool", "resourcepools", "pool", names.POOL, ("pools/", "resourcepool/", "resourcepools/"))
_KINDS = (_SANDBOX, _GROUP, _POOL)

PUBLISHED = {"lifecyclehook": "lifecycle hook", "resourceplugin": "resource plugin"}
"""Kinds with a status but without a run, and their names in sentences."""
_PUBLISHED_AS = {**{kind: kind for kind in PUBLISHED}, "hook": "lifecyclehook", "plugin": "resourceplugin"}


def group_subject(name: str) -> str:
    """Return the subject of a route group."""
    return f"{names.GROUP}{name}"


def pool_subject(name: str) -> str:
    """Return the subject of a pool."""
    return f"{names.POOL}{name}"


def normalize(subject: str) -> str:
    """Return the form that commands work with: `NAME` for `sandbox/NAME`, `routegroup/NAME` for its plural."""
    prefix, slash, name = subject.partition("/")
    for each in _KINDS:
        if slash and f"{prefix}/" in each.aliases:
            return f"{each.prefix}{name}"
    return subject


def parse_published(subject: str) -> tuple[str, str] | None:
    """Return the kind and the name of a lifecycle hook or a resource plugin; None for anything else."""
    prefix, slash, name = subject.partition("/")
    kind = _PUBLISHED_AS.get(prefix.removesuffix("s"))
    return (kind, name) if slash and kind else None


def is_group(subject: str) -> bool:
    """Return whether the subject is a route group."""
    return _kind_of(subject) is _GROUP


def is_pool(subject: str) -> bool:
    """Return whether the subject is a pool."""
    return _kind_of(subject) is _POOL


def bare_name(subject: str) -> str:
    """Return the name within the kind."""
    return subject if _kind_of(subject) is _SANDBOX else subject.partition("/")[2]


def path(subject: str) -> tuple[str, str]:
    """Return the path below the organisation."""
    return _kind_of(subject).plural, bare_name(subject)


def kind(subject: str) -> str:
    """Return the name of the kind in a sentence."""
    return _kind_of(subject).title


def title(subject: str) -> str:
    """Return kind and name for a sentence."""
    return f'{kind(subject)} "{bare_name(subject)}"'


def command(subject: str) -> str:
    """Return the command for the kind."""
    return _kind_of(subject).command


def check(subject: str) -> None:
    """Refuse a subject that no sandbox, route group or pool can have.

    Raises:
        SpecError: the name is invalid, or the kind has no run.
    """
    if "/" in subject and _kind_of(subject) is _SANDBOX:
        prefix = quote(subject.partition("/")[0])
        raise SpecError(f"{prefix} is not a kind with steps: write a sandbox's NAME, or routegroup/NAME")
    names.check(kind(subject), bare_name(subject))


def _kind_of(subject: str) -> _Kind:
    for each in (_GROUP, _POOL):
        if subject.startswith((each.prefix, *each.aliases)):
            return each
    return _SANDBOX
