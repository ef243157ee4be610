"""Addresses of other forks in the environment of a fork: the same rule on every host. Pure."""

import msgspec

from dayfly.spec.lifecycle import Baseline, EnvChange, Unit
from dayfly.spec.steps.value_from import HOST, PORT, fill_expression, placeholders


def peer_baselines(unit: Unit) -> tuple[Baseline, ...]:
    """Return the baselines of the forks whose addresses this fork uses, without duplicates."""
    changes = unit.fork.env if unit.fork is not None else ()
    return tuple(dict.fromkeys(of for change in changes if (of := peer_baseline(change)) is not None))


def peer_baseline(change: EnvChange) -> Baseline | None:
    """Return the baseline of the fork whose address a variable contains; None if it contains none."""
    named = (change.source or {}).get("fork")
    return msgspec.convert(named["forkOf"], Baseline) if named else None


def needs_port(change: EnvChange) -> bool:
    """Return whether the address contains a port."""
    return PORT in placeholders(_expression(change))


def fill_address(change: EnvChange, host: str, port: int) -> str:
    """Return the variable's value for a host and port."""
    return fill_expression(_expression(change), {HOST: host, PORT: str(port)})


def _expression(change: EnvChange) -> str:
    assert change.source is not None, "the value is from another fork"
    return str(change.source["fork"]["expression"])
