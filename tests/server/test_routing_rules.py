"""Routing rules: a running fork with an active route has one rule for each key."""

import json
from types import SimpleNamespace

import msgspec
import pytest

from dayfly.link.wire import RunStatus
from dayfly.server.api.routing_rules import describe_forks
from dayfly.spec.lifecycle import Baseline
from dayfly.spec.report import RunReport, UnitReport
from dayfly.spec.routing.rules import PARAMETERS, Query, rules
from dayfly.spec.run import Phase
from dayfly.spec.run_data import RunEndpoint

WEB = Baseline(kind="Deployment", namespace="shop", name="web")
RECORD = SimpleNamespace(
    name="box",
    routing_key="k1",
    spec=SimpleNamespace(forks=[SimpleNamespace(fork_of=SimpleNamespace(baseline=WEB))]),
)


def standing(*, fork="running", route="running", port=4000):
    states = {"fork:shop/web": fork, "route:shop/web": route}
    units = tuple(
        UnitReport(id=name, name="web", event="start", kind=name.partition(":")[0], state=state)
        for name, state in states.items()
        if state
    )
    report = RunReport(uid="u", phase=Phase.OPEN, ready=True, reason="r", message="m", done=0, total=0, units=units)
    endpoints = (RunEndpoint(unit="fork:shop/web", host="127.0.0.1", port=port),) if port else ()
    return RunStatus(uid="u", seq=1, report=report, endpoints=endpoints)


def compute_rules(*, groups=None, ports=None, known=True, **how):
    now = standing(**how) if known else None
    return json.loads(msgspec.json.encode(list(rules(describe_forks(RECORD, now, groups or {}, ports or {})))))


def test_rules_in_the_public_format():
    assert compute_rules(ports={("shop", "web"): 8083}) == [
        {
            "routingKey": "k1",
            "baseline": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            "destinationSandbox": {"name": "box"},
            "mappings": [{"workloadPort": 8083, "destinations": [{"host": "127.0.0.1", "port": 4000}]}],
        }
    ]


def test_group_keys_have_rules_also_without_host_routing():
    found = compute_rules(route="", groups={"shop/web": ("g1", "g2"), "shop/other": ("g3",)})
    assert [(rule["routingKey"], rule["destinationSandbox"]["name"]) for rule in found] == [
        ("k1", "box"),
        ("g1", "box"),
        ("g2", "box"),
    ]
    assert found[0]["mappings"][0]["workloadPort"] == 4000
    assert compute_rules(port=0)[0]["mappings"] == []


@pytest.mark.parametrize("lacks", [{"fork": "waiting"}, {"route": "waiting"}, {"route": "stopped"}, {"known": False}])
def test_fork_not_running_or_not_routed_has_no_rules(lacks):
    assert compute_rules(**lacks) == []


@pytest.mark.parametrize(
    ("name", "good"), list(zip(PARAMETERS, ("Deployment", "shop", "web", "k1", "box"), strict=True))
)
def test_each_filter_selects_rules(name, good):
    (rule,) = rules(describe_forks(RECORD, standing(), {}, {}))
    assert Query.from_parameters({name: good}).matches(rule)
    assert Query.from_parameters({name: ""}).matches(rule)
    assert not Query.from_parameters({name: "other"}).matches(rule)
