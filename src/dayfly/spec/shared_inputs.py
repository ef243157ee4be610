"""Inputs that a plugin gives once for several steps (`spec.inputs`).

Each step gets a copy, so everything after the parser reads only the inputs of steps. A fault in a copy is reported at
the input as written (`find_written`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.scalars import names

if TYPE_CHECKING:
    from collections.abc import Iterable

_INVENTORY = "inventory"
_WORKFLOWS = ("create", "delete", _INVENTORY)


class SharedFields(Protocol):
    """An input as the plugin gives it, with the steps that it lists."""

    @property
    def name(self) -> str: ...
    @property
    def steps(self) -> tuple[str, ...]: ...
    @property
    def value_from_sandbox(self) -> bool: ...
    @property
    def value_from_step(self) -> Any: ...
    @property
    def path(self) -> str: ...

    def for_step(self, *, with_place: bool) -> Any:
        """Return the input of a step, with the place of its value or without it."""


class PluginFields(Protocol):
    """A plugin with its shared inputs and steps."""

    @property
    def inputs(self) -> tuple[SharedFields, ...]: ...
    @property
    def create(self) -> tuple[Any, ...]: ...
    @property
    def delete(self) -> tuple[Any, ...]: ...
    @property
    def inventory(self) -> tuple[Any, ...]: ...


P = TypeVar("P", bound=PluginFields)


class _Source(NamedTuple):
    """A shared input: its name, the steps that it lists, the step that it reads, and whether it is only a variable
    with a param.
    """

    name: str
    steps: tuple[str, ...]
    producer: str
    is_variable: bool


class _Reader(NamedTuple):
    """A step that may get shared inputs: its workflow, name, own inputs, and whether it removes an object."""

    workflow: str
    name: str
    own: frozenset[str]
    removes: bool


def expand(spec: P) -> P:
    """Return the plugin with a copy of each shared input in its steps, and without `spec.inputs`."""
    if not spec.inputs:
        return spec
    sources = [_source(each) for each in spec.inputs]
    expanded = {
        workflow: tuple(_with_shared(workflow, step, spec.inputs, sources) for step in getattr(spec, workflow))
        for workflow in _WORKFLOWS
    }
    changed: Any = {"inputs": (), **expanded}
    return msgspec.structs.replace(spec, **changed)  # type: ignore[type-var] # PluginSpec is a struct


def check(spec: PluginFields, keys: Path) -> None:
    """Check the names of the shared inputs and the steps that they list. `keys` is the path to the plugin's `spec`."""
    known = [step.name for workflow in _WORKFLOWS for step in getattr(spec, workflow)]
    faults = Faults()
    for index, shared in enumerate(spec.inputs):
        here = (*keys, "inputs", index)
        with faults:
            names.check("input", shared.name, (*here, "name"))
        for position, wanted in enumerate(shared.steps):
            with faults:
                if wanted not in known:
                    problem = f"no step {quote(wanted)}; the steps are {', '.join(map(quote, known)) or 'missing'}"
                    raise SpecError(problem, (*here, "steps", position))
    with faults:
        names.check_unique(
            "the input", [(each.name, (*keys, "inputs", index, "name")) for index, each in enumerate(spec.inputs)]
        )
    faults.settle()


def find_written(data: Any, keys: Path) -> Path:
    """Return the path of a value as written: that of the shared input if `keys` leads to a copy in a step.

    Args:
        data: The document, as plain data, which may have faults.
        keys: A path in the document with the copies.
    """
    for at in range(3, len(keys)):
        if keys[at - 1] != "inputs" or not isinstance(keys[at - 2], int) or keys[at - 3] not in _WORKFLOWS:
            continue
        spec = _value_at(data, keys[: at - 3])
        step = _value_at(data, keys[: at - 1])
        own, shared = _mappings(step, "inputs"), list(enumerate(_mappings(spec, "inputs")))
        reader = _Reader(
            str(keys[at - 3]),
            _value_at(step, ("name",)),
            frozenset(str(each.get("name")) for each in own),
            bool(_value_at(step, ("object", "remove"))),
        )
        copied = [index for index, each in shared if _reaches(_raw_source(each), reader)]
        copy = keys[at] - len(own) if isinstance(keys[at], int) else -1  # type: ignore[operator] # an index
        return (*keys[: at - 3], "inputs", copied[copy], *keys[at + 1 :]) if 0 <= copy < len(copied) else keys
    return keys


def with_written_paths(data: Any, fault: SpecError) -> SpecError:
    """Return a fault without a position, and the others in it, with the paths of the values as written."""
    found = SpecError(fault.problem, find_written(data, fault.keys))
    found.others = tuple(with_written_paths(data, other) for other in fault.others)
    return found


def _with_shared(workflow: str, step: Any, shared: Iterable[SharedFields], sources: Iterable[_Source]) -> Any:
    removes = bool(step.object and step.object.remove)
    reader = _Reader(workflow, step.name, frozenset(each.name for each in step.inputs), removes)
    with_place = step.webhook is None and step.object is None  # these place their inputs themselves
    copies = tuple(
        each.for_step(with_place=with_place)
        for each, source in zip(shared, sources, strict=True)
        if _reaches(source, reader)
    )
    return msgspec.structs.replace(step, inputs=(*step.inputs, *copies)) if copies else step


def _reaches(source: _Source, reader: _Reader) -> bool:
    """Return whether a step gets a shared input.

    It does not get an input of a name that it has, or its own output. The removal of an object needs no inputs, and an
    inventory has only variables with params.
    """
    if source.name in reader.own or source.producer == reader.name or reader.removes:
        return False
    if reader.workflow == _INVENTORY and not source.is_variable:
        return False
    return not source.steps or reader.name in source.steps


def _source(shared: SharedFields) -> _Source:
    producer = shared.value_from_step.name if shared.value_from_step else ""
    return _Source(shared.name, shared.steps, producer, shared.value_from_sandbox and not shared.path)


def _raw_source(shared: dict[str, Any]) -> _Source:
    steps, producer = shared.get("steps"), _value_at(shared, ("valueFromStep", "name"))
    is_variable = bool(shared.get("valueFromSandbox")) and not _value_at(shared, ("as", "path"))
    return _Source(
        str(shared.get("name")), tuple(steps) if isinstance(steps, list) else (), str(producer or ""), is_variable
    )


def _mappings(data: Any, field: str) -> list[dict[str, Any]]:
    """Return a list of mappings in faulty data; other items become empty mappings."""
    found = _value_at(data, (field,))
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []


def _value_at(data: Any, keys: Path) -> Any:
    """Return the value at that path, or None."""
    for key in keys:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data
