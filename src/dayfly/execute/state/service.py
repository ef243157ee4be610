"""One request for a state, from its head to its answer; the same on every host, over the host's own `Store`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from dayfly.execute.state import access, head, seal
from dayfly.execute.state.head import Answer, Head, Step, Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from dayfly.execute.state.access import Caller, Keys
    from dayfly.spec.run import Run

log = logging.getLogger(__name__)

T = TypeVar("T")

METHODS: Final = ("GET", "POST", "PUT", "DELETE", "LOCK", "UNLOCK")
MAX_LOCK: Final = 64 << 10
# Others who change the head at the same time are tries of the same attempt, or its successor: there are few.
_TRIES: Final = 8
# So many bytes are compressed or hashed in a few milliseconds.
_QUICK: Final = 256 << 10
# So long the chunks of what was broken off are looked after.
_DROP_S: Final = 10.0

UNKNOWN = Answer(401, b"this state is read and written by the running steps of its own resource alone\n")
BUSY = Answer(503, b"others change this state at the same time; ask again\n")


class Place(NamedTuple):
    """Whose state it is."""

    run: str
    resource: str


class Found(msgspec.Struct, frozen=True):
    """What a store has of a place. `tag` tells this form of the head from all others."""

    head: Head
    tag: str = ""


class FullError(Exception):
    """Whoever it is kept for has as much as may be kept; the text says how much."""


class UncertainError(Exception):
    """Whether something was written cannot be known now, and it may still come to be."""


class Store(Protocol):
    """Where a host keeps states."""

    async def find(self, place: Place) -> Found:
        """The head as it is now; an empty one if there is none.

        Raises:
            DamagedError: what lies there is none.
        """

    async def ledger(self, run: str) -> Run | None:
        """The run's ledger as it is now, asked for after the head; None if it is not there any more."""

    async def swap(self, place: Place, before: Found, after: Head) -> bool:
        """Put the head into the place of the one that was found; false if it has changed, or the run is over.

        Raises:
            OSError: the disk refuses; `find` tells whether it was put there.
            UncertainError: nobody knows whether it was.
        """

    async def keep(self, place: Place, run: Run, blob: str, chunks: list[bytes]) -> None:
        """Write the chunks of a version that no head speaks of yet.

        Raises:
            FullError: there is no room for them.
        """

    async def chunks(self, place: Place, version: Version) -> list[bytes]:
        """The chunks of a version, those that are there."""

    async def drop(self, place: Place, blob: str, count: int) -> None:
        """No head speaks of these chunks any more."""


class Service:
    """Serves states. Whoever carries requests to it asks `admit` first, before it reads a body."""

    def __init__(self, keys: Keys, store: Store, now: Callable[[], int]) -> None:
        self._keys = keys
        self._store = store
        self._now = now

    def identify(self, path: str, authorization: str) -> Caller | None:
        """Who asks, by the head of a request."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            username, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:  # no base64, or not of text; of what is not ASCII that is all that is said
            return None
        return access.identify(self._keys, path, username, password)

    async def admit(self, who: Caller | None, method: str) -> Answer | None:
        """Why it is not to be heard further; None if it is."""
        if who is None:
            return UNKNOWN
        if method not in METHODS:
            return Answer(405, f"{method} is none of {', '.join(METHODS)}\n".encode())
        run = await self._store.ledger(who.run)
        return None if run is not None and head.runs(run, who.holder) else _ended(who, method)

    async def handle(self, who: Caller, method: str, lock: str, body: bytes) -> Answer:
        """Do what is asked; `lock` is the request's `ID`."""
        try:
            return await self._handled(Place(who.run, who.resource), who, method, lock, body)
        except UncertainError:
            return BUSY  # asked again, it finds what was written
        except head.DamagedError as error:
            log.error("run %s: %s", who.run, error)  # noqa: TRY400 - the sentence is all there is to say
            return Answer(500, f"{error}\n".encode())

    async def _handled(self, place: Place, who: Caller, method: str, lock: str, body: bytes) -> Answer:
        if method == "GET":
            return await self._read(place, who)
        wanted = _lock_of(body) if method in ("LOCK", "UNLOCK") else ("", "")
        if wanted is None or (method == "LOCK" and not wanted[0]):
            return Answer(400, b"a lock is described by JSON with an ID\n")
        if method in ("POST", "PUT"):
            return await self._write(place, who, lock, body)

        def decide(found: Head, run: Run) -> Step:
            match method:
                case "LOCK":
                    return head.lock(found, run, who.holder, wanted, self._now())
                case "UNLOCK":
                    return head.unlock(found, run, who.holder, wanted[0])
                case _:
                    return head.delete(found, who.holder, lock, self._now())

        return await self._change(place, who, method, decide)

    async def _read(self, place: Place, who: Caller) -> Answer:
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
            return Answer(200, await _aside(size, seal.unseal, self._keys, place, found.newest, chunks), json=True)
        except seal.SpoiledError as error:
            log.error("run %s: %s", who.run, error)  # noqa: TRY400 - the sentence is all there is to say
            return Answer(500, f"{error}\n".encode())

    async def _write(self, place: Place, who: Caller, lock: str, body: bytes) -> Answer:
        run = await self._store.ledger(place.run)
        if run is None:
            return _ended(who, "POST")
        version = Version(
            number=0,
            at=self._now(),
            holder=who.holder,
            size=len(body),
            digest=await _aside(len(body), seal.digest, body),
            key=self._keys.name,
        )
        # What is refused anyway, or is there already, is not sealed and written first.
        first = head.write((await self._store.find(place)).head, who.holder, lock, version)
        if first.head is None:
            return first.answer
        blob = seal.new_blob()
        try:
            chunks = await _aside(len(body), seal.seal, self._keys, (*place, blob), body)
            await self._keep(place, run, blob, chunks)
        except (seal.TooLargeError, FullError) as error:
            return Answer(413, f"{error}\n".encode())
        version = msgspec.structs.replace(version, blob=blob, chunks=len(chunks), stored=sum(map(len, chunks)))
        asked = False  # whether a head that speaks of the chunks was to be written, and may come late

        def decide(found: Head, _run: Run) -> Step:
            nonlocal asked
            step = head.write(found, who.holder, lock, version)
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

    async def _keep(self, place: Place, run: Run, blob: str, chunks: list[bytes]) -> None:
        """Keep the chunks, all of them or none: of those before one that is refused no head will ever speak."""
        try:
            await self._store.keep(place, run, blob, chunks)
        except FullError:
            raise
        except (Exception, asyncio.CancelledError):
            await self._drop_soon(place, blob, len(chunks))
            raise

    async def _drop_soon(self, place: Place, blob: str, count: int) -> None:
        """Drop chunks of which no head will ever speak, also where the time for an answer is over.

        Whoever asks again has chunks of another name. What stays all the same goes with the run.
        """
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_DROP_S):
                await self._store.drop(place, blob, count)

    async def _drop_unkept(self, place: Place, blob: str, count: int) -> None:
        """Drop the chunks, unless the head that there is now speaks of them."""
        if all(version.blob != blob for version in (await self._store.find(place)).head.versions):
            await self._store.drop(place, blob, count)

    async def _change(self, place: Place, who: Caller, method: str, decide: Callable[[Head, Run], Step]) -> Answer:
        for _ in range(_TRIES):
            found = await self._store.find(place)
            run = await self._store.ledger(place.run)
            if run is None or not head.runs(run, who.holder):
                return _ended(who, method)
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


def _ended(who: Caller, method: str) -> Answer:
    log.info("run %s: %s asked for by: %s", who.run, method, head.refused(who.holder))
    return head.ended(who.holder) if method == "LOCK" else Answer(403, f"{head.refused(who.holder)}\n".encode())


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
