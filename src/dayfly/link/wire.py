"""What a control plane and a host say to each other: messages, each whole by itself (protocol: `transport`).

A message may be lost, late, doubled or overtaken. So each tells a whole state, and numbers say which of two is newer.
As bytes it is JSON with its `type`; unknown fields of a message are ignored, those of a sealed document are refused.
"""

import enum
from typing import Any, TypeVar

import msgspec

from dayfly.spec.lifecycle import Lifecycle, Target, Unit, WireStruct
from dayfly.spec.report import Report
from dayfly.spec.run import Request
from dayfly.spec.run_data import Endpoint, HistoryEntry, LogInfo, Value

PROTOCOL = 2


class Message(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type", tag=True
):
    """Both ways. `session` is the host's number of its conversation with one process of the control plane."""

    session: int = 0


# --- from the control plane to a host -------------------------------------------------------------------------------


class ToHost(Message, frozen=True, kw_only=True):
    """What answers a message repeats its `number` and `id`.

    The number rises through a session, in the order of sending. The ID is the sender's own: other replicas of a server
    do not know it.
    """

    number: int = 0
    id: str = ""

    @property
    def address(self) -> dict[str, Any]:
        """The fields by which an answer finds whoever waits for it."""
        return {"session": self.session, "number": self.number, "id": self.id}


class Hello(ToHost, frozen=True, kw_only=True):
    """A request for the inventory, also from a server that does not know the session."""


class Offer(ToHost, frozen=True, kw_only=True):
    """A run to be sealed, or, for a run that exists, its newest forks and times. Offering twice is offering once.

    `uid` is the run's identity, `generation` that of its wish: an older one changes nothing. Without `birth` it may
    only go on: a host that does not know it says so. Times are unix milliseconds, 0 for never; the lease counts at
    birth.
    """

    uid: str
    generation: int = 0
    birth: bool = True
    name: str
    routing_key: str = ""
    target: Target
    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...] = ()
    expires_at: int = 0
    lease_until: int = 0


class Stop(ToHost, frozen=True, kw_only=True):
    """The run is to end. Where it is not `known` to have begun, it never will: an offer that comes later is late."""

    uid: str
    request: Request
    known: bool = False


class Abandon(ToHost, frozen=True, kw_only=True):
    """The run is to end without its cleanup, whether or not the host knows it."""

    uid: str
    request: Request


class Retry(ToHost, frozen=True, kw_only=True):
    """The back-off after those attempts of units is over; after no others."""

    uid: str
    attempts: dict[str, int]
    by: str = ""


class Lease(ToHost, frozen=True, kw_only=True):
    """The run's lease is renewed to `until`, unix milliseconds."""

    uid: str
    until: int


class Acknowledge(ToHost, frozen=True, kw_only=True):
    """The ends of these runs are noted. Nobody asks the host to say them again."""

    uids: tuple[str, ...]


class AskAdmit(ToHost, frozen=True, kw_only=True):
    """Could the host run this? Nothing is begun."""

    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...] = ()


class AskStanding(ToHost, frozen=True, kw_only=True):
    """How do these runs stand at this moment?"""

    uids: tuple[str, ...]


class AskValues(ToHost, frozen=True, kw_only=True):
    """Which outputs has a living run recorded?"""

    uid: str


class AskHistory(ToHost, frozen=True, kw_only=True):
    """What was written to a run's ledger?"""

    uid: str


class AskLogs(ToHost, frozen=True, kw_only=True):
    """Which logs of a run are there?"""

    uid: str


class AskLog(ToHost, frozen=True, kw_only=True):
    """At most `limit` bytes of one log from `offset`; attempt 0 is the newest there is.

    With `times`, also when they were printed. With `since` (Unix milliseconds) from the first line on that is no older.
    """

    uid: str
    unit: str
    attempt: int = 0
    offset: int = 0
    limit: int
    times: bool = False
    since: int = 0


# --- from a host to the control plane -------------------------------------------------------------------------------


class ToControl(Message, frozen=True, kw_only=True):
    """`count` numbers what a host says of itself, without gaps; what answers has none, who asks misses it himself."""

    count: int = 0


class Standing(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A run that the host knows. `seq` rises with each change of its report, also over restarts of the host.

    `report` and `endpoints` are there where somebody asked for them, or where the host sends them by itself.
    """

    uid: str
    seq: int
    report: Report | None = None
    endpoints: tuple[Endpoint, ...] = ()


class Answering(ToControl, frozen=True, kw_only=True):
    """What repeats the number and ID of the message that it answers."""

    number: int = 0
    id: str = ""


class Inventory(ToControl, frozen=True, kw_only=True):
    """Everything: every run that is alive, and every end that is not acknowledged. It begins each session.

    It covers all that was said up to its `count`. `routes` tells whether the host leads requests to forks by their
    routing key.
    """

    runs: tuple[Standing, ...] = ()
    ended: tuple[Standing, ...] = ()
    routes: bool = False


class Stands(ToControl, frozen=True, kw_only=True):
    """A run's report is another one."""

    run: Standing


class Ended(Answering, frozen=True, kw_only=True):
    """A run is over, with its last word. Said again until it is acknowledged; it answers an order that met it."""

    run: Standing


class Pulse(ToControl, frozen=True, kw_only=True):
    """Nothing new: this `count` was the last. Whoever lacks something says hello again.

    `routes` is the inventory's, as it is now: what leads requests may come to a cluster, and go. None says nothing.
    """

    routes: bool | None = None


class Verdict(enum.StrEnum):
    """What a host says to an order.

    `over`: the run has ended, which `Ended` says. `closed`: it takes none of these any more. `unavailable`: nothing was
    changed, it may go later. `failed`: the host's own fault.
    """

    TAKEN = "taken"
    UNKNOWN = "unknown"
    OVER = "over"
    CLOSED = "closed"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class Reply(Answering, frozen=True, kw_only=True):
    """To an order, or to a question that has no better answer. `taken` is durable. `seq` is the run's."""

    verdict: Verdict
    message: str = ""
    seq: int = 0


class Standings(Answering, frozen=True, kw_only=True):
    """Those of the runs asked for that the host knows, alive or ended, with their reports."""

    runs: tuple[Standing, ...]


class Values(Answering, frozen=True, kw_only=True):
    """A run's outputs."""

    values: tuple[Value, ...]


class History(Answering, frozen=True, kw_only=True):
    """A run's history."""

    entries: tuple[HistoryEntry, ...]


class Logs(Answering, frozen=True, kw_only=True):
    """A run's logs."""

    logs: tuple[LogInfo, ...]


class LogBytes(Answering, frozen=True, kw_only=True):
    """Bytes of a log, `info` from before they were read; None for a log that is not there, and then `logs` are.

    They begin at `offset`; -1 is where it was asked for, as of a host that knows no times. `times` is a row of pairs:
    from which byte of the log on, Unix milliseconds.
    """

    info: LogInfo | None = None
    data: bytes = b""
    offset: int = -1
    times: tuple[int, ...] = ()
    logs: tuple[LogInfo, ...] = ()


# --- as bytes -------------------------------------------------------------------------------------------------------

Order = Offer | Stop | Abandon | Retry | Lease
RunQuestion = AskValues | AskHistory | AskLogs | AskLog
Question = AskAdmit | AskStanding | RunQuestion
AnyToHost = Hello | Order | Acknowledge | Question
Answer = Reply | Standings | Values | History | Logs | LogBytes
News = Inventory | Stands | Ended | Pulse
AnyToControl = News | Answer


class Unreadable(ToHost, frozen=True, kw_only=True):
    """What came to a host and means nothing to it: of a type, or with a document, that it does not know."""

    problem: str


class _Address(msgspec.Struct):
    session: int = 0
    number: int = 0
    id: str = ""


M = TypeVar("M", bound=Message)

encode = msgspec.json.Encoder().encode
_to_host = msgspec.json.Decoder(AnyToHost).decode
_to_control = msgspec.json.Decoder(AnyToControl).decode
_address = msgspec.json.Decoder(_Address).decode


def read_to_host(data: bytes) -> AnyToHost | Unreadable:
    """A message to a host. What it does not understand it can still refuse, if it can be told whom to answer.

    Raises:
        msgspec.DecodeError: not even that.
    """
    try:
        found: AnyToHost = _to_host(data)
    except msgspec.ValidationError as fault:
        return Unreadable(**msgspec.structs.asdict(_address(data)), problem=str(fault))
    return found


def read_to_control(data: bytes) -> AnyToControl:
    """A message to the control plane.

    Raises:
        msgspec.DecodeError: it is none that we know.
    """
    found: AnyToControl = _to_control(data)
    return found
