"""The operations that verbs need from a server or a cluster. Both return the same data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.cli.output.frame import Report
    from dayfly.link.wire import PoolAction
    from dayfly.spec.log_times import TimeEntry
    from dayfly.spec.plugin import Plugin


class RunView(NamedTuple):
    """A sandbox or route group. `report` is `spec.report.RunReport` as JSON."""

    name: str
    created: str
    routing_key: str
    spec: Any
    report: Report
    status: Any = None
    created_by: str = ""


class LogTimeOptions(NamedTuple):
    """The lines of a log to show.

    Attributes:
        shown: Whether to return the times of lines.
        since: The time of the first line, in Unix milliseconds; 0 for all.
        tail: The number of lines at the end to begin with; None for all.
    """

    shown: bool = False
    since: int = 0
    tail: int | None = None


NO_TIMES = LogTimeOptions()


class LogPart(NamedTuple):
    """Bytes of a log from an offset on, and the times of their lines; empty if they are unknown."""

    offset: int
    data: bytes
    times: Sequence[TimeEntry] = ()


class Backend(Protocol):
    """A server or a cluster. Names are of a sandbox, or `routegroup/NAME`.

    Methods with a name raise `DayflyError` with `NOT_FOUND` if it does not exist.
    """

    flags: str
    """Options that make a command use this backend; empty or with a leading space."""

    def sandboxes(self, *, mine: bool = False) -> list[RunView]:
        """Return all sandboxes, or only sandboxes of the caller, sorted by name.

        Raises:
            DayflyError: `mine` is set, and the backend does not record who created a sandbox.
        """

    def sandbox(self, name: str) -> RunView:
        """Return one sandbox or route group."""

    def groups(self) -> list[RunView]:
        """Return all route groups with their status, sorted by name."""

    def report(self, name: str) -> Report:
        """Return the report of its run; without units if the run has ended and is still remembered."""

    def why(self, name: str) -> Any:
        """Return `plan.why.Obstacle` as JSON; empty if it waits for nothing."""

    def attempts(self, name: str, *, follow: bool) -> list[Any]:
        """Return its logs, the attempts of a unit in order: `unit`, `attempt`, `size`, `sealed` and `cut`.

        `cut` is the number of bytes missing at the beginning, which `size` includes. If that number is unknown, `cut`
        is -1 and `size` is the number of available bytes.
        """

    def reset_logs(self) -> None:
        """Forget the logs of the current sandbox, before those of another one are read."""

    def read(self, name: str, unit: str, attempt: int, offset: int, times: LogTimeOptions = NO_TIMES) -> LogPart:
        """Return the next chunk of a log from `offset` (at least `cut`) on; empty at its current end."""

    def external_log_command(self, name: str, unit: str, times: LogTimeOptions = NO_TIMES) -> str:
        """Return the command that shows a log which this backend does not have; empty if it has all logs."""

    def pause(self, seconds: float) -> None:
        """Wait before the next poll."""

    def outputs(self, name: str) -> list[Any]:
        """Return `resource`, `step`, `output`, `value`, `encoding` and `sensitive` of each output."""

    def abandon(self, name: str, reason: str, *, force: bool) -> None:
        """Give up its cleanup.

        Raises:
            DayflyError: it is not being deleted, and `force` is not set.
        """

    def retry(self, name: str, unit: str) -> dict[str, int]:
        """Retry a waiting unit now, or all waiting units if `unit` is empty. Return their last attempts.

        Raises:
            DayflyError: no unit waits for a retry.
        """

    def reset(self, name: str, resource: str) -> str:
        """Give a resource of a sandbox another pool member. Return the name of the replaced one.

        Raises:
            DayflyError: it cannot get another one.
        """

    def extend(self, name: str, seconds: int, until: str) -> str:
        """Extend its life by `seconds` from now (0: its time to live) or to `until`. Return its expiry time.

        Raises:
            DayflyError: it has no time to live.
        """

    def pools(self) -> list[Any]:
        """Return all pools with their members, as JSON of the REST API, sorted by name."""

    def pool(self, name: str) -> Any:
        """Return one pool."""

    def explain_pool(self, name: str) -> Any:
        """Return how a pool is used, and the predicted misses for other sizes."""

    def control_pool(self, name: str, action: PoolAction) -> Any:
        """Pause, resume or drain a pool. Return it afterwards."""

    def plugin(self, name: str, version: str) -> Plugin:
        """Return a published plugin; the highest version if `version` is empty.

        Raises:
            DayflyError: `NOT_FOUND` if it does not exist.
        """


def abandoned_too_early(name: str, flags: str) -> DayflyError:
    """Return the error for a sandbox or route group that is not being deleted."""
    message = f"{subject.title(name)} is not being deleted, so there is no cleanup to give up"
    first = f"dayfly {subject.command(name)} delete {subject.bare_name(name)}{flags}"
    return DayflyError(Exit.FAILED, message, f"run first: {first}; or leave everything behind with --force")


def pool_retry_error(name: str, flags: str) -> DayflyError:
    """Return the error for a retry of a pool."""
    resume = f"type: dayfly pool resume {subject.bare_name(name)}{flags}"
    return DayflyError(Exit.USAGE, "a pool retries its members itself, until it is paused", resume)
