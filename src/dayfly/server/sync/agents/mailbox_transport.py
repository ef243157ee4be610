"""The transport of one replica to a host with an agent: `link.transport.HostTransport` with the cluster's mailbox.

The mailbox numbers the messages of all replicas. An answer contains the ID of its request, so only the replica that
sent the request waits for it. Reports of runs are for all replicas.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from dayfly.link import wire
from dayfly.link.envelope import MAX_ANSWER_BYTES, has_room
from dayfly.link.transport import CompileTarget
from dayfly.server.http.request_data import rfc3339
from dayfly.spec.host_errors import DocumentsRefusedError, HostNeverConnectedError, HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.server.sync.agents.sessions import MailboxState

# A host polls at least every 30 seconds; after this time it counts as unreachable.
SILENT_MS = 90_000

log = logging.getLogger(__name__)


class MailboxTransport:
    """The transport to one cluster.

    Args:
        mailbox: The last read state of its mailbox.
        now: Returns Unix milliseconds.
        wake: Called when a message is pending.
    """

    def __init__(self, mailbox: MailboxState, now: Callable[[], int], wake: Callable[[], None]) -> None:
        self.mailbox = mailbox
        self.read = mailbox.inbox
        """The number of the last message of the host that this replica has read."""
        self.pending: list[wire.AnyToHost] = []
        self._now = now
        self._wake = wake
        self._handle: Callable[[wire.AnyToServer], None] = lambda _: None

    def attach(self, handle: Callable[[wire.AnyToServer], None]) -> None:
        """Pass the host's messages to `handle`."""
        self._handle = handle

    def send(self, message: wire.AnyToHost) -> None:
        """Queue a message for the next write to the mailbox.

        Raises:
            HostUnavailableError: the host is unreachable. The sync resends pending orders later.
            HostNeverConnectedError: no operator of the cluster has connected yet.
            DocumentsRefusedError: an offer is too large for a host, so resending it would not help.
        """
        if problem := self.problem:
            raise (HostUnavailableError if self.mailbox.session else HostNeverConnectedError)(problem)
        if isinstance(message, wire.Offer | wire.AdmissionQuery):
            body = wire.encode(message).decode()
            if not has_room(body, MAX_ANSWER_BYTES):
                raise DocumentsRefusedError(
                    f"its documents have {len(body)} characters together, more than an operator accepts: use fewer "
                    "resources, or move long texts into images"
                )
        self.pending.append(message)
        self._wake()

    @property
    def problem(self) -> str:
        """Why the host cannot be reached; empty if it can."""
        mailbox = self.mailbox
        if mailbox.frozen:
            return f"frozen: {mailbox.frozen}"
        if not mailbox.session:
            return f"no operator has connected yet for the cluster {mailbox.cluster}"
        if mailbox.seen_at < self._now() - SILENT_MS:
            return f"its operator last connected at {rfc3339(mailbox.seen_at)}"
        return ""

    @property
    def compile_target(self) -> CompileTarget:
        """The compile target, as far as the mailbox knows it. Forks derive from workloads of its cluster."""
        return CompileTarget(publisher=self.mailbox.org, namespace=self.mailbox.namespace, declares=False)

    def receive(self, body: str) -> None:
        """Receive a message of the host."""
        try:
            message = wire.decode_to_server(body.encode())
        except (msgspec.DecodeError, RecursionError) as fault:
            # A newer Dayfly may have sent it. If it was a report, the server requests the inventory later.
            log.warning("cannot read a message from the operator of cluster %s: %s", self.mailbox.cluster, fault)
            return
        self._handle(message)
