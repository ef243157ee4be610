"""Routing rules: a fork that answers by a route that is in force has one for each key, and nothing else has any."""

import pytest

from dayfly.control.routing_rules import Sandbox, asked, rules
from dayfly.spec.lifecycle import Baseline
from dayfly.spec.report import Report, UnitReport
from dayfly.spec.run import Phase
from dayfly.spec.wire import Endpoint, Standing

WEB = Baseline(kind="Deployment", namespace="shop", name="web")


def box(*, fork="running", route="running", port=4000, **more):
    states = {"fork:shop/web": fork, "route:shop/web": route}
    units = tuple(
        UnitReport(id=name, name="web", event="start", kind=name.partition(":")[0], state=state)
        for name, state in states.items()
        if state
    )
    report = Report(uid="u", phase=Phase.OPEN, ready=True, reason="r", message="m", done=0, total=0, units=units)
    endpoints = (Endpoint(unit="fork:shop/web", host="127.0.0.1", port=port),) if port else ()
    standing = Standing(uid="u", seq=1, report=report, endpoints=endpoints)
    return Sandbox(**{"name": "box", "key": "k1", "forks": [WEB], "groups": {}, "standing": standing, **more})


def test_the_exact_form():
    assert list(rules([box()], {("shop", "web"): 8083})) == [
        {
            "routingKey": "k1",
            "baseline": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            "destinationSandbox": {"name": "box"},
            "mappings": [{"workloadPort": 8083, "destinations": [{"host": "127.0.0.1", "port": 4000}]}],
        }
    ]


def test_a_groups_key_names_the_sandbox_and_a_host_that_routes_nothing_has_rules_too():
    found = list(rules([box(route="", groups={"shop/web": ("g1", "g2"), "shop/other": ("g3",)})], {}))
    assert [(rule["routingKey"], rule["destinationSandbox"]["name"]) for rule in found] == [
        ("k1", "box"),
        ("g1", "box"),
        ("g2", "box"),
    ]
    assert found[0]["mappings"][0]["workloadPort"] == 4000
    assert next(rules([box(port=0)], {}))["mappings"] == []


@pytest.mark.parametrize("lacks", [{"fork": "waiting"}, {"route": "waiting"}, {"route": "stopped"}, {"standing": None}])
def test_what_does_not_answer_or_is_not_led_to_has_none(lacks):
    assert not list(rules([box(**lacks)], {}))


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("baselineKind", "Deployment"),
        ("baselineNamespace", "shop"),
        ("baselineName", "web"),
        ("routingKey", "k1"),
        ("destinationSandboxName", "box"),
    ],
)
def test_each_filter(name, good):
    (rule,) = rules([box()], {})
    assert asked(rule, {name: good})
    assert asked(rule, {name: ""})
    assert not asked(rule, {name: "other"})
