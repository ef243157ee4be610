"""The messages between a server and a host (protocol: `transport`).

Each message has a complete state, and numbers show which of two is newer. It is encoded as JSON with its `type`.
Unknown fields of a message are ignored; those of a sealed document are refused.
"""

import enum
from typing import Any, TypeVar

import msgspec

from dayfly.spec.leak_check import LeakCheckSpec
from dayfly.spec.leak_report import LeakReport
from dayfly.spec.lifecycle import Lifecycle, Target, Unit, WireStruct
from dayfly.spec.report import RunReport
from dayfly.spec.resource_pool import ResourcePoolSpec
from dayfly.spec.resource_token import ResourceToken
from dayfly.spec.run import EndRequest
from dayfly.spec.run_data import HistoryEntry, LogInfo, RunEndpoint, Value

PROTOCOL = 2


class Message(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type", tag=True
):
    """A message in either direction. `session` is the host's number of the session."""

    session: int = 0


# --- from the server to a host --------------------------------------------------------------------------------------


class ToHost(Message, frozen=True, kw_only=True):
    """A message to a host. Its answer repeats `number` and `id`.

    The number rises through a session, in the order of sending. The ID is known only to the replica that sent it.
    """

    number: int = 0
    id: str = ""

    @property
    def address(self) -> dict[str, Any]:
        """The fields that an answer repeats."""
        return {"session": self.session, "number": self.number, "id": self.id}


class Hello(ToHost, frozen=True, kw_only=True):
    """A request for the inventory, also from a server that does not know the session."""


class Offer(ToHost, frozen=True, kw_only=True):
    """A run to be sealed, or, for an existing run, its newest forks and times. A repeated offer changes nothing.

    `uid` identifies the run, and `generation` its spec: an older generation changes nothing. Without `birth` the run
    must exist; a host that does not know it answers so. Times are unix milliseconds, 0 for never. The lease counts at
    birth.

    With `pool` it is a pool instead of a run: `documents` is the template of its members, and it ends when its unused
    members are gone.
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
    pool: ResourcePoolSpec | None = None


class Stop(ToHost, frozen=True, kw_only=True):
    """Request the run's end. If it is not `known` to have begun, it never will, also if an offer comes later."""

    uid: str
    request: EndRequest
    known: bool = False


class Abandon(ToHost, frozen=True, kw_only=True):
    """Request the run's end without its cleanup, whether or not the host knows the run."""

    uid: str
    request: EndRequest


class Retry(ToHost, frozen=True, kw_only=True):
    """End the back-off after these attempts of units, and after no others."""

    uid: str
    attempts: dict[str, int]
    by: str = ""


class Lease(ToHost, frozen=True, kw_only=True):
    """Renew the run's lease to `until`, unix milliseconds."""

    uid: str
    until: int


class Reset(ToHost, frozen=True, kw_only=True):
    """Give a resource another pool member, in place of the one with this name."""

    uid: str
    resource: str
    member: str
    by: str = ""


class PoolAction(enum.StrEnum):
    """An action on a pool: stop making members, make members again, or stop and remove all unused members."""

    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"


class ControlPool(ToHost, frozen=True, kw_only=True):
    """Pause, resume or drain a pool. A later action replaces an earlier one."""

    uid: str
    action: PoolAction
    by: str = ""


class PutLeakCheck(ToHost, frozen=True, kw_only=True):
    """Create a leak check or change it. `uid` is its name with a prefix.

    `plugin` has its version, `inventory` lists, and `deletes` delete, by `name@version` of the plugin. `undeletable`
    are versions whose delete steps cannot run without their sandbox.
    """

    uid: str
    name: str
    spec: LeakCheckSpec
    plugin: str
    inventory: Lifecycle
    deletes: dict[str, Lifecycle] = {}
    undeletable: tuple[str, ...] = ()


class DropLeakCheck(ToHost, frozen=True, kw_only=True):
    """Delete a leak check. With `after`, it is `closed` if the check has begun a deletion with a higher sequence."""

    uid: str
    name: str
    after: int | None = None


class SweepLeaks(ToHost, frozen=True, kw_only=True):
    """List soon. With `plan`, delete all orphans if their digest is the same then.

    `deletes` are added to those of the check for this plan, if the check has the given `spec` then.
    """

    uid: str
    name: str
    plan: str = ""
    spec: LeakCheckSpec | None = None
    deletes: dict[str, Lifecycle] = {}


class LeaksQuery(ToHost, frozen=True, kw_only=True):
    """A query for the state of leak checks: all, or those with these `names`.

    A `brief` answer has no findings. Deletions are only in the answer if their sequence is higher than `after`; for
    None, none are.
    """

    names: tuple[str, ...] = ()
    brief: bool = False
    after: int | None = None


class ResourcesQuery(ToHost, frozen=True, kw_only=True):
    """A query for the runs of resources whose items another cluster has listed. The tokens prove who has made them."""

    tokens: tuple[ResourceToken, ...]


class Acknowledge(ToHost, frozen=True, kw_only=True):
    """Inform the host that the ends of these runs are recorded, so that it stops resending them."""

    uids: tuple[str, ...]


class AdmissionQuery(ToHost, frozen=True, kw_only=True):
    """A query whether the host could run this. Nothing is started."""

    documents: tuple[Lifecycle, ...]
    forks: tuple[Unit, ...] = ()


class StatusQuery(ToHost, frozen=True, kw_only=True):
    """A query for the state of these runs."""

    uids: tuple[str, ...]


class ValuesQuery(ToHost, frozen=True, kw_only=True):
    """A query for the recorded outputs of a living run."""

    uid: str


class HistoryQuery(ToHost, frozen=True, kw_only=True):
    """A query for the history of a run's ledger."""

    uid: str


class LogsQuery(ToHost, frozen=True, kw_only=True):
    """A query for which logs of a run exist."""

    uid: str


class LogQuery(ToHost, frozen=True, kw_only=True):
    """A query for at most `limit` bytes of one log from `offset`; attempt 0 is the newest.

    With `times`, also for when they were printed. With `since` (Unix milliseconds), from the first line that is not
    older.
    """

    uid: str
    unit: str
    attempt: int = 0
    offset: int = 0
    limit: int
    times: bool = False
    since: int = 0


# --- from a host to the server --------------------------------------------------------------------------------------


class ToServer(Message, frozen=True, kw_only=True):
    """A message of a host. `count` numbers its reports of runs, without gaps; answers have none."""

    count: int = 0


class RunStatus(WireStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The status of a run. `seq` rises with each change of its report, also over restarts of the host.

    `report` and `endpoints` are in answers, and in messages of hosts that dial in.
    """

    uid: str
    seq: int
    report: RunReport | None = None
    endpoints: tuple[RunEndpoint, ...] = ()


class AnswerMessage(ToServer, frozen=True, kw_only=True):
    """An answer, with the number and ID of the message that it answers."""

    number: int = 0
    id: str = ""


class Inventory(ToServer, frozen=True, kw_only=True):
    """The list of living runs and of ends that are not acknowledged; the first message of each session.

    It includes all reports up to its `count`. `routes`: whether the host routes requests to forks by their routing
    key. `pools`: whether it has resource pools and executes units of kind acquire. Pools are among its runs; their
    members are not. `parents`: whether it has shared parents, which are not among its runs.
    """

    runs: tuple[RunStatus, ...] = ()
    ended: tuple[RunStatus, ...] = ()
    routes: bool = False
    pools: bool = False
    parents: bool = False


class RunChanged(ToServer, frozen=True, kw_only=True):
    """A run's report has changed."""

    run: RunStatus


class RunEnded(AnswerMessage, frozen=True, kw_only=True):
    """A run has ended, with its last report. It is resent until it is acknowledged, and answers later orders."""

    run: RunStatus


class Heartbeat(ToServer, frozen=True, kw_only=True):
    """The count of the last report, so that the server notices a lost one.

    `routes` is that of the inventory, as it is now: a cluster may gain or lose routing. None means unchanged.
    """

    routes: bool | None = None


class Verdict(enum.StrEnum):
    """A host's answer to an order.

    `over`: the run has ended, as `RunEnded` reports. `closed`: the run no longer accepts such an order. `unavailable`:
    nothing was changed, and a later try may succeed. `failed`: a defect of the host.
    """

    TAKEN = "taken"
    UNKNOWN = "unknown"
    OVER = "over"
    CLOSED = "closed"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class Reply(AnswerMessage, frozen=True, kw_only=True):
    """The answer to an order, or to a query that fails. `taken` is durable. `seq` is that of the run's report."""

    verdict: Verdict
    message: str = ""
    seq: int = 0


class RunStatuses(AnswerMessage, frozen=True, kw_only=True):
    """The known ones of the requested runs, living or ended, with their reports."""

    runs: tuple[RunStatus, ...]


class Values(AnswerMessage, frozen=True, kw_only=True):
    """A run's outputs."""

    values: tuple[Value, ...]


class History(AnswerMessage, frozen=True, kw_only=True):
    """A run's history."""

    entries: tuple[HistoryEntry, ...]


class Logs(AnswerMessage, frozen=True, kw_only=True):
    """A run's logs."""

    logs: tuple[LogInfo, ...]


class Leaks(AnswerMessage, frozen=True, kw_only=True):
    """The state of all leak checks."""

    reports: tuple[LeakReport, ...]


class ResourceStates(AnswerMessage, frozen=True, kw_only=True):
    """The states of the runs of those resources that the host has made: open, closed, none or unanswered, by ID."""

    states: dict[str, str]


class LogBytes(AnswerMessage, frozen=True, kw_only=True):
    """Bytes of a log, and its `info` from before they were read; for a missing log, None and all `logs`.

    They begin at `offset`; -1 means the requested one, of a host that knows no times. `times` is a row of pairs: a byte
    of the log, and when it was printed in Unix milliseconds.
    """

    info: LogInfo | None = None
    data: bytes = b""
    offset: int = -1
    times: tuple[int, ...] = ()
    logs: tuple[LogInfo, ...] = ()


# --- as bytes -------------------------------------------------------------------------------------------------------

LeakOrder = PutLeakCheck | DropLeakCheck | SweepLeaks
RunOrder = Offer | Stop | Abandon | Retry | Lease | Reset | ControlPool
Order = RunOrder | LeakOrder
RunQuery = ValuesQuery | HistoryQuery | LogsQuery | LogQuery
Query = AdmissionQuery | StatusQuery | RunQuery | LeaksQuery | ResourcesQuery
AnyToHost = Hello | Order | Acknowledge | Query
Answer = Reply | RunStatuses | Values | History | Logs | Leaks | ResourceStates | LogBytes
HostEvent = Inventory | RunChanged | RunEnded | Heartbeat
AnyToServer = HostEvent | Answer


class Unreadable(ToHost, frozen=True, kw_only=True):
    """A message that the host cannot read, because its type or a field of its document is unknown."""

    problem: str


class _Address(msgspec.Struct):
    session: int = 0
    number: int = 0
    id: str = ""


M = TypeVar("M", bound=Message)

encode = msgspec.json.Encoder().encode
_to_host = msgspec.json.Decoder(AnyToHost).decode
_to_server = msgspec.json.Decoder(AnyToServer).decode
_address = msgspec.json.Decoder(_Address).decode


def decode_to_host(data: bytes) -> AnyToHost | Unreadable:
    """Decode a message to a host. An unreadable one is returned as `Unreadable` if its sender can be answered.

    Raises:
        msgspec.DecodeError: its sender cannot be answered.
    """
    try:
        found: AnyToHost = _to_host(data)
    except msgspec.ValidationError as fault:
        return Unreadable(**msgspec.structs.asdict(_address(data)), problem=str(fault))
    return found


def decode_to_server(data: bytes) -> AnyToServer:
    """Decode a message of a host.

    Raises:
        msgspec.DecodeError: it is unknown.
    """
    found: AnyToServer = _to_server(data)
    return found
