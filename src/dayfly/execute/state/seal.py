"""From a state to chunks that nobody reads or alters without the key, and back. Pure but for the nonces' chance.

Compressed, cut and sealed by AES-256-GCM, each chunk with its place: of which run, resource and version it is, and the
how-manyth of how many. So no chunk can stand in another's place, and none can be left out.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dayfly.execute.state.access import StateKeys
    from dayfly.execute.state.head import Version

MAX_BODY: Final = 64 << 20
CHUNK: Final = 512 << 10
MAX_STORED: Final = 8 << 20
_NONCE: Final = 12
_OVERHEAD: Final = _NONCE + 16


class TooLargeError(Exception):
    """The state has more than is kept; the text says how much."""


class SpoiledError(Exception):
    """What is kept is not what was written, or was written with another key; the text says which."""


def digest(state: bytes) -> str:
    """By which a state is known to be the same."""
    return hashlib.sha256(state).hexdigest()


def new_blob() -> str:
    """A name for a version's chunks that none had before."""
    return secrets.token_hex(10)


def seal(keys: StateKeys, place: tuple[str, str, str], state: bytes) -> list[bytes]:
    """The chunks of a state; `place` is run, resource and the name of the chunks.

    Raises:
        TooLargeError: it is too large, also when compressed.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - who keeps no state need not load it

    packed = zlib.compress(state, 6)
    pieces = [packed[at : at + CHUNK - _OVERHEAD] for at in range(0, len(packed), CHUNK - _OVERHEAD)]
    if len(pieces) * CHUNK > MAX_STORED:
        text = f"a state of {len(state)} bytes has {len(packed)} when compressed; at most {MAX_STORED} are kept"
        raise TooLargeError(text)
    box, sealed = AESGCM(keys.sealing), []
    for index, piece in enumerate(pieces):
        nonce = secrets.token_bytes(_NONCE)
        sealed.append(nonce + box.encrypt(nonce, piece, _where(place, index, len(pieces))))
    return sealed


def unseal(keys: StateKeys, place: tuple[str, str], version: Version, chunks: Sequence[bytes]) -> bytes:
    """The state of a version; `place` is run and resource.

    Raises:
        SpoiledError: these are not its chunks.
    """
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    what = f"version {version.number} of the state of {place[1]}"
    if version.key != keys.name:
        raise SpoiledError(f"{what} was written with the key {version.key}; the key here is {keys.name}")
    box = AESGCM(keys.sealing)
    try:
        packed = b"".join(_opened(box.decrypt, (*place, version.blob), chunks, version.chunks))
        inflater = zlib.decompressobj()
        state = inflater.decompress(packed, version.size + 1)
    except (InvalidTag, zlib.error, ValueError) as error:
        raise SpoiledError(f"{what} is not what was written: {type(error).__name__}") from None
    if digest(state) != version.digest:
        raise SpoiledError(f"{what} is not what was written: another digest")
    return state


def _opened(decrypt: object, place: tuple[str, str, str], chunks: Sequence[bytes], count: int) -> Iterator[bytes]:
    assert callable(decrypt), "a box opens"
    if len(chunks) != count:
        raise ValueError(f"{len(chunks)} chunks of {count}")
    for index, chunk in enumerate(chunks):
        yield decrypt(chunk[:_NONCE], chunk[_NONCE:], _where(place, index, count))


def _where(place: tuple[str, str, str], index: int, count: int) -> bytes:
    return "\0".join(("dayfly state", *place, str(index), str(count))).encode()
