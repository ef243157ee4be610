"""Encryption of a state into chunks. Pure except for random nonces.

A state is compressed, split into chunks and sealed with AES-256-GCM. The associated data of each chunk are run,
resource, version, index and number of chunks. So chunks cannot be exchanged or left out.
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
CHUNK_BYTES: Final = 512 << 10
MAX_STORED: Final = 8 << 20
_NONCE: Final = 12
_OVERHEAD: Final = _NONCE + 16


class TooLargeError(Exception):
    """The compressed state exceeds the limit; the text has both sizes."""


class SpoiledError(Exception):
    """The stored chunks are damaged or were written with another key; the text names the version."""


def digest(state: bytes) -> str:
    """Return the digest that identifies the content of a state."""
    return hashlib.sha256(state).hexdigest()


def new_blob() -> str:
    """Return a new unique name for the chunks of a version."""
    return secrets.token_hex(10)


def seal(keys: StateKeys, place: tuple[str, str, str], state: bytes) -> list[bytes]:
    """Return the sealed chunks of a state; `place` is run, resource and the name of the chunks.

    Raises:
        TooLargeError: The compressed state is too large.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - loaded only by hosts with states

    packed = zlib.compress(state, 6)
    pieces = [packed[at : at + CHUNK_BYTES - _OVERHEAD] for at in range(0, len(packed), CHUNK_BYTES - _OVERHEAD)]
    if len(pieces) * CHUNK_BYTES > MAX_STORED:
        text = (
            f"a state of {len(state)} bytes has {len(packed)} bytes when compressed; at most {MAX_STORED} are allowed"
        )
        raise TooLargeError(text)
    box, sealed = AESGCM(keys.sealing), []
    for index, piece in enumerate(pieces):
        nonce = secrets.token_bytes(_NONCE)
        sealed.append(nonce + box.encrypt(nonce, piece, _associated_data(place, index, len(pieces))))
    return sealed


def unseal(keys: StateKeys, place: tuple[str, str], version: Version, chunks: Sequence[bytes]) -> bytes:
    """Return the state of a version; `place` is run and resource.

    Raises:
        SpoiledError: The chunks do not belong to this version.
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
        raise SpoiledError(f"{what} is damaged: {type(error).__name__}") from None
    if digest(state) != version.digest:
        raise SpoiledError(f"{what} is damaged: wrong digest")
    return state


def _opened(decrypt: object, place: tuple[str, str, str], chunks: Sequence[bytes], count: int) -> Iterator[bytes]:
    assert callable(decrypt), "decrypt is a function of AESGCM"
    if len(chunks) != count:
        raise ValueError(f"{len(chunks)} chunks of {count}")
    for index, chunk in enumerate(chunks):
        yield decrypt(chunk[:_NONCE], chunk[_NONCE:], _associated_data(place, index, count))


def _associated_data(place: tuple[str, str, str], index: int, count: int) -> bytes:
    return "\0".join(("dayfly state", *place, str(index), str(count))).encode()
