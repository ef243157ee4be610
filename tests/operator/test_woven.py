"""Who looks again when a VirtualService has changed: whose rules were, and whomever the rest of it may concern."""

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
from dayfly.operator.cluster.virtual_service_index import WovenRules


def ours(run: str, **more: Any) -> dict[str, Any]:
    """A rule of a run."""
    return {"name": RuleOwner(1, run, "f-web").name(0), **more}


class Bench:
    """A cache in the test's hands, and three runs that fork something, one of them in this namespace."""

    def __init__(self) -> None:
        self.cache: Cache[VirtualService] = Cache()
        self.woken: list[str] = []
        forkers = SimpleNamespace(all=lambda: ["far", "here", "near"], within={"shop": ["here"]}.get)
        self.rules = WovenRules(self.cache, forkers, self.woken.append)
        self.version = 0

    def has(self, *rules: dict[str, Any], spec: dict[str, Any] | None = None, **meta: Any) -> list[str]:
        """The VirtualService stands so now; who is woken by that."""
        self.version += 1
        own = {"name": "web", "namespace": "shop", "uid": "w", "resourceVersion": str(self.version), **meta}
        body = {"metadata": own, "spec": {"hosts": ["web"], "http": list(rules), **(spec or {})}}
        self.woken.clear()
        self.cache.put(msgspec.convert(body, VirtualService))
        return self.woken

    def goes(self) -> list[str]:
        """It is gone; who is woken by that."""
        self.woken.clear()
        self.cache.drop(Key("shop", "web"))
        return self.woken


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_new_or_deleted_virtual_service_wakes_forks_and_owners(bench):
    assert bench.has(ours("box")) == ["box", "far", "here", "near"]
    assert bench.goes() == ["box", "far", "here", "near"]


@pytest.mark.parametrize(
    "other",
    [
        {"spec": {"hosts": ["shop"]}},
        {"spec": {"gateways": ["edge"]}},
        {"labels": {SHARED_LABEL: "web"}},
        {"annotations": {IGNORE_ANNOTATION: "ignore"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=["hosts", "gateways", "ours", "left alone", "on its way out"],
)
def test_so_may_one_by_which_the_calls_of_others_go_now(bench, other):
    bench.has(ours("box"))
    assert bench.has(ours("box"), **other) == ["far", "here", "near"]


def test_foreign_rule_change_wakes_the_forks_behind_it(bench):
    bench.has({"match": "a"}, ours("box"))
    assert bench.has({"match": "b"}, ours("box")) == ["here"]


def test_own_rule_change_wakes_only_its_run(bench):
    bench.has(ours("one"), ours("two"))
    assert bench.has(ours("one"), ours("two", timeout="1s")) == ["two"]
    assert bench.has(ours("one")) == ["two"]
    assert bench.has(ours("one"), ours("three")) == ["three"]


def test_change_outside_the_rules_wakes_nothing(bench):
    bench.has({"match": "a"}, ours("box"))
    assert bench.has({"match": "a"}, ours("box"), labels={"team": "shop"}, annotations={"note": "x"}) == []


def test_rules_are_known_by_their_run_as_long_as_there_are_any(bench):
    bench.has(ours("one"), ours("two"))
    assert bench.rules.runs() == {"one", "two"}
    assert [each.metadata.name for each in bench.rules.of("one")] == ["web"]
    assert bench.rules.of("three") == []
    bench.has(ours("two"))
    assert (bench.rules.runs(), bench.rules.of("one")) == ({"two"}, [])
    bench.goes()
    assert bench.rules.runs() == set()
