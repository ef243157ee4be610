"""What a control plane and a host say to each other: messages, each whole by itself (protocol: `transport`).

A message may be lost, late, doubled or overtaken. So each tells a whole state, and numbers say which of two is newer.
As bytes it is JSON with its `type`; unknown fields of a message are ignored, those of a sealed document are refused.
"""

import enum
from typing import TypeVar

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
    """`number` is of this sending and rises through a session; what answers it repeats it."""

    number: int = 0


class Hello(ToHost, frozen=True, kw_only=True):
    """A process of the control plane asks for everything. One that is new to the host begins a session."""

    process: str
    protocol: int = PROTOCOL


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


class Adrift(ToControl, frozen=True, kw_only=True):
    """The host has no session, or not the one it was spoken to in: whoever it is, say hello."""


class Inventory(ToControl, frozen=True, kw_only=True):
    """Everything, for whoever said hello: every run that is alive, and every end that is not acknowledged.

    It covers all that was said up to its `count`. `routes` tells whether the host leads requests to forks by their
    routing key.
    """

    number: int
    process: str
    protocol: int = PROTOCOL
    runs: tuple[Standing, ...] = ()
    ended: tuple[Standing, ...] = ()
    routes: bool = False


class Stands(ToControl, frozen=True, kw_only=True):
    """A run's report is another one."""

    run: Standing


class Ended(ToControl, frozen=True, kw_only=True):
    """A run is over, with its last word. Said again until it is acknowledged; `number` is of an order that met it."""

    run: Standing
    number: int = 0


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


class Reply(ToControl, frozen=True, kw_only=True):
    """To an order, or to a question that has no better answer. `taken` is durable. `seq` is the run's."""

    number: int
    verdict: Verdict
    message: str = ""
    seq: int = 0


class Standings(ToControl, frozen=True, kw_only=True):
    """Those of the runs asked for that the host knows, alive or ended, with their reports."""

    number: int
    runs: tuple[Standing, ...]


class Values(ToControl, frozen=True, kw_only=True):
    """A run's outputs."""

    number: int
    values: tuple[Value, ...]


class History(ToControl, frozen=True, kw_only=True):
    """A run's history."""

    number: int
    entries: tuple[HistoryEntry, ...]


class Logs(ToControl, frozen=True, kw_only=True):
    """A run's logs."""

    number: int
    logs: tuple[LogInfo, ...]


class LogBytes(ToControl, frozen=True, kw_only=True):
    """Bytes of a log, `info` from before they were read; None for a log that is not there, and then `logs` are.

    They begin at `offset`; -1 is where it was asked for, as of a host that knows no times. `times` is a row of pairs:
    from which byte of the log on, Unix milliseconds.
    """

    number: int
    info: LogInfo | None = None
    data: bytes = b""
    offset: int = -1
    times: tuple[int, ...] = ()
    logs: tuple[LogInfo, ...] = ()


# --- as bytes -------------------------------------------------------------------------------------------------------

Order = Offer | Stop | Abandon | Retry | Lease
Question = AskAdmit | AskStanding | AskValues | AskHistory | AskLogs | AskLog
AnyToHost = Hello | Order | Acknowledge | Question
Answer = Reply | Standings | Values | History | Logs | LogBytes
News = Adrift | Inventory | Stands | Ended | Pulse
AnyToControl = News | Answer


class Unreadable(ToHost, frozen=True, kw_only=True):
    """What came to a host and means nothing to it: of a type, or with a document, that it does not know."""

    problem: str


M = TypeVar("M", bound=Message)

encode = msgspec.json.Encoder().encode
_to_host = msgspec.json.Decoder(AnyToHost).decode
_to_control = msgspec.json.Decoder(AnyToControl).decode
_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_number = msgspec.json.Decoder(int).decode


def read_to_host(data: bytes) -> AnyToHost | Unreadable:
    """A message to a host. What it does not understand it can still refuse, if it can be told whom to answer.

    Raises:
        msgspec.DecodeError: not even that.
    """
    try:
        found: AnyToHost = _to_host(data)
    except msgspec.ValidationError as fault:
        known = _envelope(data)
        session, number = (_number(known.get(name, msgspec.Raw(b"0"))) for name in ("session", "number"))
        return Unreadable(session=session, number=number, problem=str(fault))
    return found


def read_to_control(data: bytes) -> AnyToControl:
    """A message to the control plane.

    Raises:
        msgspec.DecodeError: it is none that we know.
    """
    found: AnyToControl = _to_control(data)
    return found
