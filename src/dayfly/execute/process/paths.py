"""Which paths of this machine a step declares, and where what it makes must be its own."""

import os

from dayfly.spec.lifecycle import Unit


def usual_folders() -> tuple[str, ...]:
    """Where steps make what is their own without declaring it."""
    return tuple(path for path in ("/tmp", "/var/tmp") if os.path.isdir(path))  # noqa: S108 - they become private


def private_directories(unit: Unit) -> tuple[str, ...]:
    """The folders in which a step's new entries must be its own: the usual ones, and for each declared path the nearest
    that exists above it.
    """
    declared = declared_paths(unit)
    found = set(usual_folders())
    for path in declared:
        parent = os.path.dirname(path)
        while parent not in found and not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        found.add(parent)
    return tuple(sorted(found))


def declared_paths(unit: Unit) -> frozenset[str]:
    """Absolute paths that the unit writes or is given: without isolation two steps cannot share one at once."""
    places = [output.path for output in unit.outputs] + [item.as_.path for item in unit.inputs]
    return frozenset(filter(None, places))
