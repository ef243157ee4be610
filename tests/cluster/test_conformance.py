"""The conformance stories with an installed operator, a real kubelet and real scripts.

The documents of a story are written as an inline plugin and as hooks. The golden files are those of
`tests/conformance`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import Wishes
from tests.cluster.ledger_moves import moves
from tests.cluster.waiting import eventually
from tests.conformance.story_documents import SHOP, STORIES, Act, Behaviour, Story, behaves
from tests.conformance.story_log import GOLDEN, said, tells, text
from tests.selection import SELECTION

from dayfly.plan import messages
from dayfly.spec.kinds import SandboxStatus
from dayfly.spec.lifecycle import Lifecycle, Unit, unit_id

# Stories without toys, a crash at a given moment, changed clocks or a webhook server, which a real cluster cannot provide.
PLAYED = (
    "created and cleaned up",
    "a create fails",
    "a create that may be tried again",
    "deleted while it creates",
    "an input that no variable can hold",
    "an input too large for a variable",
    "a cleanup that cannot be given its input",
    "a cleanup that is stuck",
    "a fork between its hooks",
    "a fork that never came",
    "a cleanup is tried again now",
    "given up while it creates",
)
PARTS = 12
# The additional message of a real cluster, which knows data planes for routes and has none.
UNROUTED = f" {messages.unsupported((messages.no_data_plane(),))}"


def _step(document: Lifecycle, unit: Unit, how: Behaviour, journal: Journal) -> dict[str, Any]:
    """A unit as its author writes it."""
    assert unit.exec is not None
    begun = journal.tell(f"begins {unit.name}") if how.endless else ""
    found: dict[str, Any] = {
        "name": unit.name,
        "script": behaves(unit, how, begun),
        "outputs": [{"name": output.name, "valueFromPath": output.path} for output in unit.outputs],
        "inputs": [],
        "retry": {"backoff": f"{max(unit.retry.backoff_ms // 1000, 1)}s"},
    }
    if unit in (*document.pre_start, *document.post_start):  # the others may be tried again in any case
        found["retry"] |= {"idempotent": unit.retry.idempotent}
    if unit in document.pre_start and unit.retry.limit > 1:
        found["retry"]["limit"] = unit.retry.limit
    if unit.timeouts.grace_ms:
        found["timeouts"] = {"grace": f"{unit.timeouts.grace_ms // 1000}s"}
    for given in unit.inputs:
        assert given.from_ is not None
        if given.from_.resource and document.resource:
            source: dict[str, Any] = {"valueFromSandbox": True}
        elif given.from_.resource:
            source = {"valueFrom": {"resource": _output_of(given.from_)}}
        else:
            source = {"valueFromStep": {"name": given.from_.unit, "output": given.from_.output}}
        found["inputs"].append({"name": given.name, **source})
    return found


def _output_of(of: Any) -> dict[str, str]:
    return {"name": of.resource, "outputKey": f"{of.unit}.{of.output}"}


def _spec(tale: Story, journal: Journal) -> dict[str, Any]:
    """The story's sandbox."""

    def steps(document: Lifecycle, units: Iterable[Unit]) -> list[dict[str, Any]]:
        return [
            _step(document, unit, tale.scripts.get(unit_id(document.resource, unit.name), Behaviour()), journal)
            for unit in units
        ]

    found: dict[str, Any] = {"cluster": "local", "runner": {"image": images.SHELL}, "resources": [], "forks": []}
    for document in tale.documents:
        if not document.resource:
            hooks = {"postStart": document.post_start, "preStop": document.pre_stop}
            found["hooks"] = {event: steps(document, units) for event, units in hooks.items()}
            continue
        read = [given for unit in document.pre_start for given in unit.inputs if given.from_ and given.from_.resource]
        create, delete = steps(document, document.pre_start), steps(document, document.post_stop)
        found["resources"].append(
            {
                "name": document.resource,
                "spec": {"runner": {"image": images.SHELL}, "create": create, "delete": delete},
                "params": {given.name: {"valueFrom": {"resource": _output_of(given.from_)}} for given in read},
            }
        )
    for unit in tale.kept:
        assert unit.fork is not None
        of = unit.fork.baseline
        found["forks"].append({"forkOf": {"kind": of.kind, "namespace": TEAM, "name": of.name}})
    return found


class _Stage:
    """One story as it is played."""

    def __init__(self, operator: Installed, wishes: Wishes, journal: Journal, tale: Story) -> None:
        self.operator, self.name, self.journal, self.tale = operator, wishes.name, journal, tale
        self.looks: list[list[str]] = []

    def play(self) -> list[str]:
        """Play all acts; return the moves of the ledger."""
        about = {"name": self.name, "namespace": TEAM}
        spec = _spec(self.tale, self.journal)
        self.operator.apply({"apiVersion": API, "kind": "Sandbox", "metadata": about, "spec": spec})
        for act in self.tale.acts:
            self._act(act)
        told = moves(self.operator, self.name, TEAM)
        return [each.replace(f"fork:{TEAM}/", f"fork:{SHOP}/") for each in told]

    def _act(self, act: Act) -> None:
        match act.what:
            case "until" | "await":
                self._wait(act)
            case "delete":
                self._kubectl("delete", "--wait=false")
            case "abandon":
                self._kubectl("annotate", f"dayfly.dev/abandon=force: {act.said}")
            case "retry":
                units = {unit.id: unit for unit in self._status().units}
                self._kubectl("annotate", f"dayfly.dev/retry={act.of}={units[act.of].attempt}")
            case "gone":
                self.operator.wait_gone(self.name, TEAM)

    def _wait(self, act: Act) -> None:
        seen: Any = None

        def so() -> bool:
            nonlocal seen
            seen = self._report()
            return tells(seen, act.of, act.said)

        try:
            eventually(so, str(act))
        except AssertionError as error:
            said_last = json.dumps(self.operator.status(self.name, TEAM), indent=1)
            raise AssertionError(f"{error}; {self.name} says {said_last}") from None
        if act.said == "Running":
            self.journal.wait_for(f"begins {act.of.rpartition('/')[2]}")
        if act.what == "until":
            self.looks.append([each.replace(f"fork:{TEAM}/", f"fork:{SHOP}/") for each in said(seen)])

    def _status(self) -> SandboxStatus:
        return msgspec.convert(self.operator.status(self.name, TEAM), SandboxStatus)

    def _report(self) -> Any:
        """Return its report, reduced to the fields of a story."""
        status = self._status()
        run = self.operator.get(f"/apis/{API}/runs/{status.run}") if status.run else None
        if run is None:
            return None
        return SimpleNamespace(
            phase=run["ledger"].get("phase", "open"),
            reason=status.reason,
            message=status.message.removesuffix(UNROUTED),
            units=status.units,
        )

    def _kubectl(self, verb: str, *arguments: str) -> None:
        self.operator.own.kubectl(verb, "sandbox.dayfly.dev", self.name, "-n", TEAM, *arguments)


@pytest.fixture
def baseline(operator: Installed) -> Iterator[None]:
    """The baseline of the stories."""
    labels = {"app": "conformance"}
    container = {"name": "main", "image": images.SHELL, "command": ["sleep", "7200"]}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    place = {"name": "app", "namespace": TEAM}
    operator.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec})
    yield
    operator.own.kubectl("delete", "deployment", "app", "-n", TEAM, "--wait=false")


@pytest.mark.parametrize("title", SELECTION.sample(PLAYED, PARTS, "conformance"))
def test_real_cluster_matches_the_conformance_golden(operator, wishes, journal, baseline, played, title):
    played("stories told by a real cluster as by the other hosts", 1)
    wishes.name = f"tale-{PLAYED.index(title)}"
    stage = _Stage(operator, wishes, journal, STORIES[title])
    moves = stage.play()
    golden = (GOLDEN / f"{title.replace(' ', '_')}.golden").read_text()
    assert text(title.capitalize(), moves, stage.looks) == golden


def test_the_stories_are_known():
    assert set(PLAYED) < set(STORIES)
