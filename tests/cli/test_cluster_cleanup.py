"""`plugin test` deletes exactly the objects that it has created in a cluster (a fake API server)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.cli.frozen_cluster import FrozenCluster, Stage, stage, still
from tests.testing.faulty_plugins import plugin
from tests.testing.test_scenarios import spec

from dayfly.cli.backends.cluster import ClusterBackend
from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.cli.local.child import Interrupted
from dayfly.cli.plugin_test.cluster_cleanup import CreatedObjects
from dayfly.cli.plugin_test.cluster_specs import LABEL, MAX_VERSION_AGE_S, SpecBuilder
from dayfly.cli.plugin_test.workers import StopRequest
from dayfly.client.errors import DayflyError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.operator.cluster.objects import PLUGINS, SANDBOXES
from dayfly.spec.plugin import Plugin
from dayfly.spec.scalars import semver
from dayfly.testing import undisturbed_cluster_scenario

__all__ = ["stage"]

PLUGIN = Plugin(name="planted", version="1.2.3", spec=spec(plugin()))
SCENARIO = undisturbed_cluster_scenario(PLUGIN.spec, {"root": "/x"})
BOXES = SANDBOXES.read_as(dict)


@pytest.fixture
def asked(stage: Stage) -> FrozenCluster:
    return stage.at(still(), 1000)


@pytest.fixture
def host(asked: FrozenCluster) -> Iterator[ClusterBackend]:
    found = asked.host()
    yield found
    found.close()


def names(host: ClusterBackend, kind=BOXES, namespace: str = "shop") -> list[str]:
    there = host.call(lambda client: client.list_all(kind.metadata_only(), namespace)).items
    return [each.metadata.name for each in there]


def created_objects(
    host: ClusterBackend, *, publish: bool = False, stop: StopRequest | None = None
) -> tuple[CreatedObjects, SpecBuilder]:
    specs = SpecBuilder(PLUGIN, publish=publish)
    return CreatedObjects(host, 5.0, specs, stop or StopRequest()), specs


def test_created_objects_have_a_label_and_a_time_to_live(host: ClusterBackend):
    _, specs = created_objects(host, publish=True)
    for wish in (specs.build(SCENARIO, 14), specs.build_inventory(SCENARIO, "box", "u-1", "k", 14)):
        assert wish.sandbox["spec"]["ttl"] == {"duration": "14m"}
        labels = [wish.sandbox["metadata"]["labels"], wish.plugin["metadata"]["labels"]]
        assert labels[0] == labels[1]
        assert [*labels[0]] == [LABEL]
        assert wish.sandbox["spec"]["resources"][0]["plugin"] == wish.plugin["spec"]["name"]


def test_test_version_sorts_below_all_others(host: ClusterBackend):
    _, specs = created_objects(host, publish=True)
    _, version = semver.split_name(specs.build(SCENARIO, 14).plugin["spec"]["name"])
    assert semver.compare(version, "0.0.0") < 0
    assert semver.compare(version, "0.0.1-alpha") < 0


def test_plugin_is_inline_without_publish(host: ClusterBackend):
    wish = created_objects(host)[1].build(SCENARIO, 14)
    assert wish.plugin is None
    assert wish.sandbox["spec"]["resources"][0]["spec"]["create"][0]["name"] == "make"


def test_inventory_script_exports_sandbox_and_routing_key(host: ClusterBackend):
    [resource] = (
        created_objects(host)[1].build_inventory(SCENARIO, "box", "u-1", "key", 14).sandbox["spec"]["resources"]
    )
    script = resource["spec"]["create"][0]["script"]
    assert "export DAYFLY_SANDBOX_NAME=box\n" in script
    assert "export DAYFLY_SANDBOX_ROUTING_KEY=key\n" in script
    assert resource["params"] == {"root": "/x"}


def test_other_sandbox_of_the_same_name_is_not_touched(host: ClusterBackend):
    made, specs = created_objects(host)
    box = made.create(specs.build(SCENARIO, 14), SCENARIO)
    host.call(lambda client: client.delete(BOXES, box.name, "shop"))
    body = {"metadata": {"name": box.name}, "spec": {"cluster": "local"}}
    host.call(lambda client: client.create(BOXES, body, "shop"))
    assert made.read(box) is None, "the sandbox of the test is gone"
    made.delete(box)
    made.abandon(box)
    made.clear(lambda *_: True)
    assert box.name in names(host)
    [found] = [
        each
        for each in host.call(lambda client: client.list_all(BOXES, "shop")).items
        if each["metadata"]["name"] == box.name
    ]
    assert "annotations" not in found["metadata"]


def test_only_old_test_versions_are_deleted(asked: FrozenCluster, host: ClusterBackend):
    kind = PLUGINS.read_as(dict)
    _, specs = created_objects(host, publish=True)
    version = specs.build(SCENARIO, 14).plugin
    born = milliseconds(host.call(lambda client: client.create(kind, version))["metadata"]["creationTimestamp"])
    real = {"metadata": {"name": "real.1.0.0", "labels": {LABEL: "x"}}, "spec": {"name": "real@1.0.0"}}
    host.call(lambda client: client.create(kind, real))
    asked.now = born + (MAX_VERSION_AGE_S - 1) * 1000
    created_objects(host, publish=True)[0].delete_old_versions()
    assert len(names(host, kind, "")) == 2
    asked.now += 2000
    created_objects(host, publish=True)[0].delete_old_versions()
    assert names(host, kind, "") == ["real.1.0.0"]


def test_signal_prevents_the_next_creation(host: ClusterBackend):
    stop = StopRequest()
    made, specs = created_objects(host, stop=stop)
    with stop.signals:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            made.create(specs.build(SCENARIO, 14), SCENARIO)
    assert names(host) == ["box"]


def test_clear_deletes_all_created_objects(host: ClusterBackend):
    made, specs = created_objects(host, publish=True)
    made.create(specs.build(SCENARIO, 14), SCENARIO)
    made.request_deletions()
    made.clear(lambda *_: True)
    assert (names(host), names(host, PLUGINS, "")) == (["box"], [])
    assert specs.find_command(" --context here").startswith(
        "see: kubectl --context here get sandboxes.dayfly.dev,resourceplugins "
    )


def test_clear_deletes_objects_after_a_lost_answer(host: ClusterBackend, monkeypatch: pytest.MonkeyPatch):
    create = KubeClient.create

    async def lose_response(client: KubeClient, kind, body, *where):
        await create(client, kind, body, *where)
        raise errors.OutcomeUnknown("POST", "the connection was reset")

    made, specs = created_objects(host, publish=True)
    monkeypatch.setattr(KubeClient, "create", lose_response)
    box = made.create(specs.build(SCENARIO, 14), SCENARIO)
    assert sorted(names(host)) == sorted(["box", box.name])
    made.request_deletions()
    made.clear(lambda *_: True)
    assert (names(host), names(host, PLUGINS, "")) == (["box"], [])


def test_creation_without_answer_or_object_is_an_error(host: ClusterBackend, monkeypatch: pytest.MonkeyPatch):
    async def lose_response(*_):
        raise errors.OutcomeUnknown("POST", "the connection was reset")

    made, specs = created_objects(host)
    monkeypatch.setattr(KubeClient, "create", lose_response)
    with pytest.raises(DayflyError, match="was reset"):
        made.create(specs.build(SCENARIO, 14), SCENARIO)
    assert names(host) == ["box"]
