"""The moves of a ledger from the operators' logs: claims and results of units, in order."""

import json
from collections.abc import Iterator

from testcluster.cluster import CommandError
from tests.cluster.installed import SYSTEM, Installed
from tests.cluster.waiting import eventually
from tests.conformance.story_log import EVENTS, line


def moves(operator: Installed, sandbox: str, namespace: str) -> list[str]:
    """Return all moves of a sandbox's run, once the last one is logged."""
    return eventually(lambda: _ended(operator, f"{namespace}/{sandbox}"), "the last move in the operators' logs")


def of_units(told: list[str], event: str) -> list[str]:
    """Return the units with this event (`claimed`, `recorded`), in order."""
    return [words[1].partition("#")[0] for words in map(str.split, told) if words[0] == event]


def _ended(operator: Installed, sandbox: str) -> list[str]:
    """Return the moves if the last one is logged. A restarting operator has no log for a moment."""
    try:
        told = sorted(_told(operator, sandbox), key=lambda move: move[0])  # of one write, as they stand
    except CommandError:
        return []
    found = [move for _, move in told]
    return found if found and found[-1].startswith("ended") else []


def _told(operator: Installed, sandbox: str) -> Iterator[tuple[str, str]]:
    """When, and what, in all operators' logs."""
    for pod in operator.replicas():
        log = operator.own.kubectl("logs", "-n", SYSTEM, pod["metadata"]["name"])
        for members in map(json.loads, filter(lambda each: each.startswith("{"), log.splitlines())):
            if members.get("sandbox") == sandbox and members.get("event") in EVENTS.values():
                yield members["time"], line(members["event"], members)
