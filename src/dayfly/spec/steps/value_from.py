"""Sources of values that are not constants: outputs of a sandbox's resources, and fields of its forks.

A field of a fork is an expression: a text in which `{{.Service.Host}}` is replaced by the fork's address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from dayfly.spec.errors import Path, SpecError, quote
from dayfly.spec.lifecycle import MAX_EXPRESSION_LENGTH, Baseline, WireStruct
from dayfly.spec.meta import NAME_PATTERN, dns_label, dns_name, doc, identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST, PORT, NAME, READY = "Service.Host", "Service.Port", "Name", "Ready"
ADDRESS_FIELDS = (HOST, PORT)
"""Fields of another fork that a fork may read. A change restarts the reader, so these fields rarely change."""
FORK_FIELDS = (HOST, PORT, NAME, READY)
"""Fields of a fork that a step may read. It reads them once."""
FORK_KINDS = ("Deployment", "Rollout", "ArgoRollout")

_ACTION = re.compile(r"\{\{\s*\.([A-Za-z]+(?:\.[A-Za-z]+)*)\s*\}\}")


class ResourceOutput(WireStruct, frozen=True, kw_only=True):
    """An output of a resource: `output_key` is `<step>.<output>`, or `<output>` if only one step has it."""

    name: Annotated[str, identifier("resource", "Name of the resource in this sandbox.")]
    output_key: Annotated[
        str,
        doc(
            "The output, as <step>.<output>, or as <output> if only one step has it.",
            61,
            pattern=f"{NAME_PATTERN[:-1]}(\\.{NAME_PATTERN[1:-1]})?$",
        ),
    ]


class ValueFrom(WireStruct, frozen=True, kw_only=True):
    """A value that another resource of the same sandbox produces."""

    resource: Annotated[ResourceOutput, doc("The resource and its output.")]


class WorkloadRef(WireStruct, frozen=True, kw_only=True):
    """A baseline workload."""

    kind: Annotated[str, doc("Kind of the baseline workload.", enum=list(FORK_KINDS))]
    namespace: Annotated[str, dns_label("Namespace of the baseline workload.", minLength=1)]
    name: Annotated[str, dns_name("Name of the baseline workload.", minLength=1)]

    @property
    def baseline(self) -> Baseline:
        """The same with the kind's name in documents."""
        # Examples spell Argo's kind in a way that no cluster knows.
        kind = "Rollout" if self.kind == "ArgoRollout" else self.kind
        return Baseline(kind=kind, namespace=self.namespace, name=self.name)


class ForkExpression(WireStruct, frozen=True, kw_only=True):
    """A field of a fork of this sandbox, like `{{.Service.Host}}`."""

    fork_of: Annotated[WorkloadRef, doc("The baseline of the fork.")]
    expression: Annotated[
        str,
        doc(
            "Text with {{.Service.Host}} and {{.Service.Port}}; in hooks {{.Name}} and {{.Ready}} too.",
            MAX_EXPRESSION_LENGTH,
        ),
    ]


class HookSource(WireStruct, frozen=True, kw_only=True):
    """The source of a hook's value, exactly one."""

    resource: Annotated[ResourceOutput | None, doc("An output of a resource of this sandbox.")] = None
    fork: Annotated[ForkExpression | None, doc("A field of a fork of this sandbox; only in postStart and preStop.")] = (
        None
    )


def check_expression(expression: str, known: tuple[str, ...], keys: Path) -> None:
    """Refuse an expression with unknown placeholders.

    Raises:
        SpecError: With the known placeholders.
    """
    rest = _ACTION.sub(lambda action: "" if action[1] in known else action[0], expression)
    if "{{" in rest or "}}" in rest:
        words = [f"{{{{.{word}}}}}" for word in known]
        problem = f"{quote(expression)} may contain only text, {', '.join(words[:-1])} and {words[-1]}"
        raise SpecError(problem, keys)


def placeholders(expression: str) -> frozenset[str]:
    """Return the placeholders in an expression."""
    return frozenset(_ACTION.findall(expression))


def fill_expression(expression: str, told: Mapping[str, str]) -> str:
    """Return the expression with its placeholders replaced. `told` has the value of each."""
    return _ACTION.sub(lambda action: told[action[1]], expression)
