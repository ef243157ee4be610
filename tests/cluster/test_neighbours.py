"""One namespace whose steps' image is missing, and what another one feels of it on a real kubelet."""

import time

from testcluster import images
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, RUNNERS, Installed
from tests.cluster.waiting import eventually
from tests.selection import in_time

MISSING = "dayfly.invalid/never-there:1"
STEP = {"name": "make", "script": "#!/bin/sh\n"}
# More than may wait for their image, and less than the node's places.
MANY = 30
BOUND = 5
# The maximum number of pods that wait for their image (operator/pods/step_slots.py).
IMAGES = 20


def sandbox(name: str, namespace: str, image: str) -> dict:
    """Return a sandbox with one step whose image exists or not; no registry is used."""
    runner = {"image": image, "podTemplateOverlay": "spec: {containers: [{name: main, imagePullPolicy: Never}]}"}
    resource = {"name": "thing", "spec": {"runner": runner, "create": [STEP]}}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "Sandbox", "metadata": meta, "spec": {"cluster": "c", "resources": [resource]}}


def taken(operator: Installed, name: str, namespace: str) -> float:
    """Seconds until a sandbox with one step is ready; it goes again."""
    began = time.monotonic()
    operator.apply(sandbox(name, namespace, images.SHELL))
    operator.wait_ready(name, namespace)
    ready = time.monotonic() - began
    operator.delete(name, namespace)
    return ready


def test_others_do_not_feel_a_missing_image(operator, namespace, record_property):
    """In the trial that this is of, the pods of one plugin held every place of the node for minutes."""
    operator.own.kubectl("annotate", "namespace", namespace, f"dayfly.dev/steps={BOUND}")
    taken(operator, "warm", TEAM)
    alone = [taken(operator, f"alone-{number}", TEAM) for number in range(3)]
    operator.apply(*(sandbox(f"noise-{number}", namespace, MISSING) for number in range(MANY)))
    try:
        eventually(lambda: len(operator.pods()) >= IMAGES, "as many pods as may lack their image")
        words = f"steps of namespace {namespace} are waiting for their images"

        def all_said() -> bool:
            every = operator.items(f"/apis/{API}/namespaces/{namespace}/sandboxes")
            return sum(words in each.get("status", {}).get("message", "") for each in every) >= MANY - IMAGES - BOUND

        eventually(all_said, "waiting sandboxes to report that")
        beside = [taken(operator, f"beside-{number}", TEAM) for number in range(5)]
        lacking = [pod for pod in operator.pods() if pod["spec"]["containers"][0]["image"] == MISSING]
        assert IMAGES <= len(lacking) < IMAGES + BOUND
        record_property("took", f"alone {max(alone):.1f} s at most, beside {MANY} others {max(beside):.1f} s")
        assert in_time(max(beside), 2 * max(alone) + 0.5), (alone, beside)
    finally:
        operator.own.kubectl("delete", "sandboxes.dayfly.dev", "--all", "-n", namespace, "--timeout=150s")
    operator.check_nothing_left()

    def free() -> bool:
        return "dayfly.dev/in-use" not in operator.get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]

    eventually(free, "the namespace to be unused")


def test_cleanup_finds_room_where_create_steps_have_none(operator, wishes, journal):
    """Quota counts steps that delete apart, and every container has limits."""
    operator.apply(wishes.plugin(), wishes.sandbox())
    operator.wait_ready(wishes.name, wishes.namespace)
    quota = f"/api/v1/namespaces/{RUNNERS}/resourcequotas/dayfly-steps"
    before = operator.get(quota)["spec"]["hard"]["pods"]
    operator.own.kubectl(
        "patch", "resourcequota", "dayfly-steps", "-n", RUNNERS, "-p", '{"spec": {"hard": {"pods": "0"}}}'
    )
    try:
        journal.hold("delete gone")
        operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", wishes.namespace, "--wait=false")
        journal.wait_for("delete gone")
        (pod,) = operator.pods("pair/gone")
        assert pod["spec"]["priorityClassName"] == "dayfly-cleanup"
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi", "ephemeral-storage": "2Gi"}
        journal.let_go()
        operator.wait_gone(wishes.name, wishes.namespace)
    finally:
        patch = '{"spec": {"hard": {"pods": "%s"}}}' % before  # noqa: UP031 - JSON has braces of its own
        operator.own.kubectl("patch", "resourcequota", "dayfly-steps", "-n", RUNNERS, "-p", patch)
