"""An image of the first framework as a plugin: its programs run as pods, unchanged, and nothing of it stays."""

import base64
from typing import Any

import yaml
from tests.cluster.installed import API, Installed
from tests.cluster.test_examples import TEAM, wishes_of
from tests.examples.v1 import image

NAME = "v1-demo"


def closed(plugin: dict[str, Any], name: str, version: str) -> dict[str, Any]:
    """Another version of the plugin, whose pods cannot write to their image's own folders."""
    overlay = yaml.safe_load(plugin["spec"]["runner"]["podTemplateOverlay"])
    overlay["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
    runner = plugin["spec"]["runner"] | {"podTemplateOverlay": yaml.safe_dump(overlay)}
    meta = {"name": f"{name}.{version}"}
    return plugin | {"metadata": meta, "spec": plugin["spec"] | {"name": f"{name}@{version}", "runner": runner}}


def outputs(operator: Installed) -> dict[str, dict[str, str]]:
    """Return the outputs of each resource of the sandbox."""
    told = {}
    for resource in operator.items(f"/apis/{API}/resources"):
        if resource["spec"]["sandbox"]["name"] == NAME:
            name = resource["status"]["binding"]["name"]
            secret = operator.get(f"/api/v1/namespaces/{TEAM}/secrets/{name}")
            assert secret is not None
            values = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
            told[resource["spec"]["name"]] = values
    return told


def test_its_programs_run_as_they_did(operator: Installed):
    """The pods of the second resource have a root that only root can write to, and a param from the first resource."""
    operator.own.load(image.archive())
    plugin, sandbox = wishes_of("v1-plugin", image=image.NAME)
    sandbox["spec"]["resources"][1]["plugin"] = "v1-database@1.0.1"
    with operator.ending(NAME, TEAM):
        operator.apply(plugin, closed(plugin, "v1-database", "1.0.1"), sandbox)
        operator.wait_ready(NAME, TEAM)
        key = operator.status(NAME, TEAM)["routingKey"]
        host = f"customers.customerdb.{key}"
        assert outputs(operator) == {
            "customerdb": {"provision.host": host, "provision.port": "5432"},
            "reportdb": {"provision.host": f"{host}.reportdb.{key}", "provision.port": "5432"},
        }
        operator.delete(NAME, TEAM)  # `deprovision` fails and is retried forever if it finds another state
    operator.check_nothing_left()
