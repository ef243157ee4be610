"""The port between the control plane and a host: messages, both ways, none of which is certain to arrive.

The forms are in `link.wire`. The server has `link.server_end` (numbers, waiting), `link.host_state` (what the host has
said) and `control.host_sync` (what is owed to it); each host has `link.host_end`. In between is whoever
implements `Host` below: nothing at all where both are in one process, a mailbox with long polls where they are not.
He may lose, delay, double and reorder messages; he may not alter them.

To the host
    Hello       Everything, please. From a process that is new to the host it begins a *session*.
    Offer       A run by UID and *generation*: documents, forks, times. With `birth` it may be new to the host.
    Stop        Its end. Abandon: its end without cleanup.
    Retry       The back-off after these very attempts is over.
    Lease       It lives until then, at least.
    Acknowledge These ends are noted.
    Ask...      Questions: can you run this, how do these runs stand, values, history, logs, bytes of a log.
To the control plane
    Inventory   Every living run with the number of its report, and every end that is not acknowledged.
    Stands      A run's report has a new number. The report itself comes along if the host likes; else it is asked for
                when somebody looks. So a busy host that nobody watches draws none.
    Ended       A run is over, with its last word.
    Pulse       So many things have been said. Adrift: say hello.
    Reply, ...  What comes of one order or question, by its number.

What holds
    Who is who  A session is of one process here and one there, and its number rises. What belongs to another one is
                void: orders of a process that has died are not carried out under the next. A fresh process here says
                hello; a fresh host is adrift until somebody does. All that was owed is owed again then.
    Orders      Each is a join: in whatever order they come, and however often, the same is left. Stop and abandon stay,
                whoever asked first; a retry names attempts and takes the highest; an offer of an older generation
                changes nothing. A lease replaces what was there, so of leases the highest number of the
                session counts.
    Births      A stop of a run that the host does not know, and is not said to have known, is kept as that run's end:
                an offer that it has overtaken is late, and stays so. Once the host forgets an end (acknowledged, and a
                week old) it takes no birth that was numbered before that.
    Reports     `seq` rises for each UID, over restarts too. Older or equal is nothing new.
    Ends        Kept by the host, and said again (in each inventory, to each order, now and then) until acknowledged;
                acknowledged here once the sandbox has left the store. Never inferred.
    Refusals    What a host cannot run it refuses, when asked and when offered. Unknown fields of a message are ignored;
                a type or a document with more than the host knows is refused, with its number.

What each loss means
    an order    No reply: it is owed still and is sent again, with a new number. Who waits is told that it may have
                arrived (`HostSilentError`).
    a reply     The same; the order comes twice, which is once.
    Stands      A gap in the host's count, or a pulse beyond what was heard: hello, and the inventory has it.
    Ended       It is said again.
    Acknowledge The end is said again, and acknowledged again.
    Inventory   Hello again.
    a ledger    The host knows no run of that UID though it once took it over: it answers `unknown`, the sandbox says
                LedgerLost, and nothing is begun or cleaned up.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from dayfly.link.wire import AnyToControl, AnyToHost
from dayfly.spec.unsupported_fields import ToLocal


class Place(NamedTuple):
    """What a host's sandboxes are compiled for.

    `publisher` is what its grants call those who publish plugins here, `namespace` that of its Sandbox objects, where
    it has any. `declares`: whether forks derive from what is declared here, and from nothing of its own. `routes`:
    whether it leads requests to forks by their routing key.
    """

    publisher: str = "local"
    namespace: str = ""
    declares: bool = True
    routes: bool = False

    @property
    def to_local(self) -> ToLocal:
        """Whether it leads requests to programs of the developer's machine, which only that machine itself can."""
        if not self.declares:
            return ToLocal.CLUSTER
        return ToLocal.YES if self.routes else ToLocal.UNROUTED


HERE = Place()


class Host(Protocol):
    """The way to a host. Both methods return at once, and neither says that anything has arrived."""

    def attach(self, hear: Callable[[AnyToControl], None]) -> None:
        """Have what the host says heard, in the event loop's thread. Whoever is attached last hears."""

    def send(self, message: AnyToHost) -> None:
        """Send a message.

        Raises:
            HostUnavailableError: it is known already that nobody is there to hear it.
        """
