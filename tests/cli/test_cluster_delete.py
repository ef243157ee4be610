"""`sandbox delete` and `routegroup delete` in a cluster: selection, waits and messages."""

from __future__ import annotations

import json

import pytest
from tests.cli.command import refused
from tests.cli.frozen_cluster import FLAGS, LIFE, NEVER_GOES, FrozenCluster, Stage, stage, stuck, up

from dayfly.cli.backends import cluster

from tests.operator.rig.scenes import wish  # isort: skip
from tests.operator.rig.world import API, World  # isort: skip

__all__ = ["stage"]

BOX = f"/apis/{API}/namespaces/shop/sandboxes/box"


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch):
    """Change the cluster while the command waits. The waits advance only the clock of the command."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def happens(what=lambda: None):
        def pause(self, seconds):
            async def now():
                what()

            clock[0] += seconds
            self._loop.run(now())

        monkeypatch.setattr(cluster.ClusterBackend, "pause", pause)

    return happens


def world_of(asked: FrozenCluster) -> World:
    """Return a world for changes by other clients."""
    found = World.__new__(World)
    found.cluster = asked.cluster
    return found


def goes(world: World) -> None:
    """Remove the finalizers, as after a finished cleanup."""
    world.ask("PATCH", BOX, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


def key(asked: FrozenCluster) -> str:
    return asked.cluster.objects("sandboxes")[0]["status"]["routingKey"]


def test_delete_waits_until_sandbox_is_gone(stage: Stage, meanwhile):
    asked = stage(LIFE, up)
    world, first = world_of(asked), key(asked)
    meanwhile(lambda: goes(world))
    done = asked("sandbox", "delete", "box")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        f'Deleting sandbox "box" (routing key: {first}).',
        'Sandbox "box" is gone.',
    ]


def test_another_one_of_its_name_is_not_waited_for(stage: Stage, meanwhile):
    asked = stage(LIFE, up)
    world = world_of(asked)

    def anew():
        goes(world)
        world.sandbox(wish())

    meanwhile(anew)
    assert asked("sandbox", "delete", "box").code == 0
    assert "deletionTimestamp" not in asked.cluster.objects("sandboxes")[0]["metadata"]


def test_delete_timeout_reports_why_sandbox_remains(stage: Stage, meanwhile):
    asked = stage(NEVER_GOES, stuck)
    meanwhile()
    done = asked("sandbox", "delete", "box", "--timeout", "30s")
    assert done.code == 4
    assert "dayfly: box is still being deleted after 30 s: Deleting: db/drop: attempt 1 failed" in done.err
    assert f"see: dayfly why box{FLAGS}" in done.err
    assert "box: db/drop: retrying" in done.err


def test_delete_reports_abandoned_cleanup(stage: Stage, meanwhile):
    asked = stage(NEVER_GOES, stuck)
    asked("abandon", "box", "--reason", "x")
    world = world_of(asked)
    meanwhile(lambda: goes(world))
    assert asked("sandbox", "delete", "box").err.endswith('Sandbox "box" is gone, its cleanup was abandoned.\n')


def test_delete_without_wait_returns_at_once(stage: Stage):
    asked = stage(LIFE, up)
    done = asked("sandbox", "delete", "box", "--wait=false")
    assert (done.code, done.err) == (0, f'Deleting sandbox "box" (routing key: {key(asked)}).\n')
    assert "deletionTimestamp" in asked.cluster.objects("sandboxes")[0]["metadata"]


def test_a_route_group_too(stage: Stage):
    async def group(world: World) -> None:
        body = {"metadata": {"name": "all"}, "spec": {"match": {"label": {"key": "a", "value": "b"}}}}
        world.ask("POST", f"/apis/{API}/namespaces/shop/routegroups", body)

    asked = stage(LIFE, group)
    [listed] = json.loads(asked("routegroup", "list", "-o", "json").out)
    assert asked("routegroup", "list").out.splitlines()[1].split()[:2] == ["all", listed["routingKey"]]
    assert listed.items() <= json.loads(asked("rg", "get", "all", "-o", "json").out).items()
    done = asked("routegroup", "delete", "all")
    assert done.code == 0
    assert done.err.endswith('Route group "all" is gone.\n')
    assert not asked.cluster.objects("routegroups")


def test_delete_of_missing_or_denied_sandbox_changes_nothing(stage: Stage):
    asked = stage(LIFE, up)
    refused(asked("sandbox", "delete", "bix"), 3, 'no sandbox "bix" in namespace shop; did you mean "box"?')
    refused(asked("sandbox", "delete", "box", "--server", "work"), 2, "--server and --context cannot be combined")
    asked.denied = ("/sandboxes/box",)
    refused(asked("sandbox", "delete", "box"), 5, 'User "ada" cannot get')
    assert "deletionTimestamp" not in asked.cluster.objects("sandboxes")[0]["metadata"]


def test_a_namespace_alone_is_no_cluster(stage: Stage, capsys):
    from dayfly.cli.verbs import run

    assert run(["sandbox", "delete", "box", "-n", "shop"]) == 2
    assert "add --context NAME" in capsys.readouterr().err
