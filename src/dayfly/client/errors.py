"""Errors of the client, with their cause and the next step.

`DayflyError` is the base class; its subclasses let programs react. Each error has a one-line message, and most have
advice. `code` is the exit code of the command line for the same error (docs/reference/environment.md).
"""

from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:  # commands that start fast import this module, without `typing`
    from collections.abc import Iterable, Sequence

    from dayfly.spec.errors import SpecError


class Exit(enum.IntEnum):
    """Exit codes. `dayfly with` returns the code of its command, or 128 + n if signal n ended it."""

    OK = 0
    FAILED = 1  # the work was tried and failed
    USAGE = 2  # the command line or a file is invalid; no sandbox was changed
    NOT_FOUND = 3
    TIMED_OUT = 4  # the wait is over; the work continues
    DENIED = 5  # the server refuses the key, or the machine refuses access to the home
    NO_SERVER = 6


class DayflyError(Exception):
    """Base class of all errors of the client.

    Attributes:
        code: The exit code of the command line.
        message: The problem, in one line.
        advice: The next step; may be empty if the message contains it.
        reason: One word for programs: a reason of docs/reference/reasons.md if there is one, otherwise the name of the
            class.
    """

    def __init__(self, code: Exit, message: str, advice: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice
        self.reason = reason or type(self).__name__.removesuffix("Error")

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


class InvalidError(DayflyError):
    """The input is invalid; nothing was changed.

    Attributes:
        problems: All problems with their places, as far as known: `file`, `line`, `column`, `path` (the field, like
            `spec.create[0].script`) and `problem`.
    """

    def __init__(self, problems: Sequence[SpecError], advice: str = "") -> None:
        super().__init__(Exit.USAGE, "\n".join(map(str, problems)), advice)
        self.problems = tuple(problems)


class RefusedError(DayflyError):
    """The server refused the request. Nothing was changed unless the message says so.

    Attributes:
        status: The HTTP status.
        request_id: The ID of the request in the log of the server; may be empty.
    """

    CODES = {400: Exit.USAGE, 401: Exit.DENIED, 403: Exit.DENIED, 404: Exit.NOT_FOUND}

    def __init__(self, status: int, message: str, advice: str = "", request_id: str = "") -> None:
        super().__init__(self.CODES.get(status, Exit.FAILED), message, advice)
        self.status = status
        self.request_id = request_id
        self.retry_after_s: float | None = None
        """Seconds after which the server accepts a retry (`Retry-After`); None if it did not say."""


class DeniedError(RefusedError):
    """The key is unknown to the server, or may not do this."""


class NotFoundError(RefusedError):
    """The object does not exist."""


class ConflictError(RefusedError):
    """The request conflicts with the current state, such as another object with the name, or a deletion."""


class UnreachableError(DayflyError):
    """There is no server, or it does not answer.

    Attributes:
        sent: Whether the request may have reached a server: it is then unknown whether it was executed.
        stale: Whether an idle connection was closed without a response, which is normal.
        is_not_dayfly: Whether a response came that is not from a Dayfly server; a retry would get the same.
    """

    def __init__(self, message: str, advice: str = "", *, sent: bool = False) -> None:
        super().__init__(Exit.NO_SERVER, message, advice)
        self.sent = sent
        self.stale = False
        self.is_not_dayfly = False


class WaitTimeoutError(DayflyError, TimeoutError):
    """The wait timed out. The work continues."""

    def __init__(self, message: str, advice: str = "", reason: str = "") -> None:
        super().__init__(Exit.TIMED_OUT, message, advice, reason)


class FailedError(DayflyError):
    """The awaited state cannot be reached.

    Attributes:
        unit: The step or fork that failed, like `db/provision`; empty if the failure is of no unit.
        log: The end of the unit's log.
    """

    def __init__(self, message: str, advice: str = "", reason: str = "", *, unit: str = "", log: str = "") -> None:
        super().__init__(Exit.FAILED, message, advice, reason)
        self.unit = unit
        self.log = log

    def __str__(self) -> str:
        shown = "".join(f"\n{self.unit} | {line}" for line in self.log.splitlines())
        return super().__str__() + shown


def unknown_name_error(message: str, name: str, known: Iterable[str], see: str) -> DayflyError:
    """Return the error for an unknown name, with the closest known name."""
    import difflib

    plain = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
    meant = f'did you mean "{plain[close[0]]}"? ' if close else ""
    return DayflyError(Exit.NOT_FOUND, message, f"{meant}see: {see}")


def refusal(status: int, message: str, request_id: str = "") -> RefusedError:
    """Return the error for a response of the server."""
    kinds = {401: DeniedError, 403: DeniedError, 404: NotFoundError, 409: ConflictError}
    return kinds.get(status, RefusedError)(status, message, request_id=request_id)
