"""Derived routes and Services, and the status of routes."""

import msgspec
import pytest
from tests.execute.gateways import Request, Route, choose

from dayfly.execute.fork.read import ForkService, ServicePort, ServiceSpec
from dayfly.execute.gateway import read
from dayfly.execute.gateway.read import ParentCondition, RouteObject, RouteParent, RouteStatus
from dayfly.execute.gateway.render import (
    MAX_MATCHES,
    RouteTarget,
    is_withdrawn,
    render_routes,
    render_service,
    render_withdrawn,
    routes_of_other_namespaces,
    routes_to,
    service_name,
    services_for,
    services_of,
)
from dayfly.execute.gateway.rules import RuleTargets, build_key_matches
from dayfly.execute.gateway.run import GRPC_ROUTES, HTTP_ROUTES, differs
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.kube.objects import AnnotatedMeta, ObjectMeta
from dayfly.spec.routing.routing_keys import Forms

OWNER = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": "r", "uid": "u"}
FORK = RouteTarget("f-box-web", "box-run", OWNER)
LEADS = RuleTargets({"web": "f-box-web"})
RULES = [{"backendRefs": [{"name": "web", "port": 80}]}]
EDGE = {"kind": "Gateway", "name": "edge"}
PLAIN = Forms()


def route(name="web", rules=RULES, *, uid="base", parents=None, generation=1, **meta):
    about = AnnotatedMeta(name=name, namespace="shop", uid=uid, generation=generation, **meta)
    spec = {"parentRefs": [EDGE], "hostnames": ["shop.example.org"], "rules": rules}
    return RouteObject(metadata=about, spec=spec, status=RouteStatus(parents=parents))


def parent(name="edge", *, generation=1, at="2026-01-01T00:00:00Z", **said):
    conditions = [
        ParentCondition(
            type=type_,
            status=status,
            reason="Why",
            message="so",
            observed_generation=generation,
            last_transition_time=at,
        )
        for type_, status in {"Accepted": "True", "ResolvedRefs": "True", **said}.items()
    ]
    return RouteParent(parent_ref={"kind": "Gateway", "name": name}, controller_name="c", conditions=conditions)


def ours(base=None, forms=PLAIN):
    [made] = render_routes(HTTP_ROUTES, base or route(), FORK, LEADS, build_key_matches(("k1",), forms)).manifests
    return made


def stored(manifest, **more):
    meta = manifest["metadata"]
    about = AnnotatedMeta(
        name=meta["name"],
        namespace="shop",
        uid="ours",
        resource_version="7",
        labels=meta["labels"],
        annotations=meta["annotations"],
        generation=more.pop("generation", 1),
    )
    return RouteObject(metadata=about, spec=manifest["spec"], status=RouteStatus(**more))


class TestObjects:
    def test_route_name_sorts_after_its_baseline_and_is_unique(self):
        """A Gateway prefers the older of two equal routes, then the first by name: that is the baseline's."""
        name = ours()["metadata"]["name"]
        assert name > "web"
        assert name.startswith("web-")
        assert ours(route(uid="another"))["metadata"]["name"] != name
        assert len(ours(route(name=f"{'w' * 252}x"))["metadata"]["name"]) <= 253

    def test_derived_route_copies_only_the_spec(self):
        base = route(labels={"app": "web"}, annotations={"cert": "me"}, finalizers=["x"])
        assert ours(base)["metadata"]["labels"] == FORK.labels
        assert ours(base)["metadata"]["annotations"].keys() == {"dayfly.dev/beside"}
        assert ours(base)["metadata"]["ownerReferences"] == [OWNER]

    def test_grpc_route_has_no_query_match(self):
        """The API server would drop it, and the rule would match everything."""
        made = render_routes(GRPC_ROUTES, route(), FORK, LEADS, build_key_matches(("k1",), Forms((), "key"))).manifests
        found = [match for each in made for rule in each["spec"]["rules"] for match in rule["matches"]]
        assert found
        assert all(match.keys() == {"headers"} for match in found)

    def test_http_route_has_a_query_match(self):
        found = [match for rule in ours(forms=Forms((), "key"))["spec"]["rules"] for match in rule["matches"]]
        assert [match["queryParams"][0]["name"] for match in found if "queryParams" in match] == ["key"]

    def test_routes_to_services_are_found(self):
        every = [
            route("a", creation_timestamp="2026-01-02T00:00:00Z"),
            route("b", creation_timestamp="2026-01-01T00:00:00Z"),
            route("ours", labels={RUN_LABEL: "r"}),
            route("ignored", annotations={"dayfly.dev/routing": "ignore"}),
            route("ending", deletion_timestamp="2026-01-01T00:00:00Z"),
            route("other", rules=[{"backendRefs": [{"name": "api"}]}]),
        ]
        assert [each.metadata.name for each in routes_to(every, ["web"])] == ["b", "a"], "the oldest first"

    def test_services_of_a_baseline_are_found(self):
        def render_service(name, selector, **labels):
            return ForkService(metadata=ObjectMeta(name=name, labels=labels), spec=ServiceSpec(selector=selector))

        every = [
            render_service("wide", {"app": "web"}),
            render_service("exact", {"app": "web", "tier": "front"}),
            render_service("narrow", {"app": "web", "track": "canary"}),
            render_service("none", None),
            render_service("forks", {"app": "web"}, **{RUN_LABEL: "r"}),
        ]
        found = services_for(every, {"app": "web", "tier": "front"})
        assert [each.metadata.name for each in found] == ["exact", "wide"]

    def test_omitted_matches_are_reported(self):
        all_signs = build_key_matches(("k1",), PLAIN)
        fits = MAX_MATCHES // len(all_signs)
        whole, some = (
            render_routes(HTTP_ROUTES, route(rules=RULES * count), FORK, LEADS, all_signs) for count in (fits, fits + 1)
        )
        assert (whole.is_cut, some.is_cut) == (False, True)
        made = [match for each in some.manifests for rule in each["spec"]["rules"] for match in rule["matches"]]
        assert len(made) == MAX_MATCHES == fits * len(all_signs)


class TestElsewhere:
    def test_route_in_another_namespace_to_the_same_service_is_found(self):
        def led(name, *refs, namespace="other"):
            about = AnnotatedMeta(name=name, namespace=namespace)
            return RouteObject(metadata=about, spec={"rules": [{}, {"backendRefs": list(refs)}]})

        here = {"name": "web", "namespace": "shop"}
        every = [
            led("to us", {"name": "x"}, here),
            led("ours", here, namespace="shop"),
            led("to another", {"name": "api", "namespace": "shop"}, {"name": "web", "namespace": "else"}),
            led("its own", {"name": "web"}),
        ]
        assert [each.metadata.name for each in routes_of_other_namespaces(every, ["web"], "shop")] == ["to us"]
        rules = [{"backendRefs": [{"name": "web"}]}, {"backendRefs": [{"name": "db"}]}, {}]
        assert services_of(rules, ["api", "db", "web"], "shop") == ["db", "web"]

    @pytest.mark.parametrize(("address", "headless"), [("10.0.0.1", {}), ("None", {"clusterIP": "None"})])
    def test_fork_has_a_service_for_each_of_its_baselines(self, address, headless):
        ports = [ServicePort(port=80, name="http")]
        spec = ServiceSpec(selector={"app": "web"}, ports=ports, cluster_ip=address)
        made = render_service(ForkService(metadata=ObjectMeta(name="web", namespace="shop"), spec=spec), FORK)
        assert made["metadata"]["name"] == service_name(FORK, "web") != service_name(FORK, "api")
        assert made["metadata"]["name"].startswith("f-web")
        assert made["metadata"]["namespace"] == "shop"
        assert made["metadata"]["labels"].items() >= FORK.labels.items()
        assert made["metadata"]["ownerReferences"] == [OWNER]
        assert {key: made["spec"][key] for key in made["spec"] if key == "clusterIP"} == headless
        assert [each["port"] for each in made["spec"]["ports"]] == [80]


class TestDiffering:
    """Labels and annotations that others added are kept."""

    def test_foreign_additions_are_no_difference_but_changes_are(self):
        manifest = ours()
        seen = stored(manifest)
        meta = seen.metadata

        def with_meta(**more):
            return msgspec.structs.replace(seen, metadata=msgspec.structs.replace(meta, **more))

        assert differs(seen, manifest) is False
        assert not differs(with_meta(labels={**meta.labels, "theirs": "x"}), manifest)
        assert not differs(with_meta(annotations={**meta.annotations, "theirs": "x"}), manifest)
        assert differs(msgspec.structs.replace(seen, spec={"rules": []}), manifest)
        for lack in ({}, None):
            assert differs(with_meta(labels=lack), manifest)
            assert differs(with_meta(annotations=lack), manifest)


class TestWithdrawn:
    def test_withdrawn_route_matches_nothing_and_keeps_backends(self):
        seen = stored(ours(forms=Forms((), "key")))
        made = render_withdrawn(HTTP_ROUTES, seen)
        assert [rule["backendRefs"] for rule in made["spec"]["rules"]] == [
            rule["backendRefs"] for rule in seen.spec["rules"]
        ]
        asked = Request(headers={"baggage": "sd-routing-key=k1"}, query={"key": "k1"})
        assert choose([Route("ours", 1, tuple(seen.rules))], asked)
        assert choose([Route("ours", 1, tuple(made["spec"]["rules"]))], asked) is None
        assert is_withdrawn(stored(made))
        assert not is_withdrawn(seen)
        assert differs(stored(made), ours(forms=Forms((), "key")))


class TestTaken:
    def test_route_is_ready_if_all_parents_accept_it(self):
        base = route(parents=[parent(), parent("inner")])
        seen = stored(ours(base), parents=[parent(), parent("inner")])
        assert read.find_problem(seen, base) is None
        assert read.is_newest(seen)
        assert read.accepted_at(seen) == 1767225600000

    def test_route_is_accepted_since_its_last_parent_accepted(self):
        """A controller that does not know the existing route may report a status on the derived one."""
        silent = RouteParent(parent_ref={"name": "new"}, controller_name="d", conditions=None)
        assert not silent.is_condition_true("Accepted")
        said = [parent(at="2026-01-01T00:00:01Z"), silent, parent("inner")]
        assert read.accepted_at(stored(ours(), parents=said)) == 1767225601000
        assert read.accepted_at(stored(ours(), parents=[silent])) == 0

    @pytest.mark.parametrize("at", ["2026-01-01t00:00:01z", "9999-12-31T23:59:59-01:00", "now"])
    def test_invalid_time_is_in_the_future(self, at):
        """The CustomResourceDefinitions accept times that Python cannot parse."""
        assert read.accepted_at(stored(ours(), parents=[parent(), parent("inner", at=at)])) > 1 << 50

    @pytest.mark.parametrize(
        ("parents", "says", "refused"),
        [
            (None, "Gateway edge has not accepted route", False),
            ([parent("inner")], "Gateway edge has not accepted route", False),
            ([parent(generation=0)], "Gateway edge has not accepted route", False),
            ([parent(Accepted="False")], "Gateway edge rejects route", True),
            ([parent(ResolvedRefs="False")], "Why: so", True),
        ],
    )
    def test_missing_acceptance_is_explained(self, parents, says, refused):
        base = route(parents=[parent()])
        found = read.find_problem(stored(ours(base), parents=parents), base)
        assert found is not None
        assert says in found.message
        assert found.is_refused == refused

    def test_condition_shared_with_the_baseline_is_not_missing(self):
        base = route(parents=[parent(ResolvedRefs="False"), parent("shut", Accepted="False")])
        assert read.find_problem(stored(ours(base), parents=[parent(ResolvedRefs="False")]), base) is None
