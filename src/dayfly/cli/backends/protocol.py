"""Where a sandbox lives, as verbs see it: the server of a home, or a cluster. Both tell the same in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dayfly.cli.output.frame import Report
    from dayfly.spec.log_times import Entry
    from dayfly.spec.plugin import Plugin


class RunView(NamedTuple):
    """A sandbox, or route group, and how it stands: `report` is `spec.report.Report` in its form on the wire."""

    name: str
    created: str
    routing_key: str
    spec: Any
    report: Report
    status: Any = None


class When(NamedTuple):
    """Whether it is asked when lines were printed, and since when they are shown (Unix milliseconds; 0: all)."""

    shown: bool = False
    since: int = 0


NO_TIMES = When()


class Piece(NamedTuple):
    """Bytes of a log from a place on, and when they were printed; empty where nobody knows."""

    offset: int
    data: bytes
    times: Sequence[Entry] = ()


class Backend(Protocol):
    """What the verbs ask. All that take the name of a sandbox, or `routegroup/NAME`, raise `DayflyError` with
    `NOT_FOUND` where there is none.
    """

    flags: str
    """What a command needs behind it to mean this host, empty or with a space in front."""

    def sandboxes(self) -> list[RunView]:
        """All of them, by name."""

    def sandbox(self, name: str) -> RunView:
        """One of them."""

    def groups(self) -> list[RunView]:
        """All route groups, by name; with their status."""

    def report(self, name: str) -> Report:
        """How its run stands; of one that has ended and is still told of, a report without units."""

    def why(self, name: str) -> Any:
        """`plan.why.Blocker` in its form on the wire; empty if it is not waiting for anything."""

    def attempts(self, name: str, *, follow: bool) -> list[Any]:
        """Its logs, a unit's attempts in their order: `unit`, `attempt`, `size`, `sealed`, and `cut`.

        `cut` is how many bytes of the beginning are not kept, and `size` counts them too. Where nobody knows how many
        they are `cut` is -1, and `size` is what there is.
        """

    def read(self, name: str, unit: str, attempt: int, offset: int, when: When = NO_TIMES) -> Piece:
        """The next piece of a log, `offset` bytes (at least `cut`) from its beginning; empty if there is no more."""

    def elsewhere(self, name: str, unit: str, when: When = NO_TIMES) -> str:
        """The command that shows a log which this host does not have; empty if it has all there are."""

    def pause(self, seconds: float) -> None:
        """Let time pass before it is asked again."""

    def outputs(self, name: str) -> list[Any]:
        """`resource`, `step`, `output`, `value`, `encoding` and `sensitive` of each."""

    def abandon(self, name: str, reason: str, *, force: bool) -> None:
        """Give its cleanup up.

        Raises:
            DayflyError: it is not being deleted, and `force` is not set.
        """

    def retry(self, name: str, unit: str) -> dict[str, int]:
        """Try again now what waits for that: one unit, or all for an empty one; the attempts after which they waited.

        Raises:
            DayflyError: nothing waits.
        """

    def extend(self, name: str, seconds: int, until: str) -> str:
        """Let it live so long from now on (0: its own length), or until then; until when it lives, in any case.

        Raises:
            DayflyError: it has no time to live.
        """

    def plugin(self, name: str, version: str) -> Plugin:
        """A published plugin; the highest version for an empty one.

        Raises:
            DayflyError: `NOT_FOUND` if there is none.
        """


def abandoned_too_early(name: str, flags: str) -> DayflyError:
    """Return the error for a sandbox or route group that is not being deleted."""
    message = f"{subject.title(name)} is not being deleted, so there is no cleanup to give up"
    first = f"dayfly {subject.verb(name)} delete {subject.bare(name)}{flags}"
    return DayflyError(Exit.FAILED, message, f"run first: {first}; or leave everything behind with --force")
