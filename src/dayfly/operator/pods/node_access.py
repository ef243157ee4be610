"""NodeAccess whose logs cannot be read, because the API server cannot reach the kubelet.

On such a node (a blocked port, a node that is going away) each log request would time out, for each step. So the
operator requests no logs from it for a while and uses the status of its pods only.
"""

import asyncio
import logging

import msgspec

log = logging.getLogger(__name__)

# Number of failed requests in a row until a node counts as unreachable; first and longest pause, which doubles.
MAX_FAILURES = 3
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 300.0
# A node without requests for this time may no longer exist.
FORGET_AFTER_S = 900.0


class _NodeState(msgspec.Struct):
    failures: int = 0
    pause: float = 0.0
    until: float = 0.0
    tried: bool = False


class NodeAccess:
    """Results of log requests by node. They are not stored: after a restart, every node is tried again."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeState] = {}

    def pause(self, node: str) -> float:
        """Return the seconds until logs of the node may be requested; 0 for now."""
        found = self._nodes.get(node)
        return max(0.0, found.until - _now()) if found is not None else 0.0

    def begin_request(self, node: str) -> None:
        """Record that a request starts. For an unreachable node, only one request at a time is allowed."""
        found = self._nodes.get(node)
        if found is not None and found.pause:
            found.until, found.tried = _now() + found.pause, True

    def record_answer(self, node: str) -> None:
        """Record that the kubelet has answered, even if it does not have the log yet."""
        found = self._nodes.pop(node, None)
        if found is not None and found.pause:
            log.info("logs of steps on node %s can be read again", node)

    def record_failure(self, node: str, why: object) -> None:
        """Record that a request failed."""
        found = self._nodes.setdefault(node, _NodeState())
        found.failures += 1
        if not found.pause:
            found.until = _now()  # requests stay allowed, but the node is remembered now
        if found.failures < MAX_FAILURES or (found.pause and not found.tried):
            return  # too few failures, or the request began before the pause
        if not found.pause:
            log.warning(
                "logs of steps on node %s cannot be read: results come from pod status only, and printed text is lost. "
                "The operator retries with increasing intervals. Check that the API server can reach the kubelet: %s",
                node,
                why,
            )
        found.pause, found.tried = min(MAX_PAUSE_S, 2 * found.pause or FIRST_PAUSE_S), False
        found.until = _now() + found.pause

    def reset(self) -> None:
        """Forget all nodes: another process reads the logs from now on."""
        self._nodes.clear()

    def count_unreachable(self) -> int:
        """Return the number of unreachable nodes."""
        now = _now()
        for node in [node for node, each in self._nodes.items() if each.until + FORGET_AFTER_S < now]:
            del self._nodes[node]
        return sum(bool(each.pause) for each in self._nodes.values())


def _now() -> float:
    return asyncio.get_running_loop().time()
