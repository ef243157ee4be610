"""The inventories of the examples, with real servers: all resources, one resource, none, and wrong credentials."""

import os
import re
import subprocess
from pathlib import Path

import pytest
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


def take_inventory(example: Example, folder: Path, resource: str, **environment: str) -> tuple[int, ItemList]:
    """Run the inventory of an example as a program. Return its exit code and its list."""
    (file,) = files.load([str(FOLDER / example.name / "plugin.yaml")], [])
    (step,) = documents.export(file.content)["spec"]["inventory"]
    inputs = {each.get("as", {}).get("env", each["name"].upper()): each["name"] for each in step.get("inputs", ())}
    script = folder / "inventory"
    script.write_text(step["script"])
    script.chmod(0o700)
    ended = subprocess.run(
        [script],
        env={
            **os.environ,
            **example.environment,
            "AWS_MAX_ATTEMPTS": "1",
            **{variable: example.sets[name] for variable, name in inputs.items()},
            **environment,
            "DAYFLY_RESOURCE_ID": resource,
        },
        capture_output=True,
        timeout=60,
    )
    return ended.returncode, parse_listing(ended.stdout)


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
