"""Terraform's state on a real cluster: kept in Secrets, served by every replica, with nothing to configure."""

import base64
import json
import random
from typing import Any

import pytest
from testcluster import stand_ins
from tests.cluster.installed import API, AS_OPERATOR, RUNNERS, SYSTEM, Installed, written_status
from tests.cluster.test_examples import TEAM, outputs, wishes_of
from tests.cluster.waiting import eventually
from tests.examples import external_services

NAME = "terraform-demo"
THINGS = 4
_STATES = f"/api/v1/namespaces/{SYSTEM}/secrets?fieldSelector=type%3Ddayfly.dev%2Fstate"
# These resources take time to create and destroy, one after the other, so a test can interrupt them. Terraform handles
# resources in parallel if they do not depend on each other.
_THING = """
resource "terraform_data" "thing%d" {
  input      = "hunter2-%d"
  depends_on = [%s]
  provisioner "local-exec" {
    command = "echo made; sleep 0.7"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "echo gone; sleep 0.7"
  }
}
"""
_MODULE = "".join(_THING % (each, each, f"terraform_data.thing{each - 1}" if each else "") for each in range(THINGS))


@pytest.fixture
def terraform(operator: Installed) -> Installed:
    operator.own.load(stand_ins.terraform(external_services.terraform()))
    return operator


def stack(**params: str) -> tuple[dict[str, Any], dict[str, Any]]:
    plugin, sandbox = wishes_of("terraform")
    sandbox["spec"]["resources"][0]["params"] |= params
    return plugin, sandbox


def states(operator: Installed) -> dict[str, Any]:
    """The heads of all states, by their resources."""
    found = [each for each in operator.items(_STATES) if "head" in each.get("data", {})]
    heads = [json.loads(base64.b64decode(each["data"]["head"])) for each in found]
    return {head["resource"]: head for head in heads}


@pytest.mark.builds("terraform")
def test_a_state_lives_between_two_pods(terraform):
    """Without the key no user of the cluster can read the state, and the token is deleted when the step has ended."""
    terraform.apply(*stack())
    with terraform.ending(NAME, TEAM):
        terraform.wait_ready(NAME, TEAM)
        assert b"Good morning" in outputs(terraform, NAME)["apply.values"]
        (version,) = states(terraform)["stack"]["versions"]
        assert version["holder"] == {"unit": "stack/apply", "attempt": 1}
        kept = terraform.items(_STATES)
        assert [each["immutable"] for each in kept if "chunk" in each["data"]] == [True]
        assert not any(b"Good morning" in base64.b64decode(value) for each in kept for value in each["data"].values())
        tokens = f"/api/v1/namespaces/{RUNNERS}/secrets?fieldSelector=type%3Ddayfly.dev%2Fstate"
        eventually(lambda: terraform.items(tokens) == [], "the end of the token")
        forbidden = terraform.refused("delete", "secret", "-n", SYSTEM, kept[0]["metadata"]["name"])
        assert "only the Dayfly operator may write and delete it" in forbidden
    terraform.check_nothing_left()


def life(operator: Installed, victim: str, phase: str, count: int) -> None:
    """The life of a sandbox in which a process is killed. After that the test only deletes the sandbox."""
    operator.apply(*stack(module=_MODULE, variables=""))
    with operator.ending(NAME, TEAM):
        unit, word = ("stack/apply", "made") if phase == "apply" else ("stack/destroy", "gone")
        if phase == "destroy":
            operator.wait_ready(NAME, TEAM)
            operator.own.kubectl("delete", "sandbox.dayfly.dev", NAME, "-n", TEAM, "--wait=false")
        pod = operator.pod(unit)
        where = ["-n", RUNNERS, pod["metadata"]["name"]]
        eventually(lambda: operator.own.kubectl("logs", *where).count(f"local-exec): {word}") >= count, "so far")
        match victim:
            case "terraform":
                operator.own.run_inside(["sh", "-c", "pkill -KILL -x terraform || true"])
            case "pod":
                operator.own.kubectl("delete", "pod", "--grace-period=1", "--wait=false", *where)
            case "operator":
                operator.kill_leader()
        if phase == "destroy":
            operator.wait_gone(NAME, TEAM)
        else:
            units = ("Ready", "ResourceFailed")
            operator.wait_status(
                NAME, TEAM, lambda said: said["reason"] in units or said["ready"], "an end of its create"
            )
    operator.check_nothing_left()


@pytest.mark.builds("terraform")
def test_killed_operator_leaves_nothing_behind(terraform):
    life(terraform, "operator", "apply", 1)


@pytest.mark.proof
@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.builds("terraform")
def test_twenty_terraform_runs_survive_random_kills(terraform):
    chance = random.Random(9)
    for _ in range(20):
        victim, phase = chance.choice(["terraform", "pod", "operator"]), chance.choice(["apply", "destroy"])
        life(terraform, victim, phase, chance.randrange(THINGS))


@pytest.mark.proof
@pytest.mark.builds("terraform")
def test_abandoned_cleanup_keeps_the_terraform_state(terraform):
    plugin, sandbox = stack()
    terraform.apply(plugin, sandbox)
    with terraform.ending(NAME, TEAM):
        terraform.wait_ready(NAME, TEAM)
        kubectl = ["sandbox.dayfly.dev", NAME, "-n", TEAM]
        terraform.own.kubectl("annotate", *kubectl, "dayfly.dev/abandon=force: lost")
        terraform.wait_gone(NAME, TEAM)
    runs = f"/apis/{API}/runs"
    eventually(lambda: terraform.items(runs) == [], "the end of the run")
    left = terraform.items(_STATES)
    assert states(terraform)["stack"]["sandbox"] == NAME
    assert not any("ownerReferences" in each["metadata"] for each in left)
    for each in left:
        terraform.own.kubectl("delete", "secret", "-n", SYSTEM, each["metadata"]["name"])
    terraform.check_nothing_left()


def test_state_without_a_run_gets_a_leak_check(operator: Installed):
    """A new leader searches at its start, and later once an hour."""
    head = base64.b64encode(json.dumps({"sandbox": "gone", "resource": "stack"}).encode()).decode()
    meta = {
        "name": "state-left",
        "namespace": SYSTEM,
        "labels": {"dayfly.dev/state": "head", "dayfly.dev/run": "gone"},
    }
    check = f"/apis/{API}/leakchecks/terraform-states"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": meta,
        "type": "dayfly.dev/state",
        "data": {"head": head},
    }
    operator.own.kubectl(AS_OPERATOR, "create", "-f", "-", stdin=json.dumps(secret))
    try:
        operator.kill_leader()
        [found] = eventually(
            lambda: written_status(operator.get(check) or {}).get("findings"), "the finding of a new leader"
        )
        assert (found["name"], found["verdict"]) == ("states/gone/stack", "unknown"), "it is not an hour old"
    finally:
        operator.own.kubectl("delete", "secret", "-n", SYSTEM, "state-left")
        operator.own.kubectl("delete", "leakcheck.dayfly.dev", "terraform-states", "--ignore-not-found")
    operator.check_nothing_left()
