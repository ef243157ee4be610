"""What a command is about: a sandbox by its name, or a route group as `routegroup/NAME` (`rg/NAME`)."""

from __future__ import annotations

from dayfly.spec import names

PREFIX = names.GROUP

_SHORT = "rg/"


def group(name: str) -> str:
    """A route group's name as commands take it that are about sandboxes, too."""
    return f"{PREFIX}{name}"


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
        SpecError: it is none.
    """
    names.check(kind(subject), bare(subject))
