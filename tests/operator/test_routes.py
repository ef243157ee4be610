"""Requests with a key reach the fork, all others the baseline: routes next to those of the baseline, in virtual time."""

from __future__ import annotations

import pytest
from tests.operator.rig.fork_stories import ended
from tests.operator.rig.gateways import EDGE
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, fork, forked, gone, message, ready, wish
from tests.operator.rig.world import API, World, live

from dayfly.execute.gateway.render import IGNORE_ANNOTATION, LABELS_ANNOTATION, ROUTE_LABEL
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.spec.identity import routing_key

SHORT = Scene(RETRY, RETRY_UNITS, forked)
RULES = "rules"
NOWHERE = "Not supported here: its routing key (neither the Gateway API nor Istio routes requests here, so requests with the key"


def play(story, *, operators: int = 1, installed: bool = True, route: bool = True) -> World:
    """Run a story with operators, a baseline, and a route that leads to it."""

    def born() -> World:
        world = SHORT.world()
        world.groups = RouteGroupsExtension
        return world

    async def begin(world: World) -> None:
        world.forks.baseline()
        if installed:
            world.gateways.install()
        if route:
            world.gateways.route()
            await world.until(lambda: world.gateways.leads() == "web", "the baseline's own", 60)
        world.start(operators)
        await story(world)

    return live(born, begin)


async def routed(world: World, *forks) -> tuple[str, str]:
    """Create a sandbox and wait until it is ready; return its key and the name of its fork."""
    uid = world.sandbox(wish(forks=list(forks) or [fork()]))
    await world.until(lambda: ready(world), "ready", 300)
    return routing_key(uid), world.forks.all()[0]["metadata"]["name"]


def condition(world: World, type_: str) -> dict:
    return next((each for each in world.status().get("conditions", ()) if each["type"] == type_), {})


def group(world: World, name: str = "pay") -> str:
    spec = {"match": {"label": {"key": "team", "value": "pay*"}}}
    body = {"apiVersion": API, "kind": "RouteGroup", "metadata": {"name": name}, "spec": spec}
    made = world.ask("POST", f"/apis/{API}/namespaces/shop/routegroups", body)
    return routing_key(made["metadata"]["uid"])


class TestLife:
    def test_ready_means_that_requests_with_the_key_reach_the_fork(self):
        """Only those do. At the end, they reach the baseline before any part of the fork ends."""

        async def story(world: World) -> None:
            key, name = await routed(world)
            assert world.gateways.leads(key) == name
            assert world.gateways.leads() == world.gateways.leads("nobodys") == "web"
            [ours] = world.gateways.ours()
            assert ours["spec"]["parentRefs"] == [EDGE]
            assert ours["spec"]["hostnames"] == ["shop.example.org"]
            assert ours["metadata"]["labels"].keys() == {RUN_LABEL, ROUTE_LABEL, "app.kubernetes.io/managed-by"}
            assert message(world) == "All desired workloads are available."
            world.delete()
            await world.until(lambda: not world.gateways.ours(), "its route to go")
            left = world.cluster.time()
            await world.until(lambda: world.forks.all()[0]["metadata"].get("deletionTimestamp"), "the fork to go")
            assert 5 <= world.cluster.time() - left < 7
            assert world.gateways.leads(key) == "web"
            await gone(world)

        play(story)

    def test_sandbox_is_not_ready_before_its_gateway_accepts(self):
        async def story(world: World) -> None:
            world.gateways.latency = 600.0
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "Gateway edge has not accepted route web-" in message(world), "the wait", 60)
            assert not ready(world)
            await world.until(lambda: ready(world), "ready", 900)
            await ended(world)

        play(story)

    def test_gateway_refusal_is_reported(self):
        async def story(world: World) -> None:
            world.gateways.refuses["web-"] = "no regular expressions here"
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "No: no regular expressions here" in message(world), "the refusal", 60)
            await ended(world)

        play(story)

    def test_deleted_while_its_route_waits(self):
        async def story(world: World) -> None:
            world.gateways.latency = 600.0
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "has not accepted route" in message(world), "the wait", 60)
            world.delete()
            await gone(world)

        play(story)

    def test_dropped_fork_is_removed_after_its_route(self):
        async def story(world: World) -> None:
            await routed(world)
            world.change({"spec": {"forks": []}})
            await world.until(lambda: not (world.forks.all() or world.gateways.ours()), "the fork to go", 60)
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)


class TestWithout:
    def test_without_the_gateway_api_it_is_ready_and_later_routed(self):
        """The API is installed and removed while a sandbox lives."""

        async def story(world: World) -> None:
            key, name = await routed(world)
            assert "route" not in str(world.status()["units"])
            assert NOWHERE in message(world)
            assert condition(world, "Supported")["status"] == "False"
            world.gateways.install()
            world.gateways.route()
            await world.until(lambda: world.gateways.leads(key) == name, "the route", 120)
            await world.until(lambda: ready(world) and NOWHERE not in message(world), "ready", 60)
            assert condition(world, "Supported")["status"] == "True"
            world.gateways.remove()
            await world.until(lambda: "route" not in str(world.status()["units"]), "it to be forgotten", 120)
            await world.until(lambda: ready(world) and NOWHERE in message(world), "ready", 60)
            assert len(world.forks.all()) == 1
            await ended(world)

        play(story, installed=False, route=False)

    def test_without_a_route_to_the_baseline_ready_says_so(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            word = "route:shop/web (no HTTPRoute or GRPCRoute leads to Deployment shop/web)"
            assert message(world) == f"All desired workloads are available. Not supported here: {word}."
            assert condition(world, "Supported")["status"] == "False"
            world.gateways.route()
            await world.until(lambda: world.gateways.leads(key) == name, "the route", 30)
            await world.until(lambda: condition(world, "Supported")["status"] == "True", "the status message", 60)
            world.delete()
            await gone(world)

        play(story, route=False)

    def test_route_of_another_namespace_is_reported_by_name(self):
        """The ReferenceGrant of the namespace names only the baseline's Service, so no route to the fork is possible."""

        async def story(world: World) -> None:
            world.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "edges"}})
            path = "/apis/gateway.networking.k8s.io/v1/namespaces/edges/httproutes"
            for name, where in (("far", {"namespace": "shop"}), ("own", {})):
                spec = {"parentRefs": [EDGE], "rules": [{"backendRefs": [{"name": "web", "port": 80, **where}]}]}
                world.ask("POST", path, {"metadata": {"name": name}, "spec": spec})
            await routed(world)
            assert "HTTPRoute edges/far leads to the baseline from another namespace" in message(world)
            assert "edges/own" not in message(world)
            assert world.gateways.ours() == []
            await ended(world)

        play(story, route=False)

    def test_unaccepted_baseline_route_does_not_delay_ready(self):
        async def story(world: World) -> None:
            world.gateways.knows = ()
            world.gateways.route()
            await routed(world)
            assert "no Gateway has accepted HTTPRoute shop/web" in message(world)
            await ended(world)

        play(story, route=False)

    def test_baseline_without_a_service_is_reported(self):
        async def story(world: World) -> None:
            world.ask("DELETE", "/api/v1/namespaces/shop/services/web")
            await routed(world)
            assert "no Service leads to Deployment shop/web" in message(world)
            await ended(world)

        play(story, route=False)

    def test_route_owner_can_opt_out_by_annotation(self):
        async def story(world: World) -> None:
            world.gateways.change("web", {"metadata": {"annotations": {IGNORE_ANNOTATION: "ignore"}}})
            await routed(world)
            assert world.gateways.ours() == []
            world.gateways.change("web", {"metadata": {"annotations": {IGNORE_ANNOTATION: None}}})
            await world.until(world.gateways.ours, "a route", 30)
            await ended(world)

        play(story)


class TestKeeping:
    def test_edited_or_deleted_route_is_restored(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            [ours] = world.gateways.ours()
            spec = {**ours["spec"], RULES: [{"backendRefs": [{"name": "elsewhere", "port": 80}]}]}
            world.gateways.change(ours["metadata"]["name"], {"spec": spec})
            await world.until(lambda: world.gateways.ours()[0]["spec"] == ours["spec"], "it to be put back", 30)
            world.gateways.delete(ours["metadata"]["name"])
            await world.until(world.gateways.ours, "another one", 30)
            await world.until(lambda: world.gateways.leads(key) == name and ready(world), "ready", 30)
            await world.rest(60)
            before = len(world.writes)
            await world.rest(3600)
            assert len(world.writes) == before
            await ended(world)

        play(story)

    def test_route_follows_the_route_of_its_baseline(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            backend = {"group": "", "kind": "Service", "name": "web", "port": 81, "weight": 1}
            path = [{"path": {"type": "Exact", "value": "/new"}}]
            world.gateways.change(
                "web",
                {"spec": {"hostnames": ["other.example.org"], RULES: [{"matches": path, "backendRefs": [backend]}]}},
            )
            await world.until(lambda: world.gateways.leads(key) == "", "the path to go", 30)
            await world.until(lambda: world.gateways.leads(key, "/new") == name, "the new path", 30)
            [ours] = world.gateways.ours()
            assert ours["spec"]["hostnames"] == ["other.example.org"]
            world.gateways.delete("web")
            await world.until(lambda: not world.gateways.ours(), "it to go with the other", 30)
            await world.until(lambda: "no HTTPRoute or GRPCRoute leads" in message(world), "the status message", 60)
            await ended(world)

        play(story)

    def test_another_service_of_the_baseline_has_one_for_the_fork(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            ports = [{"port": 80, "targetPort": 9}]
            spec = {"selector": {"tier": "front"}, "ports": ports}
            world.ask("POST", "/api/v1/namespaces/shop/services", {"metadata": {"name": "extra"}, "spec": spec})
            path = [{"path": {"type": "PathPrefix", "value": "/extra"}}]
            world.gateways.route("more", to="extra", matches=path)
            await world.until(world.gateways.services, "a second Service", 30)
            [own] = world.gateways.services()
            await world.until(lambda: ready(world), "ready", 30)
            assert world.gateways.leads(key, "/extra") == name
            assert own["spec"]["selector"] == {"dayfly.dev/fork": name}
            assert [(port["port"], port["targetPort"]) for port in own["spec"]["ports"]] == [(80, 9)]
            world.gateways.delete("more")
            await world.until(lambda: not world.gateways.services(), "it to go", 60)
            await ended(world)

        play(story)

    def test_route_copies_only_the_listed_labels(self):
        """Policies may select routes by labels; other labels belong to other tools."""

        async def story(world: World) -> None:
            world.gateways.change("web", {"metadata": {"annotations": {LABELS_ANNOTATION: f"team, {RUN_LABEL}"}}})
            await routed(world)
            [ours] = world.gateways.ours()
            assert ours["metadata"]["labels"]["team"] == "a"
            await ended(world)

        play(story)

    @pytest.mark.parametrize("verb", ["create", "delete"])
    def test_missing_right_is_reported(self, verb):
        async def story(world: World) -> None:
            if verb == "create":
                world.cluster.denied.add((verb, "httproutes.gateway.networking.k8s.io"))
                world.sandbox(wish(forks=[fork()]))
                words = "an administrator can bind the ClusterRole dayfly-forks"
                await world.until(lambda: words in message(world), "the lack", 60)
                before = len(world.writes)
                await world.rest(600)
                assert len(world.writes) - before < 60
                world.cluster.denied.clear()
                await world.until(lambda: ready(world), "ready", 120)
            else:
                await routed(world)
                world.cluster.denied.add((verb, "httproutes.gateway.networking.k8s.io"))
                world.delete()
                await world.rest(60)
                assert world.forks.all()
                assert not world.forks.all()[0]["metadata"].get("deletionTimestamp")
                world.cluster.denied.clear()
            await (gone if verb == "delete" else ended)(world)

        play(story)

    def test_route_that_cannot_be_withdrawn_is_deleted_at_once(self):
        """A route that may no longer be changed must not block the end of the sandbox."""

        async def story(world: World) -> None:
            await routed(world)
            world.cluster.denied.add(("update", "httproutes.gateway.networking.k8s.io"))
            world.delete()
            await gone(world)

        play(story)

    def test_route_is_removed_without_an_answer_of_its_gateway(self):
        async def story(world: World) -> None:
            await routed(world)
            world.gateways.latency = 10_000.0
            world.delete()
            await world.until(lambda: not world.gateways.ours(), "it to go", 15)
            await gone(world)

        play(story)

    def test_ending_route_matches_no_request(self):
        """The route is withdrawn before it is deleted, so that no Gateway answers a request with an error."""

        async def story(world: World) -> None:
            key, _ = await routed(world)
            world.delete()
            await world.until(lambda: world.gateways.leads(key) == "web", "the key to be unknown", 30)
            [ours] = world.gateways.ours()
            assert "deletionTimestamp" not in ours["metadata"]
            await gone(world)

        play(story)

    def test_route_that_would_lose_its_key_is_not_created(self):
        """Without its key, it would receive all requests."""

        async def story(world: World) -> None:
            def pruned(operation, kind, old, new):
                if kind.plural == "httproutes" and RUN_LABEL in (new or {}).get("metadata", {}).get("labels", {}):
                    for rule in new["spec"]["rules"]:
                        for match in rule["matches"]:
                            match.pop("headers", None)
                    return new
                return None

            world.cluster.admission.append(pruned)
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "would store HTTPRoute web-" in message(world), "the refusal", 60)
            await world.rest(120)
            assert world.gateways.ours() == []
            world.cluster.admission.remove(pruned)
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)

    def test_route_of_a_vanished_run_is_removed(self):
        async def story(world: World) -> None:
            await routed(world)
            [ours] = world.gateways.ours()
            meta = {key: ours["metadata"][key] for key in ("labels", "annotations")}
            owner = ours["metadata"]["ownerReferences"][0]
            await ended(world)
            name = "late"
            body = {"metadata": {"name": name, **meta, "ownerReferences": [owner]}, "spec": ours["spec"]}
            world.cluster.controllers.settle = lambda: None  # the garbage collector is late
            world.ask("POST", "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes", body)
            await world.until(lambda: not world.gateways.ours(), "it to be swept", 120)

        play(story)


class TestGroups:
    def test_group_key_leads_to_the_oldest_member_fork(self):
        async def story(world: World) -> None:
            key = group(world)
            labels = {"team": "payments"}
            first = routing_key(world.sandbox(wish(forks=[fork()], labels=labels)))
            await world.until(lambda: ready(world), "ready", 60)
            [one] = world.forks.all()
            await world.until(lambda: world.gateways.leads(key) == one["metadata"]["name"], "the group's key", 60)
            await world.rest(2)
            second = routing_key(world.sandbox(wish(forks=[fork()], labels=labels), name="other"))
            await world.until(lambda: ready(world, "other"), "ready", 60)
            assert world.gateways.leads(key) == world.gateways.leads(first) == one["metadata"]["name"]
            [other] = [each for each in world.forks.all() if each["metadata"]["uid"] != one["metadata"]["uid"]]
            assert world.gateways.leads(second) == other["metadata"]["name"]
            world.delete()
            await world.until(lambda: world.gateways.leads(key) == other["metadata"]["name"], "the other to follow", 60)
            world.ask("DELETE", f"/apis/{API}/namespaces/shop/routegroups/pay")
            await world.until(lambda: world.gateways.leads(key) == "web", "the group's key to go", 60)
            assert world.gateways.leads(second) == other["metadata"]["name"]
            world.delete("other")
            await gone(world)

        play(story)
