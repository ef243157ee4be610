"""Rules of Dayfly on a real API server with the definitions of Istio, and the permissions to write them."""

import copy

import msgspec
import pytest
import yaml
from testcluster import istio
from tests.deploy.conftest import OPERATOR, WRITTEN, thing
from tests.policy.apiserver import eventually

from dayfly.execute.gateway.rules import build_key_matches
from dayfly.execute.istio.read import SHARED_LABEL, VirtualService
from dayfly.execute.istio.rules import MAX_PATTERN_CHARS, ForkRules, RuleOwner, insert_rules, owners_of
from dayfly.execute.istio.run import VIRTUAL_SERVICES, render_shared, shared_name
from dayfly.kube.objects import Key
from dayfly.spec.routing.routing_keys import Forms

pytestmark = WRITTEN

TEAM, OTHERS = "mesh-team", "mesh-others"
KIND = VIRTUAL_SERVICES
KEYS = build_key_matches(("k7xw0q1m2n3p4", "another-key"), Forms(("x-team",), "sd"), max_chars=MAX_PATTERN_CHARS)
THREAD = ForkRules(RuleOwner(1, "box-run", "f-box-web"), TEAM, {"web": "f-box-web"}, KEYS)
WEB = {"route": [{"destination": {"host": "web"}}]}
MERGE = "application/merge-patch+json"
# Rules as people write them.
RULES = {
    "plain": [WEB],
    "with all there is": [
        {
            "name": "one",
            "match": [
                {
                    "name": "m",
                    "uri": {"prefix": "/a"},
                    "method": {"exact": "GET"},
                    "headers": {"x-team": {"regex": "a.*"}},
                    "queryParams": {"q": {"exact": "1"}},
                    "withoutHeaders": {"x-not": {}},
                    "ignoreUriCase": True,
                    "sourceLabels": {"app": "front"},
                    "port": 80,
                }
            ],
            "route": [
                {"destination": {"host": "web", "subset": "v1", "port": {"number": 80}}, "weight": 90},
                {"destination": {"host": f"api.{TEAM}.svc.cluster.local"}, "weight": 10},
            ],
            "timeout": "3s",
            "retries": {"attempts": 2, "retryOn": "5xx"},
            "fault": {"delay": {"percentage": {"value": 0.1}, "fixedDelay": "5s"}},
            "mirror": {"host": "copy"},
            "corsPolicy": {"allowOrigins": [{"exact": "https://shop.example"}]},
            "headers": {"request": {"set": {"x": "y"}}},
        },
        {"match": [{"uri": {"exact": "/old"}}], "redirect": {"uri": "/new"}},
        {"match": [{"uri": {"prefix": "/b"}}], "rewrite": {"uri": "/"}, **WEB},
    ],
    "many": [{"match": [{"uri": {"exact": f"/{number}"}}], **WEB} for number in range(90)],
}


@pytest.fixture(scope="module", autouse=True)
def served(installed):
    """The kinds are there; the operator may write in one namespace, and not in the other."""
    text = istio.definitions("networking.istio.io")
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(text)]
    assert "virtualservices.networking.istio.io" in names
    installed.apply(text)
    for name in (TEAM, OTHERS):
        installed.ask("POST", "/api/v1/namespaces", thing("v1", "Namespace", name))
    grant = {
        **thing("rbac.authorization.k8s.io/v1", "RoleBinding", "dayfly-forks"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dayfly-forks"},
        "subjects": [{"kind": "ServiceAccount", "name": "dayfly-operator", "namespace": "dayfly-system"}],
    }
    installed.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}/rolebindings", grant)
    eventually(lambda: installed.ask("GET", KIND.path(TEAM), user=OPERATOR).status == 200)
    probe = ours("probe")
    eventually(lambda: installed.ask("POST", f"{KIND.path(TEAM)}?dryRun=All", probe, user=OPERATOR).status == 201)
    forged = theirs("forged", [{"name": THREAD.owner.name(0), **WEB}])
    eventually(lambda: installed.ask("POST", f"{KIND.path(TEAM)}?dryRun=All", forged).status == 403)
    yield
    installed.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


def theirs(name, rules):
    return thing(KIND.api_version, KIND.kind, name, spec={"hosts": ["web"], "http": rules})


def ours(service):
    return render_shared(Key(TEAM, shared_name(service)), service)


def patched(api, name, body, user=OPERATOR):
    return api.ask("PATCH", KIND.path(TEAM, name), body, user=user, kind=MERGE)


@pytest.mark.parametrize("case", RULES)
def test_rules_woven_into_a_route_are_stored_unchanged(installed, case):
    """The API server adds nothing, so a comparison finds changes by other users. The removal leaves no trace."""
    name = case.replace(" ", "-")
    made = installed.ask("POST", KIND.path(TEAM), theirs(name, RULES[case]))
    assert made.status == 201, made
    before = msgspec.convert(made.body, VirtualService)
    rules = list(insert_rules(before.rules, THREAD, TEAM).rules)
    identity = {"uid": before.metadata.uid, "resourceVersion": before.metadata.resource_version}
    answer = patched(installed, name, {"metadata": identity, "spec": {"http": rules}})
    assert answer.status == 200, answer
    kept = msgspec.convert(answer.body, VirtualService)
    assert kept.rules == rules
    assert owners_of(kept.rules) == {THREAD.owner}
    assert list(insert_rules(kept.rules, THREAD, TEAM).rules) == rules
    stale = patched(installed, name, {"metadata": identity, "spec": {"http": before.rules}})
    assert stale.status == 409, "the version that was seen is another one by now"
    identity = {"uid": kept.metadata.uid}
    assert (
        patched(installed, name, {"metadata": identity, "spec": {"http": before.rules}}).body["spec"]
        == made.body["spec"]
    )


def test_one_of_ours_is_made_and_taken_away(installed):
    manifest = ours("alone")
    manifest["spec"]["http"] = list(insert_rules(manifest["spec"]["http"], THREAD, TEAM).rules)
    answer = installed.ask("POST", KIND.path(TEAM), manifest, user=OPERATOR)
    assert answer.status == 201, answer
    assert answer.body["spec"] == manifest["spec"]
    name = manifest["metadata"]["name"]
    stale = {"preconditions": {"resourceVersion": "1"}}
    assert installed.ask("DELETE", KIND.path(TEAM, name), stale, user=OPERATOR).status == 409
    assert installed.ask("DELETE", KIND.path(TEAM, name), user=OPERATOR).status == 200


SPOILT = {
    "hosts": {"spec": {"hosts": ["elsewhere"]}},
    "gateways": {"spec": {"gateways": ["edge"]}},
    "a rule of theirs": {"spec": {"http": [{**WEB, "timeout": "1s"}]}},
    "one rule less": {"spec": {"http": []}},
    "tcp": {"spec": {"tcp": [WEB]}},
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "its mark": {"metadata": {"labels": {SHARED_LABEL: "web"}}, "spec": {"hosts": ["elsewhere"]}},
    "annotations": {"metadata": {"annotations": {"a": "b"}}},
    "its owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}},
    "finalizers": {"metadata": {"finalizers": ["example.org/x"]}},
}


def test_operator_changes_nothing_but_its_own_istio_rules(installed):
    """The API server restricts the operator to its rules, even if the operator has a fault."""
    assert installed.ask("POST", KIND.path(TEAM), theirs("held", [WEB])).status == 201
    assert patched(installed, "held", {"spec": {"http": [{"name": THREAD.owner.name(0), **WEB}, WEB]}}).status == 200
    for what, change in SPOILT.items():
        answer = patched(installed, "held", copy.deepcopy(change))
        assert answer.status in (403, 422), (what, answer)
        assert "nothing of this VirtualService but its own rules" in answer.message, (what, answer)
    assert installed.ask("DELETE", KIND.path(TEAM, "held"), user=OPERATOR).status == 403
    assert installed.ask("POST", KIND.path(TEAM), theirs("new", [WEB]), user=OPERATOR).status == 403
    assert patched(installed, "held", {"spec": {"http": [WEB]}}).status == 200


def test_tenant_cannot_forge_operator_rules_or_labels(installed):
    """With these names the operator would take a user's rules for its own. The removal of its rules is permitted."""
    mine = {"name": THREAD.owner.name(0), **WEB}
    assert installed.ask("POST", KIND.path(TEAM), theirs("taken", [WEB])).status == 201
    assert patched(installed, "taken", {"spec": {"http": [mine, WEB]}}, user="").status == 403
    assert patched(installed, "taken", {"spec": {"http": [mine, WEB]}}).status == 200
    both = {"spec": {"http": [mine, {**mine, "name": THREAD.owner.name(1)}, WEB]}}
    assert patched(installed, "taken", both, user="").status == 403
    assert patched(installed, "taken", {"spec": {"http": [mine, WEB, WEB]}}, user="").status == 200
    assert patched(installed, "taken", {"spec": {"http": [WEB]}}, user="").status == 200
    forged = theirs("forged", [WEB])
    forged["metadata"]["labels"] = {SHARED_LABEL: "web"}
    answer = installed.ask("POST", KIND.path(TEAM), forged)
    assert answer.status == 403
    assert "dayfly.dev/" in answer.message


def test_the_operator_writes_only_where_forks_were_granted(installed):
    assert installed.ask("POST", KIND.path(OTHERS), ours("web"), user=OPERATOR).status == 403
    for kind in ("gateways", "destinationrules", "serviceentries", "envoyfilters"):
        path = f"/apis/networking.istio.io/v1/namespaces/{TEAM}/{kind}"
        assert installed.ask("GET", path, user=OPERATOR).status in (403, 404)
