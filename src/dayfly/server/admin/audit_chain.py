"""The chain of an audit: each entry carries the digest of the one before it. Pure: whoever reads it can check it.

Whoever alters an entry, or takes one away, breaks the chain at the next. The last ones are missed by the head, which is
counted apart, and by anybody who has noted an earlier head.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

BEGINNING = "0" * 64
"""What stands before the first entry."""

_encode = msgspec.json.Encoder(order="sorted").encode


class ChainHead(msgspec.Struct, frozen=True):
    """The last entry's number and digest."""

    number: int = 0
    digest: str = BEGINNING


class ChainEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to which object, when.

    Attributes:
        number: From 1 on, without a gap.
        at: Unix milliseconds.
        key: The id of the key with which it was asked for.
        name: How that key is called.
        program: How the program called itself.
        action: What was done, in a word.
        object: To what, as in its address below the organisation.
        spec: SHA-256 of what was wished for it, as it is stored; empty where nothing was.
        previous: The digest of the entry before.
        digest: Of all of the above and the organisation.
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


def link(org: str, head: ChainHead, entry: ChainEntry) -> ChainEntry:
    """The entry as it stands behind the last one."""
    bound = msgspec.structs.replace(entry, number=head.number + 1, previous=head.digest, digest="")
    return msgspec.structs.replace(bound, digest=_digest(org, bound))


def fault(org: str, entries: Iterable[ChainEntry], head: ChainHead, since: ChainHead | None = None) -> str:
    """What is wrong with the entries behind `since` (or all), up to the head; empty if nothing is."""
    last = since or ChainHead()
    for entry in entries:
        if entry.number != last.number + 1:
            return f"entry {last.number + 1} is not there: after {last.number} comes {entry.number}"
        if entry.previous != last.digest:
            return f"entry {entry.number} does not follow on entry {last.number} as that stands now"
        if entry.digest != _digest(org, msgspec.structs.replace(entry, digest="")):
            return f"entry {entry.number} is not what was written"
        last = ChainHead(entry.number, entry.digest)
    if last.number != head.number:
        return f"the last entry is {last.number}, and there were {head.number}"
    if last.digest != head.digest:
        return f"entry {last.number} is not the one that was written last"
    return ""


def _digest(org: str, entry: ChainEntry) -> str:
    return hashlib.sha256(_encode({"org": org, **msgspec.to_builtins(entry)})).hexdigest()
