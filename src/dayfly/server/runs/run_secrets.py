"""Secret values of resources: from the body of a PUT to the host, but to no document.

The host stores them before the sandbox is written. They are in no other place: not in the database, in messages to
hosts, in answers, in events or in the audit log. Only a host in this process can store them (`dayfly up`), so they
are never sent to an agent.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dayfly.compile.references import suggest
from dayfly.plan import messages
from dayfly.server.db.store import StoreError
from dayfly.server.http.errors import RequestError
from dayfly.server.records import run_records
from dayfly.spec.errors import Faults, SpecError, quote
from dayfly.spec.host_errors import HostUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from dayfly.compile import Compiled
    from dayfly.server.db.store import Store
    from dayfly.server.records.run_records import RunRecord
    from dayfly.spec.sandbox import SandboxSpec

Given: TypeAlias = "dict[tuple[str, str], bytes]"
"""Values by resource and name."""

FIELD = "secrets"
MAX_VALUE_BYTES = 64 * 1024
MAX_SECRETS = 64
# How long an error response waits for the deletion of the secrets, and when a failed deletion is retried.
DELETE_TIMEOUT_S = 2.0
RETRY_DELAY_S = 5.0


class SecretStore(Protocol):
    """A host's storage for the secrets of its runs. Changes are durable when a method returns."""

    async def keep(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        """Store the values of a run that is about to be created."""

    async def drop(self, uid: str) -> None:
        """Delete the values of a run that was not created."""

    async def drop_all_but(self, wished: Collection[str]) -> None:
        """Delete the values of all runs that are neither in `wished` nor on the host."""

    def match(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> bool:
        """Return whether exactly these are the run's secrets."""


def extract_secrets(body: Any) -> Given:
    """Remove the secrets from the body of a PUT, and return them.

    Raises:
        SpecError: they are malformed. The message contains no values.
    """
    given = body.pop(FIELD, None) if isinstance(body, dict) else None
    found: Given = {}
    if given is None:
        return found
    form = "must be a mapping of resources to mappings of names to texts"
    if not isinstance(given, dict):
        raise SpecError(form, (FIELD,))
    for resource, values in given.items():
        if not isinstance(values, dict):
            raise SpecError(form, (FIELD, resource))
        for name, value in values.items():
            keys = (FIELD, resource, name)
            if not isinstance(value, str) or not value:
                raise SpecError("must be a text that is not empty", keys)
            found[resource, name] = value.encode(errors="surrogatepass")
            if len(found[resource, name]) > MAX_VALUE_BYTES or "\0" in value:
                raise SpecError(f"must be of at most {MAX_VALUE_BYTES} bytes, and without a zero byte", keys)
    if len(found) > MAX_SECRETS:
        raise SpecError(f"there are {len(found)}; a sandbox has at most {MAX_SECRETS}", (FIELD,))
    return found


class SecretStores:
    """The secret stores of the hosts in this process, by cluster."""

    def __init__(self, store: Store, org: str, stores: Mapping[str, SecretStore]) -> None:
        self._store = store
        self._org = org
        self._stores = stores
        self._deletions: set[asyncio.Task[None]] = set()

    async def delete_orphans(self) -> None:
        """Delete secrets without a sandbox: the server was killed after it stored them.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._stores:
            wished = {entry.uid for entry in await self._store.for_org(self._org).read(run_records.read_entries)}
            for host_store in set(self._stores.values()):
                await host_store.drop_all_but(wished)

    @contextlib.asynccontextmanager
    async def store_for_write(
        self, record: RunRecord[SandboxSpec], compiled: Compiled, given: Given
    ) -> AsyncIterator[None]:
        """Store the secrets of a sandbox that is written within the context; delete them if the context fails.

        Raises:
            SpecError: some are missing or unknown, or the cluster cannot store secrets.
        """
        host_store = self._find_store(record)
        _check(record, compiled, given, host_store is not None)
        if host_store is None or not given:
            yield
            return
        await host_store.keep(record.uid, given)
        try:
            yield
        except BaseException:  # also a cancellation, when the client has disconnected
            deletion = asyncio.create_task(self._delete_unless_written(record, host_store))
            self._deletions.add(deletion)
            deletion.add_done_callback(self._deletions.discard)
            await asyncio.wait({deletion}, timeout=DELETE_TIMEOUT_S)
            raise

    def refuse_changes(self, record: RunRecord[SandboxSpec], given: Given) -> None:
        """Refuse other secrets than those of an existing sandbox.

        Raises:
            RequestError: 409.
        """
        host_store = self._find_store(record)
        if given and (host_store is None or not host_store.match(record.uid, given)):
            text = f"secrets of sandbox {quote(record.name)} cannot change while it lives; delete it and apply it again"
            raise RequestError(409, text)

    def _find_store(self, record: RunRecord[SandboxSpec]) -> SecretStore | None:
        return self._stores.get(record.cluster) if record.org == self._org else None

    async def _delete_unless_written(self, record: RunRecord[SandboxSpec], host_store: SecretStore) -> None:
        """Delete its secrets, unless the failed write was committed. Retry until it succeeds.

        The check is a write transaction: it waits for an earlier write that is still being committed.
        """
        while True:
            with contextlib.suppress(StoreError, HostUnavailableError):
                written = await self._store.for_org(record.org).write(
                    lambda rows: run_records.find(rows, record.kind, record.name)
                )
                if written is None or written.uid != record.uid:
                    await host_store.drop(record.uid)
                return
            await asyncio.sleep(RETRY_DELAY_S)


def _check(record: RunRecord[SandboxSpec], compiled: Compiled, given: Given, has_store: bool) -> None:
    """Compare the given secrets with those that the documents declare."""
    paths = {each.name: ("spec", "resources", index) for index, each in enumerate(record.spec.resources)}
    faults = Faults()
    declared = {document.resource: document.secrets() for document in compiled.documents}
    for resource, names in declared.items():
        missing = tuple(name for name in names if (resource, name) not in given)
        with faults:
            if names and not has_store:
                raise SpecError(messages.secrets_not_available(names), paths[resource])
            if missing:
                what, it = ("are secrets that were", "them") if len(missing) > 1 else ("is a secret that was", "it")
                named = messages.join_names(missing, most=MAX_SECRETS)
                problem = f"{named} {what} not given; --secrets-file FILE gives {it}, or in Python secrets="
                raise SpecError(problem, paths[resource])
    for resource, name in given:
        with faults:
            if name not in declared.get(resource, ()):
                close = suggest(name, declared.get(resource, ()))
                problem = f"{quote(resource)} takes no secret of this name; {close}"
                raise SpecError(problem, (FIELD, resource, name))
    faults.settle()
