"""Answers of the API, as types: for the document in which the server describes itself, and for the Python client.

Times are aware datetimes; in reports they are unix milliseconds, 0 for not yet. A server of another release may send
more: unknown fields are ignored, and a field that is added later has a default.
"""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any, Literal

import msgspec

from dayfly.spec import run
from dayfly.spec.report import UnitReport, with_reason
from dayfly.spec.run_data import HistoryEntry, LogInfo
from dayfly.spec.scalars import semver
from dayfly.spec.workload import Workload


class ApiObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object."""


class Condition(ApiObject, frozen=True, kw_only=True):
    """A condition, as in Kubernetes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Endpoint(ApiObject, frozen=True, kw_only=True):
    """An address of a sandbox or a route group; `url` is empty if nothing routes to it."""

    name: str = ""
    url: str = ""
    target: str = ""
    route_type: str = ""
    cluster: str = ""


class Status(ApiObject, frozen=True, kw_only=True):
    """The state of a sandbox or a route group."""

    ready: bool
    reason: str
    message: str
    conditions: tuple[Condition, ...] = ()
    unsupported: tuple[str, ...] = ()
    scheduled_delete_time: dt.datetime | None = None


class Progress(ApiObject, frozen=True, kw_only=True):
    """`done` of `total` units of the current `phase`; `severity` is the severity of the reason."""

    phase: str
    done: int
    total: int
    severity: str


class Sandbox(ApiObject, frozen=True, kw_only=True):
    """A sandbox. `spec` is as applied, with defaults.

    `namespace` is that of its object; only the page of a plain cluster has it.
    """

    name: str
    routing_key: str
    created_at: dt.datetime
    updated_at: dt.datetime
    spec: dict[str, Any]
    endpoints: tuple[Endpoint, ...]
    status: Status
    progress: Progress
    warnings: tuple[str, ...] = ()
    namespace: str = ""


class RouteGroupStatus(Status, frozen=True, kw_only=True):
    """The state of a route group and its sandboxes, which `matched` counts.

    A stream of changes names only the first 256 of them, as does a cluster.
    """

    conditions: tuple[Condition, ...]
    matched_sandboxes: tuple[str, ...]
    matched: int
    conflicts: tuple[dict[str, Any], ...] = ()


class RouteGroup(ApiObject, frozen=True, kw_only=True):
    """A route group. `namespace` is as in `Sandbox`."""

    name: str
    routing_key: str
    created_at: dt.datetime
    updated_at: dt.datetime
    spec: dict[str, Any]
    endpoints: tuple[Endpoint, ...]
    status: RouteGroupStatus
    progress: Progress
    namespace: str = ""


class Plugin(ApiObject, frozen=True, kw_only=True):
    """A published version of a resource plugin; `name` is like `db@1.2.0`. In lists it comes without its README."""

    name: str
    spec: dict[str, Any]
    created_at: dt.datetime
    updated_at: dt.datetime
    status: dict[str, Any]
    readme: str = ""

    @property
    def version(self) -> str:
        """The part behind the `@`; 0.0.0 if there is none."""
        return self.name.partition("@")[2] or semver.UNVERSIONED


class Baseline(Workload, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A workload of a machine from which forks are derived."""

    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None


class Request(run.EndRequest, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The request that a run ends, and its reason."""


class Unit(UnitReport, frozen=True, kw_only=True):
    """One step or fork. `state` is in docs/reference/reasons.md: waiting, running, succeeded, failed, retrying ..."""


class Report(ApiObject, frozen=True, kw_only=True):
    """The state of each unit of a run. `phase` is open, closed (it is being ended), cleaned or abandoned.

    A run that the server no longer knows has the defaults. `denied`: actions that the caller may not do, and why; only
    on the page of a plain cluster.
    """

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
    unsupported: tuple[str, ...] = ()
    denied: dict[str, str] = {}

    @property
    def is_over(self) -> bool:
        """Whether the run has ended completely."""
        return self.phase in ("cleaned", "abandoned")


class Blocker(ApiObject, frozen=True, kw_only=True):
    """An obstacle and its causes; empty if there is none. `since` is in unix milliseconds."""

    subject: str = ""
    reason: str = ""
    message: str = ""
    since: int = 0
    next: str = ""
    because: tuple[Blocker, ...] = ()

    @property
    def roots(self) -> tuple[Blocker, ...]:
        """The root causes."""
        return tuple(root for each in self.because for root in each.roots) or (self,)

    def __str__(self) -> str:
        return f"{self.subject}: {with_reason(self.reason, self.message)}"


class Attempt(LogInfo, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """An attempt that has a log, and the length of the log so far."""


class LogTime(ApiObject, frozen=True, kw_only=True):
    """The time at which a log was printed from this byte on, until the next entry."""

    offset: int
    time: dt.datetime


class Move(HistoryEntry, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One move of a ledger."""


class Output(ApiObject, frozen=True, kw_only=True):
    """A value that a step has made. A withheld one never leaves its cluster: `value` is empty."""

    resource: str
    step: str
    output: str
    value: str
    encoding: Literal["utf-8", "base64"]
    sensitive: bool
    withheld: bool = False

    @property
    def content(self) -> bytes:
        """The value as bytes."""
        return base64.b64decode(self.value) if self.encoding == "base64" else self.value.encode()
