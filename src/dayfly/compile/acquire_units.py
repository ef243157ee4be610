"""Units of kind acquire: stand-ins for the steps of a pool member or parent, and its release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.spec.lifecycle import (
    PARENT_PREFIX,
    AcquireUnit,
    Kind,
    Ref,
    Unit,
    UnitInput,
    UnitRetry,
    UnitTimeouts,
)

if TYPE_CHECKING:
    from collections.abc import Collection

RELEASE = "release"
"""Name of the unit that releases a member or parent, with a number after it if a step has this name."""
_NO_LIMITS = UnitTimeouts(run_ms=0, grace_ms=0)


def stand_in(unit: Unit, *, parent: bool = False) -> Unit:
    """Return the unit that ends like this step of a pool member or shared parent."""
    prefix = PARENT_PREFIX if parent else ""
    return Unit(
        name=prefix + unit.name,
        kind=Kind.ACQUIRE,
        inputs=tuple(
            UnitInput(name=item.name, from_=Ref(unit=prefix + item.from_.unit, output=item.from_.output))
            for item in unit.inputs
            if item.from_ is not None
        ),
        outputs=unit.outputs,
        timeouts=_NO_LIMITS,
        acquire=AcquireUnit(step=unit.name, parent=parent or (unit.acquire is not None and unit.acquire.parent)),
    )


def release_unit(after: tuple[str, ...], taken: Collection[str], *, parent: bool = False) -> Unit:
    """Return the unit that releases the other run, after all other delete units. `taken` are the names of units."""
    names = (RELEASE, *(f"{RELEASE}-{number}" for number in range(2, len(taken) + 3)))
    return Unit(
        name=next(name for name in names if name not in taken),
        kind=Kind.ACQUIRE,
        retry=UnitRetry(idempotent=True, limit=0),
        timeouts=_NO_LIMITS,
        acquire=AcquireUnit(parent=parent),
        after=after,
    )
