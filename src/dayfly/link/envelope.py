"""The HTTP bodies around messages (`link.wire`) between a host that dials in and its server: numbers and digests."""

import hashlib
from typing import Annotated

import msgspec

from dayfly.spec.meta import doc
from dayfly.spec.resource_token import ResourceToken

PROTOCOL_HEADER = "Dayfly-Agent-Protocol"
TOKEN_HEADER = "signadot-cluster-token"  # noqa: S105 - the name of a header
# With a 409: the current session.
SESSION_HEADER = "Dayfly-Agent-Session"
# The status of a frozen cluster.
FROZEN_STATUS = 423
MAX_MESSAGES = 200
# Tokens of one question about resources of other clusters.
MAX_TOKENS = 2_000
# Bytes of one request of a host, and of one answer to it.
MAX_BODY_BYTES, MAX_ANSWER_BYTES = 8 << 20, 16 << 20
# Bytes around a single message, at most.
MAX_ENVELOPE_BYTES = 1 << 10


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body whose unknown fields are ignored."""


class SessionRequest(Envelope, frozen=True, kw_only=True):
    """A host's request for a session: its cluster, the last session and message that it knows, and its runs.

    `namespaces` has, for each organisation, the namespace of its Sandboxes.
    """

    cluster_uid: Annotated[str, doc("UID of the cluster.")]
    previous: Annotated[int, doc("Number of the last session; 0 for none.")] = 0
    number: Annotated[int, doc("Number of the last received message; 0 for none.")] = 0
    digest: Annotated[str, doc("Digest of the last received message.")] = ""
    version: Annotated[str, doc("Version of the operator.")] = ""
    namespaces: Annotated[dict[str, str], doc("By organisation, the namespace of its Sandboxes.")] = {}
    runs: Annotated[tuple[str, ...], doc("UIDs of its runs.")] = ()
    token_hosts: Annotated[
        tuple[str, ...],
        doc("Its names in the resource tokens that it recognises; empty for an operator that accepts no key."),
    ] = ()


class TokenKey(Envelope, frozen=True, kw_only=True):
    """The key with which a cluster makes resource tokens. Only the operator of this cluster gets it.

    `check` covers the other fields: tokens by an altered key would prove nothing.
    """

    host: Annotated[str, doc("Name of the cluster in its tokens.")]
    key: Annotated[bytes, doc("The key, in base64.")]
    check: Annotated[str, doc("Digest of the other fields.")] = ""

    def compute_check(self) -> str:
        """Return the right value of `check`."""
        return hashlib.sha256(f"{self.host}\n{self.key.hex()}".encode()).hexdigest()


class Session(Envelope, frozen=True, kw_only=True):
    """A session. The host continues after `number`, whose digest is given.

    `check` covers the other fields: a host that stored a wrong one would later take the server for a restored one.
    """

    org: Annotated[str, doc("Organisation of the token.")]
    cluster: Annotated[str, doc("Cluster of the token.")]
    session: Annotated[int, doc("Number of the session.")]
    number: Annotated[int, doc("Number of the last message that the host has received.")]
    digest: Annotated[str, doc("Digest of that message.")]
    check: Annotated[str, doc("Digest of all other fields, except the key.")] = ""
    token_key: Annotated[
        TokenKey | None, doc("The key of the cluster for resource tokens; absent for an operator that accepts none.")
    ] = None

    def compute_check(self) -> str:
        """Return the right value of `check`."""
        return chain_digest(self.digest, self.number, self.session, f"{self.org}/{self.cluster}")


class NumberedMessage(Envelope, frozen=True, kw_only=True):
    """One message to a host. Its digest covers all messages before it."""

    number: Annotated[int, doc("Number of the message.")]
    at: Annotated[int, doc("Time of the message, in Unix milliseconds.")]
    digest: Annotated[str, doc("Digest of this message and all before it.")]
    body: Annotated[str, doc("The message, as JSON.")]


class UnreadMessages(Envelope, frozen=True, kw_only=True):
    """Messages that a host has not received yet."""

    messages: Annotated[tuple[NumberedMessage, ...], doc("Messages, the oldest first.")]


class SentMessages(Envelope, frozen=True, kw_only=True):
    """Messages of a host. `first` is the number of the first one in its session."""

    session: Annotated[int, doc("Number of the session.")]
    first: Annotated[int, doc("Number of the first message in this session.")]
    messages: Annotated[list[str], doc("Messages, as JSON.")]


class ReceivedCount(Envelope, frozen=True, kw_only=True):
    """The number of messages of a session that the server has received."""

    received: Annotated[int, doc("Number of messages.")]


class ResourcesRequest(Envelope, frozen=True, kw_only=True):
    """Items whose resources a host does not know, with their tokens: does another host of the organisation use them?"""

    tokens: Annotated[tuple[ResourceToken, ...], doc("Pairs of a resource ID and a token.")]


class ResourcesAnswer(Envelope, frozen=True, kw_only=True):
    """The states of the runs of those resources that hosts of the organisation have made."""

    states: Annotated[dict[str, str], doc("By resource ID: open, closed, none, or unanswered.")]


class StartRequest(Envelope, frozen=True, kw_only=True):
    """Sandboxes that a host requests to start; in the response, those permitted to start."""

    uids: Annotated[tuple[str, ...], doc("UIDs of the runs.")]
    session: Annotated[int, doc("Number of the session; 0 in the answer.")] = 0


def chain_digest(before: str, number: int, at: int, body: str) -> str:
    """Return the digest of a message that follows the one with the digest `before`."""
    return hashlib.sha256(f"{before}\n{number}\n{at}\n{body}".encode()).hexdigest()


def has_room(body: str, max_bytes: int) -> bool:
    """Return whether a message fits into `max_bytes` bytes. A longer one would block all messages after it."""
    room = max_bytes - MAX_ENVELOPE_BYTES
    # As JSON in JSON no character has more than four bytes, so most messages need not be encoded to know.
    return 4 * len(body) <= room or len(msgspec.json.encode(body)) <= room
