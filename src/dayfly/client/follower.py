"""Keeping up with what changes: by a stream of events where the server has one, by asking again and again elsewhere."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from dayfly.client.changes import Book, EventParser
from dayfly.client.errors import NotFoundError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from dayfly.client.changes import Change, ServerSentEvent
    from dayfly.client.json_client import JsonClient

T = TypeVar("T")

# A server says every 15 seconds that it is still there. One of which nothing comes at all has a proxy in front of it
# that keeps streams back.
_SILENT_S = 45.0
_FIRST_S = 10.0
_NO_STREAM = (404, 405, 501, 503)


class Follower(Generic[T]):
    """The changes of one thing, or of all of its kind.

    Args:
        json_client: Asks the server.
        form: Of what is followed.
        stream: Where its events are; empty for a kind that has none.
        read: Gives all that is followed, as it stands now.
        name: Of what is followed; empty for all.
        poll: How many seconds to let pass before it is asked again, where there is no stream.
    """

    def __init__(
        self,
        json_client: JsonClient,
        form: type[T],
        stream: str,
        read: Callable[[], Awaitable[Iterable[tuple[str, T]]]],
        name: str,
        poll: float,
    ) -> None:
        self._json, self._form, self._stream, self._read = json_client, form, stream, read
        self._name, self._poll = name, poll
        self._book: Book[T] = Book()
        self._last = ""
        self._heard = False
        self._failures = 0
        self._failing_since = 0.0

    async def changes(self) -> AsyncGenerator[Change[T], None]:
        """All as it stands, `synced`, and then what changes; of one thing to its end.

        Raises:
            NotFoundError: there is no such thing.
            DayflyError: the server refuses, or has been away for longer than the client is patient.
        """
        while True:
            try:
                async with contextlib.aclosing(self._streamed() if self._stream else self._polled()) as found:
                    async for change in found:
                        yield change
                        if change.kind == "deleted" and change.name == self._name:
                            return
            except NotFoundError as fault:
                if not await self._goes_on(fault):
                    for change in self._book.deleted(self._name):
                        yield change
                    return
            except RefusedError as fault:
                if not self._stream or fault.status not in _NO_STREAM:
                    raise
                self._stream = ""
            except UnreachableError as fault:
                await self._come_back(fault)

    async def _goes_on(self, fault: NotFoundError) -> bool:
        """Whether it is the stream alone that is not there."""
        if self._stream:
            try:
                await self._read()
            except NotFoundError:
                pass
            else:
                self._stream = ""
                return True
        if self._name and self._book.knows(self._name):
            return False
        raise fault

    async def _streamed(self) -> AsyncGenerator[Change[T], None]:
        events, self._heard = EventParser(), False
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last} if self._last else {})}
        if not self._last:
            self._book.again()
        silence = _SILENT_S if self._last else _FIRST_S
        async with contextlib.aclosing(self._json.stream(self._stream, headers, silence)) as pieces:
            async for piece in pieces:
                if piece:  # that it is still there counts too: of what stands still there is no event for days
                    self._failures = 0
                for event in events.feed(piece):
                    self._heard = True
                    for change in self._taken(event):
                        yield change
        raise self._ended()

    def _taken(self, event: ServerSentEvent) -> Iterable[Change[T]]:
        self._last = event.id or self._last
        match event.kind:
            case "changed":
                name = self._json.decode(_Named, event.data).name
                return self._book.changed(name, self._json.decode(self._form, event.data))
            case "deleted":
                return self._book.deleted(self._json.decode(_Named, event.data).name)
            case "reset":
                self._book.again()
            case "synced":
                return self._book.synced()
        return ()

    async def _polled(self) -> AsyncGenerator[Change[T], None]:
        while True:
            self._book.again()
            found = list(await self._read())
            self._failures = 0
            for name, now in found:
                for change in self._book.changed(name, now):
                    yield change
            for change in self._book.synced():
                yield change
            await self._json.io.pause(self._poll)

    def _ended(self) -> UnreachableError:
        return UnreachableError(f"the server at {self._json.address.url} has ended the stream")

    async def _come_back(self, fault: UnreachableError) -> None:
        """Wait a little before the next try.

        Raises:
            UnreachableError: it has been away for too long, or would say the same again.
        """
        if self._stream and fault.sent and not self._heard and not self._last:
            self._stream = ""  # it takes the request, and nothing of the stream gets here
            return
        if fault.strange:
            raise fault
        now, retries = self._json.io.now(), self._json.retries
        if not self._failures:
            self._failing_since = now
        pause = retries.pause(fault, idempotent=True, before=self._failures, chance=random.random())  # noqa: S311 # no secret
        if pause is None or now + pause - self._failing_since > retries.patience:
            raise fault
        self._failures += 1
        await self._json.io.pause(pause)
        self._json.find_again()


class _Named(msgspec.Struct):
    name: str
