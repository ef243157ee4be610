"""The command line against the real thing: with a developer's rights, while steps run, and after their pods are gone."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import TEAM
from tests.cluster.installed import Installed
from tests.cluster.kubectl_specs import published
from tests.cluster.people import Person, administrator, developer
from tests.cluster.waiting import eventually

CANARY = "canary-4711"
HERE = ("--context", "here", "-n", TEAM)


@pytest.fixture
def admin(operator: Installed, tmp_path: Path) -> Person:
    return administrator(operator, tmp_path / "admin")


@pytest.fixture
def ada(operator: Installed, tmp_path: Path) -> Iterator[Person]:
    """A developer with the role `edit` in the team's namespace."""
    yield developer(operator, tmp_path / "ada", TEAM, "edit")
    _forget(operator, "ada-edit")


@pytest.fixture
def bob(operator: Installed, tmp_path: Path) -> Iterator[Person]:
    """A viewer with the role `view` in the team's namespace."""
    yield developer(operator, tmp_path / "bob", TEAM, "view")
    _forget(operator, "ada-view")


def _forget(operator: Installed, account: str) -> None:
    operator.own.kubectl("delete", "rolebinding,serviceaccount", account, "-n", TEAM, "--ignore-not-found")


def talkative(name: str, journal, *, drop: str = "echo gone") -> dict:
    """A plugin whose steps print; the first goes on only when the journal lets it."""
    read = [{"name": "word", "valueFromStep": {"name": "make", "output": "word"}, "as": {"env": "WORD"}}]
    make = f"#!/bin/sh\necho making\n{journal.tell('create make')}\necho made\nprintf hello >/tmp/word\n"
    show = "#!/bin/sh\necho \"got $WORD\"\nhead -c 100000 /dev/zero | tr '\\0' x\necho\n"
    make_step = {"name": "make", "script": make, "outputs": [{"name": "word", "valueFromPath": "/tmp/word"}]}
    show_step = {"name": "show", "script": show, "inputs": read}
    drop_step = {"name": "drop", "script": f"#!/bin/sh\n{drop}\n", "inputs": read, "retry": {"backoff": "1h"}}
    return published(name, [make_step, show_step], [drop_step])


def test_developer_follows_a_run_and_reads_logs_after_it(operator, wishes, journal, admin, ada, bob, tmp_path):
    """The role `edit` or `view` in the sandbox's namespace is enough, except for live logs."""
    journal.hold("create make")
    operator.apply(talkative(wishes.name, journal), wishes.sandbox())
    journal.wait_for("create make")
    follower = admin.start("logs", wishes.name, "pair", "make", "-f", *HERE)
    assert follower.stdout.readline() == "making\n"

    why = eventually(lambda: said if "Running" in (said := ada.dayfly("why", wishes.name, *HERE)).out else None, "why")
    assert "pair/make: Running: attempt 1 has been running for " in why.out
    assert f"to do: watch it with `dayfly logs {wishes.name} pair make -f --context here -n {TEAM}`" in why.out
    live = ada.dayfly("logs", wishes.name, "pair", "make", *HERE)
    assert (live.code, live.out) == (0, "")
    assert "its log cannot be shown while it runs" in live.err
    assert 'cannot get resource "pods/log"' in live.err

    timed = admin.dayfly("logs", wishes.name, "pair", "make", "--timestamps", "--since", "1h", *HERE).out
    stamp, _, line = timed.partition(" ")
    assert line == "making\n"
    began = dt.datetime.fromisoformat(stamp)
    assert dt.timedelta(0) <= dt.datetime.now(dt.UTC) - began < dt.timedelta(hours=1)

    journal.let_go()
    operator.wait_ready(wishes.name, wishes.namespace)
    out, err = follower.communicate(timeout=60)
    assert (follower.returncode, out) == (0, "made\n")
    # A slow machine may start the step later, which is reported.
    assert not err or err.startswith("pair/make: not started yet")
    eventually(lambda: not operator.pods(), "the end of the pods")
    for person in (admin, ada, bob):
        done = person.dayfly("logs", wishes.name, "pair", "make", *HERE)
        assert (done.code, done.out, done.err) == (0, "making\nmade\n", "")
    kept = bob.dayfly("logs", wishes.name, "pair", "make", "--timestamps", *HERE).out
    assert kept.startswith(timed), "the kubelet's log is stored"
    made = kept.removeprefix(timed).partition(" ")[0]
    assert kept == f"{timed}{made} made\n"
    assert made > stamp
    assert bob.dayfly("logs", wishes.name, "pair", "make", "--since-time", made, *HERE).out == "made\n"
    long = bob.dayfly("logs", wishes.name, "pair", "show", *HERE)
    assert len(long.out) == 65_536
    assert (
        long.err
        == f"pair/show: attempt 1 printed {len('got hello') + 100_002} bytes, of which the last 65536 are stored\n"
    )
    table = bob.dayfly("get", *HERE).out.splitlines()
    assert table[1].split()[:4] == [wishes.name, "Ready", "AllDesiredWorkloadsReady", "2/2"]
    assert ada.dayfly("env", wishes.name, *HERE).out == "PAIR_MAKE_WORD=hello\n"
    refused = bob.dayfly("env", wishes.name, *HERE)
    assert (refused.code, refused.out) == (5, "")
    assert 'cannot get resource "secrets"' in refused.err
    elsewhere = ada.dayfly("get", "--context", "here", "-n", "default")
    assert elsewhere.code == 5
    assert 'cannot list resource "sandboxes"' in elsewhere.err

    file = tmp_path / "box.yaml"
    file.write_text(json.dumps(wishes.sandbox()))
    plan = admin.dayfly("plan", "-f", str(file), *HERE)
    assert "preStart, wave 2\n  pair/show (once, image dayfly.test/shell:1)\n    $WORD = pair/make.word" in plan.out, (
        plan
    )


def test_a_cleanup_that_fails_is_explained_and_given_up(operator, wishes, journal, ada):
    operator.apply(talkative(wishes.name, journal, drop="echo no network; exit 6"), wishes.sandbox())
    operator.wait_ready(wishes.name, wishes.namespace)
    operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", TEAM, "--wait=false")
    operator.wait_status(wishes.name, TEAM, lambda status: "tries again at" in status["message"], "a failed cleanup")
    why = ada.dayfly("why", wishes.name, *HERE).out
    assert "pair/drop: WaitingToRetry: attempt 1 failed (exit code 6); tries again in " in why
    logs = ada.dayfly("logs", wishes.name, "pair", "drop", "--attempt", "1", *HERE)
    assert (logs.code, logs.out) == (0, "no network\n")
    done = ada.dayfly("abandon", wishes.name, "--reason", "the network is gone", *HERE)
    assert done.code == 0, done.err
    # `edit` applies to the namespace. Only the ledger knows which outputs are sensitive, and it belongs to the cluster.
    assert f"  pair ({wishes.name}@1.0.0): make.word (sensitive)" in done.err
    operator.wait_gone(wishes.name, TEAM)


def attempts(status: dict) -> list[tuple[str, int]]:
    """Each unit and its latest attempt."""
    return [(unit["id"], unit.get("attempt", 0)) for unit in status.get("units", ())]


def leaky(name: str, journal) -> dict:
    """Return a plugin whose steps print a secret and the content of their folder, and leave a file there.

    The second create step fails, and the first attempt of the delete step.
    """

    def step(said: str, then: str = "") -> str:
        look = 'echo "$(ls -A | wc -l) here"; echo mine >left'
        return f'#!/bin/sh\n{look}\n{journal.tell(said)}\necho "the token is $TOKEN"\n{then}\n'

    read = {"inputs": [{"name": "t", "valueFromStep": {"name": "make", "output": "token"}, "as": {"env": "TOKEN"}}]}
    token = {"name": "token", "valueFromPath": "/tmp/token", "sensitive": True}
    make = step("create make", f"printf {CANARY} >/tmp/token; cat /tmp/token")
    fails_once = '[ "$DAYFLY_ATTEMPT" -gt 1 ]'
    make_step = {"name": "make", "script": make, "outputs": [token]}
    break_step = {"name": "break", "script": step("create break", "exit 4"), **read}
    drop_step = {"name": "drop", "script": step("delete drop", fails_once), "retry": {"backoff": "1h"}, **read}
    return published(name, [make_step, break_step], [drop_step])


def test_failed_sandbox_masks_logs_and_retries_only_cleanup(operator, wishes, journal, ada, admin):
    """Each attempt starts in an empty folder, stored logs are masked too, and only cleanup is retried."""
    operator.apply(leaky(wishes.name, journal), wishes.sandbox())
    operator.wait_status(wishes.name, TEAM, lambda status: status["reason"] == "ResourceFailed", "the failure")
    refused = ada.dayfly("retry", wishes.name, "pair/break", *HERE)
    assert refused.code == 1
    assert "a failed create step never runs again in its sandbox" in refused.err

    operator.own.kubectl("delete", "sandbox.dayfly.dev", wishes.name, "-n", TEAM, "--wait=false")
    operator.wait_status(wishes.name, TEAM, lambda status: "tries again at" in status["message"], "a failed cleanup")
    logs = eventually(
        lambda: said if "pair/drop" in (said := ada.dayfly("logs", wishes.name, *HERE).out) else "", "the kept logs"
    )
    assert logs.splitlines() == [
        "pair/make | 0 here",
        "pair/make | the token is ",
        "pair/make | ***",
        "pair/break | 0 here",
        "pair/break | the token is ***",
        "pair/drop | 0 here",
        "pair/drop | the token is ***",
    ]
    kept = operator.own.kubectl("get", "steplogs,sandboxes,runs,resources,events", "-A", "-o", "json")
    assert "the token is ***" in kept
    assert CANARY not in kept

    journal.hold("delete drop")
    again = ada.dayfly("retry", wishes.name, *HERE)
    assert (again.code, again.err.splitlines()[0]) == (0, "pair/drop: attempt 1 has failed; it is retried now."), again
    assert journal.wait_for("delete drop", times=2).attempt == 2
    # The command follows the latest attempt in the status, which may be a moment old.
    operator.wait_status(wishes.name, TEAM, lambda status: ("pair/drop", 2) in attempts(status), "the second attempt")
    follower = admin.start("logs", wishes.name, "pair", "drop", "-f", *HERE)
    assert follower.stdout.readline() == "0 here\n"
    journal.let_go()
    assert follower.communicate(timeout=60)[0] == "the token is ***\n"
    operator.wait_gone(wishes.name, TEAM)
    assert [entry.said for entry in journal.entries] == ["create make", "create break", "delete drop", "delete drop"]
