"""`dayfly plugin test` of webhooks and commands: the way to the server is harmed, and commands as scripts are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import refused
from tests.selection import SELECTION
from tests.testing.faulty_plugins import LOOK, step
from tests.testing.faulty_webhooks import CLEAN, PLANTED, Records, written

if TYPE_CHECKING:
    from tests.cli.command import Cli, Done


def run_plugin_test(cli: Cli, spec: dict, *more: str) -> Done:
    (cli.folder / "plugin.json").write_text(json.dumps({"name": "planted@1.0.0", "spec": spec}))
    return cli("plugin", "test", "-f", "plugin.json", *more)


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTION.sample(PLANTED, 3, "planted mistakes of webhooks"))
def test_a_planted_mistake_is_found_on_the_way(cli: Cli, name: str):
    planted = PLANTED[name]
    records = Records(keys="keys" not in planted.params)
    with records.server as server:
        spec = written(planted.spec, records)
        allow = ("--allow-webhook", server.name)
        done = run_plugin_test(cli, spec, *allow, "--only", planted.scenario, "--timeout", "10s", "-o", "json")
    assert done.code == 1, done
    scenarios = json.loads(done.out)["scenarios"]
    assert [(scenario["name"], scenario["fault"]) for scenario in scenarios] == [
        ("the sandbox is created and deleted", ""),
        (planted.scenario, planted.fault),
    ], scenarios


@pytest.mark.proof
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_in_a_clean_webhook(cli: Cli, name: str):
    records = Records()
    with records.server as server:
        done = run_plugin_test(cli, written(CLEAN[name], records), "--allow-webhook", server.name, "--timeout", "40s")
    assert (done.code, records.there) == (0, {}), done
    named = [line.removeprefix("ok").strip() for line in done.out.splitlines()]
    assert named[:7] == [
        "the sandbox is created and deleted",
        "the response to make is lost",
        "the request of make is lost",
        "the first request of make gets status 500",
        *(["the request of make arrives twice"] if name == "sent again" else []),
        "the sandbox is deleted before make is carried out",
        "the sandbox is deleted before make is answered",
        *([] if name == "sent again" else ["the response to remove is lost"]),
    ]


def test_a_server_that_is_not_allowed_is_refused_as_ever(cli: Cli):
    records = Records()
    with records.server:
        done = run_plugin_test(cli, written(CLEAN["by owner"], records), "--timeout", "2s")
    assert done.code == 1
    assert done.out.startswith("NotCreated "), done
    assert "AddressRefused" in done.out
    # The sandbox is cleaned up, so the inventory runs; no other request has reached the server.
    assert [seen for seen in records.server.seen if seen.headers["user-agent"] == "dayfly"] == []


@pytest.mark.slow
def test_a_command_is_harmed_like_a_script(cli: Cli):
    world = cli.folder / "world"
    world.mkdir()
    make, remove = step("make", "true"), step("remove", "true")
    make["command"] = ["/bin/mkdir", "$(ROOT)/$(DAYFLY_RESOURCE_ID)"]
    remove["command"] = ["/bin/rmdir", "$(ROOT)/$(DAYFLY_RESOURCE_ID)"]
    del make["script"], remove["script"]
    spec = {"create": [make], "delete": [remove], "inventory": [step("look", LOOK)]}
    done = run_plugin_test(
        cli, spec, "-p", f"root={world}", "--only", "make is killed", "--timeout", "5s", "-o", "json"
    )
    scenarios = {scenario["name"]: scenario["fault"] for scenario in json.loads(done.out)["scenarios"]}
    assert scenarios["the sandbox is created and deleted"] == ""
    assert scenarios["make is killed at its start"] == "Stuck", "rmdir of a missing directory"
    assert scenarios["make is killed at its end"] == ""


def test_an_object_needs_a_cluster_and_that_is_said(cli: Cli):
    thing = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}}
    done = run_plugin_test(cli, {"create": [{"name": "thing", "object": thing}]})
    refused(done, 2, 'the step "thing" is an object and needs a cluster', "--context")
    assert not cli.home.exists()
