"""The route of a preview: its name, the headers that it adds, and its readiness."""

from __future__ import annotations

import pytest

from dayfly.execute.gateway.preview import PreviewGateway, find_problem, host_name, label, render_preview
from dayfly.execute.gateway.read import ParentCondition, RouteObject, RouteParent, RouteStatus
from dayfly.kube.objects import AnnotatedMeta
from dayfly.spec.routing import routing_keys

EDGE = PreviewGateway("infra", "edge", "preview.example.org")
OWNER = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "r", "uid": "u"}


def route(*told: tuple[str, str, int]):
    """Return a route of generation 2. `told` has condition, status and observed generation."""
    conditions = [
        ParentCondition(type=kind, status=status, reason="Why", message="so", observed_generation=generation)
        for kind, status, generation in told
    ]
    parents = [RouteParent(parent_ref={"name": "edge"}, controller_name="c", conditions=conditions)] if told else None
    return RouteObject(
        metadata=AnnotatedMeta(name="x", namespace="shop", generation=2), status=RouteStatus(parents=parents)
    )


@pytest.mark.parametrize(
    ("told", "lack", "refused"),
    [
        ((), "Gateway infra/edge has not accepted the route yet", False),
        ((("Accepted", "True", 2),), "Gateway infra/edge has not accepted the route yet", False),
        (
            (("Accepted", "True", 2), ("ResolvedRefs", "True", 1)),
            "Gateway infra/edge has not accepted the route yet",
            False,
        ),
        (
            (("Accepted", "False", 1), ("ResolvedRefs", "True", 2)),
            "Gateway infra/edge has not accepted the route yet",
            False,
        ),
        ((("Accepted", "True", 2), ("ResolvedRefs", "True", 2)), None, False),
        (
            (("Accepted", "True", 2), ("ResolvedRefs", "False", 2)),
            "Gateway infra/edge rejects the route: Why: so",
            True,
        ),
        ((("Accepted", "False", 2),), "Gateway infra/edge rejects the route: Why: so", True),
    ],
)
def test_preview_is_ready_once_its_gateway_accepts_it(told, lack, refused):
    found = find_problem(route(*told), EDGE)
    assert (found and found.message) == lack
    assert bool(found and found.is_refused) is refused


def test_preview_host_names_are_unique():
    names = {host_name(EDGE, "box", uid, endpoint) for uid in ("u", "v") for endpoint in ("site", "api")}
    assert len(names) == 4
    assert host_name(EDGE, "box", "u", "site") == f"{label('box', 'u', 'site')}.preview.example.org"
    assert label("box", "u", "site").startswith("site-box")


def test_preview_url_names_an_unusual_port():
    assert EDGE.url("a.example") == "http://a.example"
    assert EDGE._replace(scheme="https", port="8443").url("a.example") == "https://a.example:8443"


def test_preview_adds_the_key_and_routes_to_the_service():
    found = render_preview(EDGE, "x", "site", "run", OWNER, key="k1", to=("shop", "web", 80))
    assert found["metadata"]["namespace"] == "shop"
    assert found["metadata"]["ownerReferences"] == [OWNER]
    assert set(found["metadata"]["labels"].values()) == {"site", "run", "dayfly"}
    spec = found["spec"]
    assert spec["hostnames"] == ["x.preview.example.org"]
    assert [(each["namespace"], each["name"], each["kind"]) for each in spec["parentRefs"]] == [
        ("infra", "edge", "Gateway")
    ]
    [rule] = spec["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert rule["backendRefs"] == [{"group": "", "kind": "Service", "name": "web", "port": 80, "weight": 1}]
    [given] = rule["filters"]
    assert [(each["name"], each["value"]) for each in given["requestHeaderModifier"]["add"]] == list(
        routing_keys.injected_headers("k1")
    )
