"""Which nodes' logs can be read: one whose kubelet the API server cannot reach is left in peace for a while.

Where no kubelet answers (its port is blocked, its node is going) each ask would cost a request, and the API server a
wait, for every step there. Such steps are told by pod status alone.
"""

import asyncio
import logging

import msgspec

log = logging.getLogger(__name__)

# So many asks in a row may fail before a node is left in peace, first for so long, then twice as long each time.
PATIENCE = 3
FIRST_S, MOST_S = 5.0, 300.0
# A node that nobody has had a reason to ask for so long may be gone itself.
FORGOTTEN_S = 900.0


class _Silence(msgspec.Struct):
    failures: int = 0
    pause: float = 0.0
    until: float = 0.0
    tried: bool = False


class Nodes:
    """Hears how asks for logs went. Memory only: after a restart every node is asked again."""

    def __init__(self) -> None:
        self._silent: dict[str, _Silence] = {}

    def pause(self, node: str) -> float:
        """Seconds from now after which the node may be asked; 0: at once."""
        found = self._silent.get(node)
        return max(0.0, found.until - _now()) if found is not None else 0.0

    def asking(self, node: str) -> None:
        """It is asked now. Of one that was silent, one ask at a time finds out whether it still is."""
        found = self._silent.get(node)
        if found is not None and found.pause:
            found.until, found.tried = _now() + found.pause, True

    def answered(self, node: str) -> None:
        """Its kubelet has answered, if only that it has no such log yet."""
        found = self._silent.pop(node, None)
        if found is not None and found.pause:
            log.info("the logs of steps on node %s can be read again", node)

    def failed(self, node: str, why: object) -> None:
        """No answer came from there."""
        found = self._silent.setdefault(node, _Silence())
        found.failures += 1
        if not found.pause:
            found.until = _now()  # it may be asked at once, and is remembered from now on
        if found.failures < PATIENCE or (found.pause and not found.tried):
            return  # too few to tell, or asked before it was known
        if not found.pause:
            log.warning(
                "the logs of steps on node %s cannot be read, so pod status alone tells of their ends and what they "
                "print is not kept; the node is asked again later and later: can the API server reach its kubelet? %s",
                node,
                why,
            )
        found.pause, found.tried = min(MOST_S, 2 * found.pause or FIRST_S), False
        found.until = _now() + found.pause

    def reset(self) -> None:
        """Forget all nodes: another process reads the logs from now on."""
        self._silent.clear()

    def silent(self) -> int:
        """How many are left in peace now."""
        now = _now()
        for node in [node for node, each in self._silent.items() if each.until + FORGOTTEN_S < now]:
            del self._silent[node]
        return sum(bool(each.pause) for each in self._silent.values())


def _now() -> float:
    return asyncio.get_running_loop().time()
