"""The inventories of the examples, with real servers: all resources, one resource, none, and wrong credentials."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.examples import external_services
from tests.examples.home import Home
from tests.examples.kinds import FOLDER, GALLERY, Example

from dayfly.client import files
from dayfly.plan.leaks.listing import ItemList, parse_listing
from dayfly.spec import documents

WRONG_CREDENTIALS = {
    "postgres-database": {"PGPASSWORD": "wrong"},
    "postgres-schema": {"PGPASSWORD": "wrong"},
    "mariadb-database": {"MYSQL_PWD": "wrong"},
    "redis-acl": {"REDISCLI_AUTH": "wrong"},
    "nats-stream": {"NATS_PASSWORD": "wrong"},
    "vault-secret": {"BAO_TOKEN": "wrong"},
    "sqs-queue": {"AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:1"},
    "s3-bucket": {"AWS_SECRET_ACCESS_KEY": "wrong"},
    "s3-seed": {"AWS_SECRET_ACCESS_KEY": "wrong"},
    "pooled-bucket": {"AWS_SECRET_ACCESS_KEY": "wrong"},
}
EXAMPLES = (*GALLERY, "postgres-schema", "s3-bucket", "pooled-bucket", "sqlite-notes", "python-step")


def inventory_step(name: str) -> dict[str, Any]:
    (file,) = files.load([str(FOLDER / name / "plugin.yaml")], ["image=unused", "server=http://127.0.0.1:1"])
    (step,) = documents.export(file.content)["spec"]["inventory"]
    return step


def run_inventory(step: dict[str, Any], folder: Path, resource: str, **environment: str) -> tuple[int, ItemList]:
    """Run an inventory step as a program. Return its exit code and its list."""
    script = folder / "inventory"
    script.write_text(step["script"])
    script.chmod(0o700)
    variables = {**os.environ, **environment, "AWS_MAX_ATTEMPTS": "1", "DAYFLY_RESOURCE_ID": resource}
    ended = subprocess.run([script], env=variables, capture_output=True, timeout=60)
    return ended.returncode, parse_listing(ended.stdout)


def take_inventory(example: Example, folder: Path, resource: str, **environment: str) -> tuple[int, ItemList]:
    """Run the inventory of an example. Return its exit code and its list."""
    step = inventory_step(example.name)
    inputs = {each.get("as", {}).get("env", each["name"].upper()): each["name"] for each in step.get("inputs", ())}
    params = {variable: example.sets[name] for variable, name in inputs.items()}
    return run_inventory(step, folder, resource, **{**example.environment, **params, **environment})


@pytest.mark.proof
@pytest.mark.parametrize("example", EXAMPLES, indirect=True)
def test_inventory_lists_one_resource_and_all(example: Example, home: Home, tmp_path: Path):
    home.dayfly("apply", *example.arguments())
    (identity,) = set(re.findall(r"[0-9a-f]{26}", " ".join(example.left()))) or {""}
    for wanted in (identity, ""):
        code, listing = take_inventory(example, tmp_path, wanted)
        assert (code, listing.error) == (0, "")
        assert {item.id for item in listing.items} == {identity}
        assert all(item.is_named_by_id for item in listing.items)
    assert take_inventory(example, tmp_path, "0" * 26) == (0, ItemList(()))
    home.dayfly("sandbox", "delete", example.sandbox)
    assert take_inventory(example, tmp_path, "") == (0, ItemList(()))


@pytest.mark.proof
@pytest.mark.parametrize("example", WRONG_CREDENTIALS, indirect=True)
def test_inventory_with_wrong_credentials_is_never_complete(example: Example, tmp_path: Path):
    code, listing = take_inventory(example, tmp_path, "", **WRONG_CREDENTIALS[example.name])
    assert code != 0
    assert not listing.is_complete


def test_inventory_of_a_shared_service_lists_its_open_accounts(tmp_path: Path):
    """The example has an object, so no machine without a cluster runs it as a whole."""
    step, ids = inventory_step("mixed-tenant"), ("0" * 26, "a" * 26)
    with external_services.Tenants("127.0.0.1") as tenants:
        given = {"SERVER": f"http://{tenants.address}", "TENANTS_TOKEN": tenants.TOKEN}
        for id_ in ids:
            tenants.open(id_, f"box-{id_}")
        tenants.open("x", "a-person")
        for wanted in ("", ids[1]):
            code, listing = run_inventory(step, tmp_path, wanted, **given)
            assert (code, listing.error) == (0, "")
            assert [item.id for item in listing.items] == [each for each in ids if wanted in ("", each)]
            assert all(item.is_named_by_id for item in listing.items)
        code, listing = run_inventory(step, tmp_path, "", **{**given, "TENANTS_TOKEN": "wrong"})
        assert (code != 0, listing.is_complete) == (True, False)
