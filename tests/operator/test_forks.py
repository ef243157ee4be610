"""Forks and a resource in virtual time: golden storyboards of whole lives, and disturbances of forks.

`DAYFLY_GOLDEN=1` writes the storyboards again; read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kube.fake import Refusal
from tests.kube.fake.deployments import Rollout
from tests.operator.rig.fork_stories import LIFE, ended, made, play
from tests.operator.rig.scenes import fork, forked, gone, message, ready, revised, wish
from tests.operator.rig.storyboard import board
from tests.operator.rig.world import World

from dayfly.execute.fork.render import FORK_LABEL

GOLDEN = Path(__file__).parent / "stories"
MERGE = "application/merge-patch+json"


class TestStoryboards:
    @pytest.mark.parametrize("story", [forked, revised], ids=lambda story: story.__name__)
    def test_story_equals_its_golden_file(self, story):
        told = board(play(story, scene=LIFE))
        file = GOLDEN / f"{story.__name__}.golden"
        if os.environ.get("DAYFLY_GOLDEN"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(told)
        assert told == file.read_text()

    def test_every_golden_file_has_its_story(self):
        assert {file.name for file in GOLDEN.iterdir()} == {"forked.golden", "revised.golden"}


class TestBirth:
    def test_missing_baseline_is_said_and_waited_for(self):
        """The operator writes nothing while the baseline is missing, and creates the fork within seconds after it."""

        async def story(world: World) -> None:
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "Deployment shop/web, does not exist" in message(world), "the lack", 30)
            await world.rest(60)
            before = len(world.writes)
            await world.rest(3600)
            assert len(world.writes) == before
            came = world.cluster.time()
            world.forks.baseline()
            await world.until(lambda: ready(world), "ready", 60)
            assert world.cluster.time() - came < 10
            await ended(world)

        play(story, baseline=False)

    def test_quota_is_said_and_waited_for(self):
        """The message stays the same, however often it is retried."""

        async def story(world: World) -> None:
            full = True

            def quota(operation, kind, old, new):
                if full and kind.plural == "deployments" and operation == "CREATE":
                    raise Refusal(403, "exceeded quota: deployments, used: 9, limited: 9")

            def said() -> int:
                return sum(path.endswith("sandboxes/box/status") for path in world.writes)

            world.cluster.admission.append(quota)
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "exceeded quota: deployments" in message(world), "the objection", 30)
            await world.rest(10)
            before = said()
            await world.rest(600)
            assert said() == before
            full = False
            await world.until(lambda: ready(world), "ready", 30)
            await ended(world)

        play(story)

    @pytest.mark.parametrize("plural", ["deployments", "services"])
    def test_name_that_is_taken(self, plural):
        """An object of another owner with that name stays unchanged until its owner deletes it."""

        async def story(world: World) -> None:
            name = (await made(world))["metadata"]["name"]
            uid = world.box()["metadata"]["uid"]
            await ended(world)

            def same(operation, kind, old, new):
                """The name is derived from the sandbox's UID, so another user must have predicted it."""
                if operation == "CREATE" and kind.plural == "sandboxes":
                    return new | {"metadata": new["metadata"] | {"uid": uid}}
                return None

            world.cluster.admission.append(same)
            path = f"{'/apis/apps/v1' if plural == 'deployments' else '/api/v1'}/namespaces/shop/{plural}"
            template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": 0}
            if plural == "services":
                spec = {"selector": {"a": "b"}, "ports": [{"port": 1}]}
            world.ask("POST", path, {"metadata": {"name": name}, "spec": spec})
            world.sandbox(wish(forks=[fork()]))
            await world.until(
                lambda: "exists and does not belong to Dayfly; delete it" in message(world), "the objection", 60
            )
            world.ask("DELETE", f"{path}/{name}")
            await world.until(lambda: ready(world), "ready", 30)
            await ended(world)

        play(story)

    def test_patch_that_does_not_fit(self):
        async def story(world: World) -> None:
            bad = {"type": "json", "value": '[{"op": "remove", "path": "/spec/nothing"}]'}
            world.sandbox(wish(forks=[fork(patch=bad)]))
            await world.until(lambda: "patch: does not match the baseline" in message(world), "the objection", 30)
            assert (world.status()["phase"], world.status()["reason"]) == ("Failed", "ForkFailed")
            world.change({"spec": {"forks": [fork()]}})
            await world.until(lambda: ready(world), "ready", 30)
            await ended(world)

        play(story)

    def test_kind_that_is_not_forked(self):
        """The unsupported kind is reported, and another edit resolves it."""

        async def story(world: World) -> None:
            rollout = fork() | {"forkOf": {"kind": "Rollout", "namespace": "shop", "name": "web"}}
            world.sandbox(wish(forks=[rollout]))
            await world.until(lambda: "is a Rollout; in a cluster only a Deployment" in message(world), "it", 30)
            world.change({"spec": {"forks": [fork()]}})
            await world.until(lambda: ready(world), "ready", 30)
            await ended(world)

        play(story)


class TestLife:
    def test_fork_gets_outputs_and_addresses_of_other_forks(self):
        """Outputs by reference, constants, and the address of another fork with the first real port of its Service."""

        async def story(world: World) -> None:
            world.forks.baseline("api")
            of = {"kind": "Deployment", "namespace": "shop", "name": "api"}
            source = {"fork": {"forkOf": of, "expression": "{{ .Service.Host }}:{{ .Service.Port }}"}}
            other = fork("api", env=[{"name": "MODE", "value": "other"}])
            reader = fork(env=[*fork()["customizations"]["env"], {"name": "API", "valueFrom": source}])
            await made(world, reader, other)
            [env] = [env for unit, env in world.forks.environments if unit == "fork:shop/web"]
            [service] = [each for each in world.forks.all("services") if "-api-" in each["metadata"]["name"]]
            assert env["API"] == f"{service['metadata']['name']}.shop.svc:80"
            wanted = {"URL": "db://1", "MODE": "forked", "LEVEL": "info", "DAYFLY_SANDBOX_NAME": "box"}
            assert env.items() >= wanted.items()
            await ended(world)

        play(story)

    def test_why_it_does_not_start_is_said(self):
        async def story(world: World) -> None:
            world.forks.player.usual = Rollout(waits="ImagePullBackOff")
            world.sandbox(wish(forks=[fork()]))
            await world.until(lambda: "ImagePullBackOff, says the node" in message(world), "the reason", 30)
            await ended(world)

        play(story)

    def test_deleted_service_or_deployment_is_created_again(self):
        """The Service is deleted at once, the Deployment once its pods have ended."""

        async def story(world: World) -> None:
            found = await made(world)
            name = found["metadata"]["name"]
            world.ask("DELETE", f"/api/v1/namespaces/shop/services/{name}")
            await world.until(lambda: world.forks.all("services"), "the Service", 10)
            await world.rest(90)
            world.forks.delete(name)
            await world.until(lambda: not ready(world), "the reported loss", 10)
            await world.until(lambda: ready(world), "ready again", 30)
            [again] = world.forks.all()
            assert again["metadata"]["uid"] != found["metadata"]["uid"]
            await ended(world)

        play(story)

    def test_scaled_to_nothing_by_hand_it_is_scaled_again(self):
        async def story(world: World) -> None:
            found = await made(world)
            path = f"/apis/apps/v1/namespaces/shop/deployments/{found['metadata']['name']}"
            world.ask("PATCH", path, {"spec": {"replicas": 0}}, MERGE)
            await world.until(lambda: world.forks.all()[0]["spec"]["replicas"] == 1, "its replicas", 10)
            await world.until(lambda: ready(world), "ready", 30)
            await ended(world)

        play(story)

    def test_service_follows_the_service_of_its_baseline(self):
        """The Service may be created or changed later; the fork's own Service still leads only to the fork."""

        async def story(world: World) -> None:
            path = "/api/v1/namespaces/shop/services"
            world.ask("DELETE", f"{path}/web")
            await made(world)
            assert world.forks.all("services") == []
            spec = {"selector": {"app": "web"}, "ports": [{"port": 90, "targetPort": 90}]}
            world.ask("POST", path, {"metadata": {"name": "late"}, "spec": spec})

            def ports() -> list[int]:
                return [port["port"] for each in world.forks.all("services") for port in each["spec"]["ports"]]

            await world.until(lambda: ports() == [90], "the Service", 10)
            world.ask("PATCH", f"{path}/late", {"spec": {"ports": [{"port": 91, "targetPort": 91}]}}, MERGE)
            await world.until(lambda: ports() == [91], "its ports", 10)
            [own] = world.forks.all("services")
            assert own["spec"]["selector"] == {FORK_LABEL: own["metadata"]["name"]}
            await ended(world)

        play(story)

    def test_fork_stays_if_its_baseline_cannot_be_followed(self):
        """The fork runs on, its outdated form is reported, and it is updated once the baseline can be followed."""

        async def story(world: World) -> None:
            side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
            less = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
            world.forks.edit(side)
            found = await made(world, fork(images=[{"image": "side:2", "container": "side"}]))
            world.forks.edit(less)
            await world.until(lambda: "the baseline has no container side" in message(world), "the objection", 30)
            await world.rest(60)
            before = len(world.writes)
            await world.rest(3600)
            assert len(world.writes) == before
            [now] = world.forks.all()
            assert now["metadata"]["uid"] == found["metadata"]["uid"]
            assert now["spec"]["template"] == found["spec"]["template"]
            world.forks.edit(side)
            await world.until(lambda: ready(world), "ready", 60)
            await ended(world)

        play(story)

    def test_baseline_that_goes_leaves_its_fork(self):
        async def story(world: World) -> None:
            found = await made(world)
            world.forks.delete("web")
            await world.rest(600)
            assert ready(world)
            assert world.forks.all()[0]["metadata"]["uid"] == found["metadata"]["uid"]
            await ended(world)

        play(story)

    @pytest.mark.slow
    def test_nothing_is_written_while_nothing_happens(self):
        async def story(world: World) -> None:
            await made(world)
            await world.quiet(3 * 3600)
            await ended(world)

        play(story, operators=3)


class TestEnd:
    def test_pods_that_outlive_their_deployment_hold_up_the_cleanup(self):
        """A Deployment that is deleted without waiting goes before its pods: the delete step waits for them."""

        async def story(world: World) -> None:
            world.forks.player.usual = Rollout(ends=120)
            found = await made(world)
            world.forks.delete(found["metadata"]["name"])
            world.delete()
            await world.rest(100)
            assert world.forks.all() == []
            assert world.forks.all("pods")
            assert not world.cloud.starts("db/drop")
            await gone(world)
            assert world.cloud.starts("db/drop") == 1

        play(story, operators=2)

    def test_replica_set_without_pods_delays_the_cleanup(self):
        """A Deployment without pods may also be deleted before its ReplicaSet, which may not have created a pod yet."""

        async def story(world: World) -> None:
            name = (await made(world))["metadata"]["name"]
            path = "/apis/apps/v1/namespaces/shop/replicasets"
            world.ask("POST", path, {"metadata": {"name": "late", "labels": {FORK_LABEL: name}}, "spec": {}})
            world.forks.delete(name)
            world.delete()
            await world.rest(100)
            assert world.forks.all("pods") == []
            assert not world.cloud.starts("db/drop")
            world.ask("DELETE", f"{path}/late")
            await gone(world)
            assert world.cloud.starts("db/drop") == 1

        play(story, operators=2)

    @pytest.mark.slow
    @pytest.mark.parametrize("replicas", [0, 1])
    @pytest.mark.parametrize("wished", [True, False])
    def test_cleanup_runs_once_if_a_claimed_fork_is_replaced(self, wished, replicas):
        """A paused peer prepares a fork that has gone since, or a user without the admission policy replaces it by
        force.

        That Deployment is unclaimed, and its pods must not count as pods of the claimed one.
        """

        async def story(world: World) -> None:
            def is_there(uid: str) -> bool:
                return uid in {each["metadata"]["uid"] for each in world.forks.all()}

            found = await made(world)
            world.cloud.forgiven = replicas > 0  # the test starts pods of an unclaimed fork
            world.forks.player.usual = Rollout(ends=20)
            world.forks.delete(found["metadata"]["name"])
            if not wished:
                world.delete()
                await world.rest(1)
            same = {key: found["metadata"][key] for key in ("name", "labels", "annotations", "ownerReferences")}
            body = {"metadata": same, "spec": found["spec"] | {"replicas": replicas}}
            world.ask("POST", "/apis/apps/v1/namespaces/shop/deployments", body)
            other = world.forks.all()[0]["metadata"]["uid"]
            if wished:
                await world.until(lambda: ready(world) and not is_there(other), "one that is claimed", 60)
                world.delete()
            await gone(world)
            assert world.cloud.starts("db/drop") == 1

        play(story, operators=2)

    def test_forks_of_a_run_that_is_gone(self):
        """A paused peer has created them too late: the sweeper removes them, and leaves objects of other owners."""

        async def story(world: World) -> None:
            await made(world)
            found = {plural: world.forks.all(plural)[0] for plural in ("deployments", "services")}
            await ended(world)
            # The garbage collector would not remove them: their owner seems to exist.
            alive = world.cluster.objects("namespaces")[0]["metadata"]["uid"]
            for plural, item in found.items():
                owner = item["metadata"]["ownerReferences"][0] | {"uid": alive}
                path = f"{'/apis/apps/v1' if plural == 'deployments' else '/api/v1'}/namespaces/shop/{plural}"
                spec = {key: value for key, value in item["spec"].items() if key != "clusterIP"}
                for name, owners in (("f-late", [owner]), ("f-foreign", [])):
                    meta = {"name": name, "labels": item["metadata"]["labels"], "ownerReferences": owners}
                    world.ask(
                        "POST", path, {"metadata": meta, "spec": spec | ({"replicas": 0} if "replicas" in spec else {})}
                    )
            await world.rest(150)
            left = [item["metadata"]["name"] for plural in found for item in world.forks.all(plural)]
            assert left == ["f-foreign", "f-foreign"]

        play(story)

    def test_abandoned_with_a_fork(self):
        """Cleanup is abandoned. The fork is still removed, before its ledger."""

        async def story(world: World) -> None:
            world.kubelet.scripts["db/drop"].fails = 99
            await made(world)
            world.delete()
            await world.until(lambda: world.cloud.starts("db/drop") >= 1, "a try of the cleanup")
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "by hand"}}})
            await gone(world)

        play(story)
