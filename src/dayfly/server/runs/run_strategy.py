"""The base class for the differences between sandboxes, route groups and resource pools in `RunService`."""

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
    from dayfly.server.admin.audit import Actor
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
        kind: The kind of its runs.
        has_leases: Whether runs can have a lease. The answer to PUT then also has warnings.
        cluster_hint: Advice in the error for an unknown cluster.
    """

    kind: RunKind[S]
    has_leases = False
    cluster_hint: str

    def __init__(self, store: Store, links: Links, sync: HostSync) -> None:
        self._store = store
        self._links = links
        self._sync = sync

    async def read_selection(self, _request: Request) -> Callable[[RunRecord[S]], bool]:
        """Return a predicate for the query parameters of a list."""
        return lambda _record: True

    @abc.abstractmethod
    async def query_states(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> dict[str, RunState]:
        """Return the states of runs by UID, as visible to a key with that scope."""

    @abc.abstractmethod
    async def describe_all(self, records: Sequence[RunRecord[S]], scope: Scope = WHOLE) -> list[dict[str, Any]]:
        """Return the API objects of records, as visible to a key with that scope."""

    async def read_lifetime(self, record: RunRecord[S]) -> tuple[int, int]:
        """Return the start and end of the time to live, in Unix milliseconds.

        Raises:
            RequestError: it has no end yet.
        """
        return record.life_begins_at, record.ends_at

    @abc.abstractmethod
    def parse(self, body: Any, name: str) -> Wanted[S]:
        """Read the body of a PUT."""

    async def choose_cluster(self, _who: Actor, spec: S) -> str:
        """Return the cluster of a new run."""
        return spec.cluster

    def restrict(self, _who: Actor, spec: S, _record: RunRecord[S] | None) -> S:
        """Return the given spec as the caller may store it, for a new run or an existing one.

        Raises:
            SpecError: for each part that the caller may not store.
        """
        return spec

    def check_resolved(self, who: Actor, spec: S) -> None:
        """Refuse a new spec with versions of plugins that the caller may not use."""

    def reserve(self, _rows: Rows, _who: Actor, record: RunRecord[S]) -> RunRecord[S]:
        """Return a new or changed record with its reservation, in the transaction that stores it.

        Raises:
            RequestError: it exceeds the limits of the caller.
        """
        return record

    def resolve(self, _rows: Rows, _who: Actor, spec: S, _target: CompileTarget) -> S:
        """Return a new spec as it will be stored, for a host with that compile target."""
        return spec

    @abc.abstractmethod
    def apply_change(self, old: S, new: S) -> S:
        """Return a changed spec as it will be stored.

        Raises:
            SpecError: for each field that cannot change.
        """

    def check_limit(self, rows: Rows, record: RunRecord[S]) -> None:
        """Refuse a new record that exceeds the limit of the organisation."""

    def check_secrets(self, record: RunRecord[S], given: Given) -> None:
        """Refuse other secrets than those of the existing run."""

    def keep_secrets(
        self, _record: RunRecord[S], _compiled: Compiled, _given: Given
    ) -> AbstractAsyncContextManager[None]:
        """Store the secrets of a run on its host, for a context that writes the record."""
        return contextlib.nullcontext()

    async def compile_change(self, _record: RunRecord[S]) -> CompiledRun | None:
        """Compile a changed spec before it is written, and let its host check it; None if only the sync compiles it."""
        return None

    def declares(self, _rows: Rows, _record: RunRecord[S]) -> bool:
        """Return whether its forks need baselines that are declared on this server."""
        return False
