"""The hash chain of the audit log: each entry has the digest of the previous one, so that clients can verify it.

A changed or deleted entry breaks the chain at the next one. If the last entries are deleted, the chain no longer
reaches the head, which is stored separately and which clients may have recorded.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

EMPTY_DIGEST = "0" * 64
"""The previous digest of the first entry."""

_encode = msgspec.json.Encoder(order="sorted").encode


class ChainHead(msgspec.Struct, frozen=True):
    """Number and digest of the last entry."""

    number: int = 0
    digest: str = EMPTY_DIGEST


class ChainEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one object.

    Attributes:
        number: From 1 on, without gaps.
        at: Unix milliseconds.
        key: The ID of the key.
        name: The name of the key.
        program: The User-Agent of the client.
        action: A verb, such as "create".
        object: The object, as in its path below the organisation.
        spec: SHA-256 of the stored spec; empty if there is none.
        previous: The digest of the previous entry.
        digest: The digest of the organisation and all fields above.
    """

    number: int
    at: int
    key: str
    name: str
    program: str
    action: str
    object: str
    spec: str = ""
    previous: str = ""
    digest: str = ""


def next_entry(org: str, head: ChainHead, entry: ChainEntry) -> ChainEntry:
    """Return the entry with its number and digests, as the successor of the head."""
    bound = msgspec.structs.replace(entry, number=head.number + 1, previous=head.digest, digest="")
    return msgspec.structs.replace(bound, digest=_digest(org, bound))


def find_fault(org: str, entries: Iterable[ChainEntry], head: ChainHead, since: ChainHead | None = None) -> str:
    """Verify the entries after `since` (by default all) up to the head; return the first error, or ""."""
    last = since or ChainHead()
    for entry in entries:
        if entry.number != last.number + 1:
            return f"entry {last.number + 1} is missing: after {last.number} comes {entry.number}"
        if entry.previous != last.digest:
            return f"entry {entry.number} does not match the digest of entry {last.number}"
        if entry.digest != _digest(org, msgspec.structs.replace(entry, digest="")):
            return f"entry {entry.number} was changed after it was written"
        last = ChainHead(entry.number, entry.digest)
    if last.number != head.number:
        return f"the last entry is {last.number}, but {head.number} were written"
    if last.digest != head.digest:
        return f"entry {last.number} was replaced after it was written"
    return ""


def _digest(org: str, entry: ChainEntry) -> str:
    return hashlib.sha256(_encode({"org": org, **msgspec.to_builtins(entry)})).hexdigest()
