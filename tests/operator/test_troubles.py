"""Deleted pods, ledgers and documents: reported truthfully, never run twice, and cleaned up in the end."""

from __future__ import annotations

import pytest
from tests.kube.fake import Fault, Harm, Refusal
from tests.operator.rig.cloud import Object
from tests.operator.rig.kubelet import Script
from tests.operator.rig.scenes import RETRY, RETRY_UNITS, Scene, chain, gone, message, play, ready, wish
from tests.operator.rig.world import World

from dayfly.operator.cluster.objects import parse_retries

RETRY_LIFE = Scene(RETRY, RETRY_UNITS, chain)


def reason(world: World) -> str:
    return world.status().get("reason", "")


def pod_path(pod: dict) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def running(world: World, unit: str):
    return lambda: world.cloud.starts(unit) > 0


def test_retry_annotation_ignores_invalid_attempts():
    said = "db/drop=4 nonsense =1 db/make= a=-1 b=1.5 c=x=2 far=999999999 never=1000000000"
    assert parse_retries(said) == {"db/drop": 4, "c=x": 2, "far": 999_999_999}


class TestPods:
    def test_lost_node_is_unknown_until_its_deadline_then_cleaned(self):
        """The step is disconnected: it is not failed, nothing is started, and cleanup waits for proof."""

        async def story(world: World) -> None:
            world.cloud.lossy = True
            await world.until(running(world, "db/make"), "the step")
            [pod] = world.pods("db/make")
            status = {"status": {"phase": "Failed", "reason": "NodeLost"}}
            world.ask("PATCH", f"{pod_path(pod)}/status", status, "application/merge-patch+json")
            await world.until(lambda: reason(world) == "OutcomeUnknown", "the doubt", 10)
            assert "its node node is lost" in message(world)
            assert "it ends at" in message(world)
            world.delete()
            await world.rest(1800)
            assert not world.cloud.starts("db/drop")
            await gone(world)

        world = play(story, make=Script(runs=3000, silent=True))
        world.check_cleaned(world.cloud.log[0].run)
        assert world.cloud.starts("db/make") == 1
        assert not world.cloud.starts("db/seed")

    @pytest.mark.slow
    @pytest.mark.parametrize("operators", [1, 2])
    def test_pod_forced_away_with_its_finalizer_is_unknown(self, operators):
        """The proof of the end is gone with the pod: cleanup follows after the step's deadline, never in parallel."""

        async def story(world: World) -> None:
            world.cloud.lossy = True
            await world.until(running(world, "db/make"), "the step")
            [pod] = world.pods("db/make")
            world.cloud.forgiven = True
            world.take_away(pod_path(pod), gracePeriodSeconds=0)
            await world.until(lambda: reason(world) == "OutcomeUnknown", "the doubt", 10)
            assert "its pod was deleted" in message(world)
            world.delete()
            await gone(world)

        world = play(story, operators=operators, make=Script(runs=3000, deaf=True))
        world.check_cleaned(world.cloud.log[0].run)

    def test_killed_for_memory_is_failed_and_cleaned_up(self):
        async def story(world: World) -> None:
            await world.until(lambda: reason(world) == "ResourceFailed", "the failure")
            assert "OOMKilled" in message(world)
            world.delete()
            await gone(world)

        world = play(story, make=Script(oom=True))
        world.check_cleaned(world.cloud.log[0].run)
        assert world.cloud.starts("db/make") == 1

    @pytest.mark.parametrize("act", ["delete", "evict"])
    def test_pod_taken_away_while_it_runs_is_failed(self, act):
        """The runner is stopped and reports that; a step that must not run twice is not retried."""

        async def story(world: World) -> None:
            await world.until(running(world, "db/make"), "the step")
            [pod] = world.pods("db/make")
            if act == "delete":
                world.ask("DELETE", pod_path(pod))
            else:
                name = {"name": pod["metadata"]["name"], "namespace": "dayfly-runners"}
                world.ask("POST", f"{pod_path(pod)}/eviction", {"metadata": name})
            await world.until(lambda: reason(world) == "ResourceFailed", "the failure")
            assert "Cancelled" in message(world)
            world.delete()
            await gone(world)

        world = play(story, make=Script(runs=60))
        world.check_cleaned(world.cloud.log[0].run)
        assert world.cloud.starts("db/make") == 1

    def test_pod_taken_away_before_it_was_placed_is_made_again(self):
        """The pod is proof that nothing ran, so another attempt is not a second run."""

        async def story(world: World) -> None:
            await world.until(
                lambda: world.pods("db/make") and "schedulingGates" not in world.pods("db/make")[0]["spec"], "a pod"
            )
            await world.rest(5)
            world.kubelet.scripts["db/make"].no_such_pods = False
            [pod] = world.pods("db/make")
            world.ask("DELETE", pod_path(pod))
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await gone(world)

        world = play(story, make=Script(no_such_pods=True))
        assert world.cloud.starts("db/make") == 1
        assert world.cloud.log[0].attempt == 2

    def test_pod_taken_away_while_it_pulls_is_not_made_again(self):
        """The kubelet uses the same message for containers that did run, so a create step is not retried."""

        async def story(world: World) -> None:
            world.cloud.lossy = True
            await world.until(
                lambda: world.pods("db/make") and world.pods("db/make")[0]["spec"].get("nodeName"), "a pod"
            )
            await world.rest(5)
            [pod] = world.pods("db/make")
            world.ask("DELETE", pod_path(pod))
            await world.until(lambda: reason(world) == "ResourceFailed", "the failure")
            assert "not known whether it began" in message(world)
            world.delete()
            await gone(world)

        world = play(story, make=Script(pull=30.0))
        assert not world.cloud.starts("db/make")
        assert world.cloud.starts("db/drop") == 1

    def test_pod_that_no_node_takes_is_given_up_in_time(self):
        """After its start deadline the attempt is void; after a few of them, the step has failed."""

        async def story(world: World) -> None:
            await world.until(lambda: reason(world) == "ResourceFailed", "the failure")
            no_place = "StartDeadlineExceeded: was not scheduled within 10 min: 0/3 nodes are available"
            assert message(world) == f"db/make: {no_place}"
            world.kubelet.scripts["db/drop"].unschedulable = ""
            world.delete()
            await gone(world)

        world = play(story, make=Script(unschedulable="0/3 nodes are available"))
        assert not world.cloud.starts("db/make")


class TestLedger:
    def test_lost_ledger_freezes_and_says_so(self):
        """The Run was deleted: it is unknown what has run, so nothing is started or cleaned up."""

        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            world.lose_ledger()
            await world.until(lambda: reason(world) == "LedgerLost", "the report of the loss", 120)
            assert world.status()["phase"] == "Failed"
            world.delete()
            await world.rest(3600)
            assert world.box() is not None
            assert world.cloud.starts("db/make") == 1
            assert not world.cloud.starts("db/drop")
            assert not world.cluster.objects("runs")
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "cleaned up by hand"}}})
            await world.until(lambda: world.box() is None, "the sandbox to go", 120)
            await gone(world)

        play(story)

    def test_lost_ledger_is_found_by_an_operator_that_starts_later(self):
        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            world.respawn = False
            await world.processes.pop().end()
            world.lose_ledger()
            world.start()
            await world.until(lambda: reason(world) == "LedgerLost", "the report of the loss", 120)
            assert world.cloud.starts("db/make") == 1

        play(story)

    def test_retry_annotation_ends_the_backoff_of_one_attempt(self):
        """The delete step fails for an hour; after a repair, the next try follows in less than ten minutes."""

        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            world.delete()
            await world.until(lambda: world.cloud.starts("db/drop") >= 4, "its fourth try", 3600)
            await world.until(lambda: "attempt 4 failed" in message(world), "its back-off", 60)
            began = world.cluster.time()
            world.change({"metadata": {"annotations": {"dayfly.dev/retry": "db/drop=4 nonsense db/make=1"}}})
            await world.until(lambda: world.cloud.starts("db/drop") >= 5, "the fifth at once", 10)
            await world.rest(20)
            assert world.cloud.starts("db/drop") == 5, "the next back-off is its own"
            assert world.cluster.time() - began < 40
            await gone(world)

        world = play(story, drop=Script(fails=5))
        assert world.cloud.starts("db/make") == 1

    def test_lost_document_freezes_says_so_and_can_be_abandoned(self):
        """Without the sealed plan the operator decides nothing. Only `abandon` ends the run, and it is recorded."""

        async def story(world: World) -> None:
            await world.until(running(world, "db/make"), "the step")
            await world.processes.pop().end()
            for document in world.cluster.objects("objectlifecyclemethods"):
                path = f"/apis/dayfly.dev/v1alpha1/objectlifecyclemethods/{document['metadata']['name']}"
                world.take_away(path)
            world.start()
            await world.until(lambda: reason(world) == "PlanLost", "the report of the loss", 60)
            world.delete()
            await world.rest(600)
            assert world.box() is not None
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "cleaned up by hand"}}})
            await gone(world)

        world = play(story)
        assert not world.cloud.starts("db/drop")

    def test_frozen_run_reports_nothing_of_a_new_sandbox_of_its_name(self):
        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            await world.processes.pop().end()
            for document in world.cluster.objects("objectlifecyclemethods"):
                world.take_away(f"/apis/dayfly.dev/v1alpha1/objectlifecyclemethods/{document['metadata']['name']}")
            world.take_away("/apis/dayfly.dev/v1alpha1/namespaces/shop/sandboxes/box")
            world.sandbox(wish())
            world.start()
            await world.until(lambda: ready(world), "the new one to be ready", 60)
            [process] = world.processes
            await world.until(
                lambda: b'turns_total{result="frozen"}' in process.operator.metrics.render(), "the loss", 60
            )
            await world.rest(60)
            assert ready(world)

        play(story)

    def test_document_changed_by_hand_is_a_lost_one(self):
        """The digest is pinned: another script under the same name is never run."""

        async def story(world: World) -> None:
            await world.until(running(world, "db/make"), "the step")
            await world.processes.pop().end()
            [document] = [d for d in world.cluster.objects("objectlifecyclemethods") if d["spec"].get("resource")]
            document["spec"]["postStop"][0]["exec"]["script"] = "#!/bin/evil\n"
            world.ask(
                "PUT", f"/apis/dayfly.dev/v1alpha1/objectlifecyclemethods/{document['metadata']['name']}", document
            )
            world.start()
            await world.until(lambda: reason(world) == "PlanLost", "the report of the loss", 60)

        play(story)

    def test_plugin_edited_or_deleted_in_use_changes_nothing(self):
        """The sealed document is executed up to the last delete step."""

        async def story(world: World) -> None:
            await world.until(running(world, "db/make"), "the step")
            world.ask("DELETE", "/apis/dayfly.dev/v1alpha1/resourceplugins/pg")
            await world.until(lambda: ready(world), "ready")
            await world.processes.pop().end()
            world.start()
            world.delete()
            await gone(world)

        world = play(story)
        world.check_cleaned(world.cloud.log[0].run)


def worn(world: World, run: str) -> Object:
    """Return the metadata of a run's pod, whose owner exists for the garbage collector, so that it keeps the pod."""
    alive = world.cluster.objects("namespaces")[0]["metadata"]["uid"]
    owner = {"apiVersion": "dayfly.dev/v1alpha1", "kind": "Run", "name": run, "uid": alive}
    return {"labels": {"dayfly.dev/run": run}, "ownerReferences": [owner]}


class TestSweeper:
    def test_pods_of_a_run_that_is_gone(self):
        """A gated pod is removed at once; one that may be running is kept until it has ended."""

        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            [made, *_] = [write.new for write in world.cluster.store.after(world.cluster.kind("pods"), 0)]
            for name in ("gated", "bound"):
                meta = made["metadata"] | {"name": f"r-{name}", "finalizers": ["dayfly.dev/record"]}
                meta = {key: meta[key] for key in ("name", "labels", "finalizers", "annotations")}
                meta |= worn(world, "gone-and-forgotten")
                world.kubelet.held.add(f"r-{name}")
                gates = {"schedulingGates": [{"name": "dayfly.dev/claim"}]} if name == "gated" else {}
                body = {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "x"}], **gates}}
                world.ask("POST", "/api/v1/namespaces/dayfly-runners/pods", body)
            await world.rest(120)
            [left] = world.pods()
            assert left["metadata"]["name"] == "r-bound"
            assert not left["metadata"].get("deletionTimestamp")
            [process] = world.processes
            assert b"dayfly_orphans 1.0" in process.operator.metrics.render()
            ended = {"state": {"terminated": {"exitCode": 0}}, "name": "main"}
            status = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
            world.ask("PATCH", f"{pod_path(left)}/status", status, "application/merge-patch+json")
            await world.rest(120)
            assert not world.pods()
            assert b"dayfly_orphans 0.0" in process.operator.metrics.render()

        play(story)

    def test_forbidden_deletion_does_not_stop_the_sweeper(self):
        """Revoked permissions in one namespace do not affect the others."""

        def forbid(operation, kind, old, _new):
            if operation == "DELETE" and kind.plural == "pods" and old["metadata"]["name"] == "r-first":
                raise Refusal(403, "pods is forbidden")

        async def story(world: World) -> None:
            await world.until(lambda: ready(world), "ready")
            [made, *_] = [write.new for write in world.cluster.store.after(world.cluster.kind("pods"), 0)]
            world.cluster.admission.append(forbid)
            for name in ("first", "second"):
                meta = {"name": f"r-{name}", **worn(world, f"{name}-gone")}
                meta |= {"finalizers": ["dayfly.dev/record"], "annotations": made["metadata"]["annotations"]}
                spec = {"containers": [{"name": "main", "image": "x"}]}
                spec["schedulingGates"] = [{"name": "dayfly.dev/claim"}]
                world.ask("POST", "/api/v1/namespaces/dayfly-runners/pods", {"metadata": meta, "spec": spec})
            meta = {"name": "orphan", "finalizers": ["dayfly.dev/plan"], "labels": {"dayfly.dev/run": "gone"}}
            [document, *_] = world.cluster.objects("objectlifecyclemethods")
            document["spec"]["target"]["uid"] = "gone"
            path = "/apis/dayfly.dev/v1alpha1/objectlifecyclemethods"
            world.ask("POST", path, {**document, "metadata": meta})
            await world.rest(120)
            assert [pod["metadata"]["name"] for pod in world.pods()] == ["r-first"]
            assert all(each["metadata"]["name"] != "orphan" for each in world.cluster.objects("objectlifecyclemethods"))

        play(story)

    @pytest.mark.parametrize("told_of_its_start", [True, False])
    def test_pod_of_an_abandoned_run_on_a_lost_node_is_removed_late(self, told_of_its_start):
        """The node of the pod never reports its end, and only the operator may remove its finalizer."""

        async def story(world: World) -> None:
            world.cloud.lossy = world.cloud.forgiven = True
            await world.until(running(world, "db/make"), "the step")
            [pod] = world.pods("db/make")
            told = [{"name": "main", "state": {"running": {}}}] if told_of_its_start else []
            status = {"status": {"phase": "Failed", "reason": "NodeLost", "containerStatuses": told}}
            world.ask("PATCH", f"{pod_path(pod)}/status", status, "application/merge-patch+json")
            await world.until(lambda: reason(world) == "OutcomeUnknown", "the doubt", 10)
            world.change({"metadata": {"annotations": {"dayfly.dev/abandon": "the node is gone"}}})
            world.delete()
            await world.until(lambda: not world.cluster.objects("runs"), "the run to go", 60)
            certain = (
                world.cluster.time() + 3600 + 2 * 600 + 10 + 300
            )  # run and start deadlines, grace period, clock difference
            await world.rest(3600)
            assert world.pods(), "it may still be at work"
            await world.until(lambda: not world.pods(), "the pod to go", certain + 120 - world.cluster.time())

        play(story, make=Script(runs=9000, silent=True))

    def test_documents_of_a_sandbox_that_went_first(self):
        """The operator died after the documents and before the run, and the sandbox was deleted: nothing is left."""

        async def story(world: World) -> None:
            await world.until(lambda: world.cluster.objects("objectlifecyclemethods"), "a document")
            world.respawn = False
            await world.processes.pop().end()
            assert not world.cluster.objects("runs")
            world.delete()
            world.start()
            await gone(world)

        play(story)


class TestNames:
    @pytest.mark.slow
    @pytest.mark.long_story
    def test_same_name_again_and_again(self):
        """Each one is separate: it never sees pods, ledger or outputs of an earlier one."""

        async def story(world: World) -> None:
            for turn in range(30):
                if turn % 3:
                    await world.rest(turn / 10)  # deleted at a different moment each time
                else:
                    await world.until(lambda: ready(world), "ready")
                world.delete()
                await world.until(lambda: world.box() is None, "the old one to go")
                if turn < 29:
                    world.sandbox(wish())
            await gone(world)

        world = play(story, RETRY_LIFE, operators=2)
        for run in {line.run for line in world.cloud.log}:
            world.check_cleaned(run)


@pytest.mark.slow
def test_unreachable_server_is_waited_for():
    """There is no answer for an hour, in the middle of a step: afterwards everything continues."""

    async def story(world: World) -> None:
        await world.until(running(world, "db/make"), "the step")
        [process] = world.processes
        world.hook = lambda _number, _call: Fault(Harm.UNREACHABLE)
        await world.rest(3600)
        assert process.operator.cluster.age > 60
        world.hook = lambda _number, _call: None
        await world.until(lambda: ready(world), "ready", 600)
        world.delete()
        await gone(world)

    world = play(story)
    assert world.cloud.starts("db/make") == 1
