"""One request for a state, from its head to its answer; the same on every host, over the host's own `StateStore`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from dayfly.execute.state import access, head, seal
from dayfly.execute.state.head import Head, Holder, StateResponse, StateStep, Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.execute.state.access import StateCaller, StateKeys
    from dayfly.spec.run import Run

log = logging.getLogger(__name__)

T = TypeVar("T")

WRITES: Final = ("POST", "PUT")
METHODS: Final = ("GET", *WRITES, "DELETE", "LOCK", "UNLOCK")
MAX_LOCK: Final = 64 << 10
# Others who change the head at the same time are tries of the same attempt, or its successor: there are few.
_TRIES: Final = 8
# So many bytes are compressed or hashed in a few milliseconds.
_QUICK: Final = 256 << 10
# So long the chunks of what was broken off are looked after.
_DROP_S: Final = 10.0

# A state that could not be stored is recorded by the next request that succeeds.
_NOT_STORED: Final = "it could not be stored"
_NO_STATE: Final = StateResponse(400, b"this is a lock, not a state; lock at the address in TF_HTTP_LOCK_ADDRESS\n")
_LATE: Final = 403
_EMPTY: Final = StateResponse(400, b"an empty body is no state\n")

UNKNOWN = StateResponse(401, b"this state is read and written by the running steps of its own resource alone\n")
BUSY = StateResponse(503, b"others change this state at the same time; ask again\n")


class StateOwner(NamedTuple):
    """Whose state it is."""

    run: str
    resource: str


class Found(msgspec.Struct, frozen=True):
    """What a store has of a place. `tag` tells this form of the head from all others."""

    head: Head
    tag: str = ""


class Instances(msgspec.Struct, frozen=True):
    """An entry of `resources` in a state. Data sources are `mode: data`."""

    mode: str = ""
    instances: tuple[msgspec.Raw, ...] = ()


class Content(msgspec.Struct, frozen=True):
    """The fields of a Terraform state that are read here, and the one by which a lock is recognised.

    States that OpenTofu encrypts have the first two.
    """

    lineage: str = ""
    serial: int = 0
    resources: tuple[Instances, ...] = ()
    lock: str = msgspec.field(name="ID", default="")

    @property
    def managed(self) -> int:
        """Number of resources that exist according to this state."""
        return sum(each.mode == "managed" and bool(each.instances) for each in self.resources)


class FullError(Exception):
    """Whoever it is kept for has as much as may be kept; the text says how much."""


class UncertainError(Exception):
    """Whether something was written cannot be known now, and it may still come to be."""


class StateStore(Protocol):
    """Where a host keeps states."""

    async def find(self, place: StateOwner) -> Found:
        """The head as it is now; an empty one if there is none.

        Raises:
            DamagedError: what lies there is none.
        """

    async def ledger(self, run: str) -> Run | None:
        """The run's ledger as it is now, asked for after the head; None if it is not there any more."""

    async def swap(self, place: StateOwner, before: Found, after: Head) -> bool:
        """Put the head into the place of the one that was found; false if it has changed, or the run is over.

        Raises:
            OSError: the disk refuses; `find` tells whether it was put there.
            UncertainError: nobody knows whether it was.
        """

    async def keep(self, place: StateOwner, run: Run, blob: str, chunks: list[bytes]) -> None:
        """Write the chunks of a version that no head speaks of yet.

        Raises:
            FullError: there is no room for them.
        """

    async def chunks(self, place: StateOwner, version: Version) -> list[bytes]:
        """The chunks of a version, those that are there."""

    async def drop(self, place: StateOwner, blob: str, count: int) -> None:
        """No head speaks of these chunks any more."""


class Service:
    """Serves states. Whoever carries requests to it asks `admit` first, before it reads a body."""

    def __init__(self, keys: StateKeys, store: StateStore, now: Callable[[], int]) -> None:
        self._keys = keys
        self._store = store
        self._now = now
        # The holders whose last write was answered by a server error. Terraform retries it for minutes.
        self._unsaved: dict[tuple[StateOwner, Holder], None] = {}
        # The number of writes of a holder that are not answered yet: each may still be stored.
        self._writing: Counter[tuple[StateOwner, Holder]] = Counter()

    def identify(self, path: str, authorization: str) -> StateCaller | None:
        """Who asks, by the head of a request."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            username, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:  # no base64, or not of text; of what is not ASCII that is all that is said
            return None
        return access.identify(self._keys, path, username, password)

    async def admit(self, who: StateCaller | None, method: str) -> StateResponse | None:
        """Why it is not to be heard further; None if it is."""
        if who is None:
            return UNKNOWN
        if method not in METHODS:
            return StateResponse(405, f"{method} is none of {', '.join(METHODS)}\n".encode())
        run = await self._store.ledger(who.run)
        if run is not None and head.runs(run, who.holder):
            return None
        if run is not None and method in WRITES:
            await self._record(StateOwner(who.run, who.resource), who.holder, head.refused(who.holder), lasts=True)
        return _ended(who, method)

    async def handle(self, who: StateCaller, method: str, lock: str, body: bytes) -> StateResponse:
        """Do what is asked; `lock` is the request's `ID`."""
        place = StateOwner(who.run, who.resource)
        if method in WRITES:
            return await self._handle_write(place, who, method, lock, body)
        answer = await self._answered(place, who, method, lock, body)
        if method == "UNLOCK" and (place, who.holder) in self._unsaved:
            await self.record_unsaved()
        return answer

    async def _handle_write(
        self, place: StateOwner, who: StateCaller, method: str, lock: str, body: bytes
    ) -> StateResponse:
        key = (place, who.holder)
        is_saved = False
        self._writing[key] += 1
        try:
            answer = await self._answered(place, who, method, lock, body)
            if answer.status == _LATE:
                await self._record(place, who.holder, head.refused(who.holder), lasts=True)
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

    async def _answered(
        self, place: StateOwner, who: StateCaller, method: str, lock: str, body: bytes
    ) -> StateResponse:
        try:
            return await self._handled(place, who, method, lock, body)
        except UncertainError:
            return BUSY  # asked again, it finds what was written
        except head.DamagedError as error:
            log.error("run %s: %s", who.run, error)  # noqa: TRY400 - the sentence is all there is to say
            return StateResponse(500, f"{error}\n".encode())

    async def record_unsaved(self) -> None:
        """Record the writes that were answered by a server error and have neither succeeded nor been sent again since.

        Raises:
            Exception: the store does not answer; they stay to be recorded.
        """
        for key in list(self._unsaved):
            if key in self._writing:
                continue
            await self._record(*key, _NOT_STORED, lasts=False)
            if key not in self._writing:
                self._unsaved.pop(key, None)

    async def _record(self, place: StateOwner, holder: Holder, message: str, *, lasts: bool) -> None:
        """Record a refused write that no request of a running attempt records."""

        def decide(found: Head, _run: Run) -> StateStep:
            key = (place, holder)
            if not lasts and (key in self._writing or key not in self._unsaved):
                return StateStep(BUSY)  # it was sent again: the head that we have found may hold it
            return head.refuse(found, holder, BUSY, self._now(), message, lasts=lasts)

        with contextlib.suppress(UncertainError, head.DamagedError):
            await self._change(place, None, "POST", decide)

    async def _handled(self, place: StateOwner, who: StateCaller, method: str, lock: str, body: bytes) -> StateResponse:
        if method == "GET":
            return await self._read_and_record(place, who)
        wanted = _lock_of(body) if method in ("LOCK", "UNLOCK") else ("", "")
        if wanted is None or (method == "LOCK" and not wanted[0]):
            return StateResponse(400, b"a lock is described by JSON with an ID\n")
        if method in WRITES:
            content = await _aside(len(body), _content_of, body)
            if content.lock and not content.lineage:
                return _NO_STATE  # not recorded: nothing has been created yet
            return await (self._write(place, who, lock, body, content) if body else self._refuse(place, who, _EMPTY))

        def decide(found: Head, run: Run) -> StateStep:
            match method:
                case "LOCK":
                    return head.lock(found, run, who.holder, wanted, self._now())
                case "UNLOCK":
                    return head.unlock(found, run, who.holder, wanted[0])
                case _:
                    return head.delete(found, who.holder, lock, self._now())

        return await self._change(place, who, method, decide)

    async def _read_and_record(self, place: StateOwner, who: StateCaller) -> StateResponse:
        """Read the state, and record the first read of each unit: a delete step that never reads deletes nothing."""
        answer = await self._read(place, who)
        if answer.status >= 500 or head.read((await self._store.find(place)).head, who.holder).head is None:
            return answer
        recorded = await self._change(place, who, "GET", lambda found, _run: head.read(found, who.holder))
        return answer if recorded == head.OK else recorded

    async def _read(self, place: StateOwner, who: StateCaller) -> StateResponse:
        # A version that was current a moment ago may be dropped meanwhile by many that were written since.
        for _ in range(_TRIES):
            found = (await self._store.find(place)).head
            if found.newest is None:
                return head.NONE
            chunks = await self._store.chunks(place, found.newest)
            if len(chunks) == found.newest.chunks:
                break
        try:
            assert found.newest is not None, "it was asked for"
            size = max(found.newest.size, found.newest.stored)
            return StateResponse(
                200, await _aside(size, seal.unseal, self._keys, place, found.newest, chunks), json=True
            )
        except seal.SpoiledError as error:
            log.error("run %s: %s", who.run, error)  # noqa: TRY400 - the sentence is all there is to say
            return StateResponse(500, f"{error}\n".encode())

    async def _write(
        self, place: StateOwner, who: StateCaller, lock: str, body: bytes, content: Content
    ) -> StateResponse:
        run = await self._store.ledger(place.run)
        if run is None:
            return _ended(who, "POST")
        version = await self._described(who.holder, body, content)
        # What is refused anyway, or is there already, is not sealed and written first.
        first = head.write((await self._store.find(place)).head, run, who.holder, lock, version)
        if first.head is None:
            return first.answer
        if first.answer != head.OK:
            return await self._refuse(place, who, first.answer, lasts=True)
        blob = seal.new_blob()
        try:
            chunks = await _aside(len(body), seal.seal, self._keys, (*place, blob), body)
            await self._keep(place, run, blob, chunks)
        except (seal.TooLargeError, FullError) as error:
            return await self._refuse(place, who, StateResponse(413, f"{error}\n".encode()))
        version = msgspec.structs.replace(version, blob=blob, chunks=len(chunks), stored=sum(map(len, chunks)))
        asked = False  # whether a head that speaks of the chunks was to be written, and may come late

        def decide(found: Head, run: Run) -> StateStep:
            nonlocal asked
            step = head.write(found, run, who.holder, lock, version)
            asked = step.head is not None
            return step

        try:
            answer = await self._change(place, who, "POST", decide)
        except UncertainError:
            raise  # the chunks stay: a head that comes late may speak of them
        except asyncio.CancelledError:
            if not asked:
                await self._drop_soon(place, blob, len(chunks))
            raise
        except Exception:
            # As of a disk that is full, or an API server that takes no more: whoever asks again has chunks of another
            # name, and each time these would stay.
            await self._drop_unkept(place, blob, len(chunks))
            raise
        await self._drop_unkept(place, blob, len(chunks))
        return answer

    async def _described(self, holder: Holder, body: bytes, content: Content) -> Version:
        """The version that a body is, before it has a number and chunks."""
        return Version(
            number=0,
            at=self._now(),
            holder=holder,
            size=len(body),
            digest=await _aside(len(body), seal.digest, body),
            key=self._keys.name,
            lineage=content.lineage,
            serial=content.serial,
            resources=content.managed,
        )

    async def _refuse(
        self, place: StateOwner, who: StateCaller, answer: StateResponse, *, lasts: bool = False
    ) -> StateResponse:
        """Answer a write so, and record it."""
        return await self._change(
            place, who, "POST", lambda found, _run: head.refuse(found, who.holder, answer, self._now(), lasts=lasts)
        )

    async def _keep(self, place: StateOwner, run: Run, blob: str, chunks: list[bytes]) -> None:
        """Keep the chunks, all of them or none: of those before one that is refused no head will ever speak."""
        try:
            await self._store.keep(place, run, blob, chunks)
        except FullError:
            raise
        except (Exception, asyncio.CancelledError):
            await self._drop_soon(place, blob, len(chunks))
            raise

    async def _drop_soon(self, place: StateOwner, blob: str, count: int) -> None:
        """Drop chunks of which no head will ever speak, also where the time for an answer is over.

        Whoever asks again has chunks of another name. What stays all the same goes with the run.
        """
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_DROP_S):
                await self._store.drop(place, blob, count)

    async def _drop_unkept(self, place: StateOwner, blob: str, count: int) -> None:
        """Drop the chunks, unless the head that there is now speaks of them."""
        if all(version.blob != blob for version in (await self._store.find(place)).head.versions):
            await self._store.drop(place, blob, count)

    async def _change(
        self, place: StateOwner, who: StateCaller | None, method: str, decide: Callable[[Head, Run], StateStep]
    ) -> StateResponse:
        """Swap the head for a running attempt; without `who` for us."""
        for _ in range(_TRIES):
            found = await self._store.find(place)
            run = await self._store.ledger(place.run)
            if who is not None and (run is None or not head.runs(run, who.holder)):
                return _ended(who, method)
            if run is None:
                return BUSY
            step = decide(found.head, run)
            if step.head is None:
                return step.answer
            named = msgspec.structs.replace(
                step.head, sandbox=run.target.name, namespace=run.target.namespace, resource=place.resource
            )
            if await self._store.swap(place, found, named):
                for version in step.dropped:
                    await self._store.drop(place, version.blob, version.chunks)
                return step.answer
        return BUSY


async def _aside(size: int, work: Callable[..., T], *given: object) -> T:
    """Do it, and let others go on meanwhile if it takes long."""
    return await asyncio.to_thread(work, *given) if size > _QUICK else work(*given)


def _ended(who: StateCaller, method: str) -> StateResponse:
    log.info("run %s: %s asked for by: %s", who.run, method, head.refused(who.holder))
    return (
        head.ended(who.holder) if method == "LOCK" else StateResponse(_LATE, f"{head.refused(who.holder)}\n".encode())
    )


def _content_of(body: bytes) -> Content:
    """Read those fields; all are empty if the body is no state of Terraform."""
    try:
        return msgspec.json.decode(body, type=Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Content()


def _lock_of(body: bytes) -> tuple[str, str] | None:
    """The id in what Terraform says of a lock, and all of it; None if it cannot be that."""
    if not body:
        return "", ""
    try:
        told = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    name = told.get("ID", "")
    if not isinstance(name, str) or len(name) > head.MAX_ID:
        return None
    short = {key: value[:200] for key, value in told.items() if isinstance(value, str) and len(key) <= 40}
    info = msgspec.json.encode(short).decode()
    return name, info if len(info) <= head.MAX_INFO else "{}"
