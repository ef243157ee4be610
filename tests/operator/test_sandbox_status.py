"""Output for users: Resources with their outputs, Events on changes only, metrics, logs."""

from __future__ import annotations

import base64
import json
import logging
import re
import time

import pytest
from tests.kube.fake import Call, Refusal
from tests.operator.rig.scenes import CHAIN, at_work, gone, ready, wish
from tests.operator.rig.world import World

from dayfly.operator.monitoring.json_log import JsonLines
from dayfly.operator.outputs.resource_secrets import REFUSED_CACHE_MS


def failed(world: World) -> bool:
    return world.status().get("reason") == "ResourceFailed"


NOT_GRANTED = (
    'secrets "x" is forbidden: User "dayfly" cannot create resource "secrets" in API group "" in the namespace "shop"'
)


class TestResources:
    def test_resource_says_how_it_stands_and_binds_its_outputs(self):
        """There is one object for each resource; when it is ready, a Secret in the sandbox's namespace has its outputs."""

        async def story(world: World) -> None:
            uid = world.sandbox(wish())
            await world.until(lambda: world.resource().get("status"), "a resource")
            assert world.resource()["status"]["phase"] == "Creating"
            await world.until(lambda: ready(world), "ready")  # and so is the status of the sandbox
            found = world.resource()
            assert found["spec"]["sandbox"] == {"namespace": "shop", "name": "box", "uid": uid}
            assert found["spec"]["plugin"] == "pg"
            status = found["status"]
            assert (status["phase"], status["ready"], status["progress"]) == ("Ready", True, "2/2")
            [secret] = [s for s in world.cluster.objects("secrets") if s["metadata"]["namespace"] == "shop"]
            assert status["binding"] == {"name": secret["metadata"]["name"]}
            data = {key: base64.b64decode(value) for key, value in secret["data"].items()}
            assert data == {"make.url": b"db://1", "seed.user": b"ann\xff"}
            world.delete()
            await gone(world)

        at_work(story)

    def test_failed_step_is_its_resources_reason(self):
        async def story(world: World) -> None:
            world.kubelet.scripts["db/seed"].fails = 1
            world.sandbox(wish())
            await world.until(lambda: world.resource().get("status", {}).get("phase") == "Failed", "the failure")
            assert world.resource()["status"]["reason"] == "ExitCode"
            assert "exit code 1" in world.resource()["status"]["message"]
            world.delete()
            await gone(world)

        at_work(story)

    def test_forbidden_binding_leaves_the_resource_ready(self):
        """If the operator may not write Secrets, the resource is ready nevertheless, without a binding."""

        async def story(world: World) -> None:
            def forbid(operation, kind, old, new):
                if kind.plural == "secrets" and new and new["metadata"]["namespace"] == "shop":
                    raise Refusal(403, "secrets is forbidden")
                return

            world.cluster.admission.append(forbid)
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            await world.rest(5)
            assert world.resource()["status"]["phase"] == "Ready"
            assert not world.resource()["status"].get("binding")
            world.delete()
            await gone(world)

        at_work(story)

    def test_a_refusal_of_one_secret_says_nothing_of_the_namespace(self):
        """A quota or a webhook refuses one Secret; the next sandbox is not affected."""

        async def story(world: World) -> None:
            def deny(operation, kind, old, new):
                if kind.plural == "secrets" and new and new["metadata"]["namespace"] == "shop" and "box-" in str(new):
                    raise Refusal(403, 'admission webhook "x" denied the request: Secrets of boxes cannot be here')

            world.cluster.admission.append(deny)
            world.sandbox(wish())
            await world.until(lambda: world.status().get("ready"), "the first is ready")
            world.sandbox(wish(), "second")
            await world.until(lambda: world.status("second").get("ready"), "the second is ready")
            await world.rest(1)
            found = [
                s["metadata"]["name"] for s in world.cluster.objects("secrets") if s["metadata"]["namespace"] == "shop"
            ]
            assert len(found) == 1, "the second one's, at once"

        at_work(story)

    def test_refusing_namespace_is_retried_only_after_a_while(self):
        """Only one of many sandboxes in a namespace tries; the others find a later grant."""

        async def story(world: World) -> None:
            granted = False

            def forbid(operation, kind, old, new):
                if kind.plural == "secrets" and new and new["metadata"]["namespace"] == "shop" and not granted:
                    raise Refusal(403, NOT_GRANTED)

            def asked() -> int:
                return world.writes.count("POST /api/v1/namespaces/shop/secrets")

            async def one_more(name: str) -> None:
                world.sandbox(wish(), name)
                await world.until(lambda: world.status(name).get("ready"), f"{name} is ready")

            world.cluster.admission.append(forbid)
            await one_more("box")
            world.sandbox(wish(), "second")
            await one_more("third")
            assert asked() == 1
            granted = True
            await world.rest(REFUSED_CACHE_MS / 1000)
            await one_more("fourth")
            assert asked() == 2
            assert [s["metadata"]["namespace"] for s in world.cluster.objects("secrets")].count("shop") == 1

        at_work(story)


class TestRestart:
    """The next operator finds the written statuses, and processes new objects first."""

    @staticmethod
    async def replace(world: World) -> None:
        [process] = world.processes
        await process.end()
        world.processes.clear()
        world.start()

    @pytest.mark.parametrize("stands", [ready, failed], ids=["ready", "failed"])
    def test_the_same_is_not_said_again(self, stands):
        """Neither status nor Event is written again; the condition keeps its transition time."""

        async def story(world: World) -> None:
            if stands is failed:
                world.kubelet.scripts["db/seed"].fails = 1
            world.sandbox(wish())
            await world.until(lambda: stands(world), "it is said")
            await world.rest(600)
            said = world.status(), world.resource()["status"], world.events()
            await self.replace(world)
            began = len(world.writes)
            await world.rest(600)
            assert [each for each in world.writes[began:] if "/status" in each and "plugins" not in each] == []
            assert (world.status(), world.resource()["status"], world.events()) == said
            world.delete()
            await gone(world)

        at_work(story)

    def test_change_during_a_restart_is_reported(self):
        async def story(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            [process] = world.processes
            await process.end()
            world.processes.clear()
            world.delete()
            world.kubelet.scripts["db/drop"].runs = 100
            await world.rest(60)
            assert ready(world)
            world.start()
            await world.until(lambda: world.status()["phase"] == "Deleting", "the deletion is reported", 30)
            await world.until(lambda: world.events()[-1] == ("Normal", "Deleting"), "and its Event", 30)
            await gone(world)

        at_work(story)

    @pytest.mark.slow
    @pytest.mark.long_story
    def test_new_sandbox_does_not_wait_for_resting_ones(self):
        """A hundred ready sandboxes delay nothing: each one is checked once, in the background."""

        async def story(world: World) -> None:
            for number in range(100):
                world.sandbox(wish(), f"old-{number}")
            await world.until(lambda: all(ready(world, f"old-{n}") for n in range(100)), "all are ready", 300)
            await world.rest(60)
            [process] = world.processes
            await process.end()
            world.processes.clear()
            world.sandbox(wish(), "new")
            began = len(world.cluster.calls)
            world.start()
            await world.until(lambda: world.pods("db/make"), "the new one's pod")
            looked = {
                each.request.path for each in world.cluster.calls[began:] if "/resources/old-" in each.request.path
            }
            assert len({path.removesuffix("/status") for path in looked}) < 60
            await world.until(lambda: ready(world, "new"), "ready")

        at_work(story)


class TestEvents:
    def test_events_only_when_the_reason_changes(self):
        """There is not one for each turn."""

        async def story(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            await world.rest(3600)
            assert world.events() == [("Normal", "ResourcesPending"), ("Normal", "AllDesiredWorkloadsReady")]
            world.delete()
            await gone(world)
            assert world.events()[2:] == [("Normal", "Deleting")]

        at_work(story)

    def test_trouble_is_a_warning(self):
        async def story(world: World) -> None:
            world.kubelet.scripts["db/make"].fails = 1
            world.sandbox(wish())
            await world.until(lambda: ("Warning", "ResourceFailed") in world.events(), "the warning", 60)
            world.delete()
            await gone(world)

        at_work(story)


def labelled(world: World) -> set[str]:
    """Return the names of namespaces and plugins in use."""
    every = [*world.cluster.objects("namespaces"), *world.cluster.objects("resourceplugins")]
    return {item["metadata"]["name"] for item in every if "dayfly.dev/in-use" in item["metadata"].get("labels", {})}


def test_used_namespace_and_plugin_are_labelled_until_the_end():
    """The namespace and the plugin of a live sandbox cannot be deleted by mistake; afterwards they can."""

    async def story(world: World) -> None:
        world.plugin("idle", CHAIN)
        world.sandbox(wish())
        await world.until(lambda: world.cluster.objects("runs"), "a run")
        assert labelled(world) == {"shop", "pg"}
        await world.until(lambda: ready(world), "ready")
        await world.rest(600)
        assert labelled(world) == {"shop", "pg"}
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "the end of the sandbox")
        await world.until(lambda: not labelled(world), "the labels to go", 10)
        await gone(world)

    at_work(story)


def test_labels_of_a_sandbox_without_a_run_are_removed_soon():
    """No run ends. A sweep each minute would remove the labels after one to two minutes."""
    deleted: list[int] = []

    def delete(number: int, call: Call) -> None:
        if call.write is not None and "resourceplugins/" in call.request.path and not deleted:
            deleted.append(number)
            world_of[0].delete()

    world_of: list[World] = []

    async def story(world: World) -> None:
        world_of.append(world)
        # The sweeps after the start must not remove the labels.
        await world.rest(30)
        world.hook = delete
        world.sandbox(wish())
        await world.until(lambda: labelled(world), "the labels")
        assert world.box() is None
        await world.until(lambda: not labelled(world), "the labels to go", 20)
        assert (world.cluster.objects("runs"), len(deleted)) == ([], 1)
        await gone(world)

    at_work(story)


class TestFigures:
    def test_figures_tell_of_runs_turns_and_watches(self):
        began = time.perf_counter()

        async def story(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            text = world.processes[0].operator.metrics.render().decode()
            assert 'dayfly_runs{phase="open"} 1.0' in text
            assert "dayfly_units_unknown 0.0" in text
            [turns] = re.findall(r'dayfly_turns_total\{result="done"\} (\S+)', text)
            assert f"dayfly_turn_seconds_count {turns}" in text
            [seconds] = re.findall(r"dayfly_turn_seconds_sum (\S+)", text)
            assert 0 < float(seconds) <= time.perf_counter() - began, "they are taken one after the other"
            assert "dayfly_watch_age_seconds" in text
            assert "db://1" not in text
            world.delete()
            await gone(world)

        at_work(story)

    @pytest.mark.parametrize("plain", [True, False])
    def test_log_lines_are_json(self, plain):
        record = logging.LogRecord("dayfly.x", logging.WARNING, "", 0, 'run %s: "quoted"\n', ("a",), None)
        if not plain:
            record.exc_info = (ValueError, ValueError("defect"), None)
        [line] = JsonLines().format(record).splitlines()
        said = json.loads(line)
        assert (said["level"], said["logger"], said["message"]) == ("warning", "dayfly.x", 'run a: "quoted"\n')
        assert ("exception" in said) is not plain


class TestLog:
    def test_a_life_is_one_line_for_each_move_of_its_ledger(self, caplog):
        """The line of a failed step has the message of its status and fields for searches."""

        async def story(world: World) -> None:
            world.kubelet.scripts["db/seed"].fails = 1
            world.sandbox(wish())
            await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
            world.delete()
            await gone(world)

        lines = self.lines(caplog, logging.INFO, story)
        [run] = {line["run"] for line in lines}
        assert run.startswith("box-")
        assert {line["sandbox"] for line in lines} == {"shop/box"}
        told = [(line["event"], line.get("unit"), line.get("outcome"), line.get("reason")) for line in lines]
        assert told == [
            ("claimed", "db/make", None, None),
            ("recorded", "db/make", "succeeded", None),
            ("claimed", "db/seed", None, None),
            ("recorded", "db/seed", "failed", "ExitCode"),
            ("closed", None, None, "Deleted"),
            ("claimed", "db/drop", None, None),
            ("recorded", "db/drop", "succeeded", None),
            ("ended", None, "cleaned", None),
        ]
        assert {line["attempt"] for line in lines if "unit" in line} == {1}
        assert lines[3]["message"] == "db/seed: attempt 1 failed: exit code 1"

    def test_doubt_void_and_abandon_are_logged(self, caplog):
        async def story(world: World) -> None:
            world.cloud.lossy = world.cloud.forgiven = True
            world.kubelet.scripts["db/make"].unschedulable = "0/3 nodes are available"
            world.kubelet.scripts["db/make"].runs = 3000
            world.sandbox(wish())
            await world.until(lambda: "0/3 nodes" in world.status().get("message", ""), "the pod's trouble")
            [pod] = world.pods("db/make")
            path = f"/api/v1/namespaces/dayfly-runners/pods/{pod['metadata']['name']}"
            world.ask("DELETE", path)
            world.kubelet.scripts["db/make"].unschedulable = ""
            await world.until(lambda: world.cloud.starts("db/make"), "another attempt")
            [pod] = [pod for pod in world.pods("db/make") if not pod["metadata"].get("deletionTimestamp")]
            path = f"/api/v1/namespaces/dayfly-runners/pods/{pod['metadata']['name']}"
            world.take_away(path, gracePeriodSeconds=0)
            await world.until(lambda: world.status().get("reason") == "OutcomeUnknown", "the doubt", 60)
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "it was removed by hand"}}})
            world.delete()
            await gone(world)

        lines = self.lines(caplog, logging.INFO, story)
        told = [(line["event"], line.get("attempt"), line.get("outcome")) for line in lines]
        assert told == [
            *(("claimed", 1, None), ("voided", 1, None), ("claimed", 2, None), ("doubted", 2, None)),
            *(("closed", None, None), ("given-up", None, None), ("ended", None, "abandoned")),
        ]

    def test_above_its_level_nothing_is_said_of_a_normal_life(self, caplog):
        async def story(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await gone(world)

        assert not self.lines(caplog, logging.WARNING, story)

    def lines(self, caplog, level, story) -> list[dict]:
        """Return an operator's log lines about runs during a story at this level."""
        with caplog.at_level(level, "dayfly.operator.monitoring.json_log"):
            at_work(story)
        return [json.loads(JsonLines().format(record)) for record in caplog.records if record.name.endswith("json_log")]
