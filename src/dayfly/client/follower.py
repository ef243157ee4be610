"""Follows changes: with an event stream if the server has one, otherwise by polling."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from dayfly.client.changes import ChangeTracker, EventParser
from dayfly.client.errors import NotFoundError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from dayfly.client.changes import Change, ServerSentEvent
    from dayfly.client.json_client import JsonClient

T = TypeVar("T")

# A server sends a heartbeat every 15 seconds. If nothing arrives at all, a proxy buffers the stream.
_SILENCE_TIMEOUT_S = 45.0
_FIRST_EVENT_TIMEOUT_S = 10.0
_NO_STREAM = (404, 405, 501, 503)


class Follower(Generic[T]):
    """The changes of one object, or of all objects of its kind.

    Args:
        json_client: Sends the requests.
        form: The type of the objects.
        stream: The path of the event stream; empty if the kind has none.
        read: Returns the current objects by name.
        name: The name of the object; empty for all.
        poll: The poll interval in seconds without a stream.
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
        self._tracker: ChangeTracker[T] = ChangeTracker()
        self._last = ""
        self._got_event = False
        self._failures = 0
        self._failing_since = 0.0

    async def changes(self) -> AsyncGenerator[Change[T], None]:
        """Yield the current state as changes, then `synced`, then each change; for one object until its deletion.

        Raises:
            NotFoundError: there is no such object.
            DayflyError: the server refuses, or is unreachable for longer than `RetryPolicy.patience`.
        """
        while True:
            try:
                async with contextlib.aclosing(
                    self._stream_changes() if self._stream else self._poll_changes()
                ) as found:
                    async for change in found:
                        yield change
                        if change.kind == "deleted" and change.name == self._name:
                            return
            except NotFoundError as fault:
                if not await self._fall_back_to_polling(fault):
                    for change in self._tracker.remove(self._name):
                        yield change
                    return
            except RefusedError as fault:
                if not self._stream or fault.status not in _NO_STREAM:
                    raise
                self._stream = ""
            except UnreachableError as fault:
                await self._wait_before_retry(fault)

    async def _fall_back_to_polling(self, fault: NotFoundError) -> bool:
        """Return whether only the stream does not exist: then polling goes on."""
        if self._stream:
            try:
                await self._read()
            except NotFoundError:
                pass
            else:
                self._stream = ""
                return True
        if self._name and self._tracker.contains(self._name):
            return False
        raise fault

    async def _stream_changes(self) -> AsyncGenerator[Change[T], None]:
        events, self._got_event = EventParser(), False
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last} if self._last else {})}
        if not self._last:
            self._tracker.start_pass()
        silence = _SILENCE_TIMEOUT_S if self._last else _FIRST_EVENT_TIMEOUT_S
        async with contextlib.aclosing(self._json.stream(self._stream, headers, silence)) as pieces:
            async for piece in pieces:
                if piece:  # a heartbeat also counts, as an unchanged object has no events for days
                    self._failures = 0
                for event in events.feed(piece):
                    self._got_event = True
                    for change in self._apply_event(event):
                        yield change
        raise self._ended()

    def _apply_event(self, event: ServerSentEvent) -> Iterable[Change[T]]:
        self._last = event.id or self._last
        match event.kind:
            case "changed":
                name = self._json.decode(_Named, event.data).name
                return self._tracker.record(name, self._json.decode(self._form, event.data))
            case "deleted":
                return self._tracker.remove(self._json.decode(_Named, event.data).name)
            case "reset":
                self._tracker.start_pass()
            case "synced":
                return self._tracker.end_pass()
        return ()

    async def _poll_changes(self) -> AsyncGenerator[Change[T], None]:
        while True:
            self._tracker.start_pass()
            found = list(await self._read())
            self._failures = 0
            for name, now in found:
                for change in self._tracker.record(name, now):
                    yield change
            for change in self._tracker.end_pass():
                yield change
            await self._json.io.pause(self._poll)

    def _ended(self) -> UnreachableError:
        return UnreachableError(f"the server at {self._json.address.url} has ended the stream")

    async def _wait_before_retry(self, fault: UnreachableError) -> None:
        """Wait before the next try.

        Raises:
            UnreachableError: the server is unreachable for too long, or would answer the same again.
        """
        if self._stream and fault.sent and not self._got_event and not self._last:
            self._stream = ""  # the server accepts the request, but no byte of the stream arrives
            return
        if fault.is_not_dayfly:
            raise fault
        now, retries = self._json.io.now(), self._json.retries
        if not self._failures:
            self._failing_since = now
        pause = retries.pause(fault, idempotent=True, before=self._failures, chance=random.random())  # noqa: S311 # no secret
        if pause is None or now + pause - self._failing_since > retries.patience:
            raise fault
        self._failures += 1
        await self._json.io.pause(pause)
        self._json.refresh_address()


class _Named(msgspec.Struct):
    name: str
