"""Sandboxes and route groups of a home's server by name, and what is said of one that is not there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, not_there

if TYPE_CHECKING:
    from dayfly.cli.backends.target_server import ServerClient


def find(client: ServerClient, name: str) -> Any:
    """A sandbox by name, or `routegroup/NAME`.

    Raises:
        SpecError: none can have that name.
        DayflyError: none has it.
    """
    return ask(client, name)


def ask(client: ServerClient, name: str, *what: str) -> Any:
    """What the server knows of a sandbox or route group, or of one that was: itself, its `why`, `report` and the like.

    Raises:
        SpecError: none can have that name.
        DayflyError: none has it.
    """
    subject.check(name)
    try:
        return client.get(*subject.at(name), *what)
    except DayflyError as fault:
        if fault.code == Exit.NOT_FOUND:
            raise unknown(client, name) from None
        raise


def exists(client: ServerClient, name: str) -> bool:
    """Whether it is there now.

    Raises:
        DayflyError: nobody can say.
    """
    try:
        client.get(*subject.at(name))
    except DayflyError as fault:
        if fault.code == Exit.NOT_FOUND:
            return False
        raise
    return True


def unknown(client: ServerClient, name: str) -> DayflyError:
    """What is said of a sandbox that is not there: that it has ended, or which one may be meant."""
    plural, bare = subject.at(name)
    with contextlib.suppress(DayflyError):
        if (client.get(plural, bare, "report").get("closed") or {}).get("reason"):
            see = f"see: dayfly get {subject.verb(name)} {bare}{client.flags}"
            return DayflyError(Exit.NOT_FOUND, f"no {subject.title(name)}: it has ended", see)
    known: list[str] = []
    with contextlib.suppress(DayflyError):
        known = [each["name"] for each in client.get(plural)]
    return not_there(f"no {subject.title(name)}", bare, known, f"dayfly {subject.verb(name)} list{client.flags}")
