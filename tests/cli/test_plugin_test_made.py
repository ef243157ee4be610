"""What `plugin test` makes on a cluster, and that it takes away nothing else: against a fake API server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from cli.clusters import Asked, Stage, stage, still
from dayfly.cli.backends.cluster import ClusterBackend
from dayfly.cli.backends.cluster_report import milliseconds
from dayfly.cli.local.child import Interrupted
from dayfly.cli.plugin_test.cluster_cleanup import Made
from dayfly.cli.plugin_test.cluster_specs import LABEL, OLD_S, Wishes
from dayfly.client.errors import DayflyError
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.operator.cluster.objects import PLUGINS, SANDBOXES
from dayfly.spec.plugin import Plugin
from dayfly.spec.scalars import semver
from dayfly.testing import first_outside
from testing.planted import plugin
from testing.test_lives import spec

__all__ = ["stage"]

PLUGIN = Plugin(name="planted", version="1.2.3", spec=spec(plugin()))
LIFE = first_outside(PLUGIN.spec, {"root": "/x"})
BOXES = SANDBOXES.read_as(dict)


@pytest.fixture
def asked(stage: Stage) -> Asked:
    return stage.at(still(), 1000)


@pytest.fixture
def host(asked: Asked) -> Iterator[ClusterBackend]:
    found = asked.host()
    yield found
    found.close()


def names(host: ClusterBackend, kind=BOXES, namespace: str = "shop") -> list[str]:
    there = host.call(lambda client: client.list_all(kind.metadata_only(), namespace)).items
    return [each.metadata.name for each in there]


def made_of(host: ClusterBackend, *, publish: bool = False) -> tuple[Made, Wishes]:
    wishes = Wishes(PLUGIN, publish=publish)
    return Made(host, 5.0, wishes), wishes


def test_all_that_is_made_has_a_label_and_a_time_to_live(host: ClusterBackend):
    _, wishes = made_of(host, publish=True)
    for wish in (wishes.of_life(LIFE, 14), wishes.of_inventory(LIFE, "box", "u-1", "k", 14)):
        assert wish.sandbox["spec"]["ttl"] == {"duration": "14m"}
        labels = [wish.sandbox["metadata"]["labels"], wish.plugin["metadata"]["labels"]]
        assert labels[0] == labels[1]
        assert [*labels[0]] == [LABEL]
        assert wish.sandbox["spec"]["resources"][0]["plugin"] == wish.plugin["spec"]["name"]


def test_a_version_for_the_test_is_below_every_other(host: ClusterBackend):
    """Nobody who asks for the latest gets it."""
    _, wishes = made_of(host, publish=True)
    _, version = semver.split_name(wishes.of_life(LIFE, 14).plugin["spec"]["name"])
    assert semver.compare(version, "0.0.0") < 0
    assert semver.compare(version, "0.0.1-alpha") < 0


def test_without_publishing_the_plugin_stands_within_the_sandbox(host: ClusterBackend):
    wish = made_of(host)[1].of_life(LIFE, 14)
    assert wish.plugin is None
    assert wish.sandbox["spec"]["resources"][0]["spec"]["create"][0]["name"] == "make"


def test_inventory_script_exports_sandbox_and_routing_key(host: ClusterBackend):
    [resource] = made_of(host)[1].of_inventory(LIFE, "box", "u-1", "key", 14).sandbox["spec"]["resources"]
    script = resource["spec"]["create"][0]["script"]
    assert "export DAYFLY_SANDBOX_NAME=box\n" in script
    assert "export DAYFLY_SANDBOX_ROUTING_KEY=key\n" in script
    assert resource["params"] == {"root": "/x"}


def test_another_sandbox_of_that_name_is_not_touched(host: ClusterBackend):
    made, wishes = made_of(host)
    box = made.make(wishes.of_life(LIFE, 14), LIFE)
    host.call(lambda client: client.delete(BOXES, box.name, "shop"))
    body = {"metadata": {"name": box.name}, "spec": {"cluster": "local"}}
    host.call(lambda client: client.create(BOXES, body, "shop"))
    assert made.look(box) is None, "ours is gone"
    made.delete(box)
    made.give_up(box)
    made.clear(lambda *_: True)
    assert box.name in names(host)
    [found] = [
        each
        for each in host.call(lambda client: client.list_all(BOXES, "shop")).items
        if each["metadata"]["name"] == box.name
    ]
    assert "annotations" not in found["metadata"]


def test_only_versions_of_tests_that_are_long_over_are_forgotten(asked: Asked, host: ClusterBackend):
    kind = PLUGINS.read_as(dict)
    _, wishes = made_of(host, publish=True)
    version = wishes.of_life(LIFE, 14).plugin
    born = milliseconds(host.call(lambda client: client.create(kind, version))["metadata"]["creationTimestamp"])
    real = {"metadata": {"name": "real.1.0.0", "labels": {LABEL: "x"}}, "spec": {"name": "real@1.0.0"}}
    host.call(lambda client: client.create(kind, real))
    asked.now = born + (OLD_S - 1) * 1000
    made_of(host, publish=True)[0].forget()
    assert len(names(host, kind, "")) == 2
    asked.now += 2000
    made_of(host, publish=True)[0].forget()
    assert names(host, kind, "") == ["real.1.0.0"]


def test_signal_prevents_making_the_next_sandbox(host: ClusterBackend):
    made, wishes = made_of(host)
    with made.signals:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            made.make(wishes.of_life(LIFE, 14), LIFE)
    assert names(host) == ["box"]


def test_clear_deletes_all_that_the_test_made(host: ClusterBackend):
    made, wishes = made_of(host, publish=True)
    made.make(wishes.of_life(LIFE, 14), LIFE)
    made.clear(lambda *_: True)
    assert (names(host), names(host, PLUGINS, "")) == (["box"], [])
    assert wishes.see(" --context here").startswith(
        "see: kubectl --context here get sandboxes.dayfly.dev,resourceplugins "
    )


def test_clear_deletes_objects_after_a_lost_answer(host: ClusterBackend, monkeypatch: pytest.MonkeyPatch):
    """A version and a sandbox of which nobody knew would stay until somebody finds them."""
    create = Client.create

    async def unheard(client: Client, kind, body, *where):
        await create(client, kind, body, *where)
        raise errors.OutcomeUnknown("POST", "the connection was reset")

    made, wishes = made_of(host, publish=True)
    monkeypatch.setattr(Client, "create", unheard)
    box = made.make(wishes.of_life(LIFE, 14), LIFE)
    assert sorted(names(host)) == sorted(["box", box.name])
    made.clear(lambda *_: True)
    assert (names(host), names(host, PLUGINS, "")) == (["box"], [])


def test_creation_without_answer_or_object_is_an_error(host: ClusterBackend, monkeypatch: pytest.MonkeyPatch):
    async def unheard(*_):
        raise errors.OutcomeUnknown("POST", "the connection was reset")

    made, wishes = made_of(host)
    monkeypatch.setattr(Client, "create", unheard)
    with pytest.raises(DayflyError, match="was reset"):
        made.make(wishes.of_life(LIFE, 14), LIFE)
    assert names(host) == ["box"]
