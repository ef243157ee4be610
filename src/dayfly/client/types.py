"""What the server answers, as types. Times are aware datetimes; in reports they are unix milliseconds, 0 for not yet.

A server of another release may say more than we know, and what it does not say yet has a default. A test holds them
against the document in which the server describes itself.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from dayfly.client.variables import check_variable, variable_name
from dayfly.spec.report import with_reason
from dayfly.spec.scalars import semver


class _Form(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object."""


class Condition(_Form, frozen=True, kw_only=True):
    """As in Kubernetes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Endpoint(_Form, frozen=True, kw_only=True):
    """Where a sandbox or a route group answers; `url` is empty where nothing routes to it."""

    name: str = ""
    url: str = ""
    target: str = ""
    route_type: str = ""
    cluster: str = ""


class Status(_Form, frozen=True, kw_only=True):
    """How a sandbox or a route group stands."""

    ready: bool
    reason: str
    message: str
    conditions: tuple[Condition, ...] = ()
    unserved: tuple[str, ...] = ()
    scheduled_delete_time: dt.datetime | None = None


class Progress(_Form, frozen=True, kw_only=True):
    """`done` of `total` units of the `phase` that it is in; `tone` says how its reason stands."""

    phase: str = ""
    done: int = 0
    total: int = 0
    tone: str = ""


class Sandbox(_Form, frozen=True, kw_only=True):
    """A sandbox. `spec` is as it was wished for, with defaults."""

    name: str
    routing_key: str
    created_at: dt.datetime
    updated_at: dt.datetime
    spec: dict[str, Any]
    endpoints: tuple[Endpoint, ...]
    status: Status
    progress: Progress = Progress()
    warnings: tuple[str, ...] = ()
    namespace: str = ""


class RouteGroupStatus(Status, frozen=True, kw_only=True):
    """How a route group stands, and which sandboxes it has; `matched` counts them."""

    matched_sandboxes: tuple[str, ...]
    matched: int = 0
    conflicts: tuple[dict[str, Any], ...] = ()


class RouteGroup(_Form, frozen=True, kw_only=True):
    """A route group."""

    name: str
    routing_key: str
    created_at: dt.datetime
    updated_at: dt.datetime
    spec: dict[str, Any]
    endpoints: tuple[Endpoint, ...]
    status: RouteGroupStatus
    progress: Progress = Progress()
    namespace: str = ""


class Plugin(_Form, frozen=True, kw_only=True):
    """A published version of a resource plugin; `name` is like `db@1.2.0`. In lists it comes without its README."""

    name: str
    spec: dict[str, Any]
    created_at: dt.datetime
    updated_at: dt.datetime
    status: dict[str, Any] = {}
    readme: str = ""

    @property
    def version(self) -> str:
        """What stands behind the `@`; 0.0.0 where nothing does."""
        return self.name.partition("@")[2] or semver.UNVERSIONED


class Baseline(_Form, frozen=True, kw_only=True):
    """What forks on a machine derive from."""

    kind: str
    name: str
    command: tuple[str, ...]
    namespace: str = "default"
    env: dict[str, str] = {}
    port: int | None = None
    workdir: str = ""
    routed_port: int | None = None
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None


class Request(_Form, frozen=True, kw_only=True):
    """That a run was to end, and why."""

    at: int = 0
    reason: str = ""
    message: str = ""
    by: str = ""


class Unit(_Form, frozen=True, kw_only=True):
    """One step or fork. `state` is a word of docs/how-it-works.md: waiting, running, succeeded, failed, retrying ..."""

    id: str
    resource: str = ""
    name: str
    event: str
    kind: str
    state: str
    attempt: int = 0
    reason: str = ""
    message: str = ""
    since: int = 0
    until: int = 0
    started_at: int = 0
    ended_at: int = 0
    reads: tuple[str, ...] = ()
    waits_on: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class Report(_Form, frozen=True, kw_only=True):
    """How each unit of a run stands. `phase` is open, closed (its end is on the way), cleaned or abandoned."""

    uid: str
    name: str
    cluster: str
    routing_key: str
    version: int
    endpoints: tuple[Endpoint, ...] = ()
    phase: str = "cleaned"
    ready: bool = False
    reason: str = "Cleaned"
    message: str = ""
    about: str = ""
    done: int = 0
    total: int = 0
    units: tuple[Unit, ...] = ()
    closed: Request | None = None
    abandon: Request | None = None
    born_at: int = 0
    unserved: tuple[str, ...] = ()
    denied: dict[str, str] = {}

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and nothing of it is on the way any more."""
        return self.phase in ("cleaned", "abandoned")


class Blocker(_Form, frozen=True, kw_only=True):
    """One thing that is not as it should be, and those that it is not so because of."""

    subject: str = ""
    reason: str = ""
    message: str = ""
    since: int = 0
    next: str = ""
    because: tuple[Blocker, ...] = ()

    @property
    def roots(self) -> tuple[Blocker, ...]:
        """What it comes down to."""
        return tuple(root for each in self.because for root in each.roots) or (self,)

    def __str__(self) -> str:
        return f"{self.subject}: {with_reason(self.reason, self.message)}"


class Attempt(_Form, frozen=True, kw_only=True):
    """That there is a log of an attempt, and how long it is so far."""

    unit: str
    attempt: int
    size: int
    sealed: bool


class LogTime(_Form, frozen=True, kw_only=True):
    """From this byte of a log on it was printed at this time, until the next."""

    offset: int
    time: dt.datetime


class LogPiece(_Form, frozen=True, kw_only=True):
    """A piece of one log: bytes as the step printed them, and where it was asked for, when."""

    unit: str
    attempt: int
    offset: int
    data: bytes
    times: tuple[LogTime, ...] = ()

    @property
    def text(self) -> str:
        """As UTF-8; a piece may end in the middle of a character, which is replaced."""
        return self.data.decode(errors="replace")


class Move(_Form, frozen=True, kw_only=True):
    """One move of a ledger."""

    seq: int
    at: int
    unit: str
    attempt: int
    move: str
    reason: str
    message: str


class Output(_Form, frozen=True, kw_only=True):
    """A value that a step has handed over. What is sensitive is in `value`, and in nothing that is printed.

    What is `withheld` never leaves its cluster: `value` is empty.
    """

    resource: str
    step: str
    output: str
    value: str
    encoding: Literal["utf-8", "base64"] = "utf-8"
    sensitive: bool = False
    withheld: bool = False

    @property
    def content(self) -> bytes:
        """The value as it was written."""
        return base64.b64decode(self.value) if self.encoding == "base64" else self.value.encode()

    @property
    def variable(self) -> str:
        """Its name as an environment variable, like `DB_PROVISION_URL`."""
        return variable_name(self.resource, self.step, self.output)

    def __repr__(self) -> str:
        place = "/".join(part for part in (self.resource, self.step) if part)
        shown = "(sensitive)" if self.sensitive else repr(self.value)
        return f"Output({place}.{self.output} = {shown})"


class Outputs(Mapping[str, str]):
    """The outputs of a sandbox: `outputs["db/provision.url"]`, or shorter where only one is meant by that.

    `["provision.url"]` and `["url"]` will do where one resource has it. Text as it is; bytes that are no text are in
    base64, as in `dayfly env -o json`: take them from `of(...).content`. What is withheld is in `all` and nowhere else.
    """

    def __init__(self, found: tuple[Output, ...]) -> None:
        self.all = found
        self._known = {_place(each): each for each in found if not each.withheld}

    def of(self, name: str) -> Output:
        """The output of that name, with all that is known of it.

        Raises:
            KeyError: there is none, or there are several.
        """
        if name in self._known:
            return self._known[name]
        ends = [key for key in self._known if key.endswith((f"/{name}", f".{name}"))]
        if len(ends) == 1:
            return self._known[ends[0]]
        if ends:
            raise KeyError(f"{name} may be any of {', '.join(ends)}")
        if any(f"/{_place(each)}".endswith((f"/{name}", f".{name}")) for each in self.all if each.withheld):
            raise KeyError(f"output {name} is sensitive and never leaves its cluster")
        raise KeyError(f"no output {name}; there are {', '.join(self._known) or 'none'}")

    def variables(self) -> dict[str, str]:
        """Return the values that environment variables can hold, by the names of `dayfly env`.

        Raises:
            DayflyError: one would set a variable that changes how programs run, such as `LD_LIBRARY_PATH`.
        """
        known = [each for each in self._known.values() if each.encoding == "utf-8" and "\0" not in each.value]
        for each in known:
            check_variable(each.variable, _place(each))
        return {each.variable: each.value for each in known}

    def __getitem__(self, name: str) -> str:
        return self.of(name).value

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Outputs({', '.join(map(repr, self.all))})"


def _place(output: Output) -> str:
    way = "/".join(part for part in (output.resource, output.step) if part)
    return f"{way}.{output.output}"
