"""The state service: it handles one request for a state, over the `StateStore` of a host."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from dayfly.execute.state import access, head, seal
from dayfly.execute.state.head import Head, LockHolder, StateResponse, StateStep, Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.execute.state.access import StateCaller, StateKeys
    from dayfly.spec.run import Run

log = logging.getLogger(__name__)

T = TypeVar("T")

WRITES: Final = ("POST", "PUT")
METHODS: Final = ("GET", *WRITES, "DELETE", "LOCK", "UNLOCK")
MAX_LOCK_BYTES: Final = 64 << 10
# Few requests change a head at the same time: retries of one attempt, or the next attempt.
_MAX_TRIES: Final = 8
# Compressing or hashing this many bytes takes a few milliseconds.
_MAX_INLINE_BYTES: Final = 256 << 10
# Timeout for the deletion of the chunks of an interrupted write.
_DELETE_TIMEOUT_S: Final = 10.0

_NOT_STORED: Final = "it could not be stored"
_NO_STATE: Final = StateResponse(400, b"this is a lock, not a state; lock at the address in TF_HTTP_LOCK_ADDRESS\n")
_ENDED_STATUS: Final = 403
_EMPTY_BODY: Final = StateResponse(400, b"the body is empty, so it is not a state\n")

UNKNOWN = StateResponse(401, b"only running steps of its own resource may read and write this state\n")
BUSY = StateResponse(503, b"other requests change this state at the same time; retry\n")


class StateOwner(NamedTuple):
    """The run and the resource that a state belongs to."""

    run: str
    resource: str


class StoredHead(msgspec.Struct, frozen=True):
    """A head in a store. `tag` identifies this version of the head for compare-and-swap."""

    head: Head
    tag: str = ""


class ResourceEntry(msgspec.Struct, frozen=True):
    """An entry of `resources` in a state. Data sources are `mode: data`."""

    mode: str = ""
    instances: tuple[msgspec.Raw, ...] = ()


class Content(msgspec.Struct, frozen=True):
    """The fields that are read from a Terraform state, and `ID`, which identifies a lock.

    A state that is encrypted by OpenTofu has only `lineage` and `serial`.
    """

    lineage: str = ""
    serial: int = 0
    resources: tuple[ResourceEntry, ...] = ()
    lock: str = msgspec.field(name="ID", default="")

    @property
    def managed(self) -> int:
        """Number of resources that exist according to this state."""
        return sum(each.mode == "managed" and bool(each.instances) for each in self.resources)


class FullError(Exception):
    """There is no room for another state: a limit of the namespace is reached, or the disk is nearly full."""


class UncertainError(Exception):
    """The outcome of a write is unknown; it may still take effect later."""


class StateStore(Protocol):
    """The storage of a host for states."""

    async def find(self, owner: StateOwner) -> StoredHead:
        """Read the current head; an empty one if there is none.

        Raises:
            DamagedError: The head cannot be decoded.
        """

    async def read_ledger(self, run: str) -> Run | None:
        """Read the current ledger of a run; None if it no longer exists.

        A caller that changes the head reads the head first. Otherwise the ledger could be older than the head, and an
        attempt that has ended since could overwrite what the next attempt wrote.
        """

    async def swap(self, owner: StateOwner, before: StoredHead, after: Head) -> bool:
        """Replace the head `before`; return false if it has changed or the run no longer exists.

        Raises:
            OSError: The disk refused the write; `find` returns whether it took effect.
            UncertainError: The outcome of the write is unknown.
        """

    async def write_chunks(self, owner: StateOwner, run: Run, blob: str, chunks: list[bytes]) -> None:
        """Write the chunks of a version that no head refers to yet.

        Raises:
            FullError: There is no room for the state.
        """

    async def read_chunks(self, owner: StateOwner, version: Version) -> list[bytes]:
        """Read the chunks of a version that still exist."""

    async def delete_chunks(self, owner: StateOwner, blob: str, count: int) -> None:
        """Delete chunks that no head refers to."""


class StateService:
    """Handles requests for states. The caller must call `admit` before it reads a request's body."""

    def __init__(self, keys: StateKeys, store: StateStore, now: Callable[[], int]) -> None:
        self._keys = keys
        self._store = store
        self._now = now
        # Holders whose last write was answered with a server error. Terraform retries it for minutes.
        self._unsaved: dict[tuple[StateOwner, LockHolder], None] = {}
        # Writes of each holder that are being handled: each may still be stored.
        self._writing: Counter[tuple[StateOwner, LockHolder]] = Counter()

    def identify(self, path: str, authorization: str) -> StateCaller | None:
        """Return the caller with this `Authorization` header; None if it is invalid."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            username, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:  # invalid base64, or not UTF-8
            return None
        return access.identify(self._keys, path, username, password)

    async def admit(self, who: StateCaller | None, method: str) -> StateResponse | None:
        """Return the response that refuses a request before its body is read; None if the caller may continue."""
        if who is None:
            return UNKNOWN
        if method not in METHODS:
            return StateResponse(405, f"{method} is not allowed; use one of {', '.join(METHODS)}\n".encode())
        run = await self._store.read_ledger(who.run)
        if run is not None and head.is_running(run, who.holder):
            return None
        if run is not None and method in WRITES:
            await self._record(
                StateOwner(who.run, who.resource), who.holder, head.ended_message(who.holder), lasts=True
            )
        return _refuse_ended(who, method)

    async def handle(self, who: StateCaller, method: str, lock: str, body: bytes) -> StateResponse:
        """Handle a complete request; `lock` is the query parameter `ID`."""
        owner = StateOwner(who.run, who.resource)
        if method in WRITES:
            return await self._handle_write(owner, who, method, lock, body)
        answer = await self._answer(owner, who, method, lock, body)
        if method == "UNLOCK" and (owner, who.holder) in self._unsaved:
            await self.record_unsaved()
        return answer

    async def _handle_write(
        self, owner: StateOwner, who: StateCaller, method: str, lock: str, body: bytes
    ) -> StateResponse:
        key = (owner, who.holder)
        is_saved = False
        self._writing[key] += 1
        try:
            answer = await self._answer(owner, who, method, lock, body)
            if answer.status == _ENDED_STATUS:
                await self._record(owner, who.holder, head.ended_message(who.holder), lasts=True)
            is_saved = answer.status < 500
            return answer
        finally:
            self._writing[key] -= 1
            if not self._writing[key]:
                del self._writing[key]
            if is_saved:
                self._unsaved.pop(key, None)
            else:
                self._unsaved[key] = None

    async def _answer(self, owner: StateOwner, who: StateCaller, method: str, lock: str, body: bytes) -> StateResponse:
        try:
            return await self._dispatch(owner, who, method, lock, body)
        except UncertainError:
            return BUSY  # the retry of the client finds the outcome
        except head.DamagedError as error:
            log.error("run %s: %s", who.run, error)  # noqa: TRY400 - a traceback adds nothing
            return StateResponse(500, f"{error}\n".encode())

    async def record_unsaved(self) -> None:
        """Record writes that were answered with a server error and have not been retried since.

        Raises:
            Exception: The store does not answer. The writes are recorded by a later call.
        """
        for key in list(self._unsaved):
            if key in self._writing:
                continue
            await self._record(*key, _NOT_STORED, lasts=False)
            if key not in self._writing:
                self._unsaved.pop(key, None)

    async def _record(self, owner: StateOwner, holder: LockHolder, message: str, *, lasts: bool) -> None:
        """Record a write that was not stored, also if its attempt has ended.

        With `lasts`, a later write of the attempt does not remove the record.
        """

        def decide(found: Head, _run: Run) -> StateStep:
            key = (owner, holder)
            if not lasts and (key in self._writing or key not in self._unsaved):
                return StateStep(BUSY)  # the write was retried, so `found` may already contain it
            return head.refuse(found, holder, BUSY, self._now(), message, lasts=lasts)

        with contextlib.suppress(UncertainError, head.DamagedError):
            await self._change(owner, None, "POST", decide)

    async def _dispatch(
        self, owner: StateOwner, who: StateCaller, method: str, lock: str, body: bytes
    ) -> StateResponse:
        if method == "GET":
            return await self._read_and_record(owner, who)
        wanted = _parse_lock(body) if method in ("LOCK", "UNLOCK") else ("", "")
        if wanted is None or (method == "LOCK" and not wanted[0]):
            return StateResponse(400, b"a lock must be a JSON object with an ID\n")
        if method in WRITES:
            content = await _in_thread_if_large(len(body), _parse_content, body)
            if content.lock and not content.lineage:
                return _NO_STATE  # not recorded: nothing has been created yet
            return await (
                self._write(owner, who, lock, body, content) if body else self._refuse(owner, who, _EMPTY_BODY)
            )

        def decide(found: Head, run: Run) -> StateStep:
            match method:
                case "LOCK":
                    return head.lock(found, run, who.holder, wanted, self._now())
                case "UNLOCK":
                    return head.unlock(found, run, who.holder, wanted[0])
                case _:
                    return head.delete(found, who.holder, lock, self._now())

        return await self._change(owner, who, method, decide)

    async def _read_and_record(self, owner: StateOwner, who: StateCaller) -> StateResponse:
        """Read the state, and record the first read of each unit.

        A delete step that never reads the state has deleted nothing. The module `outcome` checks that with this record.
        """
        answer = await self._read(owner, who)
        if answer.status >= 500 or head.read((await self._store.find(owner)).head, who.holder).head is None:
            return answer
        recorded = await self._change(owner, who, "GET", lambda found, _run: head.read(found, who.holder))
        return answer if recorded == head.OK else recorded

    async def _read(self, owner: StateOwner, who: StateCaller) -> StateResponse:
        # After several writes, the chunks of the version that was found may already be deleted.
        for _ in range(_MAX_TRIES):
            found = (await self._store.find(owner)).head
            if found.newest is None:
                return head.NONE
            chunks = await self._store.read_chunks(owner, found.newest)
            if len(chunks) == found.newest.chunks:
                break
        try:
            assert found.newest is not None, "the loop returns without a version"
            size = max(found.newest.size, found.newest.stored)
            return StateResponse(
                200, await _in_thread_if_large(size, seal.unseal, self._keys, owner, found.newest, chunks), json=True
            )
        except seal.SpoiledError as error:
            log.error("run %s: %s", who.run, error)  # noqa: TRY400 - a traceback adds nothing
            return StateResponse(500, f"{error}\n".encode())

    async def _write(
        self, owner: StateOwner, who: StateCaller, lock: str, body: bytes, content: Content
    ) -> StateResponse:
        run = await self._store.read_ledger(owner.run)
        if run is None:
            return _refuse_ended(who, "POST")
        version = await self._new_version(who.holder, body, content)
        # Decide before sealing, so that a refused or unchanged state writes no chunks.
        first = head.write((await self._store.find(owner)).head, run, who.holder, lock, version)
        if first.head is None:
            return first.answer
        if first.answer != head.OK:
            return await self._refuse(owner, who, first.answer, lasts=True)
        blob = seal.new_blob()
        try:
            chunks = await _in_thread_if_large(len(body), seal.seal, self._keys, (*owner, blob), body)
            await self._write_chunks(owner, run, blob, chunks)
        except (seal.TooLargeError, FullError) as error:
            return await self._refuse(owner, who, StateResponse(413, f"{error}\n".encode()))
        version = msgspec.structs.replace(version, blob=blob, chunks=len(chunks), stored=sum(map(len, chunks)))
        may_refer = False  # whether `_change` may have begun to write a head that refers to the chunks

        def decide(found: Head, run: Run) -> StateStep:
            nonlocal may_refer
            step = head.write(found, run, who.holder, lock, version)
            may_refer = step.head is not None
            return step

        try:
            answer = await self._change(owner, who, "POST", decide)
        except UncertainError:
            raise  # keep the chunks: the write of the head may still take effect
        except asyncio.CancelledError:
            if not may_refer:
                await self._delete_chunks_soon(owner, blob, len(chunks))
            raise
        except Exception:
            # For example a full disk. A retry writes chunks with a new name, so these would stay forever.
            await self._delete_unused_chunks(owner, blob, len(chunks))
            raise
        await self._delete_unused_chunks(owner, blob, len(chunks))
        return answer

    async def _new_version(self, holder: LockHolder, body: bytes, content: Content) -> Version:
        """Return the version for a body, without number and chunks."""
        return Version(
            number=0,
            at=self._now(),
            holder=holder,
            size=len(body),
            digest=await _in_thread_if_large(len(body), seal.digest, body),
            key=self._keys.name,
            lineage=content.lineage,
            serial=content.serial,
            resources=content.managed,
        )

    async def _refuse(
        self, owner: StateOwner, who: StateCaller, answer: StateResponse, *, lasts: bool = False
    ) -> StateResponse:
        """Record a refused write and return its response."""
        return await self._change(
            owner, who, "POST", lambda found, _run: head.refuse(found, who.holder, answer, self._now(), lasts=lasts)
        )

    async def _write_chunks(self, owner: StateOwner, run: Run, blob: str, chunks: list[bytes]) -> None:
        """Write all chunks; after a failure delete the written chunks, because no head will refer to them."""
        try:
            await self._store.write_chunks(owner, run, blob, chunks)
        except FullError:
            raise
        except (Exception, asyncio.CancelledError):
            await self._delete_chunks_soon(owner, blob, len(chunks))
            raise

    async def _delete_chunks_soon(self, owner: StateOwner, blob: str, count: int) -> None:
        """Delete chunks that no head will ever refer to, also if the request was cancelled.

        A retry writes chunks with another name. Chunks that cannot be deleted now are deleted with the run.
        """
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_DELETE_TIMEOUT_S):
                await self._store.delete_chunks(owner, blob, count)

    async def _delete_unused_chunks(self, owner: StateOwner, blob: str, count: int) -> None:
        """Delete the chunks unless the current head refers to them."""
        if all(version.blob != blob for version in (await self._store.find(owner)).head.versions):
            await self._store.delete_chunks(owner, blob, count)

    async def _change(
        self, owner: StateOwner, who: StateCaller | None, method: str, decide: Callable[[Head, Run], StateStep]
    ) -> StateResponse:
        """Change the head by compare-and-swap. If `who` is given, its attempt must be running."""
        for _ in range(_MAX_TRIES):
            found = await self._store.find(owner)
            run = await self._store.read_ledger(owner.run)
            if who is not None and (run is None or not head.is_running(run, who.holder)):
                return _refuse_ended(who, method)
            if run is None:
                return BUSY
            step = decide(found.head, run)
            if step.head is None:
                return step.answer
            named = msgspec.structs.replace(
                step.head, sandbox=run.target.name, namespace=run.target.namespace, resource=owner.resource
            )
            if await self._store.swap(owner, found, named):
                for version in step.dropped:
                    await self._store.delete_chunks(owner, version.blob, version.chunks)
                return step.answer
        return BUSY


async def _in_thread_if_large(size: int, work: Callable[..., T], *given: object) -> T:
    """Call `work` with `given`, in a thread if the size is large, so that other requests continue."""
    return await asyncio.to_thread(work, *given) if size > _MAX_INLINE_BYTES else work(*given)


def _refuse_ended(who: StateCaller, method: str) -> StateResponse:
    log.info("run %s: %s refused: %s", who.run, method, head.ended_message(who.holder))
    return (
        head.ended_response(who.holder)
        if method == "LOCK"
        else StateResponse(_ENDED_STATUS, f"{head.ended_message(who.holder)}\n".encode())
    )


def _parse_content(body: bytes) -> Content:
    """Decode the fields; all are empty if the body is not a Terraform state."""
    try:
        return msgspec.json.decode(body, type=Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Content()


def _parse_lock(body: bytes) -> tuple[str, str] | None:
    """Return the ID and the information of Terraform's lock; None if the body is not a lock."""
    if not body:
        return "", ""
    try:
        content = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    name = content.get("ID", "")
    if not isinstance(name, str) or len(name) > head.MAX_LOCK_ID_CHARS:
        return None
    short = {key: value[:200] for key, value in content.items() if isinstance(value, str) and len(key) <= 40}
    info = msgspec.json.encode(short).decode()
    return name, info if len(info) <= head.MAX_LOCK_INFO_CHARS else "{}"
