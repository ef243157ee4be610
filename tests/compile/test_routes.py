"""On a host that routes, each fork has a route and each endpoint a preview. Other hosts have neither."""

import pytest
from tests.compile import builders

from dayfly.compile import compile as compiled
from dayfly.compile import group_previews, preview
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.lifecycle import DRAIN_MS, Baseline, PreviewUnit, Route, kept_id
from dayfly.spec.unsupported_fields import LocalRouting

FORKS = """\
name: box
spec:
  cluster: local
  forks:
  - forkOf: {kind: Deployment, namespace: shop, name: web}
  - forkOf: {kind: Deployment, namespace: pay, name: web}
  defaultRouteGroup:
    endpoints:
    - {name: front, target: "http://front.shop.svc:8080"}
    - {name: talk, target: "grpc://web.shop.svc:50051"}
    - {name: raw, target: "tcp://db.shop.svc:5432"}
"""


def kept(routed, yaml=FORKS, key="k3v9"):
    return compiled(builders.sandbox(yaml), {}, uid="u", routing_key=key, routed=routed).forks


def test_host_without_routing_gets_no_route_units():
    assert [unit.kind for unit in kept(None)] == ["fork", "fork"]


def test_each_fork_has_a_route_that_comes_after_it():
    units = {kept_id(unit): unit for unit in kept({})}
    assert list(units) == [
        "fork:shop/web",
        "fork:pay/web",
        "route:shop/web",
        "route:pay/web",
        "preview:front",
        "preview:talk",
    ]
    web = Baseline(kind="Deployment", namespace="shop", name="web")
    assert units["route:shop/web"].route == Route(baseline=web, keys=("k3v9",), drain_ms=DRAIN_MS)
    assert units["route:shop/web"].after == ("fork:shop/web",)


def test_previews_carry_the_key_and_outlive_no_route():
    units = {kept_id(unit): unit for unit in kept({})}
    assert units["preview:talk"].preview == PreviewUnit(scheme="grpc", host="web.shop.svc", port=50051, key="k3v9")
    assert units["preview:front"].after == ("route:shop/web", "route:pay/web")


def test_keys_of_groups_stand_behind_its_own_in_a_stable_order():
    units = {kept_id(unit): unit for unit in kept({"pay/web": ("zz", "aa", "k3v9", "aa"), "other/web": ("bb",)})}
    assert units["route:pay/web"].route.keys == ("k3v9", "aa", "zz")
    assert units["route:shop/web"].route.keys == ("k3v9",)


@pytest.mark.parametrize("key", ["", "a.*b", "a|b", "A", "a\r\nb", "a,b", "a" * 33, "-a", "a-", "ä", "%61"])
def test_invalid_routing_key_is_refused(key):
    with pytest.raises(SpecError, match="is not a routing key"):
        kept({}, key=key)
    with pytest.raises(SpecError, match="is not a routing key"):
        kept({"shop/web": (key or "A",)})


def test_routes_and_previews_count_as_units():
    forks = "".join(f"  - forkOf: {{kind: Deployment, namespace: ns, name: w{n}}}\n" for n in range(64))
    hooks = "".join(f'    - {{name: s{n}, script: "#!/bin/sh"}}\n' for n in range(129))
    many = f"name: box\nspec:\n  cluster: local\n  forks:\n{forks}  hooks:\n    preStart:\n{hooks}"
    assert len(kept(None, many)) == 64
    with pytest.raises(SpecError, match="257 steps, hooks and forks are too many"):
        kept({}, many)


def test_a_group_has_the_previews_of_its_cluster():
    endpoints = [
        {"name": "a", "target": "http://a.shop.svc:80"},
        {"name": "b", "target": "http://b.shop.svc:80", "cluster": "east"},
        {"name": "c", "target": "http://c.shop.svc:80", "cluster": "west"},
    ]
    wish = {"name": "g", "spec": {"match": {"label": {"key": "t", "value": "a"}}, "endpoints": endpoints}}
    units = group_previews(documents.from_wire(wish, "RouteGroup"), "gkey", "east")
    assert [(kept_id(unit), unit.preview.key, unit.after) for unit in units] == [
        ("preview:a", "gkey", ()),
        ("preview:b", "gkey", ()),
    ]


LOCAL = """\
name: box
spec:
  cluster: local
  forks:
  - forkOf: {kind: Deployment, namespace: shop, name: web}
  local:
  - name: mine
    from: {kind: Deployment, namespace: pay, name: web}
    mappings:
    - {port: 80, toLocal: "localhost:3000"}
"""


def local(yaml=LOCAL, *, here=True):
    return compiled(
        builders.sandbox(yaml),
        {},
        uid="u",
        routing_key="k3v9",
        routed={"pay/web": ("gg",)},
        local=LocalRouting.YES if here else LocalRouting.UNROUTED,
    )


def test_a_local_workload_has_a_route_to_its_port():
    unit = next(unit for unit in local().forks if kept_id(unit) == "route:pay/web")
    baseline = Baseline(kind="Deployment", namespace="pay", name="web")
    assert unit.route == Route(baseline=baseline, keys=("k3v9", "gg"), local_port=3000)
    assert unit.after == ()
    assert local().warnings == ()


def test_local_workload_is_idle_in_a_cluster():
    found = local(here=False)
    assert [kept_id(unit) for unit in found.forks] == ["fork:shop/web", "route:shop/web"]
    assert [warning for warning in found.warnings if "local" in warning]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("localhost:3000", "10.0.0.1:3000", "write localhost:<port>"),
        ("localhost:3000", "localhost:0", "write localhost:<port>"),
        ("localhost:3000", "localhost:x", "write localhost:<port>"),
        ("localhost:3000", "localhost:" + "1" * 5_000, "write localhost:<port>"),
        ("localhost:3000", "localhost:٣٠٠٠", "write localhost:<port>"),
        ("name: web}\n    mappings", "nam: web}\n    mappings", "kind, namespace and name"),
        ('    - {port: 80, toLocal: "localhost:3000"}', "      []", "allows one mapping"),
        (
            "{kind: Deployment, namespace: pay",
            "{kind: Pod, namespace: shop",
            "another fork or local workload already receives",
        ),
    ],
)
def test_a_local_workload_that_cannot_be(before, after, said):
    assert before in LOCAL
    with pytest.raises(SpecError, match=said):
        local(LOCAL.replace(before, after))


def test_plan_separates_forks_and_routes_and_ends_routes_first():
    """Ends the one before the other."""
    plan = preview(compiled(builders.sandbox(FORKS), {}, uid="u", routing_key="k3v9", routed={"pay/web": ("zz",)}))
    assert [fork.id for fork in plan.forks] == ["fork:shop/web", "fork:pay/web"]
    told = {route.id: route for route in plan.routes}
    assert told["route:pay/web"].keys == ("k3v9", "zz")
    assert told["route:pay/web"].after == ("fork:pay/web",)
    assert told["preview:talk"].address == "grpc://web.shop.svc:50051"
    assert [stage.what for stage in plan.deletion] == ["routes", "forks"]
    assert plan.deletion[0].units == tuple(told)
