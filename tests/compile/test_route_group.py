"""The document of a route group's hooks."""

import pytest

from dayfly.compile import check_group, compile_group
from dayfly.spec import documents
from dayfly.spec.errors import SpecError

STEP = {"script": "#!/bin/sh\n"}


def group(**hooks):
    spec = {"match": {"label": {"key": "team", "value": "a"}}, "hooks": hooks}
    return documents.from_wire({"name": "pay", "spec": spec}, "RouteGroup")


def test_all_four_events():
    wish = group(**{event: [{"name": event, **STEP}] for event in ("preStart", "postStart", "preStop", "postStop")})
    made = compile_group(wish, uid="u", routing_key="k", namespace="shop")
    assert [
        [unit.name for unit in each] for each in (made.pre_start, made.post_start, made.pre_stop, made.post_stop)
    ] == [
        ["preStart"],
        ["postStart"],
        ["preStop"],
        ["postStop"],
    ]
    assert (made.target.kind, made.target.name, made.target.namespace, made.target.uid) == (
        "RouteGroup",
        "pay",
        "shop",
        "u",
    )
    assert made.origin.inline
    assert made.pre_start[0].exec.env == {
        "DAYFLY_ROUTE_GROUP_NAME": "pay",
        "DAYFLY_ROUTE_GROUP_ROUTING_KEY": "k",
        "DAYFLY_ROUTE_GROUP_NAMESPACE": "shop",
    }


def test_webhook_reads_only_variables_of_its_route_group():
    def tells(name):
        webhook = {"method": "POST", "url": "https://a.example/", "body": {"of": {"$env": name}}}
        return {"name": "tell", "webhook": webhook}

    names = ("NAME", "ROUTING_KEY", "NAMESPACE")
    for name in (*(f"DAYFLY_ROUTE_GROUP_{each}" for each in names), "DAYFLY_RESOURCE_ID"):
        (made,) = compile_group(group(preStart=[tells(name)]), uid="u", routing_key="k").pre_start
        assert name in made.webhook.env or name == "DAYFLY_RESOURCE_ID", "which each run has of its own"
    with pytest.raises(SpecError, match='"DAYFLY_SANDBOX_NAME" is not one of DAYFLY_ROUTE_GROUP_NAME'):
        group(preStart=[tells("DAYFLY_SANDBOX_NAME")])


def test_a_circle_is_refused():
    def reads(name, other):
        source = {"name": "x", "valueFromStep": {"name": other, "output": "o"}}
        return {"name": name, **STEP, "inputs": [source], "outputs": [{"name": "o", "valueFromPath": "/tmp/o"}]}

    with pytest.raises(SpecError, match="wait for each other"):
        check_group(group(preStart=[reads("a", "b"), reads("b", "a")]))


def test_too_many_steps_are_refused():
    many = [{"name": f"s{n}", **STEP} for n in range(257)]
    with pytest.raises(SpecError, match="257 steps are too many; one route group has at most 256"):
        check_group(group(preStart=many))
