"""Fields of a sandbox without effect are reported, and no others."""

import pytest

from dayfly.spec.unsupported_fields import (
    GroupReach,
    LocalRouting,
    unsupported_group_fields,
    unsupported_sandbox_fields,
)

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}


def target(host):
    return {"defaultRouteGroup": {"endpoints": [{"name": "e", "target": f"http://{host}:80"}]}}


@pytest.mark.parametrize("field", ["local", "virtual", "middleware", "routing"])
def test_field_no_host_supports_is_reported(field):
    [said] = unsupported_sandbox_fields({"cluster": "c", field: [{"name": "x"}]}, by_name=True)
    assert said.startswith(f"spec.{field} (")
    assert unsupported_sandbox_fields({"cluster": "c", field: []}, by_name=True) == ()


@pytest.mark.parametrize(
    ("local", "says"),
    [
        (LocalRouting.UNROUTED, "restart this server with dayfly up --routing"),
        (LocalRouting.CLUSTER, "which a cluster is not: dayfly up --routing"),
        (LocalRouting.UNKNOWN, "on your machine: dayfly up --routing"),
    ],
)
def test_local_names_the_option_that_its_host_needs(local, says):
    [said] = unsupported_sandbox_fields({"local": [{"name": "x"}]}, by_name=True, local=local)
    assert said.startswith("spec.local (it needs a host that routes")
    assert says in said


@pytest.mark.parametrize(
    ("host", "on_machine", "in_cluster"),
    [
        ("web.shop.svc", True, True),
        ("web.shop.svc.cluster.local", True, True),
        ("web.shop.deploy", True, True),
        ("front.shop.svc", False, True),  # a Service with another name may route to the fork
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
    assert unsupported_sandbox_fields(spec, by_name=True) == (() if on_machine else said)
    assert unsupported_sandbox_fields(spec, by_name=False) == (() if in_cluster else said)


@pytest.mark.parametrize("spec", [{}, {"forks": None, "endpoints": "x", "defaultRouteGroup": 5}, {"forks": [None, 7]}])
def test_nothing_is_taken_for_granted(spec):
    assert unsupported_sandbox_fields(spec, by_name=True) == ()


def test_endpoint_a_routing_host_cannot_serve_is_reported():
    targets = {"a": "http://x.y.svc:1", "b": "tcp://x.y.svc:1"}
    endpoints = [{"name": name, "target": target} for name, target in targets.items()]
    elsewhere = {"name": "c", "target": "grpc://x.y.svc:1", "cluster": "west"}
    leads = GroupReach(anywhere=True, nowhere=("north",), addresses="east")
    assert unsupported_group_fields({"endpoints": [*endpoints, elsewhere]}, leads) == (
        "spec.match (in north no data plane routes requests by their key)",
        "spec.endpoints[1] (requests of tcp cannot have a routing key)",
        "spec.endpoints[2] (the group has addresses only in east, not in west)",
    )
    spec = {"defaultRouteGroup": {"endpoints": endpoints}, "local": [{}]}
    assert unsupported_sandbox_fields(spec, by_name=True, routes=True, local=LocalRouting.YES) == (
        'spec.defaultRouteGroup.endpoints[1] (no fork answers for "x.y.svc")',
    )
    assert any("spec.local" in each for each in unsupported_sandbox_fields(spec, by_name=True, routes=True))
