"""One replica's way to a host that dials in: `link.transport.Host` over the mailbox of its cluster.

What a `Link` numbers is of its process alone. In the mailbox all replicas share one sequence, so numbers are exchanged
here on their way: those that go for the mailbox's, those that come for the Link's own. What answers somebody else's
question has the number 0, which nobody waits for; what it says of runs is news to all.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from dayfly.control.agents.mailbox import process_of
from dayfly.control.exchange import rfc3339
from dayfly.link import wire
from dayfly.link.envelope import MOST_ANSWER, has_room
from dayfly.link.transport import Place
from dayfly.spec.host_errors import HostUnavailableError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.control.agents.mailbox import Standing

# A host asks at least every half a minute; one that has not for so long is not there.
SILENT_MS = 90_000
_REMEMBERED = 4096

log = logging.getLogger(__name__)


class AgentHost:
    """Of one cluster. `standing` is what the roster said last."""

    def __init__(self, standing: Standing, now: Callable[[], int], poke: Callable[[], None]) -> None:
        self.standing = standing
        self.read = standing.inbox
        """Up to which number this replica has read what the host said."""
        self.pending: list[wire.AnyToHost] = []
        self._now = now
        self._poke = poke
        self._hear: Callable[[wire.AnyToControl], None] = lambda _: None
        self._process = ""
        self._session = 0
        # By a number in the mailbox that of our Link.
        self._ours: OrderedDict[int, int] = OrderedDict()
        self._theirs: dict[int, int] = {}

    def attach(self, hear: Callable[[wire.AnyToControl], None]) -> None:
        """Have what the host says heard."""
        self._hear = hear

    def send(self, message: wire.AnyToHost) -> None:
        """Have a message published soon.

        Raises:
            HostUnavailableError: nobody would fetch it now. What is owed is sent again once there is somebody.
            RefusedError: an offer that is too long to be read there, now or ever.
        """
        if trouble := self.trouble:
            raise HostUnavailableError(trouble)
        if isinstance(message, wire.Offer | wire.AskAdmit):
            body = wire.encode(message).decode()
            if not has_room(body, MOST_ANSWER):
                raise RefusedError(
                    f"its documents have {len(body)} characters together, which no operator of a cluster reads: let it "
                    "have fewer resources, or put long texts into images"
                )
        if isinstance(message, wire.Hello):
            self._process = message.process
        self.pending.append(message)
        self._poke()

    @property
    def trouble(self) -> str:
        """Why nothing can be sent; empty if it can."""
        standing = self.standing
        if standing.frozen:
            return f"frozen: {standing.frozen}"
        if not standing.session:
            return f"no operator has connected yet for the cluster {standing.cluster}"
        if standing.seen_at < self._now() - SILENT_MS:
            return f"its operator was last heard at {rfc3339(standing.seen_at)}"
        return ""

    @property
    def place(self) -> Place:
        """What this host's sandboxes are compiled for. Forks derive from what its cluster has, and not from ours."""
        return Place(publisher=self.standing.org, namespace=self.standing.namespace, declares=False)

    def published(self, session: int, pairs: list[tuple[int, int]]) -> None:
        """What was sent as the first of each pair lies in the mailbox as the second."""
        if session != self._session:
            self._session = session
            self._ours.clear()
            self._theirs.clear()
        for ours, number in pairs:
            if number:
                self._ours[number], self._theirs[ours] = ours, number
        while len(self._ours) > _REMEMBERED:
            _, ours = self._ours.popitem(last=False)
            self._theirs.pop(ours, None)

    def number_of(self, ours: int) -> int:
        """Under which number a message of our Link's lies in the mailbox; 0 if nobody knows any more."""
        return self._theirs.get(ours, 0)

    def heard(self, session: int, body: str) -> None:
        """The host has said this, in that session."""
        try:
            message = wire.read_to_control(body.encode())
        except (msgspec.DecodeError, RecursionError) as fault:
            # One with a newer Dayfly, perhaps: what was lost is asked for again.
            log.warning("the operator of cluster %s says what is not understood: %s", self.standing.cluster, fault)
            return
        if isinstance(message, wire.Inventory) and message.process == process_of(session) and self._process:
            message = msgspec.structs.replace(message, process=self._process)
        number = getattr(message, "number", 0)
        if number:
            ours = self._ours.get(number, 0) if session == self._session else 0
            message = msgspec.structs.replace(message, number=ours)
        self._hear(message)
