"""An append-only log of what scripts really did, and checks at each start of a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line: `what` is `start` or `end`, and `run` is the ledger's UID."""

    at: float
    what: str
    run: str
    unit: str
    attempt: int
    pod: str
    outcome: str = ""


class Cloud:
    """Called by the kubelet only, when a script starts and when its last process is gone."""

    def __init__(self, time: Callable[[], float], runs: Callable[[], list[Object]]) -> None:
        self.log: list[Entry] = []
        self.given: dict[tuple[str, str, int], dict[str, bytes]] = {}
        self.violations: list[str] = []
        self._time = time
        self._runs = runs
        self._alive: dict[tuple[str, str], int] = {}
        self._creates: dict[str, bool] = {}
        self._once: set[str] = set()
        self._draining: set[str] = set()
        self._reads: dict[str, dict[str, tuple[str, bytes]]] = {}
        self._cleanups: list[Callable[[str, str], None]] = []
        self.lossy = False  # whether an output may be lost, because a node was lost
        self.forgiven = False  # whether the test has removed evidence that the ledger needs

    def knows(
        self, unit: str, *, creates: bool, once: bool, reads: dict[str, tuple[str, bytes]], drains: bool = False
    ) -> None:
        """Declare a unit; `reads` maps a variable to the producing unit and the expected value.

        A draining unit runs in parallel to the unit that it prepares for.
        """
        self._reads[unit] = reads
        if drains:
            self._draining.add(unit)
        self._creates[unit] = creates
        if once:
            self._once.add(unit)

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """Call `then` with run and unit whenever a delete step starts."""
        self._cleanups.append(heard)

    def start(self, run: str, unit: str, attempt: int, pod: str, given: dict[str, bytes]) -> None:
        """Record the start of a script with its environment."""
        self._check(run, unit, attempt, pod)
        for variable, (producer, value) in self._reads[unit].items():
            wanted = value if self.succeeded(producer, run) else b""
            # After the loss of a node, an output may be lost. A delete step copes with that; a create step must not start.
            absent = self.lossy and not self._creates[unit] and not given.get(variable)
            if given.get(variable) != wanted and not absent:
                self.broken(f"(7) {unit}#{attempt} reads {given.get(variable)!r} in {variable}, written was {wanted!r}")
        self.given[pod, unit, attempt] = given
        self.log.append(Entry(self._time(), "start", run, unit, attempt, pod))
        self._alive[run, unit] = self._alive.get((run, unit), 0) + 1

    def end(self, run: str, unit: str, attempt: int, pod: str, outcome: str) -> None:
        """Record that the script has ended with all its processes."""
        self.log.append(Entry(self._time(), "end", run, unit, attempt, pod, outcome))
        self._alive[run, unit] -= 1

    def starts(self, unit: str, run: str = "") -> int:
        return sum(line.what == "start" and line.unit == unit and run in ("", line.run) for line in self.log)

    def succeeded(self, unit: str, run: str) -> bool:
        return any((e.what, e.unit, e.run, e.outcome) == ("end", unit, run, "exited 0") for e in self.log)

    def _check(self, run: str, unit: str, attempt: int, pod: str) -> None:
        what = f"{unit}#{attempt} ({pod}) of {run}"
        if unit in self._once and self.starts(unit, run):
            self.broken(f"twice: {what} starts, and has started before")
        if self._alive.get((run, unit)):
            self.broken(f"twice: {what} starts beside another attempt of itself")
        creating = [u for (r, u), alive in self._alive.items() if r == run and alive and self._creates[u]]
        if unit in self._draining:
            creating = [other for other in creating if not other.startswith("fork:")]
        if not self._creates[unit] and creating:
            self.broken(f"order: {what} starts while {creating} live")
        if not self._creates[unit] and unit not in self._draining:
            for heard in self._cleanups:
                heard(run, unit)
        ledger = next((item["ledger"] for item in self._runs() if item["ledger"]["uid"] == run), None)
        record = (ledger or {}).get("units", {}).get(unit, {})
        if (record.get("attempt"), record.get("ref")) != (attempt, pod):
            self.broken(f"unclaimed: {what} starts, the ledger holds {record}")

    def broken(self, sentence: str) -> None:
        """Record a violation without raising; the world reports it at the end."""
        self.violations.append(f"{self._time():.1f} s: {sentence}")

    def leaks(self, run: str, pairs: dict[str, str]) -> list[str]:
        """Return create units that have started and whose delete unit has not succeeded since."""
        return [made for made, drop in pairs.items() if self.starts(made, run) and not self.succeeded(drop, run)]
