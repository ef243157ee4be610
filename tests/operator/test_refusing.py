"""Invalid plugins and sandboxes are refused at once with the place of the fault, so that no sandbox waits forever."""

from __future__ import annotations

import pytest
from tests.kube.fake import Call, Fault, Harm
from tests.operator.rig.scenes import CHAIN, CHAIN_LIFE, READY, gone, plugin, ready, step, wish
from tests.operator.rig.world import API, World, live

from dayfly.plan.reasons import Reason

CYCLE = plugin(
    [step("a", reads=("b.out",), outputs=("out",)), step("b", reads=("a.out",), outputs=("out",))], [step("drop")]
)
HOST = {**CHAIN, "runner": {"image": "busybox:1", "podTemplateOverlay": "spec:\n  hostPID: true\n"}}
TWICE = {**CHAIN, "create": [step("make"), step("make")]}
HOST_SAID = "the pod of step make is refused: spec.hostPID must be false"
CYCLE_SAID = "steps that wait for each other can never start: b.out -> a.out -> b.out"


def play(story) -> None:
    """Play a story with a running operator in an empty cluster."""

    async def begin(world: World) -> None:
        world.start()
        await story(world)

    live(CHAIN_LIFE.world, begin)


def published(world: World, name: str):
    """Return the status of a plugin; None if it has no status yet."""
    [found] = [each for each in world.cluster.objects("resourceplugins") if each["metadata"]["name"] == name]
    return found.get("status")


class TestPlugins:
    @pytest.mark.parametrize(
        ("spec", "accepted", "said"),
        [
            (CHAIN, True, "sandboxes can use it"),
            (CYCLE, False, f"spec.create[0].inputs[0].valueFromStep: {CYCLE_SAID}"),
            (HOST, False, f"{HOST_SAID}; change spec.runner.podTemplateOverlay"),
            (TWICE, False, "spec.create[1].name: the step name"),
        ],
        ids=["good", "cycle", "overlay", "twice"],
    )
    def test_published_plugin_says_whether_it_can_be_used(self, spec, accepted, said):
        """Faults that the API server's schema cannot check are in the status of the plugin before any sandbox names it."""

        async def story(world: World) -> None:
            world.plugin("new", spec)
            await world.until(lambda: published(world, "new"), "a word on it", 10)
            status = published(world, "new")
            assert (status["accepted"], status["message"].startswith(said)) == (accepted, True)
            assert status["reason"] == (Reason.ACCEPTED if accepted else Reason.REFUSED)
            found = {each["type"]: each["status"] for each in status["conditions"]}
            assert found == {
                "Accepted": str(accepted),
                "Ready": str(accepted),
                **({} if accepted else {"Stalled": "True"}),
            }
            [meta] = [each["metadata"] for each in world.cluster.objects("resourceplugins") if "new" in str(each)]
            assert status["observedGeneration"] == meta["generation"]
            for condition in status["conditions"]:
                assert condition["lastTransitionTime"] == meta["creationTimestamp"], "it holds from the first moment on"
                assert condition["observedGeneration"] == meta["generation"]
            await world.quiet()

        play(story)

    def test_said_once_for_each_published_plugin(self):
        """The status is also set for a plugin that is published under the name of an older one."""

        async def story(world: World) -> None:
            world.plugin("new", CYCLE)
            await world.until(lambda: published(world, "new"), "a word on it", 10)
            world.ask("DELETE", "/apis/dayfly.dev/v1alpha1/resourceplugins/new")
            world.plugin("new", CHAIN)
            await world.until(lambda: published(world, "new"), "a word on the other one", 10)
            assert published(world, "new")["accepted"]
            await world.rest(3600)
            said = [each for each in world.writes if "/resourceplugins/new/status" in each]
            assert len(said) == 2

        play(story)

    def test_conflicting_status_is_written_with_the_next_change(self):
        async def story(world: World) -> None:
            lost = []

            def conflict(_number: int, call: Call) -> Fault | None:
                if lost or not call.request.path.endswith("/resourceplugins/new/status"):
                    return None
                lost.append(call)
                return Fault(Harm.CONFLICT)

            world.hook = conflict
            world.plugin("new", CHAIN)
            await world.until(lambda: lost, "the conflict", 10)
            path = f"/apis/{API}/resourceplugins/new"
            world.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
            await world.until(lambda: published(world, "new"), "a word on it", 60)

        play(story)


class TestSandboxes:
    def test_missing_plugin_is_waited_for(self):
        async def story(world: World) -> None:
            world.sandbox({"resources": [{"name": "db", "plugin": "nosuch"}]})
            await world.until(lambda: world.status().get("reason") == "PluginMissing", "the refusal", 10)
            assert "nosuch" in world.status()["message"]
            world.plugin("nosuch", CHAIN)
            await world.until(lambda: ready(world), "ready", 60)
            world.delete()
            await gone(world)

        play(story)

    @pytest.mark.parametrize(("spec", "said"), [(CYCLE, CYCLE_SAID), (HOST, HOST_SAID)], ids=["cycle", "overlay"])
    @pytest.mark.parametrize("named", [True, False], ids=["named", "in place"])
    def test_resource_that_can_never_be_is_refused(self, spec, said, named):
        async def story(world: World) -> None:
            world.plugin("bad", spec)
            world.sandbox({"resources": [{"name": "db", "plugin": "bad"} if named else {"name": "db", "spec": spec}]})
            await world.until(lambda: world.status().get("reason") == "Refused", "the refusal", 10)
            assert world.status()["phase"] == "Failed"
            assert world.status()["message"].startswith("spec.resources[0]")
            assert said in world.status()["message"]
            assert not world.cluster.objects("runs")
            world.delete()
            await gone(world)

        play(story)

    def test_root_in_a_restricted_namespace_fails_and_can_be_deleted(self):
        """Some namespaces allow this overlay, so it is refused only when the pod is created."""
        overlay = "spec:\n  securityContext: {runAsUser: 0}\n"
        spec = {**CHAIN, "runner": {"image": "busybox:1", "podTemplateOverlay": overlay}}

        async def story(world: World) -> None:
            world.sandbox({"resources": [{"name": "db", "spec": spec}]})
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure", 30)
            assert world.status()["phase"] == "Failed"
            assert "securityContext.runAsUser must not be 0 (root)" in world.status()["message"]
            world.delete()
            await gone(world)

        play(story)

    def test_hook_that_never_runs_is_warned_about_once(self):
        """A preStop hook without forks is legal, and probably not meant."""

        async def story(world: World) -> None:
            hooks = {"preStop": [{"name": "late", "webhook": {"method": "POST", "url": "https://hooks.example.com/"}}]}
            world.sandbox({"resources": [{"name": "db", "plugin": "pg"}], "hooks": hooks})
            await world.until(lambda: ready(world), "ready")
            await world.rest(3600)
            doubts = [each for each in world.cluster.objects("events") if each["reason"] == "PartlyApplied"]
            [doubt] = doubts
            assert doubt["type"] == "Warning"
            assert doubt["note"].startswith("spec.hooks.preStop")
            world.delete()
            await gone(world)

        play(story)

    def test_unsupported_field_is_a_condition_and_in_the_message(self):
        def served(world: World) -> tuple[str, str, str]:
            ready_, found = world.status()["conditions"]
            assert ready_["type"] == "Ready"
            return found["type"], found["status"], found["message"]

        async def story(world: World) -> None:
            made = {"resources": [{"name": "db", "plugin": "pg"}]}
            world.sandbox({**made, "middleware": [{"name": "override", "match": []}]})
            await world.until(lambda: ready(world), "ready")
            said = "Not supported here: spec.middleware (requests are not intercepted)."
            assert world.status()["message"] == f"All desired workloads are available. {said}"
            assert served(world) == ("Supported", "False", said)
            born = world.status()["conditions"][1]["lastTransitionTime"]
            await world.rest(60)
            world.change({"spec": {"description": "x"}})
            await world.rest(60)
            assert world.status()["conditions"][1]["lastTransitionTime"] == born
            world.delete()
            await gone(world)

        play(story)

    @pytest.mark.parametrize("published", ["before", "after"])
    def test_unreadable_plugin_blocks_only_sandboxes_naming_it(self, published):
        """The API server's schema accepts the plugin, our parser does not. Only the sandboxes that name it fail."""

        async def story(world: World) -> None:
            if published == "before":
                world.plugin("bad", TWICE)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)
            if published == "after":
                world.plugin("bad", TWICE)
                world.sandbox(wish(), "second")
                await world.until(lambda: ready(world, "second"), "the second one to be ready", 60)
                world.delete("second")
            world.delete()
            await gone(world)

        play(story)

    @pytest.mark.parametrize(("reference", "said"), [("pg@2", "pg@2.0.0"), ("pg@latest", "pg@2.0.0"), ("pg@1", "")])
    def test_unreadable_version_is_refused_if_named(self, reference, said):
        """The latest is the highest that is published: an older one is not taken in its place without a word."""

        async def story(world: World) -> None:
            for version, spec in (("1", CHAIN), ("2", TWICE)):
                body = {"apiVersion": API, "kind": "ResourcePlugin", "metadata": {"name": f"pg.{version}"}}
                body["spec"] = {"name": f"pg@{version}.0.0", **spec}
                world.ask("POST", f"/apis/{API}/resourceplugins", body)
            first = [{"name": "other", "plugin": "pg@1"}] if said else []
            world.sandbox({"resources": [*first, {"name": "db", "plugin": reference}]})
            await world.until(lambda: world.status().get("reason") in ("Refused", READY), "a word on it", 60)
            told = f"spec.resources[1].plugin: the plugin {said} is wrong: spec.create[1].name: the step name"
            assert (world.status()["message"] if said else "").startswith(told if said else "")
            assert bool(said) != ready(world)
            world.delete()
            await gone(world)

        play(story)
