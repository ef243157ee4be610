"""What a fork is told of where the others of its sandbox answer: the same rule on every host. Pure."""

import msgspec

from dayfly.spec.lifecycle import Baseline, EnvChange, Unit
from dayfly.spec.steps.value_from import HOST, PORT, fill_expression, placeholders


def peers(unit: Unit) -> tuple[Baseline, ...]:
    """The baselines of the forks whose addresses a fork is told, each once."""
    changes = unit.fork.env if unit.fork is not None else ()
    return tuple(dict.fromkeys(of for change in changes if (of := peer(change)) is not None))


def peer(change: EnvChange) -> Baseline | None:
    """The baseline of the fork whose address a variable holds, if it holds one."""
    named = (change.source or {}).get("fork")
    return msgspec.convert(named["forkOf"], Baseline) if named else None


def asks_for_port(change: EnvChange) -> bool:
    """Whether the address is none without a port."""
    return PORT in placeholders(_expression(change))


def filled_in(change: EnvChange, host: str, port: int) -> str:
    """The variable's value once it is known where that fork answers."""
    return fill_expression(_expression(change), {HOST: host, PORT: str(port)})


def _expression(change: EnvChange) -> str:
    assert change.source is not None, "asked for a value from another fork"
    return str(change.source["fork"]["expression"])
