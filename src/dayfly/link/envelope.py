"""What a host that dials in and its control plane exchange around their messages (`link.wire`): numbers and digests."""

import hashlib

import msgspec

PROTOCOL_HEADER = "Dayfly-Agent-Protocol"
TOKEN_HEADER = "signadot-cluster-token"  # noqa: S105 - the name of a header
# With a 409: the session that there is.
SESSION_HEADER = "Dayfly-Agent-Session"
# Of what cannot go on before a human has looked.
FROZEN_STATUS = 423
MOST_MESSAGES = 200
# Bytes of what a host says in one request, and of what it reads of one answer.
MOST_BODY, MOST_ANSWER = 8 << 20, 16 << 20
# What stands around a message that is sent alone, at most.
MOST_ENVELOPE = 1 << 10


class Mail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Unknown fields are passed over."""


class Opening(Mail, frozen=True, kw_only=True):
    """What a host says when it begins: which cluster it is, the last session and message it knows, and its runs.

    `namespaces` says for each organisation where its Sandboxes live there.
    """

    cluster_uid: str
    previous: int = 0
    number: int = 0
    digest: str = ""
    version: str = ""
    namespaces: dict[str, str] = {}
    runs: tuple[str, ...] = ()


class Session(Mail, frozen=True, kw_only=True):
    """One conversation: what belongs to another one is void. The host goes on after `number`, whose digest is given.

    `check` covers the rest: what a host notes wrongly here it would take for a restored control plane later.
    """

    org: str
    cluster: str
    session: int
    number: int
    digest: str
    check: str = ""

    def checked(self) -> str:
        """What `check` is to be."""
        return chained(self.digest, self.number, self.session, f"{self.org}/{self.cluster}")


class Sent(Mail, frozen=True, kw_only=True):
    """One message to a host; its digest covers all before it."""

    number: int
    at: int
    digest: str
    body: str


class Letters(Mail, frozen=True, kw_only=True):
    """What a host has not seen yet."""

    messages: tuple[Sent, ...]


class Said(Mail, frozen=True, kw_only=True):
    """Messages of a host, the first of them with that number in its session."""

    session: int
    first: int
    messages: list[str]


class Heard(Mail, frozen=True, kw_only=True):
    """So many of a session's messages were heard in all."""

    heard: int


class Asked(Mail, frozen=True, kw_only=True):
    """Sandboxes of which a host wants to know whether they are to live; and the answer, those that are."""

    uids: tuple[str, ...]
    session: int = 0


def chained(before: str, number: int, at: int, body: str) -> str:
    """The digest of a message that follows the one with the digest `before`."""
    return hashlib.sha256(f"{before}\n{number}\n{at}\n{body}".encode()).hexdigest()


def has_room(body: str, most: int) -> bool:
    """Whether a message has room in so many bytes. What has not is never heard, and keeps back all behind it."""
    room = most - MOST_ENVELOPE
    # As JSON in JSON no character has more than four bytes: most messages need not be looked at closely.
    return 4 * len(body) <= room or len(msgspec.json.encode(body)) <= room
