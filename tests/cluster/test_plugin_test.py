"""`dayfly plugin test --context`: the planted mistakes are found from outside, and nothing of the test stays."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testcluster import images, stand_ins
from tests.cluster import rights
from tests.cluster.conftest import TEAM
from tests.cluster.installed import API, Installed
from tests.cluster.people import Done, Person, administrator, developer
from tests.cluster.volumes import claimed
from tests.cluster.waiting import eventually
from tests.testing.faulty_plugins import CLEAN, PLANTED, plugin

HERE = ("--context", "here", "-n", TEAM)
LABEL = "dayfly-plugin-test"
WORLD = "/world"
OVERLAY = """\
spec:
  containers:
  - name: main
    volumeMounts: [{name: world, mountPath: /world}]
  volumes: [{name: world, persistentVolumeClaim: {claimName: planted}}]
"""
# Its scripts are no shell's, which is all that the other image has.
IN_PYTHON = "in Python"


@pytest.fixture
def admin(operator: Installed, tmp_path: Path) -> Iterator[Person]:
    yield administrator(operator, tmp_path / "admin")
    assert made(operator) == []


@pytest.fixture
def world(operator: Installed, tmp_path: Path) -> Iterator[Path]:
    """A volume that only the plugin `planted` may claim."""
    with claimed(operator, "planted", "cluster:planted", tmp_path / "world") as folder:
        yield folder


def made(operator: Installed) -> list[str]:
    """Return the objects that tests of plugins have created."""
    kinds = (f"namespaces/{TEAM}/sandboxes", "resourceplugins")
    lists = [operator.items(f"/apis/{API}/{kind}?labelSelector={LABEL}") for kind in kinds]
    return [each["metadata"]["name"] for found in lists for each in found]


def written(person: Person, spec: dict[str, Any], overlay: str = OVERLAY, image: str = images.SHELL) -> None:
    body = {**spec, "runner": {"image": image, "podTemplateOverlay": overlay}}
    (person.home / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": body}))


def words(params: dict[str, str], *more: str) -> list[str]:
    given = [word for name, value in {"root": WORLD, **params}.items() for word in ("-p", f"{name}={value}")]
    return ["plugin", "test", "-f", "plugin.json", *given, *HERE, *more]


def play(person: Person, spec: dict[str, Any], params: dict[str, str], *more: str, image: str = images.SHELL) -> Done:
    written(person, spec, image=image)
    running = person.start(*words(params, "--publish", *more))
    try:
        out, err = running.communicate()  # the test's own time is its bound
    finally:
        running.terminate()  # no effect on a process that has ended
    return Done(running.returncode, out, err)


def results(done: Done) -> dict[str, str]:
    """Return the result of each scenario, by its name and, if it was skipped, the reason."""
    return {text: result for result, text in re.findall(r"^(\S+) +\d+ of \d+  (.*)$", done.out, re.MULTILINE)}


def from_outside(life: str) -> str:
    """Return the name of a scenario on a host with pods."""
    life = re.sub(r"^(\w+) is killed", r"the pod of \1 is deleted", life)
    return re.sub(r"deleted before (\w+)", r"deleted while \1 is at its start", life)


def test_a_mistake_is_found_that_only_a_deleted_pod_shows(operator, admin, world):
    """The plugin is published only for the test, with the permissions that its name has."""
    name = "another name with each attempt"
    planted = PLANTED[name]
    done = play(admin, planted.spec, {}, "--only", from_outside(planted.scenario), "-o", "json")
    assert done.code == 1, done
    told = json.loads(done.out)["scenarios"]
    assert [(life["name"], life["fault"]) for life in told] == [
        ("the sandbox is created and deleted", ""),
        ("the pod of make is deleted at its end", "Left"),
    ]
    assert f"{WORLD}/" in told[1]["message"]
    assert "-1" in told[1]["message"]


def test_after_ctrl_c_nothing_is_left(operator, admin, world):
    written(admin, plugin())
    running = admin.start(*words({}, "--publish"))
    try:
        of_tests = f"/apis/{API}/namespaces/{TEAM}/sandboxes?labelSelector={LABEL}"
        (sandbox,) = eventually(lambda: operator.items(of_tests))
        assert sandbox["spec"]["ttl"]["duration"] == "14m"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
    finally:
        running.terminate()  # no effect on a process that has ended
    assert running.returncode == 128 + signal.SIGINT, err
    assert "deleting what the test has created" in err
    assert made(operator) == [], err
    assert [*world.iterdir()] == []


@pytest.mark.proof
def test_a_developer_needs_no_more_than_to_edit_the_namespace(operator, tmp_path):
    """Scenarios that need further permissions are skipped and listed."""
    ada = developer(operator, tmp_path / "ada", TEAM, "edit")
    try:
        written(ada, plugin("touch /tmp/path", "true", look=""), "")
        done = ada.dayfly(*words({}, "--only", "make is", "-j", "3"))
        assert done.code == 0, done
        found = results(done)
        assert found["make is killed in its middle"] == "ok"
        why = "you may not delete pods in dayfly-runners"
        assert found[f"the pod of make is deleted at its start: {why}"] == "(skipped)"
        done = ada.dayfly(*words({}, "--publish"))
        assert (done.code, done.out) == (5, "")
        assert "you may not list resourceplugins" in done.err
        written(ada, plugin())
        done = ada.dayfly(*words({}))
        assert done.out.startswith("NotCreated "), done
        assert "only a published plugin can be granted that" in done.out
        assert "--publish" in done.out
        assert made(operator) == []
    finally:
        operator.own.kubectl("delete", "rolebinding,serviceaccount", "ada-edit", "-n", TEAM)


@pytest.mark.proof
def test_plugin_test_leaves_other_sandboxes_untouched(operator, admin, world, wishes):
    """The other sandbox has the label too. A version that is in use stays, and the command reports it."""
    operator.apply(wishes.plugin(), wishes.sandbox())
    operator.wait_ready(wishes.name, wishes.namespace)
    operator.own.kubectl("label", "sandbox.dayfly.dev", wishes.name, "-n", TEAM, f"{LABEL}=another")
    done = play(admin, plugin(), {}, "--only", "nothing else")
    assert done.code == 0, done
    assert operator.status(wishes.name, wishes.namespace)["ready"]
    operator.delete(wishes.name, wishes.namespace)


THING = {
    "name": "thing",
    "object": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"a": "b"}}}},
}


@pytest.mark.proof
@pytest.mark.timeout(900, func_only=True)
def test_edited_or_deleted_object_is_still_removed(operator, admin):
    """Scenarios with the pod of a step are skipped, because the step is an object."""
    spec = {"create": [THING]}
    (admin.home / "plugin.json").write_text(json.dumps({"name": "things@1.0.0", "spec": spec}))
    with rights.granted(operator, TEAM, "configmaps"):
        done = admin.dayfly("plugin", "test", "-f", "plugin.json", *HERE)
        assert done.code == 0, done
        found = results(done)
        assert found["the object of thing is edited from outside"] == "ok"
        assert found["the object of thing is deleted from outside"] == "ok"
        assert found["the pod of thing is deleted at its start: thing is an object and has no pod"] == "(skipped)"
        assert found["one of two sandboxes is deleted"] == "ok"
        left = operator.items(f"/api/v1/namespaces/{TEAM}/configmaps")
        assert [each["metadata"]["name"] for each in left] == ["kube-root-ca.crt"]


@pytest.mark.proof
@pytest.mark.timeout(900, func_only=True)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found_from_outside(operator, admin, world, name):
    planted = PLANTED[name]
    life = from_outside(planted.scenario) or "nothing else"
    done = play(admin, planted.spec, planted.params, "--only", life, "--timeout", "30s", "-o", "json")
    assert done.code == 1, done
    lives = json.loads(done.out)["scenarios"]
    assert [each["fault"] for each in lives] == [*([""] if planted.scenario else []), planted.fault], lives


@pytest.mark.proof
@pytest.mark.timeout(1500, func_only=True)
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_in_a_clean_plugin_from_outside(operator, admin, world, name):
    spec, params = CLEAN[name]
    if name == IN_PYTHON:
        operator.own.load(stand_ins.python())
    image = stand_ins.PYTHON if name == IN_PYTHON else images.SHELL
    done = play(admin, spec, params, "--timeout", "90s", image=image)
    assert (done.code, "no findings" in done.err) == (0, True), done
    assert {line[:14].strip() for line in done.out.splitlines()} == {"ok", "(skipped)"}
    assert all("has no access to nodes" in line for line in done.out.splitlines() if line.startswith("("))
    assert [*world.iterdir()] == []
