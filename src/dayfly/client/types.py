"""The types of results: those of `spec.api`, and additions of the client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from dayfly.client.variables import check_variable, variable_name
from dayfly.spec import api
from dayfly.spec.api import (
    ApiObject,
    Attempt,
    Baseline,
    Blocker,
    Condition,
    Endpoint,
    LogTime,
    Move,
    Plugin,
    Pool,
    PoolCounts,
    PoolExplanation,
    PoolMember,
    PoolSize,
    PoolStatus,
    Progress,
    Report,
    Request,
    RouteGroup,
    RouteGroupStatus,
    Sandbox,
    Status,
    Unit,
)
from dayfly.spec.meta import doc

__all__ = [
    "Attempt",
    "Baseline",
    "Blocker",
    "Condition",
    "Endpoint",
    "LogPiece",
    "LogTime",
    "Move",
    "Output",
    "Outputs",
    "Plugin",
    "Pool",
    "PoolCounts",
    "PoolExplanation",
    "PoolMember",
    "PoolSize",
    "PoolStatus",
    "Progress",
    "Report",
    "Request",
    "RouteGroup",
    "RouteGroupStatus",
    "Sandbox",
    "Status",
    "Unit",
]


class LogPiece(ApiObject, frozen=True, kw_only=True):
    """A piece of one log: the bytes that the step printed and, if requested, the times of its lines."""

    unit: Annotated[str, doc("ID of the unit.")]
    attempt: Annotated[int, doc("Number of the attempt.")]
    offset: Annotated[int, doc("Offset of the first byte in the log.")]
    data: Annotated[bytes, doc("The bytes that the step printed.")]
    times: Annotated[
        tuple[LogTime, ...], doc("Times of lines, if requested; parts without an entry have no known time.")
    ] = ()

    @property
    def text(self) -> str:
        """The data as UTF-8; a partial character at the start or end is replaced."""
        return self.data.decode(errors="replace")


class Output(api.Output, frozen=True, kw_only=True):
    """An output of a step. Its `repr` hides a sensitive value, which is in `value`.

    The `value` of a withheld output is empty: the output never leaves its cluster.
    """

    @property
    def variable(self) -> str:
        """The name of its environment variable, like `DB_PROVISION_URL`."""
        return variable_name(self.resource, self.step, self.output)

    def __repr__(self) -> str:
        place = "/".join(part for part in (self.resource, self.step) if part)
        shown = "(sensitive)" if self.sensitive else repr(self.value)
        return f"Output({place}.{self.output} = {shown})"


class Outputs(Mapping[str, str]):
    """The outputs of a sandbox: `outputs["db/provision.url"]`, or a shorter name if it is unambiguous.

    `["provision.url"]` and `["url"]` work if only one resource has such an output. Binary values are in base64, as in
    `dayfly env -o json`; `get_output(...).content` decodes them. Withheld outputs are only in `all`.
    """

    def __init__(self, found: tuple[Output, ...]) -> None:
        self.all = found
        self._known = {_full_name(each): each for each in found if not each.withheld}

    def get_output(self, name: str) -> Output:
        """Return an output with all of its metadata.

        Raises:
            KeyError: there is no such output, or the name is ambiguous.
        """
        if name in self._known:
            return self._known[name]
        ends = [key for key in self._known if key.endswith((f"/{name}", f".{name}"))]
        if len(ends) == 1:
            return self._known[ends[0]]
        if ends:
            raise KeyError(f"{name} may be any of {', '.join(ends)}")
        if any(f"/{_full_name(each)}".endswith((f"/{name}", f".{name}")) for each in self.all if each.withheld):
            raise KeyError(f"output {name} is sensitive and never leaves its cluster")
        raise KeyError(f"no output {name}; there are {', '.join(self._known) or 'none'}")

    def variables(self) -> dict[str, str]:
        """Return the values that environment variables can hold, by the names of `dayfly env`.

        Raises:
            DayflyError: one would set a variable that changes how programs run, such as `LD_LIBRARY_PATH`.
        """
        known = [each for each in self._known.values() if each.encoding == "utf-8" and "\0" not in each.value]
        for each in known:
            check_variable(each.variable, _full_name(each))
        return {each.variable: each.value for each in known}

    def __getitem__(self, name: str) -> str:
        return self.get_output(name).value

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Outputs({', '.join(map(repr, self.all))})"


def _full_name(output: Output) -> str:
    way = "/".join(part for part in (output.resource, output.step) if part)
    return f"{way}.{output.output}"
