"""The cut of a plugin for a pool: steps that run before a sandbox needs the resource, and steps that run for it.

A pool-time create step needs only values that the pool fixes. A claim-time step needs a value of the sandbox, directly
or through other steps. A delete step is the sandbox's if its author wrote `at: claim`, or if it removes the object of a
claim-time step. The sandbox also runs the delete steps that its own read from. The member runs every other delete step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dayfly.compile import graph
from dayfly.spec.errors import quote
from dayfly.spec.plugin import AT_CLAIM, AT_POOL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dayfly.spec.plugin import PluginSpec, Step

_WAITS = "waits for "
# A script may also build the name from a prefix: `${prefix}_SANDBOX_NAME`.
_SANDBOX_VARIABLE = re.compile(r"\b(?:DAYFLY|SIGNADOT)?_(?:SANDBOX_\w*|RESOURCE_NAME)\b")


class ClaimCause(msgspec.Struct, frozen=True):
    """A reason for which a step runs for a sandbox: `at: claim`, a param, a variable, or another such step."""

    kind: Literal["at", "param", "secret", "variable", "step"]
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "at":
                return "has at: claim"
            case "param":
                return f"waits for param {quote(self.name)}"
            case "secret":
                return f"waits for the secret param {quote(self.name)}"
            case "variable":
                return f"mentions {self.name}"
            case "step":
                return f"waits for step {quote(self.name)}"


class Cut(msgspec.Struct, frozen=True):
    """The two halves of a plugin.

    Attributes:
        create: The create steps in a topological order, each with the reasons to run it for the sandbox. Steps without
            a reason are pool-time.
        delete: The delete steps in a topological order, each with the reasons to run it for the sandbox.
        claimed_delete: The delete steps of the sandbox that the member does not run.
        holder_delete: The delete steps that the sandbox runs: those, and the steps that they read from.
    """

    create: dict[str, tuple[ClaimCause, ...]]
    delete: dict[str, tuple[ClaimCause, ...]]
    claimed_delete: frozenset[str]
    holder_delete: frozenset[str]

    @property
    def pool_create(self) -> tuple[str, ...]:
        """The create steps that run in the member."""
        return tuple(name for name, causes in self.create.items() if not causes)

    @property
    def claim_create(self) -> tuple[str, ...]:
        """The create steps that run for the sandbox."""
        return tuple(name for name, causes in self.create.items() if causes)

    @property
    def sentence(self) -> str:
        """The cut of the create steps for people: how many run early, and what the others wait for."""
        count, early = len(self.create), len(self.pool_create)
        runs = f"{early} of {count} steps run before a sandbox needs them"
        waits = [f"{quote(name)} {describe(causes)}" for name, causes in self.create.items() if causes]
        return "; ".join([runs, *waits])

    def roots(self, causes: Iterable[ClaimCause]) -> tuple[ClaimCause, ...]:
        """Return the first reasons: for each step among these, the reasons of that step."""
        known = {**self.create, **self.delete}
        found: dict[ClaimCause, None] = {}
        waiting = list(causes)
        while waiting:
            cause = waiting.pop(0)
            if cause not in found:
                found[cause] = None
                waiting += known[cause.name] if cause.kind == "step" else ()
        return tuple(cause for cause in found if cause.kind != "step")

    @property
    def member_delete(self) -> tuple[str, ...]:
        """The delete steps that run in the member."""
        return tuple(name for name in self.delete if name not in self.claimed_delete)


def describe(causes: Iterable[ClaimCause]) -> str:
    """Return reasons as the end of a sentence, like `waits for param "owner" and step "make"`."""
    said: list[str] = []
    for cause in causes:
        text = str(cause)
        said.append(text.removeprefix(_WAITS) if any(each.startswith(_WAITS) for each in said) else text)
    return " and ".join(said)


def cut(spec: PluginSpec, fixed: Collection[str]) -> Cut:
    """Return the cut of a plugin. References between its steps resolve, without cycles.

    Args:
        spec: The plugin's spec.
        fixed: The params that the pool fixes. A secret param is never fixed.
    """
    reader = _StepReader(spec, frozenset(fixed) - spec.secrets())
    waiting: set[str] = set()
    create = reader.explain(spec.create, waiting)
    late = frozenset(waiting)
    delete = reader.explain(spec.delete, waiting)
    claimed = {step.name for step in spec.delete if _is_claimed(step, late)}
    return Cut(create, delete, frozenset(claimed), _with_producers(spec, claimed))


def _is_claimed(step: Step, late: frozenset[str]) -> bool:
    """Return whether the member does not run a delete step. The run that made an object removes it."""
    if step.object is not None:
        return step.object.remove in late
    return step.at == AT_CLAIM


def topological(steps: Iterable[Step]) -> list[Step]:
    """Return steps in an order in which each follows the steps that it reads."""
    named = {step.name: step for step in steps}
    needs = {name: [ref.name for item in step.inputs if (ref := item.value_from_step)] for name, step in named.items()}
    return [named[name] for wave in graph.waves(list(named), needs) for name in wave]


class _StepReader:
    """Finds the reasons to run steps of a plugin for a sandbox."""

    def __init__(self, spec: PluginSpec, fixed: frozenset[str]) -> None:
        self._fixed = fixed
        self._secrets = spec.secrets()
        self._overlay = spec.runner.pod_template_overlay

    def explain(self, steps: Iterable[Step], waiting: set[str]) -> dict[str, tuple[ClaimCause, ...]]:
        """Return steps in a topological order with their reasons, and add the steps with reasons to `waiting`."""
        found: dict[str, tuple[ClaimCause, ...]] = {}
        for step in topological(steps):
            found[step.name] = tuple(self._causes(step, waiting))
            if found[step.name]:
                waiting.add(step.name)
        return found

    def _causes(self, step: Step, claimed: Collection[str]) -> Iterator[ClaimCause]:
        if step.at == AT_CLAIM:
            yield ClaimCause("at")
        for item in step.inputs:
            if item.value_from_sandbox and item.name not in self._fixed:
                yield ClaimCause("secret" if item.name in self._secrets else "param", item.name)
        read = dict.fromkeys(ref.name for item in step.inputs if (ref := item.value_from_step))
        yield from (ClaimCause("step", name) for name in read if name in claimed)
        if step.object is not None and step.object.remove in claimed and step.object.remove not in read:
            yield ClaimCause("step", step.object.remove)
        if step.at != AT_POOL:
            yield from (ClaimCause("variable", name) for name in self._mentioned(step))

    def _mentioned(self, step: Step) -> list[str]:
        """Return the variables of the sandbox that a step mentions."""
        works: list[Any] = [step.script, step.command, step.webhook, step.object]
        if step.script is not None or step.command is not None:
            works.append(self._overlay)
        found = (name for text in _texts(msgspec.to_builtins(works)) for name in _SANDBOX_VARIABLE.findall(text))
        return list(dict.fromkeys(found))


def _texts(value: Any) -> Iterator[str]:
    """Return every text in plain data, with the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *_texts(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _with_producers(spec: PluginSpec, wanted: Iterable[str]) -> frozenset[str]:
    """Return delete steps with the delete steps that they read from, directly or through others."""
    named = {step.name: step for step in spec.delete}
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        refs = (item.value_from_step for item in named[name].inputs)
        waiting += [ref.name for ref in refs if ref is not None and ref.name in named]
    return frozenset(found)
