"""Objects that cannot be created are not claimed. Objects that cannot be seen are not gone without proof."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.kube.fake import Call, Fault, Harm
from tests.kube.fake.refusals import Refusal
from tests.operator.rig.scenes import plugin, ready, wish
from tests.operator.rig.world import World
from tests.operator.test_objects import alone, ended, play, said, unit

from dayfly.kube.objects import Key

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "claims.db.example.org"
NOTHING: dict[str, Any] = {"apiVersion": "no.example.org/v1", "kind": "Nothing"}


def making(manifest: dict[str, Any], **object_: Any) -> dict[str, Any]:
    return plugin([{"name": "claim", "object": {"manifest": manifest, **object_}}], [])


async def restart(world: World) -> None:
    [process] = world.processes
    world.processes.clear()
    await process.end()
    world.start()


async def ticking(world: World) -> None:
    """Let a millisecond pass whenever an operator reads its clock, as on a busy machine."""
    looks, machine = itertools.count(), world.now
    world.dated = False
    world.now = lambda: machine() + next(looks)
    await restart(world)


def define(world: World) -> None:
    world.ask("POST", DEFINITIONS, {"metadata": {"name": NAME}, "spec": {}})


def undefine(world: World) -> None:
    """Delete the CRD, and with it all its objects."""
    kind = world.cluster.kind("claims")
    for item in world.cluster.objects("claims"):
        world.cluster.store.put(kind, Key("shop", item["metadata"]["name"]), None, world.cluster.time())
    world.cluster.forget("claims")
    world.ask("DELETE", f"{DEFINITIONS}/{NAME}")


async def is_never_claimed(world: World, words: str) -> None:
    world.sandbox(wish())
    await world.until(lambda: said(world, "db/claim", words), "what it lacks", 60)
    await world.rest(300)
    assert said(world, "db/claim", words)
    assert "units" not in world.ledger()
    world.delete()
    await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 5)
    await ended(world)


class TestClaims:
    def test_unsupported_kind_is_never_claimed_as_time_passes(self):
        async def story(world: World) -> None:
            await ticking(world)
            await is_never_claimed(world, "serves no Nothing of no.example.org/v1")

        play(story, making(NOTHING), {})

    @pytest.mark.parametrize("verb", ["get", "create", "patch", "delete"])
    def test_missing_right_is_never_claimed_as_time_passes(self, verb):
        async def story(world: World) -> None:
            await ticking(world)
            world.cluster.rights = {right for right in world.cluster.rights if right[1] != verb}
            await is_never_claimed(world, f"may not {verb} claims.db.example.org; its administrator can run: ")

        play(story, alone(), {})

    def test_missing_right_is_never_claimed_after_an_outage(self):
        """The API server is unreachable for a minute from the first read of the object."""
        until = None

        async def story(world: World) -> None:
            await ticking(world)
            world.cluster.rights.clear()

            def cut(_number: int, call: Call) -> Fault | None:
                nonlocal until
                if until is None and "/claims" in call.request.path:
                    until = world.cluster.time() + 60
                cut_off = until is not None and world.cluster.time() < until
                return Fault(Harm.UNREACHABLE) if cut_off else None

            world.hook = cut
            world.sandbox(wish())
            await world.until(lambda: until is not None and world.cluster.time() > until, "the outage", 300)
            await world.until(lambda: said(world, "db/claim", "may not get claims"), "what it lacks", 120)
            await world.rest(60)
            assert "units" not in world.ledger()
            world.delete()
            await ended(world)

        play(story, alone(), {})

    def test_unfit_object_of_an_unserved_kind_fails_deletably(self):
        made = making(NOTHING | {"spec": {"size": 1}}, set={"/spec/size": {"input": "size", "as": "integer"}})
        made["create"][0]["inputs"] = [{"name": "size", "valueFromSandbox": True}]

        async def story(world: World) -> None:
            world.sandbox({"resources": [{"name": "db", "plugin": "pg", "params": {"size": "many"}}]})
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its failure", 60)
            assert unit(world, "db/claim")["reason"] == "InputInvalid"
            assert world.ledger()["units"]["db/claim"]["state"] == "void"
            world.delete()
            await ended(world)

        play(story, made, {})

    def test_definition_installed_later_is_recorded_and_used(self):
        async def story(world: World) -> None:
            kind = world.cluster.forget("claims")
            world.sandbox(wish())
            await world.until(lambda: said(world, "db/claim", "serves no Claim of db.example.org/v1"), "the lack", 60)
            define(world)
            world.cluster.serve(kind)
            await world.until(lambda: ready(world), "ready", 60)
            [definition] = world.cluster.objects("customresourcedefinitions")
            recorded = world.ledger()["units"]["db/claim"]["definition"]
            assert recorded == f"{NAME}/{definition['metadata']['uid']}"
            world.delete()
            await ended(world)

        play(story, alone(), {})


class TestRefusedFields:
    def test_service_with_external_ips_is_refused_unclaimed(self):
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"externalIPs": ["10.128.0.2"], "ports": [{"port": 1}]},
        }

        async def story(world: World) -> None:
            world.may("services")
            create = [{"name": "go", "object": {"manifest": service}}]
            world.sandbox({"resources": [{"name": "x", "spec": {"create": create}}]})
            await world.until(lambda: world.status().get("phase") == "Failed", "its refusal", 60)
            said = "spec.resources[0].spec.create[0].object.manifest.spec.externalIPs: no step may set it: it receives"
            assert world.status()["message"].startswith(said)
            assert not world.cluster.objects("runs")
            world.delete()
            await ended(world)
            assert not world.cluster.objects("services")

        play(story, alone(), {})


class TestProofs:
    @pytest.mark.parametrize("restarts", [False, True])
    def test_deleted_definition_proves_that_objects_are_gone(self, restarts):
        async def story(world: World) -> None:
            define(world)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)
            undefine(world)
            if restarts:
                await restart(world)
            world.delete()
            await ended(world)

        play(story, alone(), {})

    def test_recreated_definition_proves_that_objects_are_gone(self):
        async def story(world: World) -> None:
            define(world)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)
            undefine(world)
            define(world)
            world.delete()
            await ended(world)

        play(story, alone(), {})

    def test_definition_that_serves_no_version_proves_nothing(self):
        async def story(world: World) -> None:
            define(world)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)
            kind = world.cluster.forget("claims")
            world.delete()
            hold = f"have the definition {NAME} serve it again"
            await world.until(lambda: said(world, "db/remove-claim", hold), "its reason", 60)
            await world.rest(600)
            assert world.cluster.objects("sandboxes")
            world.cluster.serve(kind)
            await ended(world)

        play(story, alone(), {})

    def test_unsupported_kind_without_definition_proves_nothing(self):
        async def story(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)
            kind = world.cluster.forget("claims")
            world.delete()
            hold = "have the API db.example.org/v1 served again"
            await world.until(lambda: said(world, "db/remove-claim", hold), "its reason", 60)
            await world.rest(600)
            world.cluster.serve(kind)
            await ended(world)

        play(story, alone(), {})

    def test_object_is_removed_through_another_served_version(self):
        async def story(world: World) -> None:
            define(world)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)
            world.cluster.serve_also(world.cluster.kind("claims"), "v2")
            world.cluster.withdraw("claims", "v1")
            world.claims.version = "v2"
            world.delete()
            await ended(world)

        world = play(story, alone(), {})
        deleted = [call.request for call in world.cluster.calls if call.request.method == "DELETE"]
        assert any(call.path.startswith("/apis/db.example.org/v2/") for call in deleted)

    def test_api_that_does_not_answer_proves_nothing(self):
        async def story(world: World) -> None:
            define(world)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready", 60)

            def refuse(request) -> Refusal | None:
                return Refusal(503, "service unavailable") if request.path.startswith("/apis/db.example.org") else None

            world.cluster.refuses = refuse
            world.delete()
            await world.rest(1200)
            assert world.cluster.objects("sandboxes")
            assert world.status()["reason"] == "Blocked"
            world.cluster.refuses = lambda _request: None
            await ended(world)

        play(story, alone(), {})
