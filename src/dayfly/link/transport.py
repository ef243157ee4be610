"""Protocol 2: the messages between a server and a host, and the guarantees although every message can be lost.

A transport implements `HostTransport` below: a direct call if both are in one process, otherwise a mailbox with long
polls (`dialer`). It may lose, delay, repeat and reorder messages; it may not alter them.

To the host
    Hello       A request for the inventory.
    Offer       A run by UID and generation: documents, forks, times. With `birth` it may be new to the host.
    Stop        The end of a run. Abandon: its end without cleanup.
    Retry       The back-off after these attempts is over.
    Lease       The run lives until then, at least.
    Reset       A resource gets another pool member.
    ControlPool A pool is paused, resumed or drained.
    Acknowledge These ends are recorded.
    ...Query    Queries: whether the host can run documents, states of runs, values, history, logs, bytes of a log.
To the server
    Inventory   Every living run with the number of its report, and every end that is not acknowledged.
    RunChanged  A run's report has a new number. A host may send the report with it; otherwise the server queries it
                when a client reads it.
    RunEnded    A run is over, with its last report.
    Heartbeat   The session, and how many messages of it reported runs.
    Reply, ...  The answer to one order or query, with its number and ID.

Rules
    Sessions    The host numbers its sessions, and begins each with an inventory. Messages of another session have no
                effect, and everything is ordered again in a new one. A host answers a message of another session with
                a heartbeat; a server that receives a message of a later session asks for the inventory.
    Orders      Each order is a join: order and repetition do not change the result. The first stop and abandon stay.
                A retry names attempts, and the highest count. A reset names the member to replace. An offer of an older
                generation changes nothing. A lease replaces the earlier one, and so does an action on a pool: the
                highest number in the session counts.
    Births      If a host does not know a run that is stopped, and the server does not say that it was known, the stop
                is recorded as the run's end, and a later offer has no effect. Once the host forgets an end
                (acknowledged, and a week old) it accepts no birth with a lower number than it has received.
    Reports     `seq` rises for each UID, over restarts too. An older or equal one is ignored.
    Ends        The host resends an end (in each inventory, to each order, now and then) until it is acknowledged. The
                server acknowledges it once the sandbox has left the store. An end is never inferred.
    Refusals    A host refuses what it cannot run, on a query and on an offer. Unknown fields of a message are ignored;
                an unknown type, or a document with unknown fields, is refused.

Losses
    an order    It is resent with a new number. The caller learns that it may have arrived (`HostSilentError`).
    a reply     The same.
    RunChanged  The host's count has a gap, or a heartbeat is ahead of it: the server queries the inventory.
    RunEnded    It is resent.
    Acknowledge The end is resent, and acknowledged again.
    Inventory   The server requests it again.
    a ledger    A host that no longer knows a run answers `unknown`, and the sandbox reports LedgerLost. Nothing is
                begun or cleaned up.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from dayfly.link.wire import AnyToHost, AnyToServer
from dayfly.spec.unsupported_fields import LocalRouting


class CompileTarget(NamedTuple):
    """The target for which sandboxes of a host are compiled.

    `publisher` is the name of this server's plugin publishers in the host's grants. `namespace` is the namespace of its
    Sandbox objects, if it has any. `declares`: whether forks derive only from baselines that are declared on the
    server.
    `routes`: whether the host routes requests to forks by their routing key.
    `pools`: whether it has resource pools. For other hosts, all resources are compiled without them.
    `parents`: whether it has shared parents. For other hosts, plugins with a parent are refused.
    """

    publisher: str = "local"
    namespace: str = ""
    declares: bool = True
    routes: bool = False
    pools: bool = False
    parents: bool = True

    @property
    def to_local(self) -> LocalRouting:
        """Whether the host can route requests to programs on the developer's machine; only that machine itself can."""
        if not self.declares:
            return LocalRouting.CLUSTER
        return LocalRouting.YES if self.routes else LocalRouting.UNROUTED


LOCAL_TARGET = CompileTarget()


class HostTransport(Protocol):
    """The transport to a host. Both methods return before a message arrives."""

    def attach(self, receive: Callable[[AnyToServer], None]) -> None:
        """Pass the host's messages to `receive`, in the event loop's thread. Only the last callback is called."""

    def send(self, message: AnyToHost) -> None:
        """Send a message.

        Raises:
            HostUnavailableError: the host is known to be disconnected.
        """
