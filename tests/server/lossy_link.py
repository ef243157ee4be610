"""A link that loses, delays, duplicates and reorders messages as determined by a seed; and the API without sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dayfly.link import wire

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from starlette.applications import Starlette

    from dayfly.link.host_end import HostEnd

FATES = {"arrives": 5, "is doubled": 3, "is held up": 2, "is lost": 1}
# The probability, at each step, that a delayed message arrives.
LATE = 0.08


class LossyLink:
    """A transport whose encoded messages wait until `step` chooses one and its fate."""

    def __init__(self, end: HostEnd, random: random.Random) -> None:
        self.lossless = False
        self.fates: set[str] = set()
        self._end = end
        self._random = random
        self._under_way: list[tuple[Callable[[bytes], None], bytes]] = []
        self._belated: list[tuple[Callable[[bytes], None], bytes]] = []
        self._hear: Callable[[wire.AnyToServer], None] = lambda _: None

    def attach(self, hear: Callable[[wire.AnyToServer], None]) -> None:
        """Attach a link, which also receives the messages under way to an earlier link."""
        self._hear = hear
        self._end.attach(lambda message: self._go(self._reaches_control, wire.encode(message)))

    def send(self, message: wire.AnyToHost) -> None:
        self._go(self._reaches_host, wire.encode(message))

    def step(self) -> None:
        """Let one pending message arrive, arrive twice, get lost or be delayed."""
        if self._belated and self._random.random() < LATE:
            reach, data = self._belated.pop(self._random.randrange(len(self._belated)))
            reach(data)
        if not self._under_way:
            return
        reach, data = self._under_way.pop(self._random.randrange(len(self._under_way)))
        fate = self._random.choices(list(FATES), list(FATES.values()))[0]
        self.fates.add(fate)
        if fate in ("is doubled", "is held up"):
            self._belated.append((reach, data))
        if fate in ("arrives", "is doubled"):
            reach(data)

    def recover(self) -> None:
        """Stop losing messages; deliver the pending ones in reverse order."""
        self.lossless = True
        for reach, data in reversed([*self._belated, *self._under_way]):
            reach(data)
        self._under_way, self._belated = [], []

    def _go(self, reach: Callable[[bytes], None], data: bytes) -> None:
        if self.lossless:
            reach(data)
        else:
            self._under_way.append((reach, data))

    def _reaches_host(self, data: bytes) -> None:
        self._end.send(wire.decode_to_host(data))

    def _reaches_control(self, data: bytes) -> None:
        self._hear(wire.decode_to_server(data))


async def call(app: Starlette, key: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request; return status and JSON, or text if it is not JSON."""
    headers = [(b"host", b"127.0.0.1"), (b"signadot-api-key", key.encode())]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode() if body is not None else b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = b"".join(message.get("body", b"") for message in sent[1:])
    is_json = (b"content-type", b"application/json") in sent[0]["headers"]
    return sent[0]["status"], json.loads(found) if is_json else found.decode()
