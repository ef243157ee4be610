"""Compile each fork to a kept unit: its baseline, its changes, and the outputs that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.compile.resources import Instance, check_output
from dayfly.compile.units import output_reference
from dayfly.spec import lifecycle
from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.lifecycle import Baseline, EnvChange, Kind, Unit, UnitInput
from dayfly.spec.parsing import text
from dayfly.spec.sandbox import Customizations, Env, EnvSource, Fork, Patch
from dayfly.spec.steps.value_from import ADDRESS_FIELDS, FORK_FIELDS, check_expression

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dayfly.spec.steps.value_from import ForkExpression

_APPLIED_PATCH_TYPES = ("strategic", "merge", "json")


def build_units(
    forks: tuple[Fork, ...], instances: Mapping[str, Instance], env: Mapping[str, str], keys: Path
) -> tuple[Unit, ...]:
    """Return the kept units of a sandbox's forks.

    Args:
        forks: The forks as written.
        instances: The sandbox's resources, whose outputs a fork may read.
        env: Variables of every fork's main container; the fork's own changes come after them.
        keys: The path to the list of forks.

    Raises:
        SpecError: A missing output or fork, an invalid expression, an unsupported patch, or two forks of one workload.
    """
    units: dict[str, Unit] = {}
    baselines = [fork.fork_of.baseline for fork in forks]
    builtin = tuple(EnvChange(name=name, value=value) for name, value in env.items())
    for index, fork in enumerate(forks):
        here = (*keys, index)
        name = lifecycle.fork_id(baselines[index])
        if name in units:
            of = fork.fork_of
            problem = f"another fork is already derived from {quote(f'{of.namespace}/{of.name}')}, whatever its kind"
            raise SpecError(problem, (*here, "forkOf"))
        changes = fork.customizations or Customizations()
        units[name] = _build_unit(fork, changes, builtin, instances, here)
        _check_expressions(changes, baselines, (*here, "customizations", "env"))
    return tuple(units.values())


def _build_unit(
    fork: Fork, changes: Customizations, builtin: tuple[EnvChange, ...], instances: Mapping[str, Instance], keys: Path
) -> Unit:
    """Return the kept unit of one fork. `builtin` are variables that the fork's own changes may override."""
    here = (*keys, "customizations")
    inputs: dict[str, UnitInput] = {}
    env = list(builtin)
    for index, change in enumerate(changes.env):
        wanted = change.value_from.resource if change.value_from else None
        name = ""
        if wanted is not None and change.operation != "delete":
            check_output(wanted, instances, (*here, "env", index, "valueFrom", "resource"))
            # The names of resource, step and output contain no dot, so this name is unique. Variables with the same
            # output share one input.
            name = f"{wanted.name}.{wanted.output_key}"
            inputs[name] = UnitInput(name=name, from_=output_reference(wanted))
        env.append(_env_change(change, name))
    return Unit(
        name=fork.name or fork.fork_of.name,
        kind=Kind.FORK,
        inputs=tuple(inputs.values()),
        fork=lifecycle.ForkUnit(
            baseline=fork.fork_of.baseline,
            env=tuple(env),
            images=tuple(msgspec.to_builtins(image) for image in changes.images),
            patch=_patch(changes.patch, (*here, "patch")) if changes.patch else None,
        ),
    )


def _env_change(change: Env, name: str) -> EnvChange:
    """Return one change of a variable. `name` is the input with the value; empty if there is none."""
    if change.operation == "delete":
        return EnvChange(name=change.name, container=change.container, delete=True)
    source = _env_source(change.value_from) if change.value_from and not name else None
    return EnvChange(name=change.name, value=change.value or "", input=name, source=source, container=change.container)


def _env_source(given: EnvSource) -> dict[str, Any]:
    source: dict[str, Any] = msgspec.to_builtins(given)
    return source


def _patch(patch: Patch, keys: Path) -> dict[str, Any]:
    if patch.type not in _APPLIED_PATCH_TYPES:
        problem = f"patches of type {patch.type} are not supported; write the change under env or images"
        raise SpecError(problem, (*keys, "type"))
    return {"type": patch.type, "value": text.parse_one(patch.value, file="").data}


def _check_expressions(changes: Customizations, baselines: Collection[Baseline], keys: Path) -> None:
    """Check that expressions of variables refer to forks of this sandbox, and only to the host and port of each."""
    for index, change in enumerate(changes.env):
        if change.value_from is not None and change.value_from.fork is not None:
            _check_fork(change.value_from.fork, baselines, (*keys, index, "valueFrom", "fork"))
            check_expression(
                change.value_from.fork.expression, ADDRESS_FIELDS, (*keys, index, "valueFrom", "fork", "expression")
            )


def check_fork_value(wanted: ForkExpression, forks: tuple[Fork, ...], keys: Path) -> None:
    """Check a hook's value that reads a field of a fork.

    Raises:
        SpecError: There is no such fork, or forks have no such field.
    """
    _check_fork(wanted, [fork.fork_of.baseline for fork in forks], keys)
    check_expression(wanted.expression, FORK_FIELDS, (*keys, "expression"))


def _check_fork(wanted: ForkExpression, baselines: Collection[Baseline], keys: Path) -> None:
    of = wanted.fork_of
    if of.baseline not in baselines:
        problem = f"this sandbox has no fork of {of.kind} {quote(f'{of.namespace}/{of.name}')}; add it under spec.forks"
        raise SpecError(problem, (*keys, "forkOf"))
