"""A changed VirtualService queues the runs of its changed rules, and runs with forks behind it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dayfly.execute.gateway.render import IGNORE_ANNOTATION
from dayfly.execute.istio.read import SHARED_LABEL, VirtualService
from dayfly.execute.istio.rules import RuleOwner
from dayfly.kube.cache import Cache
from dayfly.kube.objects import Key
from dayfly.operator.cluster.virtual_service_index import VirtualServiceIndex


def ours(run: str, **more: Any) -> dict[str, Any]:
    """Return a rule of a run."""
    return {"name": RuleOwner(1, run, "f-web").name(0), **more}


class Bench:
    """A cache, and three runs with forks, one of them in the namespace of the VirtualService."""

    def __init__(self) -> None:
        self.cache: Cache[VirtualService] = Cache()
        self.woken: list[str] = []
        forking_runs = SimpleNamespace(all_runs=lambda: ["far", "here", "near"], runs_in={"shop": ["here"]}.get)
        self.index = VirtualServiceIndex(self.cache, forking_runs, self.woken.append)
        self.version = 0

    def put(self, *rules: dict[str, Any], spec: dict[str, Any] | None = None, **meta: Any) -> list[str]:
        """Store the VirtualService with these rules. Return the queued runs."""
        self.version += 1
        own = {"name": "web", "namespace": "shop", "uid": "w", "resourceVersion": str(self.version), **meta}
        body = {"metadata": own, "spec": {"hosts": ["web"], "http": list(rules), **(spec or {})}}
        self.woken.clear()
        self.cache.put(msgspec.convert(body, VirtualService))
        return self.woken

    def delete(self) -> list[str]:
        """Delete the VirtualService. Return the queued runs."""
        self.woken.clear()
        self.cache.drop(Key("shop", "web"))
        return self.woken


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_new_or_deleted_virtual_service_wakes_forks_and_owners(bench):
    assert bench.put(ours("box")) == ["box", "far", "here", "near"]
    assert bench.delete() == ["box", "far", "here", "near"]


@pytest.mark.parametrize(
    "other",
    [
        {"spec": {"hosts": ["shop"]}},
        {"spec": {"gateways": ["edge"]}},
        {"labels": {SHARED_LABEL: "web"}},
        {"annotations": {IGNORE_ANNOTATION: "ignore"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=["hosts", "gateways", "ours", "ignored", "deleting"],
)
def test_change_of_other_fields_wakes_all_runs_with_forks(bench, other):
    bench.put(ours("box"))
    assert bench.put(ours("box"), **other) == ["far", "here", "near"]


def test_foreign_rule_change_wakes_the_forks_behind_it(bench):
    bench.put({"match": "a"}, ours("box"))
    assert bench.put({"match": "b"}, ours("box")) == ["here"]


def test_own_rule_change_wakes_only_its_run(bench):
    bench.put(ours("one"), ours("two"))
    assert bench.put(ours("one"), ours("two", timeout="1s")) == ["two"]
    assert bench.put(ours("one")) == ["two"]
    assert bench.put(ours("one"), ours("three")) == ["three"]


def test_change_outside_the_rules_wakes_nothing(bench):
    bench.put({"match": "a"}, ours("box"))
    assert bench.put({"match": "a"}, ours("box"), labels={"team": "shop"}, annotations={"note": "x"}) == []


def test_rules_are_known_by_their_run_as_long_as_there_are_any(bench):
    bench.put(ours("one"), ours("two"))
    assert bench.index.runs() == {"one", "two"}
    assert [each.metadata.name for each in bench.index.with_rules_of("one")] == ["web"]
    assert bench.index.with_rules_of("three") == []
    bench.put(ours("two"))
    assert (bench.index.runs(), bench.index.with_rules_of("one")) == ({"two"}, [])
    bench.delete()
    assert bench.index.runs() == set()
