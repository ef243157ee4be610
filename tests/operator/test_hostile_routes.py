"""Attacks by users who may write routes, Services or Sandboxes in their namespace."""

from __future__ import annotations

import pytest
from tests.kube.fake import Refusal
from tests.operator.rig.fork_stories import ended
from tests.operator.rig.scenes import fork, gone, message, ready, wish
from tests.operator.rig.world import World
from tests.operator.test_istio import WEB, routed
from tests.operator.test_istio import play as meshed
from tests.operator.test_previews import EDGE, previewed
from tests.operator.test_previews import play as play_previews
from tests.operator.test_routes import play as play_routes
from tests.operator.test_routes import routed as led

from dayfly.execute.istio.read import VirtualService, WrittenMeta
from dayfly.execute.istio.rules import owner_of
from dayfly.operator.cluster.objects import DOCUMENTS
from dayfly.operator.routes.route_builder import MAX_ROUTES, MAX_SERVICES
from dayfly.operator.routes.vs_edits import MAX_VIRTUAL_SERVICES, find_relevant
from dayfly.spec.lifecycle import Baseline


@pytest.mark.parametrize(
    ("run", "fork"), [("", "f-x"), ("box", ""), ("..", "f-x"), ("box?watch=1", "f-x"), ("box", "%2e"), ("Box", "f-x")]
)
def test_rule_with_an_invalid_name_is_not_ours(run, fork):
    assert owner_of({"name": "dayfly/0000000000001/box/f-x/00"}) is not None
    assert owner_of({"name": f"dayfly/0000000000001/{run}/{fork}/00"}) is None


class TestMeshes:
    @pytest.mark.slow
    @pytest.mark.parametrize("birth", ["9" * 5000, "٣" * 13, "-1", "1_0", ""])
    def test_foreign_rule_with_a_name_like_ours_blocks_no_run(self, birth):
        async def story(world: World) -> None:
            world.namespace("evil")
            await routed(world)
            rule = {**WEB, "name": f"dayfly/{birth}/nobodys/f-x/00"}
            world.meshes.write("x", rule, namespace="evil", hosts=["x.example.org"])
            key, name = await routed(world, "other")
            assert world.meshes.leads(key) == name
            assert [each for each in world.meshes.all() if each["metadata"]["namespace"] == "evil"]
            world.meshes.delete("x", "evil")
            world.delete("other")
            await ended(world)

        meshed(story)

    def test_foreign_rule_without_a_run_name_stops_no_sweep(self):
        """An empty name would list all runs, and the answer could not be parsed."""

        async def story(world: World) -> None:
            world.namespace("evil")
            await routed(world)
            written = world.cluster.objects(DOCUMENTS.plural)[0]
            world.delete()
            await ended(world)
            nobodys = {**WEB, "name": "dayfly/0000000000001//f-x/00"}
            world.meshes.write("x", nobodys, namespace="evil", hosts=["x.example.org"])
            meta = {key: written["metadata"][key] for key in ("name", "labels", "finalizers")}
            world.ask("POST", DOCUMENTS.path(), {"metadata": meta, "spec": written["spec"]})
            await world.until(lambda: not world.cluster.objects(DOCUMENTS.plural), "what no run came for to go", 150)
            world.meshes.delete("x", "evil")
            await gone(world)

        meshed(story)

    def test_foreign_rule_in_the_name_of_a_run_does_not_block_it(self):
        """In the other user's namespace the operator has no rights, so it cannot remove the rule."""

        async def story(world: World) -> None:
            world.namespace("evil")
            key, name = await routed(world)
            [run] = world.cluster.objects("runs")
            world.cluster.refuses = lambda request: (
                Refusal(403, "virtualservices is forbidden")
                if "/namespaces/evil/" in request.path and request.method != "GET"
                else None
            )
            rules = [{**WEB, "name": f"dayfly/0000000000001/{run['metadata']['name']}/{of}/00"} for of in ("f-x", name)]
            world.meshes.write("x", *rules, namespace="evil", hosts=["x.example.org"])
            world.forks.edit({"spec": {"template": {"spec": {"containers": [{"name": "main", "args": ["new"]}]}}}})
            await world.until(lambda: world.forks.main().get("args") == ["new"] and ready(world), "it to go on", 120)
            assert world.meshes.leads(key) == name
            world.delete()
            await world.until(lambda: not world.forks.all() and world.box() is None, "its end", 300)
            world.meshes.delete("x", "evil")
            await gone(world)

        meshed(story)

    def test_unexported_virtual_service_decides_only_at_home(self):
        async def story(world: World) -> None:
            world.namespace("evil")
            host = "web.shop.svc.cluster.local"
            world.meshes.write("x", WEB, namespace="evil", hosts=[host], exportTo=["."])
            key, name = await routed(world)
            assert world.meshes.leads(key) == name
            await ended(world)

        meshed(story)

    def test_rules_are_woven_into_so_many_and_no_more(self):
        every = [
            VirtualService(
                metadata=WrittenMeta(name=f"w{number:03}", namespace="shop", creation_timestamp=f"{number:04}"),
                spec={"hosts": [f"{number}.example.org"], "http": [WEB]},
            )
            for number in reversed(range(MAX_VIRTUAL_SERVICES + 1))
        ]
        found = find_relevant(every, Baseline(kind="Deployment", namespace="shop", name="web"), ["web"])
        assert [each.metadata.name for each in found.found] == [
            f"w{number:03}" for number in range(MAX_VIRTUAL_SERVICES)
        ]
        assert found.remarks[0].startswith("1 route of the baseline is above the limit")


class TestPreviews:
    def test_endpoint_reveals_nothing_of_another_namespace(self):
        """Names and ports of Services are visible only to users with rights there."""

        async def story(world: World) -> None:
            world.namespace("bank")
            world.forks.baseline("vault", "bank")
            targets = {"there": "http://vault.bank.svc:80", "none": "http://nothing.bank.svc:80"}
            world.sandbox(wish(forks=[fork()], defaultRouteGroup=previewed(**targets)))
            await world.until(lambda: ready(world) or "preview" in message(world), "a word", 120)
            await world.rest(60)
            assert "there is no Service" not in message(world)
            said = message(world)
            assert said.replace("there", "none").count("none") == 2, said
            await ended(world)

        play_previews(story, edge=EDGE)


class TestGateways:
    @pytest.mark.slow
    def test_each_fork_has_so_many_routes_and_no_more(self):
        """A user may write thousands of routes to a baseline. Each sandbox would copy all of them."""

        async def story(world: World) -> None:
            await led(world)
            for number in range(MAX_ROUTES + 5):
                world.gateways.route(f"w{number:03}")
            await world.until(
                lambda: "6 routes of the baseline are above the limit" in message(world), "the status message", 300
            )
            await world.until(lambda: ready(world), "ready", 300)
            assert len(world.gateways.ours()) == MAX_ROUTES
            world.delete()
            await gone(world)

        play_routes(story)

    def test_each_fork_has_so_many_services_and_no_more(self):
        """One route may refer to hundreds of Services. The oldest are followed, and the remark on the others is short."""

        async def story(world: World) -> None:
            await led(world)
            names = [f"s{number:03}" for number in range(MAX_SERVICES + 4)]
            spec = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}
            for name in names:
                world.ask("POST", "/api/v1/namespaces/shop/services", {"metadata": {"name": name}, "spec": spec})
            refs = [{"group": "", "kind": "Service", "name": name, "port": 80, "weight": 1} for name in names]
            world.gateways.route("many", backendRefs=refs)
            await world.until(
                lambda: "5 Services of the baseline are above the limit" in message(world), "the status message", 300
            )
            await world.until(lambda: ready(world), "ready", 300)
            # The fork's own Service is the copy of the baseline's first one.
            assert len(world.gateways.services()) == MAX_SERVICES - 1
            world.delete()
            await gone(world)

        play_routes(story)

    def test_only_three_of_thousands_of_foreign_routes_are_named(self):
        async def story(world: World) -> None:
            world.namespace("evil")
            ref = {"group": "", "kind": "Service", "name": "web", "namespace": "shop", "port": 80, "weight": 1}
            for number in range(300):
                body = {"metadata": {"name": f"{'x' * 200}-{number}"}, "spec": {"rules": [{"backendRefs": [ref]}]}}
                world.ask("POST", "/apis/gateway.networking.k8s.io/v1/namespaces/evil/httproutes", body)
            await led(world)
            await world.rest(60)
            assert len(message(world)) < 2000
            await ended(world)

        play_routes(story)
