"""What a connection may cost before it makes sense: nobody needs a key to open one, or to send an endless head."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_HEAD_BYTES = 64 * 1024
# From its first byte (of a new connection: from its beginning) a head may take so long, and so long the body behind it.
HEAD_S = 10.0
BODY_S = 30.0
# Of an answer that waits in our memory something has to be taken so often.
TAKES_S = 60.0
MOST_CONNECTIONS = 1024


class BoundedHttp(HttpToolsProtocol):
    """The library's protocol, which bounds neither a head's length nor how long a client takes to send a request.

    A piece of a body, and the end of a head or of a request, are what may cost further bytes. What comes between two of
    them is bounded; the last piece read goes beyond it by 256 KiB at most. Connections are bounded, too: the one that
    has kept us waiting longest goes first. One whose client waits for our answer stays; one whose client takes nothing
    of it does not.
    """

    _unended = 0
    _has_spoken = False
    waits_since = 0.0
    """Since when it waits for its client, by the loop's clock; 0 while its client waits for us."""
    _timer: asyncio.TimerHandle | None = None
    _takes: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the library's own
        super().connection_made(transport)
        self._wait(HEAD_S)
        if len(self.connections) > most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        self._has_taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._has_taken()
        self._is_to_take(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._has_taken()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.waits_since and self._timer is None:
            self._wait(HEAD_S)  # the next request of a connection that was idle
        self._unended += len(data)
        self._has_spoken = True
        super().data_received(data)
        if self._unended > MAX_HEAD_BYTES:
            self._refuse("431 Request Header Fields Too Large", f"the head is longer than {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        self._unended = 0
        self._wait(BODY_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unended = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unended = 0
        self._wait_no_more()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._timer is None:
            self.waits_since = self.loop.time()  # idle, for as long as the library keeps an idle one
        super().on_response_complete()

    def _wait(self, seconds: float) -> None:
        self._wait_no_more()
        self.waits_since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _wait_no_more(self) -> None:
        self.waits_since = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_to_take(self, left: int) -> None:
        """Look again later whether less is `left`: nothing is added meanwhile."""
        self._takes = self.loop.call_later(TAKES_S, self._look, left)

    def _look(self, before: int) -> None:
        if (left := self.transport.get_write_buffer_size()) < before:
            self._is_to_take(left)
        else:
            self.transport.abort()

    def _has_taken(self) -> None:
        if self._takes is not None:
            self._takes.cancel()
            self._takes = None

    def _too_slow(self) -> None:
        if self._has_spoken:
            self._refuse("408 Request Timeout", "the request did not come to its end in time")
        else:
            self.transport.close()

    def _make_room(self) -> None:
        waiting = [each for each in self.connections if isinstance(each, BoundedHttp) and each.waits_since]
        longest = min(waiting, key=lambda each: each.waits_since)
        if longest is self:
            self._refuse("503 Service Unavailable", "this server has as many connections as it can have")
        else:
            longest.transport.abort()

    def _refuse(self, status: str, sentence: str) -> None:
        """End the connection, with a word if no other answer is on its way."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started):
            said = json.dumps({"error": sentence, "requestId": ""}).encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            self.transport.write(f"{head}Content-Length: {len(said)}\r\n\r\n".encode() + said)
        self.transport.close()


def most_connections() -> int:
    """Half of the descriptors that this process may have: the rest is for the work."""
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, MOST_CONNECTIONS)
