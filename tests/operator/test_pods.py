"""Pods that are not allowed, and pods that the cluster has modified: reported, and never started."""

from __future__ import annotations

import base64

import pytest
from tests.kube.fake import Fault, Harm, Refusal
from tests.operator.rig.scenes import CHAIN, CHAIN_UNITS, Scene, chain, gone, message, ready, wish
from tests.operator.rig.world import World, live

from dayfly.operator.pods.namespaces import RunnerConfigMap


def scene(runner: dict, story) -> World:
    """Play the story of the chain with another runner."""
    plugin = CHAIN | {"runner": {"image": "busybox:1", **runner}}

    async def begin(world: World) -> None:
        world.start()
        await story(world)

    return live(Scene(plugin, CHAIN_UNITS, chain).world, begin)


async def goes_on(world: World) -> None:
    """The objection is over: create the sandbox and delete it."""
    await world.until(lambda: ready(world), "ready", patience=60)
    world.delete()
    await gone(world)


def test_pod_is_held_to_the_allow_list():
    """A forbidden overlay is refused before anything is created, with its location, so no cleanup is due."""

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: "is refused: spec.hostNetwork" in message(world), "the refusal", 10)
        await world.rest(60)
        assert not world.cloud.log
        assert not [write for write in world.writes if write.startswith("POST") and write.endswith("/pods")]
        world.delete()
        await gone(world)

    scene({"podTemplateOverlay": "spec: {hostNetwork: true}"}, story)


def test_namespace_must_be_granted():
    """A step may only run in another namespace with an administrator's label; then it continues without a retry."""

    async def story(world: World) -> None:
        world.namespace("team", {"dayfly.dev/runners-from": "shop"})
        refused = {"metadata": {"labels": {"dayfly.dev/runners": "false"}}}
        world.ask("PATCH", "/api/v1/namespaces/team", refused, "application/merge-patch+json")
        world.sandbox(wish())
        await world.until(lambda: "dayfly.dev/runners=true" in message(world), "the objection")
        assert "namespace team" in message(world)
        assert not world.pods()
        world.grant("team", labels={"dayfly.dev/runners": "true"})
        await goes_on(world)

    scene({"namespace": "team"}, story)


def test_namespace_accepts_steps_only_from_those_it_names():
    """The label does not allow steps of other teams. The annotation applies within half a minute."""

    async def story(world: World) -> None:
        world.namespace("team", {"dayfly.dev/runners-from": "other, third"}, **{"dayfly.dev/runners": "true"})
        world.sandbox(wish())
        await world.until(lambda: "does not accept steps of sandboxes in shop" in message(world), "the objection")
        await world.rest(60)
        assert not [write for write in world.writes if write.startswith("POST") and write.endswith("/pods")]
        world.grant("team", annotations={"dayfly.dev/runners-from": "other, shop"})
        await goes_on(world)

    scene({"namespace": "team"}, story)


def test_namespace_takes_its_own_steps():
    async def story(world: World) -> None:
        world.grant("shop", labels={"dayfly.dev/runners": "true"})
        world.sandbox(wish())
        await goes_on(world)

    scene({"namespace": "shop"}, story)


def test_missing_namespace_is_said_and_waited_for():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: "namespace team does not exist" in message(world), "the objection")
        world.namespace("team", {"dayfly.dev/runners-from": "shop"}, **{"dayfly.dev/runners": "true"})
        await goes_on(world)

    scene({"namespace": "team"}, story)


def test_step_is_no_services_endpoint():
    """Services in the namespace of steps get no requests from their clients, and no plugin can answer for a Service."""

    async def story(world: World) -> None:
        service = {"metadata": {"name": "database"}, "spec": {"ports": [{"port": 1}]}}
        service["spec"]["selector"] = {"app.kubernetes.io/name": "db"}
        world.ask("POST", "/api/v1/namespaces/dayfly-runners/services", service)
        world.sandbox(wish())
        await world.until(lambda: "endpoint of Service dayfly-runners/database" in message(world), "the refusal", 10)
        await world.rest(60)
        assert not world.pods()
        world.ask("DELETE", "/api/v1/namespaces/dayfly-runners/services/database")
        await goes_on(world)

    scene({"podTemplateOverlay": "metadata: {labels: {app.kubernetes.io/name: db}}"}, story)


def test_keys_of_others_where_the_administrator_allows_them():
    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(
            lambda: "metadata.annotations[iam.amazonaws.com/role] is not allowed on pods" in message(world), "it", 10
        )
        world.grant("dayfly-runners", annotations={"dayfly.dev/pod-keys": "team, iam.amazonaws.com/*"})
        await goes_on(world)

    scene({"podTemplateOverlay": "metadata: {annotations: {iam.amazonaws.com/role: admin}}"}, story)


@pytest.mark.parametrize("restarted", [False, True])
def test_pod_changed_by_a_webhook_is_not_ungated(restarted):
    """Changes of the runner by a mutating webhook are detected at once, also by a peer that has not created the pod."""

    async def story(world: World) -> None:
        def webhook(operation, kind, old, new):
            if operation == "CREATE" and kind.plural == "pods":
                [main] = new["spec"]["containers"]
                return new | {"spec": new["spec"] | {"containers": [main | {"command": ["/bin/evil"]}]}}
            return None

        world.cluster.admission.append(webhook)
        world.sandbox(wish())
        await world.until(lambda: "command was changed by an admission webhook" in message(world), "the objection", 30)
        if restarted:
            await world.processes.pop().end()
            world.start()
            await world.rest(60)
        assert [pod["spec"]["schedulingGates"] for pod in world.pods()] == [[{"name": "dayfly.dev/claim"}]]
        world.cluster.admission.clear()
        [pod] = world.pods()
        world.ask("DELETE", f"/api/v1/namespaces/dayfly-runners/pods/{pod['metadata']['name']}")
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await gone(world)

    world = scene({}, story)
    assert world.cloud.starts("db/make") == 1


def test_foreign_pod_of_our_name_is_left_alone():
    """Another user's pod has the name: it is not adopted, and the message contains the solution."""

    async def story(world: World) -> None:
        world.cluster.admission.append(lambda *change: _squat(world, *change))
        world.sandbox(wish())
        await world.until(lambda: "does not belong to Dayfly; delete it" in message(world), "the objection", 60)
        world.cluster.admission.clear()
        [pod] = world.cluster.objects("pods")
        world.ask("DELETE", f"/api/v1/namespaces/dayfly-runners/pods/{pod['metadata']['name']}")
        await world.until(lambda: ready(world), "ready")
        world.delete()
        await gone(world)

    scene({}, story)


def _squat(world: World, operation, kind, old, new):
    """Create a pod of the same name just before our first one."""
    if operation == "CREATE" and kind.plural == "pods" and "annotations" in new["metadata"]:
        world.cluster.admission.clear()
        mine = {"metadata": {"name": new["metadata"]["name"]}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        gated = mine["spec"] | {"schedulingGates": [{"name": "mine"}]}
        world.ask("POST", "/api/v1/namespaces/dayfly-runners/pods", mine | {"spec": gated})
    return


def test_quota_is_said_within_ten_seconds_and_waited_for():
    """A refusal of the API server is in the step's message; when the cause is removed, the step starts."""

    async def story(world: World) -> None:
        def quota(operation, kind, old, new):
            if operation == "CREATE" and kind.plural == "pods":
                raise Refusal(403, "exceeded quota: pods, used: 10, limited: 10")
            return

        world.cluster.admission.append(quota)
        world.sandbox(wish())
        await world.until(lambda: "exceeded quota: pods" in message(world), "the objection", 10)
        world.cluster.admission.clear()
        await goes_on(world)

    scene({}, story)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unschedulable", "0/3 nodes are available"),
        ("image_missing", 'Back-off pulling image "busybox:1"'),
    ],
)
def test_why_a_pod_does_not_start_is_said_within_ten_seconds(fault, said):
    async def story(world: World) -> None:
        setattr(world.kubelet.scripts["db/make"], fault, said)
        world.sandbox(wish())
        await world.until(lambda: said in message(world), "the reason", 10)
        setattr(world.kubelet.scripts["db/make"], fault, "")
        await goes_on(world)

    scene({}, story)


@pytest.mark.parametrize("allowed", [True, False])
def test_mount_failure_in_an_event_is_reported_in_ten_seconds(allowed):
    """A Secret of the overlay is missing: only an Event of the kubelet reports it, not the pod's status."""
    said = 'MountVolume.SetUp failed for volume "mine" : secret "mine" not found'

    async def story(world: World) -> None:
        script = world.kubelet.scripts["db/make"]
        script.mount_missing = said
        if not allowed:
            world.hook = lambda _number, call: (
                Fault(Harm.UNREACHABLE) if "/events" in call.request.path and call.write is None else None
            )
        world.sandbox(wish())
        await world.until(lambda: world.pods("db/make"), "the pod")
        if allowed:
            await world.until(lambda: said in message(world), "the reason", 10)
        else:
            await world.rest(20)
        script.mount_missing = ""
        await goes_on(world)

    scene({}, story)


def test_hanging_pull_is_reported_and_ended_at_its_deadline():
    """A registry does not answer: neither status nor warning reports it, only the kubelet's Event about the pull."""

    async def story(world: World) -> None:
        world.cloud.lossy = True
        world.kubelet.scripts["db/make"].hangs = True
        world.sandbox(wish())
        await world.until(
            lambda: "has been pulling the image busybox:1 since 2026-01-01T00:00:0" in message(world), "the pull", 10
        )
        [unit] = [unit for unit in world.status()["units"] if unit["id"] == "db/make"]
        assert unit["reason"] == "Pulling"
        await world.until(lambda: world.status()["reason"] == "ResourceFailed", "the end of its pull clock", 800)
        assert world.cluster.time() > 600
        assert "StartDeadlineExceeded: was scheduled but did not start within 10 min: its node has no" in message(world)
        world.delete()
        await gone(world)

    world = scene({}, story)
    assert not world.cloud.starts("db/make")
    assert world.cloud.starts("db/drop") == 1


def test_late_kubelet_event_is_reported_in_ten_seconds():
    """The Event is written just after a query."""

    async def story(world: World) -> None:
        script = world.kubelet.scripts["db/make"]
        script.hangs, script.mute = True, 4
        world.sandbox(wish())
        await world.until(lambda: any(e["reason"] == "Pulling" for e in world.cluster.objects("events")), "its word")
        await world.until(lambda: "has been pulling the image busybox:1 since" in message(world), "the pull", 10)
        script.hangs = False
        await goes_on(world)

    scene({}, story)


def test_event_before_the_first_pod_status_is_reported():
    """A busy kubelet writes the first status of a pod ten seconds late; its Events come at once."""

    async def story(world: World) -> None:
        script = world.kubelet.scripts["db/make"]
        script.hangs, script.withholds = True, 30
        world.sandbox(wish())
        await world.until(lambda: "has been pulling the image busybox:1 since" in message(world), "the pull", 6)
        script.hangs = False
        await goes_on(world)

    scene({}, story)


def test_event_that_replaces_another_is_reported():
    """A volume could not be mounted at first, and then the image's registry does not answer."""
    first = 'MountVolume.SetUp failed for volume "mine" : failed to sync secret cache: timed out waiting'

    async def story(world: World) -> None:
        script = world.kubelet.scripts["db/make"]
        script.mount_missing = first
        world.sandbox(wish())
        await world.until(lambda: first in message(world), "the reason", 10)
        script.mount_missing, script.hangs = "", True
        await world.until(lambda: any(e["reason"] == "Pulling" for e in world.cluster.objects("events")), "its word")
        await world.until(lambda: "has been pulling the image busybox:1 since" in message(world), "the pull", 10)
        script.hangs = False
        await goes_on(world)

    scene({}, story)


def test_cause_of_a_missing_start_is_reported_at_the_end():
    """The pod is deleted while its image is missing. It is not proven that the step never began, so cleanup runs."""

    async def story(world: World) -> None:
        world.cloud.lossy = True
        world.kubelet.scripts["db/make"].image_missing = "no such image"
        world.sandbox(wish())
        await world.until(lambda: "no such image" in message(world), "the reason", 10)
        [pod] = world.pods("db/make")
        world.ask("DELETE", f"/api/v1/namespaces/dayfly-runners/pods/{pod['metadata']['name']}")
        await world.until(lambda: world.status()["reason"] == "ResourceFailed", "the failure", 60)
        assert "ContainerStatusUnknown: its node has no record of its container" in message(world)
        assert message(world).endswith("last report: Failed to pull: no such image")
        world.delete()
        await gone(world)

    world = scene({}, story)
    assert not world.cloud.starts("db/make")
    assert world.cloud.starts("db/drop") == 1


@pytest.mark.parametrize("in_log", [False, True])
def test_outputs_reach_the_next_step_byte_for_byte(in_log):
    """Outputs are in the message or, if they are too large, in the log; the pod's spec contains none."""

    async def story(world: World) -> None:
        for script in world.kubelet.scripts.values():
            script.in_log = in_log
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        assert not any("db://1" in str(pod["spec"]) for pod in world.pods())
        world.delete()
        await gone(world)

    world = scene({}, story)
    given = {unit: inputs for (_, unit, _), inputs in world.cloud.given.items()}
    assert given["db/seed"]["MAKE_URL"] == b"db://1"
    assert given["db/drop"]["MAKE_URL"] == b"db://1"
    assert given["db/drop"]["SEED_USER"] == b"ann\xff"


def test_large_outputs_without_a_log_are_lost_and_said():
    """The outputs are only in a log that cannot be read: the step has failed, and cleanup runs."""

    async def story(world: World) -> None:
        world.cloud.lossy = True
        world.kubelet.scripts["db/make"].in_log = True
        world.kubelet.scripts["db/make"].logless = True
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure")
        assert "OutputsLost" in message(world)
        world.delete()
        await gone(world)

    world = scene({}, story)
    world.check_cleaned(world.cloud.log[0].run)


def test_namespace_that_goes_takes_outputs_with_it_and_says_so():
    """A step succeeds while its namespace is being deleted: no step reads an output that was not stored."""

    async def story(world: World) -> None:
        world.cloud.lossy = True

        def ending(operation, kind, old, new):
            if operation == "CREATE" and kind.plural == "secrets":
                said = "unable to create new content in namespace dayfly-runners because it is being terminated"
                raise Refusal(403, said, causes=(("NamespaceTerminating", "metadata.namespace"),))
            return

        world.cluster.admission.append(ending)
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "the failure", 60)
        assert "its outputs could not be stored" in message(world)
        assert not world.cloud.starts("db/seed")
        world.cluster.admission.clear()
        world.delete()
        await gone(world)

    world = scene({}, story)
    world.check_cleaned(world.cloud.log[0].run)


def test_runner_is_put_where_steps_run():
    """One immutable ConfigMap for each release and namespace, named by its content; every pod mounts it."""

    async def story(world: World) -> None:
        world.runner = RunnerConfigMap.from_program(b"\x7fELF...")
        world.start(2)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        [found] = world.cluster.objects("configmaps")
        assert (found["metadata"]["name"], found["metadata"]["namespace"]) == (world.runner.name, "dayfly-runners")
        assert found["immutable"]
        assert base64.b64decode(found["binaryData"]["runner"]) == b"\x7fELF..."
        assert all(world.runner.name in str(pod["spec"]["volumes"]) for pod in world.pods())
        world.delete()
        await gone(world)

    live(Scene(CHAIN, CHAIN_UNITS, chain).world, story)


@pytest.mark.parametrize(("machine", "architecture"), [(62, "amd64"), (183, "arm64")])
def test_steps_run_on_nodes_that_can_start_the_runner(machine: int, architecture: str):
    """The operator on an ARM node installs that node's runner; on other nodes no step could start."""

    async def story(world: World) -> None:
        world.runner = RunnerConfigMap.from_program(b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little"))
        world.start()
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        assert {pod["spec"]["nodeSelector"]["kubernetes.io/arch"] for pod in world.pods()} == {architecture}
        world.delete()
        await gone(world)

    live(Scene(CHAIN, CHAIN_UNITS, chain).world, story)


def test_runner_that_was_taken_away_is_put_back():
    """The namespace may have been created again. Without the ConfigMap no step can start."""

    async def story(world: World) -> None:
        world.runner = RunnerConfigMap.from_program(b"\x7fELF...")
        world.start()
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        world.ask("DELETE", f"/api/v1/namespaces/dayfly-runners/configmaps/{world.runner.name}")
        await world.rest(30)
        world.sandbox(wish(), "second")
        await world.until(lambda: world.cluster.objects("configmaps"), "the runner", 30)
        await world.until(lambda: ready(world, "second"), "the second one to be ready")

    live(Scene(CHAIN, CHAIN_UNITS, chain).world, story)


def test_outputs_secret_is_immutable_and_named_by_attempt():
    """A peer without that knowledge writes the same, which changes nothing."""

    def secrets(world: World) -> dict:
        every = world.cluster.objects("secrets")
        return {item["metadata"]["uid"]: item for item in every if item["metadata"]["namespace"] == "dayfly-runners"}

    async def story(world: World) -> None:
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready")
        before = secrets(world)
        assert all(secret["immutable"] and secret["type"] == "dayfly.dev/outputs" for secret in before.values())
        kept = [set(secret["data"]) - {"log.tail", "log.times"} for secret in before.values()]
        assert sorted(map(sorted, kept)) == [["url"], ["user"]]
        await world.processes.pop().end()
        world.start()
        await world.rest(30)
        assert secrets(world) == before
        world.delete()
        await gone(world)

    scene({}, story)
