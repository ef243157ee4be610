"""Names and keys that are derived, never random, so that a repeated operation finds its first result."""

import functools
import hashlib


@functools.lru_cache(maxsize=512)
def resource_id(run: str, resource: str) -> str:
    """Return the stable token of one resource in one run, the same for create and delete: 26 hexadecimal digits (104
    bits).

    Scripts use it in the names or tags of what they create, so that a delete step finds it even without outputs.
    """
    return _hash("resource", run, resource)


@functools.lru_cache(maxsize=512)
def nonce(run: str, unit: str, attempt: int) -> str:
    """Return the key of one attempt, which is in its work order and its receipt."""
    return _hash("attempt", run, unit, str(attempt))


def member_id(owner: str, name: str) -> str:
    """Return the UID of a pool member.

    `owner` and `name` are a pool and the member's number, or a run and its resource if no member was ready.
    """
    return _hash("member", owner, name)


def replacement_id(member: str, resource: str) -> str:
    """Return the UID of the member that replaces another one of a resource if no member is ready.

    It differs from each `member_id`: the other member may itself have a parent for a resource of that name.
    """
    return _hash("replacement", member, resource)


def pair_id(hook: str, target: str) -> str:
    """Return the identity of the ledger of one hook and one of its objects, from the UIDs of both."""
    return _hash("hook", hook, target)


def idempotency_key(run: str, unit: str, answered: str) -> str:
    """Return the `Idempotency-Key` of a webhook. `answered` is the digest of the last refusal, empty for none."""
    return _hash("webhook", run, unit, answered)


def routing_key(uid: str) -> str:
    """Return the routing key of a sandbox: 13 characters of a-z and 0-9, derived from its UID."""
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:9], "big")
    letters: list[str] = []
    for _ in range(13):
        number, digit = divmod(number, 36)
        letters.append("0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return "".join(letters)


def _hash(*parts: str) -> str:
    # Lengths distinguish ("a", "bc") from ("ab", "c").
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:26]
