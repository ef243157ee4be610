"""What a sandbox wishes for in vain is named, and nothing else is."""

import pytest

from dayfly.spec.unserved import unserved

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}


def target(host):
    return {"defaultRouteGroup": {"endpoints": [{"name": "e", "target": f"http://{host}:80"}]}}


@pytest.mark.parametrize("field", ["local", "virtual", "middleware", "routing"])
def test_what_no_host_carries_out(field):
    [said] = unserved({"cluster": "c", field: [{"name": "x"}]}, by_name=True)
    assert said.startswith(f"spec.{field} (")
    assert unserved({"cluster": "c", field: []}, by_name=True) == ()


@pytest.mark.parametrize(
    ("host", "on_machine", "in_cluster"),
    [
        ("web.shop.svc", True, True),
        ("web.shop.svc.cluster.local", True, True),
        ("web.shop.deploy", True, True),
        ("front.shop.svc", False, True),  # a Service of another name may lead to the fork
        ("front.shop.deploy", False, False),
        ("web.other.svc", False, False),
        ("web", False, False),
    ],
)
@pytest.mark.parametrize("form", ["target", "endpoint"])
def test_endpoints_without_a_fork(host, on_machine, in_cluster, form):
    spec = {"forks": [FORK], **(target(host) if form == "target" else {"endpoints": [{"name": "e", "host": host}]})}
    way = "spec.defaultRouteGroup.endpoints[0]" if form == "target" else "spec.endpoints[0]"
    said = (f'{way} (no fork answers for "{host}")',)
    assert unserved(spec, by_name=True) == (() if on_machine else said)
    assert unserved(spec, by_name=False) == (() if in_cluster else said)


@pytest.mark.parametrize("spec", [{}, {"forks": None, "endpoints": "x", "defaultRouteGroup": 5}, {"forks": [None, 7]}])
def test_nothing_is_taken_for_granted(spec):
    assert unserved(spec, by_name=True) == ()
