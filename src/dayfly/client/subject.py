"""What a command is about: a sandbox by its name, or a route group as `routegroup/NAME` (`rg/NAME`)."""

from __future__ import annotations

from dayfly.spec.errors import SpecError, quote
from dayfly.spec.scalars import names

PREFIX = names.GROUP

_SHORT = "rg/"
_SANDBOX = ("sandbox/", "sandboxes/", "sb/")
_GROUP = ("routegroups/",)

PUBLISHED = {"lifecyclehook": "lifecycle hook", "resourceplugin": "resource plugin"}
"""The kinds that have a status and no run of their own, as a sentence names them."""
_PUBLISHED_AS = {**{kind: kind for kind in PUBLISHED}, "hook": "lifecyclehook", "plugin": "resourceplugin"}


def group(name: str) -> str:
    """A route group's name as commands take it that are about sandboxes, too."""
    return f"{PREFIX}{name}"


def short(subject: str) -> str:
    """Return the form that commands work with: `NAME` for `sandbox/NAME`, `routegroup/NAME` for its plural."""
    prefix, slash, name = subject.partition("/")
    if f"{prefix}/" in _GROUP:
        return group(name)
    return name if slash and f"{prefix}/" in _SANDBOX else subject


def published(subject: str) -> tuple[str, str] | None:
    """Return the kind and the name of a lifecycle hook or a resource plugin; None for anything else."""
    prefix, slash, name = subject.partition("/")
    kind = _PUBLISHED_AS.get(prefix.removesuffix("s"))
    return (kind, name) if slash and kind else None


def is_group(subject: str) -> bool:
    """Whether it is a route group."""
    return subject.startswith((PREFIX, _SHORT))


def bare(subject: str) -> str:
    """The name within its kind."""
    return subject.partition("/")[2] if is_group(subject) else subject


def at(subject: str) -> tuple[str, str]:
    """Its address below the organisation."""
    return "routegroups" if is_group(subject) else "sandboxes", bare(subject)


def kind(subject: str) -> str:
    """Its kind in a sentence."""
    return "route group" if is_group(subject) else "sandbox"


def title(subject: str) -> str:
    """Kind and name in a sentence."""
    return f'{kind(subject)} "{bare(subject)}"'


def verb(subject: str) -> str:
    """The command that is about its kind."""
    return "routegroup" if is_group(subject) else "sandbox"


def check(subject: str) -> None:
    """Refuse a name that nothing of its kind can have.

    Raises:
        SpecError: it is none, or of a kind that has no run.
    """
    if "/" in subject and not is_group(subject):
        prefix = quote(subject.partition("/")[0])
        raise SpecError(f"{prefix} is not a kind with steps of its own: write a sandbox's NAME, or routegroup/NAME")
    names.check(kind(subject), bare(subject))
