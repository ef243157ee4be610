"""The phase of a sandbox and of each of its resources, one word each for statuses and the command line.

`dayfly get` imports this module, so it imports msgspec only when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dayfly.plan.reason_catalog import Severity, severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dayfly.spec.report import RunReport, UnitReport

_DONE = ("succeeded", "stopped")
_TROUBLE_STATES = ("failed", "unknown", "retrying")
_WORST_FIRST = (*_TROUBLE_STATES, "running")


class ResourceProgress(NamedTuple):
    """The progress of a resource: `done` of `total` create steps, or of delete steps while it is closed.

    `worst` is the unfinished step in the worst state.
    """

    phase: str
    done: int
    total: int
    worst: UnitReport | None

    @property
    def has_trouble(self) -> bool:
        """Return whether `worst` has a problem, rather than waiting or running."""
        return self.worst is not None and self.worst.state in _TROUBLE_STATES


def phase(*, begun: bool, closed: bool, ready: bool, reason: str) -> str:
    """Return Pending, Creating, Ready, Failed or Deleting. `begun` states that the sandbox has a run."""
    if closed:
        return "Deleting"
    if ready:
        return "Ready"
    if severity(reason) is Severity.FAILED:
        return "Failed"
    return "Creating" if begun else "Pending"


def resource_progress(units: Iterable[UnitReport], resource: str, *, closed: bool) -> ResourceProgress:
    """Return the progress of a resource by its create steps, or by its delete steps if the run is closed."""
    from dayfly.spec.lifecycle import CREATE_EVENTS  # noqa: PLC0415 -- see above

    counted = [
        unit
        for unit in units
        if unit.resource == resource and (unit.event in CREATE_EVENTS) != closed and unit.state != "skipped"
    ]
    pending = [unit for unit in counted if unit.state not in _DONE]
    worst = min(pending, key=_rank, default=None)
    failed = worst is not None and worst.state == "failed"
    word = "Deleting" if closed else "Failed" if failed else "Creating" if pending else "Ready"
    return ResourceProgress(word, len(counted) - len(pending), len(counted), worst)


def has_trouble(units: Iterable[UnitReport]) -> bool:
    """Return whether a unit is blocked or has failed."""
    return any(
        unit.state in _TROUBLE_STATES
        or (unit.state in ("waiting", "running") and severity(unit.reason) is not Severity.PROGRESS)
        for unit in units
    )


def has_failed(report: RunReport) -> bool:
    """Return whether a create step or hook has failed, also while the run is being cleaned up."""
    from dayfly.spec.lifecycle import CREATE_EVENTS  # noqa: PLC0415 -- see above

    return any(unit.state == "failed" and unit.event in CREATE_EVENTS for unit in report.units)


def _rank(unit: UnitReport) -> int:
    return _WORST_FIRST.index(unit.state) if unit.state in _WORST_FIRST else len(_WORST_FIRST)
