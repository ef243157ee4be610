"""Sandboxes and route groups of a server by name, and the error for a missing one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit, unknown_name_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.cli.backends.target_server import ServerClient


def fetch(client: ServerClient, name: str, *path: str) -> Any:
    """Return a sandbox or `routegroup/NAME`, or a subresource of it such as `why` or `report`.

    Raises:
        SpecError: the name is invalid.
        DayflyError: it does not exist.
    """
    subject.check(name)
    try:
        return client.get(*subject.path(name), *path)
    except DayflyError as fault:
        if fault.code == Exit.NOT_FOUND:
            raise not_found_error(client, name) from None
        raise


@contextlib.contextmanager
def see_if_not_found(command: str) -> Iterator[None]:
    """Add the command that lists what exists to an error about a missing thing."""
    try:
        yield
    except DayflyError as fault:
        if fault.code != Exit.NOT_FOUND or fault.advice:
            raise
        raise DayflyError(Exit.NOT_FOUND, fault.message, f"see: {command}") from None


def exists(client: ServerClient, name: str) -> bool:
    """Whether it exists.

    Raises:
        DayflyError: the server cannot be reached.
    """
    try:
        client.get(*subject.path(name))
    except DayflyError as fault:
        if fault.code == Exit.NOT_FOUND:
            return False
        raise
    return True


def ended_error(name: str, flags: str) -> DayflyError:
    """Return the error for a subject that has ended. `flags` choose the server or the cluster."""
    command = f"why {name}" if subject.is_pool(name) else f"get {subject.command(name)} {subject.bare_name(name)}"
    return DayflyError(Exit.NOT_FOUND, f"no {subject.title(name)}: it has ended", f"see: dayfly {command}{flags}")


def not_found_error(client: ServerClient, name: str) -> DayflyError:
    """Return the error for a missing name: that the run has ended, or a similar name."""
    plural, bare = subject.path(name)
    with contextlib.suppress(DayflyError):
        if (client.get(plural, bare, "report").get("closed") or {}).get("reason"):
            return ended_error(name, client.flags)
    known: list[str] = []
    with contextlib.suppress(DayflyError):
        known = [each["name"] for each in client.get(plural)]
    return unknown_name_error(
        f"no {subject.title(name)}", bare, known, f"dayfly {subject.command(name)} list{client.flags}"
    )
