"""The stories with their faults: each change with each fault, or the share that the commit selects."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import re
from collections.abc import Iterator

from tests.operator.proxied.proxy import Call, Harm
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, OUTPUTS, RETRY_UNITS, plugin, step
from tests.operator.rig.world import Unit
from tests.selection import SELECTION, Selection

QUICK = Script(runs=0.2, pull=0.05, lag=0.02)


class End(enum.Enum):
    """When the sandbox of a story is deleted."""

    READY = "ready"
    STARTED = "its first step runs"
    CLAIMED = "its fork is claimed"
    FOLLOWED = "its fork has followed a new spec and a changed baseline, and the baseline is gone"


@dataclasses.dataclass(frozen=True)
class Life:
    """A sandbox, the behaviour of its scripts, the time of its deletion, and its minimum number of changes."""

    plugin: Object
    units: dict[str, Unit]
    changes: int
    scripts: dict[str, Script] = dataclasses.field(default_factory=dict)
    forks: bool = False  # one fork of a separate baseline
    ends: End = End.READY

    def script(self, unit: str) -> Script:
        return dataclasses.replace(self.scripts.get(unit, QUICK), outputs=OUTPUTS.get(unit, {}))


RETRY = plugin(
    [step("make", outputs=("url",), idempotent=True, backoff="1s")], [step("drop", reads=("make.url",), backoff="1s")]
)
MAKES: Object = {
    "name": "claim",
    "inputs": [{"name": "url", "valueFromStep": {"name": "make", "output": "url"}}],
    "object": {
        "manifest": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"url": ""}},
        "set": {"/data/url": {"input": "url"}},
    },
    "outputs": [{"name": "host", "valueFromJSONPath": "$.data.url"}],
}
OBJECT = plugin(
    [step("make", outputs=("url",)), MAKES, step("seed", reads=("claim.host",))], [step("drop", reads=("claim.host",))]
)
OBJECT_UNITS = {
    "db/make": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/seed": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/drop": Unit(creates=False),
}
LIVES = {
    "object": Life(OBJECT, OBJECT_UNITS, 50),
    "chain": Life(CHAIN, CHAIN_UNITS, 42),
    "retry": Life(RETRY, RETRY_UNITS, 44, {"db/make": dataclasses.replace(QUICK, fails=1)}),
    "midway": Life(CHAIN, CHAIN_UNITS, 32, {"db/make": dataclasses.replace(QUICK, runs=2.0)}, ends=End.STARTED),
    "follow": Life(RETRY, RETRY_UNITS, 56, forks=True, ends=End.FOLLOWED),
    "scaled": Life(RETRY, RETRY_UNITS, 42, forks=True, ends=End.CLAIMED),
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """One story, with a fault at its `number`th change if `harm` is set."""

    life: str
    number: int = 0
    harm: Harm | None = None

    def __str__(self) -> str:
        return f"{self.life}-{self.number}-{_name(self.harm)}"


def _name(harm: Harm | None) -> str:
    return harm.name.lower().replace("_", "-") if harm else "unharmed"


_NAMES = {_name(harm): harm for harm in (None, *Harm)}
_SAID = re.compile(f"({'|'.join(LIVES)})-([0-9]+)-({'|'.join(sorted(_NAMES, key=len, reverse=True))})")


def every() -> Iterator[Plan]:
    """Return all plans."""
    for name, life in LIVES.items():
        yield Plan(name)
        for number in range(1, life.changes + 1):
            for harm in Harm:
                yield Plan(name, number, harm)


def shares() -> list[list[Plan]]:
    """Return all faults in 120 shares. Eight consecutive shares contain one fault of each change."""
    turns = {harm: turn for turn, harm in enumerate(Harm)}
    found: dict[tuple[int, int], list[Plan]] = collections.defaultdict(list)
    for plan in every():
        if plan.harm:
            # Spread so that each share has all fifteen faults (a test checks that); by number, it would have few.
            at = list(LIVES).index(plan.life)
            eighth = (plan.number + 4 * (plan.number // len(turns)) + at) % 8
            found[(plan.number + turns[plan.harm]) % len(turns), eighth].append(plan)
    return [found[which] for which in sorted(found)]


def chosen(selection: Selection = SELECTION) -> list[Plan]:
    """Return the plans to play: a quarter of the stories without faults, and half a share of all faults."""
    unharmed = selection.sample([plan for plan in every() if plan.harm is None], 4, "unharmed plans")
    wanted = [half for some in shares() for half in (some[0::2], some[1::2])]
    return unharmed + [plan for some in selection.sample(wanted, len(wanted), "plans") for plan in some]


class Names:
    """Maps objects to plans: Runs and other objects contain the name of their Sandbox, which contains the plan's."""

    def __init__(self) -> None:
        self._made: dict[str, str] = {}

    def said(self, text: str) -> str:
        """Return the plan with which a text begins; empty if there is none."""
        found = _SAID.search(text)
        return found.group() if found else ""

    def of(self, call: Call) -> str:
        """Return the plan of a change. Created objects are remembered, since later changes only contain their names."""
        if call.method == "POST":
            plan, name = self.said(call.body.decode()), json.loads(call.body)["metadata"]["name"]
            if plan:
                self._made[name] = plan
            return plan
        return self.said(call.path) or next(
            (self._made[part] for part in call.path.split("/") if part in self._made), ""
        )
