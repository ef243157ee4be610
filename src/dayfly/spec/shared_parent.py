"""The parent of a plugin: a resource that the resources of many sandboxes share, such as a database server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dayfly.spec.errors import Faults, Path, SpecError, quote
from dayfly.spec.lifecycle import WireStruct
from dayfly.spec.meta import NAME_PATTERN, doc, identifier
from dayfly.spec.scalars import names, semver
from dayfly.spec.scalars.duration import milliseconds

MAX_LEVELS = 3
"""The maximum number of plugins in a chain: a plugin, its parent, and the parent of that."""
DEFAULT_CAPACITY = 100
MAX_CAPACITY = 1_000
MAX_PARENTS = 32


class ParentParam(WireStruct, frozen=True, kw_only=True):
    """A param of a parent whose value is a param of the plugin that has this parent."""

    value_from_param: Annotated[str, identifier("input", "Name of the param of the plugin that has this parent.")]


class ParentOutput(WireStruct, frozen=True, kw_only=True):
    """An output of a create step of the parent."""

    step: Annotated[str, identifier("step", "Name of the create step of the parent.")]
    output: Annotated[str, identifier("output", "Name of its output.")]


class Parent(WireStruct, frozen=True, kw_only=True):
    """A resource that all resources of this plugin share if their values for its params are equal.

    The first resource that needs it creates it. It is deleted when the last one is deleted, or `linger` later.
    """

    plugin: Annotated[
        str, doc("The published plugin of the parent, as name@version.", 253, pattern=f"^{NAME_PATTERN[1:-1]}(@.+)?$")
    ]
    params: Annotated[
        dict[str, str | ParentParam],
        doc(
            "Values for the parent's params: a string, or valueFromParam with a param of this plugin.",
            maxProperties=128,
        ),
    ] = {}
    linger: Annotated[
        str,
        doc(
            "Time for which the parent stays after its last holder has left it, like 30m. Default: it is deleted at "
            "once.",
            16,
            pattern="^([0-9]{1,9}[smh])?$",
        ),
    ] = ""
    capacity: Annotated[int, doc("Maximum number of holders of one parent.", minimum=1, maximum=MAX_CAPACITY)] = (
        DEFAULT_CAPACITY
    )
    max_parents: Annotated[
        int,
        doc(
            "Maximum number of such parents at the same time. The next one is created when the others are full.",
            minimum=1,
            maximum=MAX_PARENTS,
        ),
    ] = 1

    @property
    def version(self) -> tuple[str, str]:
        """The bare name of its plugin and the canonical version. Without a version, that is 0.0.0."""
        return semver.split_name(self.plugin)

    @property
    def linger_ms(self) -> int:
        """The time for which it stays without holders, in milliseconds."""
        return milliseconds(self.linger) if self.linger else 0

    def read_params(self) -> dict[str, str]:
        """Return the params of the plugin that this parent reads, each with the parent's param that has its value."""
        sources = {name: value for name, value in self.params.items() if isinstance(value, ParentParam)}
        return {source.value_from_param: name for name, source in sources.items()}


def check_parent(parent: Parent, keys: Path) -> None:
    """Check a parent by every rule that needs no other document. `keys` is the path to it."""
    faults = Faults()
    with faults:
        semver.split_name(parent.plugin, (*keys, "plugin"))
    for name, value in parent.params.items():
        here = (*keys, "params", name)
        with faults:
            names.check("input", name, here)
        if isinstance(value, ParentParam):
            with faults:
                names.check("input", value.value_from_param, (*here, "valueFromParam"))
    if parent.linger:
        with faults:
            milliseconds(parent.linger, (*keys, "linger"))
    for field, most in (("capacity", MAX_CAPACITY), ("max_parents", MAX_PARENTS)):
        number = getattr(parent, field)
        with faults:
            if not 1 <= number <= most:
                written = msgspec.structs.fields(parent)
                encoded = next(each.encode_name for each in written if each.name == field)
                raise SpecError(f"{number} is outside the limits: write 1 to {most}", (*keys, encoded))
    faults.settle()


def check_output(wanted: ParentOutput, parent: Parent | None, keys: Path) -> None:
    """Check an input's reference to an output of the parent. `keys` is the path to it."""
    if parent is None:
        problem = f"this plugin has no parent, so there is no output {quote(wanted.output)}; name it in spec.parent"
        raise SpecError(problem, keys)
    names.check("step", wanted.step, (*keys, "step"))
    names.check("output", wanted.output, (*keys, "output"))
