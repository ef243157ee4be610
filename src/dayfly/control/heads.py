"""How much of a connection is listened to before it makes sense: nobody needs a key to send us an endless header."""

from __future__ import annotations

import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024

_TOO_LONG = json.dumps({"error": f"the head of the request is longer than {MAX_HEAD_BYTES} bytes", "requestId": ""})
_ANSWER = (
    "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
    f"Content-Length: {len(_TOO_LONG)}\r\n\r\n{_TOO_LONG}"
).encode()


class BoundedHeads(HttpToolsProtocol):
    """The library's protocol, whose parser keeps a request line, a header and a trailer of any length.

    A piece of a body, and the end of a head or of a request, are what it may go on for. What comes between two of them
    is bounded; the last piece read goes beyond it by 256 KiB at most.
    """

    _unended = 0

    def data_received(self, data: bytes) -> None:
        self._unended += len(data)
        super().data_received(data)
        if self._unended > MAX_HEAD_BYTES and not self.transport.is_closing():
            # Another answer may be on its way on this connection; there is none before the first request.
            if getattr(self.cycle, "response_complete", True):
                self.transport.write(_ANSWER)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unended = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unended = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unended = 0
        super().on_message_complete()
