"""`dayfly leaks --context`: leak checks of a cluster (a fake API server)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.frozen_cluster import FrozenCluster, Stage, stage, still
from tests.kube.fake import FakeCluster
from tests.operator.rig.cloud import Object
from tests.operator.rig.world import API, World

from dayfly.client.errors import Exit

__all__ = ["stage"]

CHECKS = f"/apis/{API}/leakchecks"
NOW = 1_767_225_600_000 + 60_000
ORPHAN = {"verdict": "orphan", "id": "0" * 26, "name": f"pg-{'0' * 26}", "reason": "its run has ended"}
STATUS = {
    "ready": True,
    "plugin": "pg@1.0.0",
    "number": 3,
    "listedAt": "2026-01-01T00:00:00Z",
    "counts": {"orphan": 1, "held": 4},
    "findings": [{**ORPHAN, "plugin": "pg@1.0.0", "created": 1_767_225_000_000, "deletable": True}],
    "plan": "abcdef",
    "deletions": [{"sequence": 7, "id": "1" * 26, "plugin": "pg@1.0.0", "plan": "xyz", "at": 1_767_225_600_000}],
}


def cluster_with(*checks: tuple[str, Object]) -> FakeCluster:
    world = World.__new__(World)
    world.cluster = still()
    for name, status in checks:
        body: dict[str, Any] = {"apiVersion": API, "kind": "LeakCheck", "metadata": {"name": name}}
        world.ask("POST", CHECKS, {**body, "spec": {"plugin": "pg"}})
        world.ask("PATCH", f"{CHECKS}/{name}/status", {"status": status}, "application/merge-patch+json")
    return world.cluster


@pytest.fixture
def asked(stage: Stage) -> FrozenCluster:
    return stage.at(cluster_with(("items", STATUS), ("broken", {"ready": False, "message": "no plugin"})), NOW)


def annotation(asked: FrozenCluster, name: str = "items") -> str:
    [found] = [each for each in asked.cluster.objects("leakchecks") if each["metadata"]["name"] == name]
    return found["metadata"].get("annotations", {}).get("dayfly.dev/leak-request", "")


def test_table_shows_the_numbers_and_the_leaks(asked: FrozenCluster):
    done = asked("leaks", "items")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[1][:2] + rows[1][3:8] == ["items", "pg@1.0.0", "4", "1", "0", "0", "0"]
    assert rows[4][:3] == ["items", "orphan", ORPHAN["name"]]


def test_refused_check_fails_with_its_message(asked: FrozenCluster):
    done = asked("leaks", "broken", "--check")
    assert done.code == Exit.FAILED
    assert "no plugin" in done.out


def test_json_has_the_deletions_with_their_plan_and_result(asked: FrozenCluster):
    done = asked("leaks", "items", "-o", "json")
    assert done.code == 0, done.err
    made = {"id": "1" * 26, "plugin": "pg@1.0.0", "plan": "xyz", "at": "2026-01-01T00:00:00Z", "done": False}
    [shown] = [each for each in json.loads(done.out) if each["name"] == "items"]
    assert shown["status"]["deletions"] == [made]


def test_plan_has_the_digest_and_the_deletable_items(asked: FrozenCluster, tmp_path):
    done = asked("leaks", "items", "--plan", str(tmp_path / "plan.json"))
    assert done.code == 0, done.err
    [plan] = json.loads((tmp_path / "plan.json").read_text())["checks"]
    assert (plan["name"], plan["plan"], [each["id"] for each in plan["delete"]]) == ("items", "abcdef", ["0" * 26])


@pytest.mark.parametrize(("options", "action"), [(("--sweep",), "sweep"), (("--apply", "plan.json"), "apply abcdef")])
def test_request_is_written_and_its_result_awaited(asked: FrozenCluster, tmp_path, monkeypatch, options, action):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"checks": [{"name": "items", "plan": "abcdef"}]}))
    given = [str(plan) if each == "plan.json" else each for each in options]
    names = [] if "--apply" in options else ["items"]
    done = asked("leaks", *names, *given, "--timeout", "0s")
    assert done.code == Exit.TIMED_OUT, done.err
    first = annotation(asked)
    assert first.startswith(f"{action} ")
    asked("leaks", *names, *given, "--timeout", "0s")
    assert annotation(asked) not in ("", first)


def test_deleted_check_is_gone(asked: FrozenCluster):
    assert asked("leaks", "broken", "--delete-check").code == 0
    assert asked("leaks", "broken", "--delete-check").code == Exit.NOT_FOUND
    assert asked("leaks", "broken").code == Exit.NOT_FOUND
