"""The examples as they stand, with their steps as pods and what they keep on a volume; nothing of it stays."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testcluster import stand_ins
from tests.cluster.installed import API, ROOT, RUNNERS, SYSTEM, Installed
from tests.cluster.leak_check import checked
from tests.cluster.ledger_moves import moves, of_units
from tests.cluster.rights import granted
from tests.cluster.volumes import claimed
from tests.examples import external_services

from dayfly.client import files
from dayfly.spec import documents

TEAM = "team"
CLAIM = {"volumes": [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]}
MOUNT = {"name": "main", "volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}


@pytest.fixture
def volume(request, operator, tmp_path):
    """A folder of this machine as a volume in the runners' namespace, with a claim of the given name."""
    name, plugin = request.param
    with claimed(operator, name, f"cluster:{plugin}", tmp_path / "volume") as folder:
        yield folder
        for sandbox in operator.items(f"/apis/{API}/namespaces/{TEAM}/sandboxes"):  # that a failed test has left
            operator.delete(sandbox["metadata"]["name"], TEAM)


def wishes_of(example: str, **values: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plugin and sandbox of an example as the objects that kubectl takes."""
    folder = ROOT / "examples" / example
    sets = [f"{name}={value}" for name, value in values.items()]
    plugin, sandbox = files.load([str(folder / "plugin.yaml"), str(folder / "sandbox.yaml")], sets)
    spec = documents.export(plugin.content)
    name = spec["name"].lower().replace("@", ".").replace("+", "-")
    return (
        {
            "apiVersion": API,
            "kind": "ResourcePlugin",
            "metadata": {"name": name},
            "spec": {"name": spec["name"], **spec["spec"]},
        },
        {
            "apiVersion": API,
            "kind": "Sandbox",
            "metadata": {"name": sandbox.name, "namespace": TEAM},
            "spec": documents.export(sandbox.content)["spec"],
        },
    )


def outputs(operator: Installed, sandbox: str) -> dict[str, bytes]:
    """Return the values in the Secret of the sandbox's resource."""
    (resource,) = [
        each for each in operator.items(f"/apis/{API}/resources") if each["spec"]["sandbox"]["name"] == sandbox
    ]
    secret = operator.get(f"/api/v1/namespaces/{TEAM}/secrets/{resource['status']['binding']['name']}")
    assert secret is not None, "the Secret that the resource names is there"
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


@pytest.fixture(scope="module")
def beside(operator) -> Iterator[tuple[external_services.Names, external_services.Tenants]]:
    """The services of examples where pods reach this machine; the administrator lets webhooks go there."""
    allow = ["set", "env", "-n", SYSTEM, "deployment/dayfly-operator"]
    rolled = ["rollout", "status", "-n", SYSTEM, "deployment/dayfly-operator", "--timeout=120s"]
    host = operator.own.network.host
    with external_services.Names(host) as names, external_services.Tenants(host) as tenants:
        operator.own.kubectl(*allow, f"DAYFLY_ALLOW_WEBHOOK={names.address} {tenants.address}")
        operator.own.kubectl(*rolled)
        yield names, tenants
        operator.own.kubectl(*allow, "DAYFLY_ALLOW_WEBHOOK-")
        operator.own.kubectl(*rolled)


@contextlib.contextmanager
def token(operator: Installed, name: str, plugin: str, value: str) -> Iterator[None]:
    """A Secret with a service's token, for one plugin."""
    meta = {"name": name, "namespace": RUNNERS, "annotations": {"dayfly.dev/plugins": f"cluster:{plugin}"}}
    operator.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": value}})
    yield
    operator.own.kubectl("delete", "secret", name, "-n", RUNNERS)


def test_webhooks(operator, beside):
    """Sent by pods of the operator's own image; the token comes from a Secret that names the plugin."""
    names, _ = beside
    with token(operator, "dns", "dns-record", names.TOKEN):
        operator.apply(*wishes_of("webhook-dns", server=f"http://{names.address}"))
        operator.wait_ready("dns-demo", TEAM)
        found = outputs(operator, "dns-demo")
        assert [found["register.host"].decode()] == names.left()
        operator.delete("dns-demo", TEAM)
        assert names.left() == []
    operator.check_nothing_left()


def test_steps_of_all_kinds_pass_on_their_outputs(operator, beside):
    """Script, object, webhook, script: and back in the order that their author wrote."""
    _, tenants = beside
    operator.own.load(stand_ins.python())
    secrets = f"/api/v1/namespaces/{TEAM}/secrets?labelSelector=app%3Dshared-tenant"
    known, rights = token(operator, "tenants", "shared-tenant", tenants.TOKEN), granted(operator, TEAM, "secrets")
    with known, rights, operator.ending("tenant-demo", TEAM):
        operator.apply(*wishes_of("mixed-tenant", image=stand_ins.PYTHON, server=f"http://{tenants.address}"))
        operator.wait_ready("tenant-demo", TEAM)
        [kept] = operator.items(secrets)
        found = outputs(operator, "tenant-demo")
        tenant, key = (base64.b64decode(kept["data"][each]) for each in ("tenant", "key"))
        assert (tenant, key) == (found["choose.tenant"], found["choose.key"])
        assert tenants.left() == [tenant.decode()]
        account = {"id": found["register.id"].decode(), "tenant": tenant.decode(), "secret": kept["metadata"]["name"]}
        assert json.loads(found["prove.account"]) == account
        operator.delete("tenant-demo", TEAM)
        assert operator.items(secrets) == []
    assert tenants.log() == [f"{did} {tenant.decode()}" for did in ("opened", "told", "closed", "billed")]
    told = moves(operator, "tenant-demo", TEAM)
    order = ["choose", "keep", "register", "prove", "withdraw", "unregister", "settle"]
    assert of_units(told, "claimed") == of_units(told, "recorded") == [f"account/{each}" for each in order]
    operator.check_nothing_left()


def test_abandoned_tenant_is_reported_and_not_deleted(operator, beside):
    """The plugin has an object, so its delete steps cannot run without their sandbox."""
    _, tenants = beside
    operator.own.load(stand_ins.python())
    known, rights = token(operator, "tenants", "shared-tenant", tenants.TOKEN), granted(operator, TEAM, "secrets")
    with known, rights, operator.ending("tenant-demo", TEAM):
        operator.apply(*wishes_of("mixed-tenant", image=stand_ins.PYTHON, server=f"http://{tenants.address}"))
        operator.wait_ready("tenant-demo", TEAM)
        [tenant] = tenants.left()
        with checked(operator, "shared-tenant") as check:
            assert check.sweep("")["counts"]["held"] == 1
            [found] = check.abandon("tenant-demo", TEAM)["findings"]
            assert (found["verdict"], found["name"], found.get("deletable", False)) == ("orphan", tenant, False)
            assert not check.status().get("plan")
        assert tenants.left() == [tenant]
        tenants.ask(f"/v1/tenants?owner={found['id']}", method="DELETE")
        operator.own.kubectl("delete", "secrets", "-n", TEAM, "-l", "app=shared-tenant")
    operator.check_nothing_left()


@pytest.mark.parametrize("volume", [("kept", "sqlite-notes")], indirect=True)
def test_two_steps_in_python(operator, volume: Path):
    """One step makes a database, the next one fills it: Python in both, the path handed from one to the other."""
    operator.own.load(stand_ins.python())
    plugin, sandbox = wishes_of("sqlite-notes", folder="/kept")
    overlay = json.dumps({"spec": {"containers": [MOUNT], **CLAIM}})
    plugin["spec"]["runner"] = {"image": stand_ins.PYTHON, "podTemplateOverlay": overlay}
    for part in ("forks", "defaultRouteGroup"):  # the application is not what is tried here
        del sandbox["spec"][part]
    operator.apply(plugin, sandbox)
    operator.wait_ready("notes-demo", TEAM)
    found = outputs(operator, "notes-demo")
    assert found["schema-and-seed.notes"] == b"2"
    (database,) = volume.iterdir()
    assert found["provision.path"] == f"/kept/{database.name}".encode()
    operator.delete("notes-demo", TEAM)
    assert list(volume.iterdir()) == []
    operator.check_nothing_left()
