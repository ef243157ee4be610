"""In which part of its life a sandbox is, and each of its resources: one word for statuses and command line alike."""

from collections.abc import Iterable
from typing import NamedTuple

from dayfly.plan.reason_catalog import Tone, tone
from dayfly.spec.lifecycle import CREATING
from dayfly.spec.report import UnitReport

_DONE = ("succeeded", "stopped")
_TROUBLES = ("failed", "unknown", "retrying")
_WORST_FIRST = (*_TROUBLES, "running")


class ResourceStanding(NamedTuple):
    """How a resource stands: `done` of `total` steps of creating, or of cleaning up; `worst` of those that are not."""

    phase: str
    done: int
    total: int
    worst: UnitReport | None

    @property
    def troubled(self) -> bool:
        """Whether `worst` is more than a step that waits or runs."""
        return self.worst is not None and self.worst.state in _TROUBLES


def phase(*, begun: bool, closed: bool, ready: bool, reason: str) -> str:
    """Pending, Creating, Ready, Failed or Deleting; `begun` says that it has a run."""
    if closed:
        return "Deleting"
    if ready:
        return "Ready"
    if tone(reason) is Tone.FAILED:
        return "Failed"
    return "Creating" if begun else "Pending"


def of_resource(units: Iterable[UnitReport], resource: str, *, closed: bool) -> ResourceStanding:
    """By those of its steps that count now."""
    counted = [
        unit
        for unit in units
        if unit.resource == resource and (unit.event in CREATING) != closed and unit.state != "skipped"
    ]
    pending = [unit for unit in counted if unit.state not in _DONE]
    worst = min(pending, key=_rank, default=None)
    failed = worst is not None and worst.state == "failed"
    word = "Deleting" if closed else "Failed" if failed else "Creating" if pending else "Ready"
    return ResourceStanding(word, len(counted) - len(pending), len(counted), worst)


def troubled(units: Iterable[UnitReport]) -> bool:
    """Whether something stands in the way of one of them, or has."""
    return any(
        unit.state in _TROUBLES or (unit.state in ("waiting", "running") and tone(unit.reason) is not Tone.PROGRESS)
        for unit in units
    )


def _rank(unit: UnitReport) -> int:
    return _WORST_FIRST.index(unit.state) if unit.state in _WORST_FIRST else len(_WORST_FIRST)
