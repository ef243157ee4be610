"""The exit codes, and the error that carries one of them to the end of the program: the library's own."""

from __future__ import annotations

from dayfly.client.errors import DayflyError as CliError
from dayfly.client.errors import Exit, not_there

__all__ = ["CliError", "Exit", "abandoned_too_early", "not_there"]


def abandoned_too_early(name: str, flags: str) -> CliError:
    """Return the error for a sandbox or route group that is not being deleted."""
    from dayfly.client import subject

    message = f"{subject.title(name)} is not being deleted, so there is no cleanup to give up"
    first = f"dayfly {subject.verb(name)} delete {subject.bare(name)}{flags}"
    return CliError(Exit.FAILED, message, f"run first: {first}; or leave everything behind with --force")
