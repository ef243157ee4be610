"""Names and keys that are derived, never drawn: doing a thing twice then finds what the first time made."""

import functools
import hashlib


@functools.lru_cache(maxsize=512)
def resource_id(run: str, resource: str) -> str:
    """The stable token of one resource in one run, the same for create and delete: 26 hexadecimal digits (104 bits).

    Scripts name or tag what they make with it, so that a delete step finds what a create step never reported.
    """
    return _hash("resource", run, resource)


@functools.lru_cache(maxsize=512)
def nonce(run: str, unit: str, attempt: int) -> str:
    """The key of one attempt: in its work order and in its receipt."""
    return _hash("attempt", run, unit, str(attempt))


def pair_id(hook: str, target: str) -> str:
    """What the ledger of one hook and one of its objects is known by, from the UIDs of both."""
    return _hash("hook", hook, target)


def idempotency_key(run: str, unit: str, answered: str) -> str:
    """What a webhook sends as `Idempotency-Key`; `answered` is the digest of the last certain no, empty for none."""
    return _hash("webhook", run, unit, answered)


def routing_key(uid: str) -> str:
    """13 characters of a-z and 0-9, derived from a sandbox's UID."""
    number = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:9], "big")
    letters: list[str] = []
    for _ in range(13):
        number, digit = divmod(number, 36)
        letters.append("0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return "".join(letters)


def _hash(*parts: str) -> str:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:26]
