"""The transport of one replica to a host that dials in: `link.transport.Host` over the cluster's mailbox.

The mailbox numbers what all replicas send. An answer has the ID of what it answers, so no other replica waits for it;
what a host says of runs is for all.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from dayfly.link import wire
from dayfly.link.envelope import MOST_ANSWER, has_room
from dayfly.link.transport import CompileTarget
from dayfly.server.http.handler import rfc3339
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.server.sync.agents.mailbox import MailboxState

# A host polls at least every half a minute; after this time it counts as away.
SILENT_MS = 90_000

log = logging.getLogger(__name__)


class MailboxTransport:
    """The transport to one cluster. `standing` is the last read state of its mailbox."""

    def __init__(self, standing: MailboxState, now: Callable[[], int], poke: Callable[[], None]) -> None:
        self.standing = standing
        self.read = standing.inbox
        """The number of the last message of the host that this replica has read."""
        self.pending: list[wire.AnyToHost] = []
        self._now = now
        self._poke = poke
        self._hear: Callable[[wire.AnyToControl], None] = lambda _: None

    def attach(self, hear: Callable[[wire.AnyToControl], None]) -> None:
        """Pass the host's messages to `hear`."""
        self._hear = hear

    def send(self, message: wire.AnyToHost) -> None:
        """Queue a message, which is stored soon.

        Raises:
            HostUnavailableError: nobody would fetch it now. What is owed is sent again once there is somebody.
            RefusedError: an offer that is too long to be read there, now or ever.
        """
        if trouble := self.trouble:
            raise HostUnavailableError(trouble)
        if isinstance(message, wire.Offer | wire.AskAdmit):
            body = wire.encode(message).decode()
            if not has_room(body, MOST_ANSWER):
                raise DocumentsRefusedError(
                    f"its documents have {len(body)} characters together, which no operator of a cluster reads: let it "
                    "have fewer resources, or put long texts into images"
                )
        self.pending.append(message)
        self._poke()

    @property
    def trouble(self) -> str:
        """Why the host cannot be reached; empty if it can."""
        standing = self.standing
        if standing.frozen:
            return f"frozen: {standing.frozen}"
        if not standing.session:
            return f"no operator has connected yet for the cluster {standing.cluster}"
        if standing.seen_at < self._now() - SILENT_MS:
            return f"its operator was last heard at {rfc3339(standing.seen_at)}"
        return ""

    @property
    def place(self) -> CompileTarget:
        """What sandboxes of this host are compiled for. Forks derive from workloads of its cluster."""
        return CompileTarget(publisher=self.standing.org, namespace=self.standing.namespace, declares=False)

    def heard(self, body: str) -> None:
        """Receive a message of the host."""
        try:
            message = wire.read_to_control(body.encode())
        except (msgspec.DecodeError, RecursionError) as fault:
            # It may be of a newer Dayfly. If a report was lost, the inventory is requested.
            log.warning("the operator of cluster %s says what is not understood: %s", self.standing.cluster, fault)
            return
        self._hear(message)
