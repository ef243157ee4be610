"""Plugins with a shared parent in the REST API: their publication, their versions, and hosts without parents."""

from __future__ import annotations

import msgspec
import pytest
from tests.server import specs
from tests.server.client import wait_for
from tests.server.fake_host import FakeHost

from dayfly.spec.api import ResourceStatus
from dayfly.spec.report import UnitReport

PARENT = {"plugin": "server@1.0.0", "params": {"size": {"valueFromParam": "size"}}}


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.parents = True
    return host


def publish(client, parent=PARENT, name="db@1.0.0"):
    return client.call("PUT", f"resource-plugins/{name.partition('@')[0]}", specs.plugin(name, parent=parent))


def test_parent_must_be_published_before_its_child(client):
    answer = publish(client)
    assert answer.status == 400
    assert "server@1.0.0" in answer.error
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    assert publish(client).status in (200, 201)


@pytest.mark.parametrize(
    ("parent", "word"),
    [
        ({"plugin": "server@2.0.0"}, "server@2.0.0"),
        ({"plugin": "server"}, 'write its version, like "server@1.0.0"'),
        ({"plugin": "server@1.0.0", "params": {"seize": "1"}}, "seize"),
        ({"plugin": "server@1.0.0", "capacity": 0}, "capacity"),
        ({"plugin": "server@1.0.0", "linger": "soon"}, "linger"),
    ],
)
def test_invalid_parent_is_refused_and_nothing_is_published(client, parent, word):
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    answer = publish(client, parent)
    assert answer.status == 400
    assert word in answer.error
    assert client.call("GET", "resource-plugins/db").status == 404


def test_version_of_a_parent_stays_while_a_plugin_names_it(client):
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    publish(client)
    answer = client.call("DELETE", "resource-plugins/server?version=1.0.0")
    assert answer.status == 409
    assert "db@1.0.0" in answer.error
    client.delete("resource-plugins/db?version=1.0.0")
    assert client.delete("resource-plugins/server?version=1.0.0") == {}


def test_sandbox_order_has_the_template_of_the_parent(client, host):
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    publish(client)
    client.put("sandboxes/box", specs.sandbox())
    wait_for(lambda: host.offers)
    (offer,) = host.offers.values()
    document = offer.documents[0]
    assert [unit.name for unit in document.pre_start] == ["parent.provision", "provision"]
    (template,) = document.template_documents()
    assert (template.origin.publisher, template.origin.plugin) == ("local", "server")


def test_host_without_parents_gets_no_order(client, host):
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    publish(client)
    host.parents = False
    host.restart()
    wait_for(lambda: host.sessions == 2)
    client.put("sandboxes/other", specs.empty())
    wait_for(lambda: host.offers)
    (other,) = host.offers
    answer = client.call("PUT", "sandboxes/box", specs.sandbox())
    assert answer.status == 400
    assert "server@1.0.0" in answer.error
    assert list(host.offers) == [other]


def test_inline_plugin_with_a_parent_is_refused(client):
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    inline = {"name": "mydb", "spec": specs.plugin(parent=PARENT)["spec"], "params": {"size": "small"}}
    answer = client.call("PUT", "sandboxes/box", specs.sandbox(resources=[inline]))
    assert answer.status == 400
    assert "spec.resources[0].spec.parent" in answer.error


def test_status_names_the_parent_of_a_resource(client, host):
    client.put("resource-plugins/server", specs.plugin("server@1.0.0"))
    publish(client)
    client.put("sandboxes/box", specs.sandbox())
    wait_for(lambda: host.offers)
    unit = UnitReport(
        id="mydb/parent.provision",
        resource="mydb",
        name="parent.provision",
        event="preStart",
        kind="acquire",
        state="succeeded",
        parent="server-1",
    )
    host.say(next(iter(host.offers)), ready=True, reason="Ready", message="", units=(unit,))
    wait_for(lambda: "resources" in client.get("sandboxes/box")["status"])
    found = msgspec.convert(client.get("sandboxes/box")["status"]["resources"], list[ResourceStatus])
    assert [(each.name, each.parent, each.member) for each in found] == [("mydb", "server-1", "")]
