"""Secrets on their way to a run: from the request for a sandbox to the host of this process, past every document.

They come in the body of the wish, are with the host before the wish is written, and nowhere else: the store, messages
to hosts, answers, events and the audit log have none of them. Only a host in this process can keep them (`up`), so none
goes to an agent, nor over a network.
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
MOST_BYTES = 64 * 1024
MOST = 64
# How long a refusal waits for its secrets to be gone, and how soon that is tried again where the disk refuses.
PATIENCE_S = 2.0
AGAIN_S = 5.0


class SecretStore(Protocol):
    """Where a host keeps the secrets of its runs. What is kept is durable when the method returns."""

    async def keep(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        """Keep the values for a run that is about to be wished for."""

    async def drop(self, uid: str) -> None:
        """Forget those of a run that will not be."""

    async def drop_all_but(self, wished: Collection[str]) -> None:
        """Forget those of runs that neither live nor are wished for."""

    def are(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> bool:
        """Whether these are the run's secrets, all of them and no others."""


def take_out(body: Any) -> Given:
    """The secrets in the body of a wish; none are left in it.

    Raises:
        SpecError: what they should look like. No sentence has a value in it.
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
            if len(found[resource, name]) > MOST_BYTES or "\0" in value:
                raise SpecError(f"must be of at most {MOST_BYTES} bytes, and without a zero byte", keys)
    if len(found) > MOST:
        raise SpecError(f"there are {len(found)}; a sandbox has at most {MOST}", (FIELD,))
    return found


class SecretStores:
    """Those of a server's own hosts, by the names of their clusters."""

    def __init__(self, store: Store, org: str, stores: Mapping[str, SecretStore]) -> None:
        self._store = store
        self._org = org
        self._stores = stores
        self._settling: set[asyncio.Task[None]] = set()

    async def drop_unwished(self) -> None:
        """Forget what a server that was killed had taken for a sandbox, and no sandbox was written.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._stores:
            wished = {entry.uid for entry in await self._store.of(self._org).read(run_records.read_entries)}
            for host_store in set(self._stores.values()):
                await host_store.drop_all_but(wished)

    @contextlib.asynccontextmanager
    async def kept(self, record: RunRecord[SandboxSpec], compiled: Compiled, given: Given) -> AsyncIterator[None]:
        """Within this the host has the secrets of a sandbox that is to be written; if it is not, they are gone again.

        Raises:
            SpecError: some are missing, or are more than the sandbox takes, or its cluster cannot be given any.
        """
        host_store = self._of(record)
        _check(record, compiled, given, host_store is not None)
        if host_store is None or not given:
            yield
            return
        await host_store.keep(record.uid, given)
        try:
            yield
        except BaseException:  # also where whoever asked has gone
            settling = asyncio.create_task(self._settle(record, host_store))
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)
            await asyncio.wait({settling}, timeout=PATIENCE_S)
            raise

    def refuse_others(self, record: RunRecord[SandboxSpec], given: Given) -> None:
        """Refuse a wish for a sandbox that lives, with other secrets than it has.

        Raises:
            ApiError: they are others.
        """
        host_store = self._of(record)
        if given and (host_store is None or not host_store.are(record.uid, given)):
            text = f"secrets of sandbox {quote(record.name)} cannot change while it lives; delete it and apply it again"
            raise RequestError(409, text)

    def _of(self, record: RunRecord[SandboxSpec]) -> SecretStore | None:
        return self._stores.get(record.cluster) if record.org == self._org else None

    async def _settle(self, record: RunRecord[SandboxSpec], host_store: SecretStore) -> None:
        """Forget its secrets, unless it was written after all; what cannot be done now is tried again."""
        while True:
            with contextlib.suppress(StoreError, HostUnavailableError):
                written = await self._store.of(record.org).write(
                    lambda rows: run_records.find(rows, record.kind, record.name)
                )
                if written is None or written.uid != record.uid:
                    await host_store.drop(record.uid)
                return
            await asyncio.sleep(AGAIN_S)


def _check(record: RunRecord[SandboxSpec], compiled: Compiled, given: Given, kept: bool) -> None:
    """Hold what is given to what the documents take."""
    places = {each.name: ("spec", "resources", index) for index, each in enumerate(record.spec.resources)}
    faults = Faults()
    wanted = {document.resource: document.secrets() for document in compiled.documents}
    for resource, names in wanted.items():
        missing = tuple(name for name in names if (resource, name) not in given)
        with faults:
            if names and not kept:
                raise SpecError(messages.secrets_not_available(names), places[resource])
            if missing:
                what, it = ("are secrets that were", "them") if len(missing) > 1 else ("is a secret that was", "it")
                named = messages.join_names(missing, most=MOST)
                problem = f"{named} {what} not given; --secrets-file FILE gives {it}, or in Python secrets="
                raise SpecError(problem, places[resource])
    for resource, name in given:
        with faults:
            if name not in wanted.get(resource, ()):
                problem = f"{quote(resource)} takes no secret of this name; {suggest(name, wanted.get(resource, ()))}"
                raise SpecError(problem, (FIELD, resource, name))
    faults.settle()
