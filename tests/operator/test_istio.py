"""With Istio, rules in VirtualServices lead calls with a key to the fork. The VirtualService may be a user's or ours."""

from __future__ import annotations

import pytest
from tests.operator.rig.fork_stories import ended
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, fork, forked, gone, message, ready, wish
from tests.operator.rig.world import World, live

from dayfly.execute.gateway.render import IGNORE_ANNOTATION
from dayfly.operator.cluster.route_kinds import Istio, RoutingSettings
from dayfly.operator.route_groups.extension import RouteGroupsExtension
from dayfly.spec.identity import routing_key

SHORT = Scene(RETRY, RETRY_UNITS, forked)
WEB = {"route": [{"destination": {"host": "web"}}]}
API = {"match": [{"uri": {"prefix": "/api"}}], "route": [{"destination": {"host": "api"}}]}


def play(story, *, operators: int = 1, installed: bool = True, istio: Istio = Istio.AUTO) -> World:
    """Run a story with operators, a baseline, and Istio."""

    def born() -> World:
        world = SHORT.world()
        world.groups = RouteGroupsExtension
        world.routing = RoutingSettings(istio=istio)
        return world

    async def begin(world: World) -> None:
        world.forks.baseline()
        if installed:
            world.meshes.install()
        world.start(operators)
        await story(world)

    return live(born, begin)


async def routed(world: World, name: str = "box") -> tuple[str, str]:
    """Create a sandbox and wait until it is ready; return its key and the name of its fork."""
    before = {each["metadata"]["name"] for each in world.forks.all()}
    uid = world.sandbox(wish(forks=[fork()]), **({} if name == "box" else {"name": name}))
    await world.until(lambda: ready(world, **({} if name == "box" else {"name": name})), "ready", 300)
    [own] = {each["metadata"]["name"] for each in world.forks.all()} - before
    return routing_key(uid), own


def since_when(world: World) -> str:
    """Return when the Ready condition last changed."""
    return str(world.status()["conditions"][0]["lastTransitionTime"])


class TestOfOurs:
    """Without a VirtualService of a user, all forks of a Service share one that we create."""

    def test_ready_means_that_calls_with_the_key_reach_the_fork(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            assert world.meshes.leads(key) == name
            assert world.meshes.leads() == world.meshes.leads("nobodys") == "web"
            assert message(world) == "All desired workloads are available."
            world.delete()
            await world.until(lambda: not world.meshes.ours(), "its rules to go")
            left = world.cluster.time()
            await world.until(lambda: world.forks.all()[0]["metadata"].get("deletionTimestamp"), "the fork to go")
            assert 10 <= world.cluster.time() - left < 12
            assert world.meshes.leads(key) == "web"
            await gone(world)

        play(story)

    def test_route_is_not_ready_before_proxies_could_receive_it(self):
        async def story(world: World) -> None:
            world.meshes.latency = 4.9
            key = routing_key(world.sandbox(wish(forks=[fork()])))
            await world.until(world.meshes.ours, "its rules", 60)
            assert not ready(world)
            await world.until(lambda: ready(world), "ready", 60)
            assert world.meshes.leads(key).startswith("f-")
            await ended(world)

        play(story)

    def test_sandboxes_share_it_and_it_goes_with_the_last(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            second, other = await routed(world, "other")
            assert len(world.meshes.all()) == 1
            assert (world.meshes.leads(key), world.meshes.leads(second)) == (name, other)
            world.delete()
            await world.until(lambda: len(world.forks.all()) == 1, "the first to go", 120)
            assert world.meshes.leads(second) == other
            assert world.meshes.leads(key) == "web"
            world.delete("other")
            await gone(world)
            assert world.meshes.all() == []

        play(story)

    def test_idle_route_stays_ready_while_others_come_and_go(self):
        """The time of the last write does not apply to rules that a fork has had for long."""

        async def story(world: World) -> None:
            # A sandbox without resources rests, and its memory of routes is dropped.
            key = routing_key(world.sandbox({"forks": [fork(env=[{"name": "MODE", "value": "forked"}])]}))
            await world.until(lambda: ready(world), "ready", 60)
            name = world.forks.all()[0]["metadata"]["name"]
            await world.rest(60)
            since = since_when(world)
            await routed(world, "other")
            world.delete("other")
            await world.until(lambda: len(world.forks.all()) == 1, "the other to go", 120)
            await world.rest(60)
            assert ready(world)
            assert since_when(world) == since
            assert world.meshes.leads(key) == name
            await ended(world)

        play(story)

    def test_own_virtual_service_yields_to_a_foreign_one(self):
        """If a host has two, Istio uses the older one: ours would replace a user's."""

        async def story(world: World) -> None:
            key, name = await routed(world)
            world.meshes.write("web", API, WEB)
            await world.until(lambda: len(world.meshes.all()) == 1, "ours to go", 30)
            await world.until(lambda: ready(world) and world.meshes.leads(key) == name, "the fork", 30)
            assert world.meshes.leads() == "web"
            world.meshes.delete("web")
            await world.until(lambda: len(world.meshes.ours()) == 2, "one of ours again", 30)
            await world.until(lambda: ready(world) and world.meshes.leads(key) == name, "the fork", 30)
            await ended(world)

        play(story)

    def test_two_operators_make_one(self):
        async def story(world: World) -> None:
            await routed(world)
            await routed(world, "other")
            assert len(world.meshes.all()) == 1
            world.delete("other")
            await ended(world)

        play(story, operators=2)


class TestOfSomebody:
    """Our rules are added to a user's VirtualService, and nothing else in it is changed."""

    def test_rules_of_the_user_stay_as_they_are(self):
        async def story(world: World) -> None:
            world.meshes.write("web", API, WEB)
            key, name = await routed(world)
            assert world.meshes.leads(key) == name
            [first, ours, last] = world.meshes.rules("web")
            assert (first, last) == (API, WEB)
            assert ours["route"][0]["destination"]["host"] == name
            [seen] = world.meshes.all()
            assert "ownerReferences" not in seen["metadata"]
            assert not seen["metadata"].get("labels")
            world.delete()
            await gone(world)
            assert world.meshes.rules("web") == [API, WEB]

        play(story)

    def test_ours_follow_its_rules_and_are_put_back(self):
        async def story(world: World) -> None:
            world.meshes.write("web", WEB)
            key, name = await routed(world)
            world.meshes.change("web", {"spec": {"http": [API, WEB]}})  # like kubectl apply
            await world.until(lambda: len(world.meshes.rules("web")) == 3, "it to be put back", 30)
            await world.until(lambda: ready(world) and world.meshes.leads(key) == name, "the fork", 30)
            spoilt = [API, {**world.meshes.rules("web")[1], "route": API["route"]}, WEB]
            world.meshes.change("web", {"spec": {"http": spoilt}})
            await world.until(lambda: world.meshes.rules("web")[1]["route"] != API["route"], "the restored state", 30)
            await world.rest(60)
            before = len(world.writes)
            await world.rest(3600)
            assert len(world.writes) == before
            await ended(world)

        play(story)

    def test_rules_go_with_their_virtual_service(self):
        async def story(world: World) -> None:
            world.meshes.write("web", WEB)
            await routed(world)
            world.meshes.delete("web")
            world.delete()
            await gone(world)

        play(story)

    @pytest.mark.parametrize(
        ("name", "namespace", "spec", "word"),
        [
            ("all", "other", {"hosts": ["*"]}, "VirtualService other/all does not lead to it and decides"),
            (
                "web",
                "shop",
                {"hosts": ["web"], "ignored": True},
                "shop/web is left alone because of its annotation and",
            ),
            (
                "web",
                "shop",
                {"hosts": ["web"], "http": [API]},
                "VirtualService shop/web does not lead to it and decides",
            ),
        ],
    )
    def test_impossible_rules_are_reported_and_nothing_is_changed(self, name, namespace, spec, word):
        async def story(world: World) -> None:
            spec_ = dict(spec)
            rules = spec_.pop("http", [WEB])
            ignored = spec_.pop("ignored", False)
            if namespace != "shop":
                world.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            world.meshes.write(name, *rules, namespace=namespace, **spec_)
            if ignored:
                world.meshes.change("web", {"metadata": {"annotations": {IGNORE_ANNOTATION: "ignore"}}})
            await routed(world)
            assert word in message(world)
            assert "decides where calls to Service shop/web go" in message(world)
            assert world.meshes.ours() == []
            [seen] = world.meshes.all()
            assert seen["spec"]["http"] == rules
            await ended(world)

        play(story)

    def test_missing_right_is_reported(self):
        async def story(world: World) -> None:
            world.meshes.write("web", WEB)
            world.cluster.denied.add(("patch", "virtualservices.networking.istio.io"))
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "can bind the ClusterRole dayfly-forks" in message(world), "the lack", 60)
            world.cluster.denied.clear()
            await world.until(lambda: ready(world), "ready", 120)
            await ended(world)

        play(story)

    def test_rules_that_would_lose_their_key_are_not_written(self):
        """Without their key, they would receive all calls."""

        async def story(world: World) -> None:
            def pruned(operation, kind, old, new):
                if kind.plural == "virtualservices" and new is not None:
                    for rule in new["spec"]["http"]:
                        for match in rule.get("match", ()):
                            match.pop("headers", None)
                    return new
                return None

            world.meshes.write("web", WEB)
            world.cluster.admission.append(pruned)
            world.sandbox(wish(forks=[fork()]))
            await world.until(
                lambda: "would store VirtualService shop/web without" in message(world), "the refusal", 60
            )
            assert world.meshes.rules("web") == [WEB]
            world.cluster.admission.remove(pruned)
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)

    def test_rules_of_a_run_that_is_gone_are_swept(self):
        async def story(world: World) -> None:
            world.meshes.write("web", WEB)
            await routed(world)
            rules = world.meshes.rules("web")
            await ended(world)
            world.meshes.change("web", {"spec": {"http": rules}})
            await world.until(lambda: world.meshes.rules("web") == [WEB], "it to be swept", 120)

        play(story)


class TestWhen:
    def test_gateway_api_takes_precedence_over_istio(self):
        async def story(world: World) -> None:
            world.gateways.install()
            await routed(world)
            assert world.meshes.all() == []
            assert "only if the operator has the option --istio always" in message(world)
            await ended(world)

        play(story)

    def test_always_means_both(self):
        async def story(world: World) -> None:
            world.gateways.install()
            world.gateways.route()
            key, name = await routed(world)
            assert world.gateways.leads(key) == world.meshes.leads(key) == name
            await ended(world)

        play(story, istio=Istio.ALWAYS)

    def test_never_means_that_nothing_is_routed(self):
        async def story(world: World) -> None:
            await routed(world)
            assert world.meshes.all() == []
            assert "its routing key (neither the Gateway API nor Istio" in message(world)
            await ended(world)

        play(story, istio=Istio.NEVER)

    def test_istio_installed_later_is_used(self):
        async def story(world: World) -> None:
            key, name = await routed(world)
            world.meshes.install()
            await world.until(lambda: world.meshes.leads(key) == name, "the rules", 120)
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story, installed=False)

    @pytest.mark.parametrize("told", [True, False])
    def test_restarted_operator_trusts_recorded_write_times(self, told):
        """The API server reports the time of the write. Otherwise the settle time starts again."""

        async def story(world: World) -> None:
            await routed(world)
            [written] = world.meshes.all()
            stamp = written["metadata"]["creationTimestamp"]
            fields = [{"manager": "dayfly", "operation": "Update", "time": stamp, "fieldsType": "FieldsV1"}]
            world.meshes.change(written["metadata"]["name"], {"metadata": {"managedFields": fields if told else []}})
            await world.rest(60)
            before = since_when(world)
            for process in world.processes:
                await process.end()
            world.processes.clear()
            world.start(1)
            await world.rest(30)
            assert ready(world)
            assert (since_when(world) == before) is told
            await ended(world)

        play(story)


def test_altered_rules_are_reported_to_block_the_end():
    """A webhook alters VirtualServices, so the operator cannot remove its rules. That is not a bug of the operator."""

    def alters(operation, kind, _old, new):
        if operation == "UPDATE" and kind.plural == "virtualservices":
            return new | {"spec": new["spec"] | {"http": [*new["spec"]["http"], {"name": "injected"}]}}
        return None

    async def story(world: World) -> None:
        world.meshes.write("web", API, WEB)
        key, name = await routed(world)
        world.cluster.admission.append(alters)
        world.delete()
        await world.until(lambda: "would store VirtualService shop/web" in message(world), "the report", 120)
        assert "a bug" not in message(world)
        assert world.forks.all(), "requests are still routed to it"
        assert world.meshes.leads(key) == name
        world.cluster.admission.remove(alters)
        await gone(world)

    play(story)
