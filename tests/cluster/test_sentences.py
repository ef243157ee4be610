"""Messages for steps that do not start or that fail: the cause, and what to do.

They appear within ten seconds of the cluster's own report; only the proof asserts that. `tests/operator/test_pods.py`
tests the operator's part in virtual time.
"""

import base64
import json
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.installed import RUNNERS, SYSTEM, Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import Wishes
from tests.cluster.people import administrator
from tests.cluster.test_faults import said, unit
from tests.cluster.waiting import eventually
from tests.selection import in_time

SOON_S = 10
GONE_S = 60
MEMORY = "spec: {containers: [{name: main, resources: {limits: {memory: 24Mi}}}]}"
HUNGRY = "word=xxxxxxxxxxxxxxxx; while :; do word=$word$word; done"
NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
PULLS = "spec:\n  containers: [{{name: main, imagePullPolicy: {}}}]"
ADVICE = "raise resources.limits.memory of container main in the plugin's podTemplateOverlay"


@pytest.fixture
def why(operator: Installed, wishes: Wishes, tmp_path: Path) -> Callable[[], str]:
    """Runs `dayfly why` for the sandbox."""
    person = administrator(operator, tmp_path)
    return lambda: person.dayfly("why", wishes.name, "--context", "here", "-n", wishes.namespace).out


@pytest.fixture
def wait_said(operator: Installed, wishes: Wishes, record_property: Callable[[str, str], None]):
    """Gives the line of a step once its message holds the text, which must be soon; and notes how soon."""

    def known(name: str, cause: str) -> bool:
        """Return whether the cluster reports the cause, in the status of the step's pod or in an Event."""
        pods = operator.pods(name)
        told = [json.dumps(pod["status"]) for pod in pods]
        about = {pod["metadata"]["uid"] for pod in pods}
        events = operator.items(f"/api/v1/namespaces/{RUNNERS}/events")
        told += [event["message"] for event in events if event["involvedObject"].get("uid") in about]
        return any(cause in each for each in told)

    def wait(name: str, text: str, cause: str = "", state: str = "") -> dict:
        """Wait for the text in the step's message, with the cluster's wording `cause` and the state of the unit."""

        def so(status: dict) -> bool:
            line = unit(status, name)
            return text in line.get("message", "") and state in ("", line.get("state"))

        eventually(lambda: known(name, cause or text), "the cluster's report")
        began = time.monotonic()
        status = operator.wait_status(wishes.name, wishes.namespace, so, f"{text!r}")
        took = time.monotonic() - began
        record_property("took", f"{text!r} said of {name} in {took:.1f} s")
        assert in_time(took, SOON_S)
        return unit(status, name)

    return wait


def wait_failed(operator: Installed, wishes: Wishes, name: str) -> dict:
    """The line of a step once its failure is the sandbox's reason."""
    status = operator.wait_status(
        wishes.name, wishes.namespace, lambda status: status["reason"] == "ResourceFailed", "failure"
    )
    return unit(status, name)


@contextmanager
def granted(operator: Installed, wishes: Wishes) -> Iterator[None]:
    """A Secret that the plugin may read, without the keys that it names."""
    data = {".dockerconfigjson": base64.b64encode(b'{"auths": {}}').decode()}
    annotations = {"dayfly.dev/plugins": f"cluster:{wishes.name}"}
    meta = {"name": "granted", "namespace": RUNNERS, "annotations": annotations}
    kind = "kubernetes.io/dockerconfigjson"
    operator.apply({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": meta, "data": data})
    try:
        yield
    finally:
        operator.own.kubectl("delete", "secret", "granted", "-n", RUNNERS)


def gone_unbegun(operator: Installed, wishes: Wishes, journal: Journal, reasons: Collection[str]) -> None:
    """Wait until the kubelet gives one of these reasons; the sandbox must then go without a cleanup."""

    def waits() -> bool:
        told = [each for pod in operator.pods("pair/first") for each in pod["status"].get("containerStatuses", ())]
        return any(each["state"].get("waiting", {}).get("reason") in reasons for each in told)

    eventually(waits, "the kubelet's report")
    began = time.monotonic()
    operator.delete(wishes.name, wishes.namespace)
    assert in_time(time.monotonic() - began, GONE_S)
    assert said(journal) == []


def give_up(operator: Installed, wishes: Wishes) -> None:
    """Abandon the cleanup, and wait for the end."""
    reason = "dayfly.dev/abandon=nothing ever ran"
    operator.own.kubectl("annotate", "sandbox.dayfly.dev", wishes.name, "-n", wishes.namespace, reason)
    operator.wait_gone(wishes.name, wishes.namespace)


class TestMemory:
    @pytest.mark.parametrize(
        ("then", "how"),
        [
            (HUNGRY, "(killed by signal 9 (SIGKILL))"),
            (f"sh -c '{HUNGRY}'; exit $?", "(the kernel killed 1 of its processes; exit code 137)"),
        ],
        ids=["script", "child"],
    )
    def test_script_killed(self, operator, wishes, journal, then, how):
        """The kernel kills the script, or a child of it. The runner survives, and reports it with the limit."""
        operator.apply(
            wishes.plugin(overlay=MEMORY, script=wishes.script("create first", then)),
            wishes.sandbox(),
        )
        first = wait_failed(operator, wishes, "pair/first")
        assert first["reason"] == "OOMKilled"
        assert first["message"] == f"needed more memory than its limit of 24Mi {how}; {ADVICE}"
        operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == ["create first", "delete gone"]

    def test_runner_killed_too(self, operator, wishes, journal):
        """If the kernel kills the whole container, there is no receipt, but the kubelet reports the reason."""
        journal.hold("create first")
        file_in_memory = wishes.script("create first", "cat /dev/zero >/dev/shm/hog")  # counts as no process's own
        operator.apply(wishes.plugin(overlay=MEMORY, script=file_in_memory), wishes.sandbox())
        journal.wait_for("create first")
        runner = operator.process_of(operator.pod("pair/first"))
        first_choice = f"""
            for script in $(cat /proc/{runner}/task/{runner}/children); do echo 0 >/proc/$script/oom_score_adj; done
            echo 1000 >/proc/{runner}/oom_score_adj
        """
        operator.own.run_inside(["sh", "-ec", first_choice])
        journal.let_go("create first")
        first = wait_failed(operator, wishes, "pair/first")
        how = "(the kernel ended its whole container, without a receipt)"
        assert first["reason"] == "OOMKilled"
        assert first["message"] == f"needed more memory than its limit of 24Mi {how}; {ADVICE}"
        operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == ["create first", "delete gone"]


class TestPlace:
    def test_no_node_takes_it(self, operator, wishes, journal, wait_said):
        """The scheduler's own words, also once the schedule's clock has ended it, three times over.

        It is proven that nothing ever ran, so nothing is cleaned up: the sandbox goes at once.
        """
        overlay, scheduler = "spec: {nodeSelector: {disk: none}}", "0/1 nodes are available: 1 node(s) didn't match"
        operator.apply(
            wishes.plugin(overlay=overlay, timeouts={"schedule": "3s"}, retry={"backoff": "1s"}), wishes.sandbox()
        )
        wait_said("pair/first", scheduler, state="running")
        failed = wait_failed(operator, wishes, "pair/first")
        assert failed["reason"] == "StartDeadlineExceeded"
        assert failed["message"].startswith(f"was not scheduled within 3 s: {scheduler}")
        operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == []


class TestImage:
    def test_missing(self, operator, wishes, journal, why, wait_said):
        """The step's message contains the kubelet's error. The deleted sandbox ends without help: another container of
        the step's pod proves that the step never began, so no cleanup is required.
        """
        image = "127.0.0.1:9/no-such-image:1"
        operator.apply(wishes.plugin(image=image), wishes.sandbox())
        wait_said("pair/first", image, "failed to pull")
        assert "that image available to the cluster's nodes" in why()
        began = time.monotonic()
        operator.delete(wishes.name, wishes.namespace)
        assert in_time(time.monotonic() - began, GONE_S)
        assert said(journal) == []
        mine = f"{wishes.namespace}/{wishes.name}"
        told = [line for line in lines(operator, operator.leader()) if line.get("sandbox") == mine]
        assert [(line["event"], line.get("unit", "")) for line in told] == [
            ("claimed", "pair/first"),
            ("closed", ""),
            ("voided", "pair/first"),
            ("ended", ""),
        ]

    @pytest.mark.parametrize(
        ("image", "overlay"),
        [
            ("127.0.0.1:9/no-such-image", ""),  # without a tag the policy is Always
            ("127.0.0.1:9/no-such-image:latest", ""),
            ("127.0.0.1:9/no-such-image:1", PULLS.format("Always")),
            ("127.0.0.1:9/no-such-image:1", PULLS.format("Never")),
            (f"127.0.0.1:9/no-such-image@sha256:{'0' * 64}", PULLS.format("IfNotPresent")),
            ("127.0.0.1:9/no-such-image:1", PULLS.format("Always") + "\n  imagePullSecrets: [{name: granted}]"),
            ("no such image", ""),
        ],
        ids=["untagged", "latest", "Always", "Never", "digest", "private", "invalid"],
    )
    def test_missing_whatever_its_policy(self, operator, wishes, journal, image, overlay):
        """The cluster reaches no registry, and the fallback image is the operator's own."""
        with granted(operator, wishes):
            operator.apply(wishes.plugin(image=image, overlay=overlay), wishes.sandbox())
            gone_unbegun(operator, wishes, journal, NO_IMAGE)

    def test_container_that_cannot_be_created(self, operator, wishes, journal):
        """The image's user is root, which the pod forbids. The delete step would have no container either."""
        operator.apply(
            wishes.plugin(overlay="spec:\n  securityContext: {runAsUser: null, runAsGroup: null}"), wishes.sandbox()
        )
        gone_unbegun(operator, wishes, journal, {"CreateContainerConfigError"})

    @pytest.mark.parametrize("line", ["#!/bin/bash", "#!/usr/bin/env bash", "#!/etc/passwd"])
    def test_interpreter_that_the_image_lacks(self, operator, wishes, journal, line):
        plugin = wishes.plugin(script=f"{line}\ntrue\n")
        for step in plugin["spec"]["delete"]:
            step["script"] = f"{line}\ntrue\n"
        operator.apply(plugin, wishes.sandbox())
        failed = wait_failed(operator, wishes, "pair/first")
        assert failed["reason"] == "NotExecutable"
        assert "pair/gone would fail in the same way" in failed["message"]
        began = time.monotonic()
        operator.delete(wishes.name, wishes.namespace)
        assert in_time(time.monotonic() - began, GONE_S)
        assert said(journal) == []

    def test_deleted_with_its_pod(self, operator, wishes, journal, why, wait_said):
        """Without the pod there is no proof: a cleanup is required, lacks the same image, and `why` explains that."""
        image = "127.0.0.1:9/no-such-image:1"
        operator.apply(wishes.plugin(image=image), wishes.sandbox())
        wait_said("pair/first", image, "failed to pull")
        [pod] = operator.pods("pair/first")
        operator.own.kubectl("delete", "pod", pod["metadata"]["name"], "-n", RUNNERS, "--wait=false")
        wait_failed(operator, wishes, "pair/first")
        operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", wishes.namespace, "--wait=false")
        wait_said("pair/gone", image, "failed to pull")
        first = unit(operator.status(wishes.name, wishes.namespace), "pair/first")
        assert first["reason"] == "ContainerStatusUnknown"
        assert first["message"].startswith("its node has no record of its container")
        assert f'last report: Failed to pull image "{image}"' in first["message"]
        assert f"`dayfly abandon {wishes.name} --reason ... --context here" in why()
        give_up(operator, wishes)
        assert said(journal) == []

    def test_registry_that_does_not_answer_yet(self, operator, wishes, journal, wait_said):
        """As the next one, for a moment: the sandbox goes as soon as the kubelet gives up."""
        with silent(operator.own.network.host) as registry:
            image = f"{registry}/slow:1"
            operator.apply(wishes.plugin(image=image), wishes.sandbox())
            first = wait_said("pair/first", f"the image {image} since ", f'Pulling image "{image}"')
            assert (first["state"], first["reason"]) == ("running", "Pulling")
        operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == []

    @pytest.mark.proof
    def test_registry_that_does_not_answer(self, operator, wishes, journal, wait_said):
        """The kubelet reports no error, since it is still pulling. The pull timeout ends the attempt, also with proof.

        The kubelet needs half a minute to cancel the pull and to start another one.
        """
        with silent(operator.own.network.host) as registry:
            image = f"{registry}/slow:1"
            operator.apply(wishes.plugin(image=image, timeouts={"pull": "15s"}), wishes.sandbox())
            first = wait_said("pair/first", f"has been pulling the image {image} since ", f'Pulling image "{image}"')
            assert (first["state"], first["reason"]) == ("running", "Pulling")
            operator.wait_status(
                wishes.name,
                wishes.namespace,
                lambda status: unit(status, "pair/first")["attempt"] == 2,
                "another attempt, which a step that runs once has only if the first is proven never to have begun",
            )
            operator.delete(wishes.name, wishes.namespace)
        assert said(journal) == []


@contextmanager
def silent(address: str) -> Iterator[str]:
    """An address with port to which packets go and from which none come: a listener whose queue is full."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen(0)
        callers = [socket.socket() for _ in range(3)]
        try:
            for caller in callers:
                caller.setblocking(False)
                caller.connect_ex(listener.getsockname())
            yield "{}:{}".format(*listener.getsockname())
        finally:
            for caller in callers:
                caller.close()


class TestLog:
    def test_a_life_can_be_searched_for(self, operator, wishes, journal):
        """Both replicas first log their version; the leader logs the end of each run."""
        for pod in operator.replicas():
            first = lines(operator, pod["metadata"]["name"])[0]
            assert first["event"] == "begun"
            assert first["version"]
            assert first["identity"] == pod["metadata"]["name"]
        operator.apply(wishes.plugin(), wishes.sandbox())
        operator.wait_ready(wishes.name, wishes.namespace)
        operator.delete(wishes.name, wishes.namespace)
        mine = f"{wishes.namespace}/{wishes.name}"
        told = [line for line in lines(operator, operator.leader()) if line.get("sandbox") == mine]
        assert [(line["event"], line.get("unit", ""), line.get("outcome", "")) for line in told] == [
            ("claimed", "pair/first", ""),
            ("recorded", "pair/first", "succeeded"),
            ("claimed", "pair/second", ""),
            ("recorded", "pair/second", "succeeded"),
            ("closed", "", ""),
            ("claimed", "pair/gone", ""),
            ("recorded", "pair/gone", "succeeded"),
            ("ended", "", "cleaned"),
        ]
        assert len({line["run"] for line in told}) == 1


def lines(operator: Installed, pod: str) -> list[dict]:
    """The log of an operator's pod, line by line."""
    return [json.loads(line) for line in operator.own.kubectl("logs", pod, "-n", SYSTEM).splitlines()]
