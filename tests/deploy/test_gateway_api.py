"""Routes of Dayfly on a real API server, with the definitions of the Gateway API and without a data plane."""

import msgspec
import pytest
from testcluster import gateway
from tests.deploy.conftest import OPERATOR, WRITTEN, thing
from tests.policy.apiserver import eventually

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import ROUTE_LABEL, RouteTarget, render_routes
from dayfly.execute.gateway.rules import RuleTargets, build_key_matches
from dayfly.execute.gateway.run import GRPC_ROUTES, HTTP_ROUTES, differs
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.spec.routing.routing_keys import Forms

pytestmark = WRITTEN

TEAM, OTHERS = "routes-team", "routes-others"
API = "/apis/gateway.networking.k8s.io/v1"
LEADS = RuleTargets({"web": "f-box-web"})
KEYS = build_key_matches(("k7xw0q1m2n3p4", "another-key"), Forms(("x-team",), "sd"))
WEB = {"name": "web", "port": 80}
EVERYTHING = {"backendRefs": [WEB]}
PATH = {"path": {"type": "PathPrefix", "value": "/a"}}
REPLACED = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}


def headers(count):
    return {"headers": [{"name": f"h{number}", "value": "v"} for number in range(count)]}


# Rules of users, and the number of routes that Dayfly creates for them.
HTTP = {
    "plain": ([EVERYTHING], 1),
    "with all there is": (
        [
            {
                "name": "one",
                "matches": [{**PATH, "method": "GET", **headers(3), "queryParams": [{"name": "q", "value": "1"}]}],
                "filters": [
                    {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": "a", "value": "b"}]}}
                ],
                "backendRefs": [{**WEB, "weight": 9}, {"name": "canary", "port": 80}],
                "timeouts": {"request": "3s"},
            },
            {"matches": [{"path": {"type": "RegularExpression", "value": "/[a-z]+"}}], "backendRefs": [WEB]},
        ],
        1,
    ),
    "a shield": ([{"matches": [headers(1)], "backendRefs": [{"name": "api", "port": 80}]}, EVERYTHING], 1),
    "a replaced prefix": ([{"matches": [PATH], "filters": [REPLACED], "backendRefs": [WEB]}], 1),
    "as much as there may be": ([{"matches": [headers(number) for number in range(8)], "backendRefs": [WEB]}] * 16, 8),
    "full matches": ([{"matches": [headers(16)], "backendRefs": [WEB]}], 1),
}
GRPC = {
    "plain": ([EVERYTHING], 1),
    "a method": ([{"matches": [{"method": {"service": "s.S", "method": "Get"}}], "backendRefs": [WEB]}], 1),
}


@pytest.fixture(scope="module", autouse=True)
def served(installed):
    """The kinds are there; the operator may write routes in one namespace, and not in the other."""
    for text in gateway.definitions():
        installed.apply(text)
    for name in (TEAM, OTHERS):
        installed.ask("POST", "/api/v1/namespaces", thing("v1", "Namespace", name))
    grant = {
        **thing("rbac.authorization.k8s.io/v1", "RoleBinding", "dayfly-forks"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dayfly-forks"},
        "subjects": [{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}],
    }
    installed.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/rolebindings", grant)
    for kind in (HTTP_ROUTES, GRPC_ROUTES):
        eventually(lambda kind=kind: installed.ask("GET", kind.path(TEAM), user=OPERATOR).status == 200)
    probe = thing(f"{HTTP_ROUTES.api_version}", "HTTPRoute", "probe", spec={"rules": [EVERYTHING]})
    eventually(
        lambda: installed.ask("POST", f"{HTTP_ROUTES.path(TEAM)}?dryRun=All", probe, user=OPERATOR).status == 201
    )
    yield
    for text in gateway.definitions():
        installed.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


@pytest.fixture(scope="module")
def fork(installed):
    """A fork with an existing owner, because the garbage collector would delete its routes otherwise."""
    uid = installed.ask("GET", f"/api/v1/namespaces/{TEAM}").body["metadata"]["uid"]
    return RouteTarget("f-box-web", "box-run", {"apiVersion": "v1", "kind": "Namespace", "name": TEAM, "uid": uid})


def stored(api, kind, name, rules):
    spec = {"parentRefs": [{"name": "edge"}], "hostnames": ["shop.example.org"], "rules": rules}
    made = api.ask("POST", kind.path(TEAM), thing(kind.api_version, kind.kind, name, spec=spec))
    assert made.status == 201, made
    return msgspec.convert(made.body, RouteObject)


@pytest.mark.parametrize(
    ("kind", "case"),
    [*((HTTP_ROUTES, name) for name in HTTP), *((GRPC_ROUTES, name) for name in GRPC)],
    ids=lambda each: each if isinstance(each, str) else each.kind,
)
def test_written_routes_are_stored_unchanged(installed, fork, kind, case):
    """The API server adds nothing, so a comparison finds changes by other users."""
    rules, count = (HTTP if kind is HTTP_ROUTES else GRPC)[case]
    found = stored(installed, kind, case.replace(" ", "-"), rules)
    made = render_routes(kind, found, fork, LEADS, KEYS)
    assert len(made.manifests) == count
    for manifest in made.manifests:
        answer = installed.ask("POST", kind.path(TEAM), manifest, user=OPERATOR)
        assert answer.status == 201, answer
        kept = msgspec.convert(answer.body, RouteObject)
        assert not differs(kept, manifest)
        identity = {"uid": kept.metadata.uid, "resourceVersion": kept.metadata.resource_version}
        other = {**manifest, "metadata": manifest["metadata"] | identity, "spec": {**manifest["spec"], "hostnames": []}}
        changed = installed.ask("PUT", kind.path(TEAM, kept.metadata.name), other, user=OPERATOR)
        assert changed.status == 200
        assert differs(msgspec.convert(changed.body, RouteObject), manifest)
        stale = installed.ask("PUT", kind.path(TEAM, kept.metadata.name), other, user=OPERATOR)
        assert stale.status == 409, "the version that was seen is another one by now"
        options = {"preconditions": {"uid": kept.metadata.uid}}
        assert installed.ask("DELETE", kind.path(TEAM, kept.metadata.name), options, user=OPERATOR).status == 200


def test_operator_labels_on_routes_are_refused_for_others(installed):
    """With these labels the operator would adopt a user's route."""
    for key in (RUN_LABEL, ROUTE_LABEL):
        body = thing(HTTP_ROUTES.api_version, "HTTPRoute", "forged", spec={"rules": [EVERYTHING]})
        body["metadata"]["labels"] = {key: "box-run"}
        answer = installed.ask("POST", HTTP_ROUTES.path(TEAM), body)
        assert answer.status == 403
        assert "dayfly.dev/" in answer.message


def test_operator_writes_routes_only_in_granted_namespaces(installed):
    body = thing(HTTP_ROUTES.api_version, "HTTPRoute", "ours", spec={"rules": [EVERYTHING]})
    assert installed.ask("POST", HTTP_ROUTES.path(OTHERS), body, user=OPERATOR).status == 403
    for kind in ("gateways", "referencegrants", "gatewayclasses"):
        path = f"{API}/{kind}" if kind == "gatewayclasses" else f"{API}/namespaces/{TEAM}/{kind}"
        assert installed.ask("GET", path, user=OPERATOR).status in (403, 404)
