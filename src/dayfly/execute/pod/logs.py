"""A pod's log, piece by piece: the step's own lines, and the sealed document that the runner puts behind them. Pure.

See `runner/README.md`, "The log": a line that begins with one 0x1E is the runner's; one of the step's that begins so
has a second 0x1E in front.
"""

import base64
import binascii
import hashlib

from dayfly.spec.frames import FrameError, decode

MARK = b"\x1e"
TAIL_LIMIT = 64 * 1024
# A line of the step may be as long as it likes; nobody keeps more than the tail of it.
_LINE_LIMIT = 1 << 20


class Splitter:
    """Fed with pieces of a log in their order; `records` is the runner's sealed receipt once it was seen whole."""

    def __init__(self) -> None:
        self.tail = bytearray()
        self.dropped = 0
        self.records: list[tuple[str, bytes]] | None = None
        self.digest = ""
        self._rest = b""
        self._coded: list[bytes] = []

    @property
    def whole(self) -> bool:
        """Whether the receipt was seen to its end."""
        return self.records is not None

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _LINE_LIMIT:
            self._say(self._rest)
            self._rest = b""
        for line in lines:
            self._line(line)

    def end(self) -> None:
        """The log has ended: a line that has no end is the step's too."""
        if not self._rest.startswith(MARK):
            self._say(self._rest)
        elif self._rest.startswith(MARK * 2):
            self._say(self._rest[1:])
        self._rest = b""

    def _line(self, line: bytes) -> None:
        if not line.startswith(MARK):
            self._say(line + b"\n")
        elif line.startswith(MARK * 2):
            self._say(line[1:] + b"\n")
        elif line.startswith(MARK + b"="):
            self._coded.append(line[2:])
        elif line.startswith(MARK + b"dayfly-end "):
            self._seal(line.removeprefix(MARK + b"dayfly-end ").decode(errors="replace").strip())
        else:
            self._coded = []

    def _say(self, text: bytes) -> None:
        self.tail += text
        if len(self.tail) > TAIL_LIMIT:
            self.dropped += len(self.tail) - TAIL_LIMIT
            del self.tail[: len(self.tail) - TAIL_LIMIT]

    def _seal(self, digest: str) -> None:
        try:
            document = base64.b64decode(b"".join(self._coded), validate=True)
            if hashlib.sha256(document).hexdigest() == digest:
                self.records, self.digest = decode("dayfly-receipt", document), digest
        except (binascii.Error, FrameError):
            self.records = None

    def field(self, key: str) -> str:
        """A text record of the receipt; empty if there is none."""
        return next((value.decode(errors="replace") for name, value in self.records or () if name == key), "")

    def contents(self) -> dict[str, bytes]:
        """The outputs that the receipt carries."""
        pairs = (value.split(b"\0", 1) for key, value in self.records or () if key == "content")
        return {name.decode(): value for name, value in pairs}
