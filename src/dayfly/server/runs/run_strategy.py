"""What sandboxes and route groups do differently in the API."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from dayfly.server.access.scopes import WHOLE
from dayfly.server.records.run_records import S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request

    from dayfly.compile import Compiled
    from dayfly.link.server_end import Links
    from dayfly.link.transport import CompileTarget
    from dayfly.server.access.scopes import Scope
    from dayfly.server.admin.audit import Who
    from dayfly.server.catalog.run_specs import CompiledRun
    from dayfly.server.db.rows import Rows
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunKind, RunRecord
    from dayfly.server.runs.run_secrets import Given
    from dayfly.server.runs.run_states import RunState
    from dayfly.server.sync.host_sync import HostSync


class Wanted(NamedTuple, Generic[S]):
    """The body of a PUT: the spec, the seconds of a lease (0 for none) and the secrets of a run that is created."""

    spec: S
    lease: int = 0
    secrets: Given = {}


class Strategy(abc.ABC, Generic[S]):
    """The part of `RunService` that depends on the kind; the defaults are for runs without leases and secrets.

    Attributes:
        kind: Whose strategy it is.
        has_leases: Whether a client may keep a run with a lease. The answer to PUT then also has warnings.
        cluster_hint: What to do about an unknown cluster.
    """

    kind: RunKind[S]
    has_leases = False
    cluster_hint: str

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        self._store = store
        self._links = links
        self._sync = sync

    async def selection(self, _request: Request) -> Callable[[RunRecord[S]], bool]:
        """Return whether the query parameters of a list select a record."""
        return lambda _record: True

    @abc.abstractmethod
    async def states(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> dict[str, RunState]:
        """Return the states of runs by UID, for a key of that scope."""

    @abc.abstractmethod
    async def shown(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> list[dict[str, Any]]:
        """Return records as clients of that scope know them."""

    async def life(self, record: RunRecord[S]) -> tuple[int, int]:
        """Return when the time to live began and ends, in Unix milliseconds.

        Raises:
            ApiError: it has no end yet.
        """
        return record.life_begins_at, record.ends_at

    @abc.abstractmethod
    def parse(self, body: Any, name: str) -> Wanted[S]:
        """Read the body of a PUT."""

    async def cluster(self, _who: Who, spec: S) -> str:
        """Return the cluster of a new run."""
        return spec.cluster

    def resolve(self, _rows: Rows, spec: S, _place: CompileTarget) -> S:
        """Return a new spec as it is stored, for a host at that place."""
        return spec

    @abc.abstractmethod
    def changed(self, old: S, new: S) -> S:
        """Return the new spec as it is stored.

        Raises:
            SpecError: at each field that cannot change.
        """

    def check_room(self, rows: Rows, record: RunRecord[S]) -> None:
        """Refuse a new record if there are too many."""

    def check_secrets(self, record: RunRecord[S], given: Given) -> None:
        """Refuse secrets that are not those of the run."""

    def keep_secrets(
        self, _record: RunRecord[S], _compiled: Compiled, _given: Given
    ) -> AbstractAsyncContextManager[None]:
        """Give its host the secrets of a run that is stored within the context."""
        return contextlib.nullcontext()

    async def compile_change(self, _record: RunRecord[S]) -> CompiledRun | None:
        """Compile a new spec before it is stored, and ask its host to admit it; None if the sync does that later."""
        return None

    def declares(self, _rows: Rows, _record: RunRecord[S]) -> bool:
        """Return whether its forks derive from baselines that are declared here."""
        return False
