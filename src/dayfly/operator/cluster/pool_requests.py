"""Requests of persons to pools that were applied in the cluster, as an annotation."""

from collections.abc import Mapping

import msgspec

from dayfly.execute.pod.names import GROUP
from dayfly.execute.pod.read import parse_time
from dayfly.spec.pool_ledger import PoolRequest

# On a ResourcePool: pause, resume or drain, then its time or another note. A request with another note is a new one.
POOL_REQUEST_ANNOTATION = f"{GROUP}/pool-request"
# Characters of such a note. It becomes a part of the pool's ledger.
MAX_NOTE_CHARS = 200


def parse_pool_request(annotations: Mapping[str, str] | None) -> PoolRequest | None:
    """Return the request of a person to a pool; None if there is none or its action is unknown."""
    action, _, note = (annotations or {}).get(POOL_REQUEST_ANNOTATION, "").strip().partition(" ")
    try:
        at, message = parse_time(note.strip()), ""
    except ValueError:
        at, message = 0, note.strip()[:MAX_NOTE_CHARS]
    request = {"at": at, "reason": "", "message": message, "by": f"annotation {POOL_REQUEST_ANNOTATION}"}
    try:
        return msgspec.convert({"action": action, "request": request}, PoolRequest)
    except msgspec.ValidationError:
        return None
