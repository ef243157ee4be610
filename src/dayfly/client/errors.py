"""Why something could not be done: whose fault it is, where, and what to do next.

Each error is one sentence, and most have advice. Whoever catches `DayflyError` catches all of them; the classes below
it tell what a program can do about it. `code` is what the command line returns for the same thing (docs/cli.md).
"""

from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:  # whoever only lists things reads this file too, and does without `typing`
    from collections.abc import Iterable, Sequence

    from dayfly.spec.errors import SpecError


class Exit(enum.IntEnum):
    """What the shell is told. `with` returns its command's own code; 128 + n means ended by signal n."""

    OK = 0
    FAILED = 1  # it was tried and did not succeed
    USAGE = 2  # the command line, or a file it names, is wrong; no sandbox was changed
    NOT_FOUND = 3
    TIMED_OUT = 4  # the wait is over, the work goes on
    DENIED = 5  # the server refuses the key, or the machine refuses access to the home
    NO_SERVER = 6


class DayflyError(Exception):
    """Why something cannot go on, as one line.

    Attributes:
        code: What the command line would return.
        message: What is wrong.
        advice: What to do next; may be empty when the message says it.
        reason: The same as one word, for programs: a reason of docs/how-it-works.md where there is one.
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
    """What was asked for is wrong, and nothing was changed.

    Attributes:
        problems: Each mistake with its place, as far as it is known: `file`, `line`, `column`, `path` (the field, like
            `spec.create[0].script`) and `problem`.
    """

    def __init__(self, problems: Sequence[SpecError], advice: str = "") -> None:
        super().__init__(Exit.USAGE, "\n".join(map(str, problems)), advice)
        self.problems = tuple(problems)


class RefusedError(DayflyError):
    """The server refuses. Nothing was changed, if the message does not say otherwise.

    Attributes:
        status: HTTP's.
        request_id: Under which the server's log has more, where it has.
    """

    CODES = {400: Exit.USAGE, 401: Exit.DENIED, 403: Exit.DENIED, 404: Exit.NOT_FOUND}

    def __init__(self, status: int, message: str, advice: str = "", request_id: str = "") -> None:
        super().__init__(self.CODES.get(status, Exit.FAILED), message, advice)
        self.status = status
        self.request_id = request_id
        self.again_in: float | None = None
        """After how many seconds the server wants to be asked again; None where it has not said so."""


class DeniedError(RefusedError):
    """The server does not know the key, or the key may not do that."""


class NotFoundError(RefusedError):
    """There is no such thing."""


class ConflictError(RefusedError):
    """Not now, or not any more: the server has something else of that name, or it is being deleted."""


class UnreachableError(DayflyError):
    """No server, or none that answers.

    Attributes:
        sent: Whether the request may have reached a server: then nobody knows whether it was carried out.
        stale: Whether it was a connection kept open that ended without a word, as idle ones do.
        strange: Whether it has answered, with what this client does not understand: it would do so again.
    """

    def __init__(self, message: str, advice: str = "", *, sent: bool = False) -> None:
        super().__init__(Exit.NO_SERVER, message, advice)
        self.sent = sent
        self.stale = False
        self.strange = False


class WaitTimeoutError(DayflyError, TimeoutError):
    """What was waited for has not come. The work goes on."""

    def __init__(self, message: str, advice: str = "", reason: str = "") -> None:
        super().__init__(Exit.TIMED_OUT, message, advice, reason)


class FailedError(DayflyError):
    """What was waited for will not come.

    Attributes:
        unit: The step or fork that failed, like `db/provision`; empty where it was none.
        log: The end of what it printed.
    """

    def __init__(self, message: str, advice: str = "", reason: str = "", *, unit: str = "", log: str = "") -> None:
        super().__init__(Exit.FAILED, message, advice, reason)
        self.unit = unit
        self.log = log

    def __str__(self) -> str:
        shown = "".join(f"\n{self.unit} | {line}" for line in self.log.splitlines())
        return super().__str__() + shown


def not_there(message: str, name: str, known: Iterable[str], see: str) -> DayflyError:
    """That something is not there, with what may be meant."""
    import difflib

    plain = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
    meant = f'did you mean "{plain[close[0]]}"? ' if close else ""
    return DayflyError(Exit.NOT_FOUND, message, f"{meant}see: {see}")


def refusal(status: int, message: str, request_id: str = "") -> RefusedError:
    """The error for an answer of the server."""
    kinds = {401: DeniedError, 403: DeniedError, 404: NotFoundError, 409: ConflictError}
    return kinds.get(status, RefusedError)(status, message, request_id=request_id)
