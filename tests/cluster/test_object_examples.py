"""The examples with objects of other controllers: their outputs are read, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testcluster import images, stand_ins
from tests.cluster import custom_controllers
from tests.cluster.custom_controllers import Carry, Kind, carried
from tests.cluster.installed import Installed
from tests.cluster.ledger_moves import moves, of_units
from tests.cluster.rights import granted
from tests.cluster.test_examples import TEAM, outputs, wishes_of
from tests.selection import SELECTION


class Carried(NamedTuple):
    """An example of one object: its kind and controller, its sandbox and resource, and the resource's outputs."""

    kind: Kind
    carry: Carry
    sandbox: str
    made: str
    told: dict[str, str]
    sets: dict[str, str] = {}


EXAMPLES = {
    "object-workflow": Carried(
        custom_controllers.WORKFLOWS,
        custom_controllers.workflow,
        "preview-demo",
        "preview/build",
        {"build.url": "https://new-basket.preview.example.com"},
    ),
    "object-claim": Carried(
        custom_controllers.INSTANCES,
        custom_controllers.claim,
        "claim-demo",
        "db/database",
        {
            "database.endpoint": "10.0.0.9",
            "database.port": "5432",
            "database.username": "ada",
            "database.password": "of 5 GB",  # so the claim had a number
        },
        {"image": images.SHELL},
    ),
    "service-binding": Carried(
        custom_controllers.DATABASES,
        custom_controllers.binding,
        "binding-demo",
        "db/database",
        {
            "database.type": "postgresql",
            "database.host": "10.0.0.9",
            "database.port": "5432",
            "database.username": "ada",
            "database.password": "s3cret",
        },
    ),
}
PARTS = 6


@pytest.mark.parametrize("name", SELECTION.sample(EXAMPLES, PARTS, "examples of objects that others carry out"))
def test_object_of_another_controller_is_awaited_and_read(operator: Installed, played, name: str):
    played("examples of objects that others carry out", 1)
    example = EXAMPLES[name]
    kind = example.kind
    rights = granted(operator, TEAM, f"{kind.plural}.{kind.group}", "secrets")
    with carried(operator, kind, example.carry), rights, operator.ending(example.sandbox, TEAM):
        operator.apply(*wishes_of(name, **example.sets))
        operator.wait_ready(example.sandbox, TEAM)
        found = outputs(operator, example.sandbox)
        assert {key: found[key].decode() for key in example.told} == example.told
        [there] = operator.items(kind.path(TEAM))
        assert there["metadata"]["annotations"]["dayfly.dev/unit"] == example.made
        operator.delete(example.sandbox, TEAM)
        assert operator.items(kind.path(TEAM)) == []
    operator.check_nothing_left()


@pytest.fixture
def disk(operator: Installed, tmp_path: Path) -> Iterator[Path]:
    """A folder of this machine as a volume that a claim of the class `disk` finds."""
    folder = tmp_path / "disk"
    folder.mkdir()
    folder.chmod(0o777)  # the server runs as any user
    shape = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disk", "capacity": {"storage": "1Gi"}}
    meta = {"name": "disk-of-a-database"}
    spec = {**shape, "hostPath": {"path": str(folder)}}
    operator.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})
    yield folder
    operator.own.kubectl("delete", "persistentvolume", meta["name"])


KINDS = ("persistentvolumeclaims", "secrets", "services", "statefulsets.apps")


def test_a_database_of_plain_objects(operator: Installed, disk: Path):
    """Volume, address and server refer to each other by outputs. The volume is deleted last."""
    operator.own.load(stand_ins.postgres())
    with granted(operator, TEAM, *KINDS), operator.ending("database-demo", TEAM):
        operator.apply(*wishes_of("object-database", image=stand_ins.POSTGRES, **{"storage-class": "disk"}))
        operator.wait_ready("database-demo", TEAM)
        found = outputs(operator, "database-demo")
        assert found["seed.tables"] == b"2"
        [server] = operator.items(f"/apis/apps/v1/namespaces/{TEAM}/statefulsets")
        [claim] = operator.items(f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims")
        volume = server["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert volume == claim["metadata"]["name"] == found["volume.name"].decode()
        assert (disk / "pgdata" / "PG_VERSION").exists()
        operator.delete("database-demo", TEAM)
        assert operator.items(f"/apis/apps/v1/namespaces/{TEAM}/statefulsets") == []
        assert operator.items(f"/api/v1/namespaces/{TEAM}/persistentvolumeclaims") == []
    gone = of_units(moves(operator, "database-demo", TEAM), "recorded")[-4:]
    assert gone[0] == "db/remove-server"
    assert gone.index("db/remove-volume") > gone.index("db/remove-address")
    assert set(gone) == {f"db/remove-{each}" for each in ("server", "address", "secret", "volume")}
    operator.check_nothing_left()


def test_object_of_unserved_kind_does_not_count_as_gone(operator: Installed):
    """The kind of the object is not served during its deletion. The cleanup continues once it is served again."""
    kind, name = custom_controllers.INSTANCES, "claim-demo"
    rights = granted(operator, TEAM, f"{kind.plural}.{kind.group}", "secrets")

    def patch(*what: str, by: dict[str, object]) -> None:
        operator.own.kubectl("patch", *what, "--type=json", f"--patch={json.dumps([by])}")

    def serve(served: bool) -> None:
        at = {"op": "replace", "path": "/spec/versions/0/served", "value": served}
        patch("customresourcedefinition", f"{kind.plural}.{kind.group}", by=at)

    def says(reason: str) -> None:
        def check(status: dict[str, Any]) -> bool:
            found = [unit for unit in status.get("units", ()) if unit["id"] == "db/remove-database"]
            return bool(found) and found[0].get("reason") == reason

        operator.wait_status(name, TEAM, check, reason)

    with carried(operator, kind, custom_controllers.claim), rights, operator.ending(name, TEAM):
        operator.apply(*wishes_of("object-claim", image=images.SHELL))
        operator.wait_ready(name, TEAM)
        [claim] = operator.items(kind.path(TEAM))
        which = f"{kind.plural}.{kind.group}", claim["metadata"]["name"], f"--namespace={TEAM}"
        patch(*which, by={"op": "add", "path": "/metadata/finalizers/0", "value": "example.org/hold"})
        operator.own.kubectl("delete", "sandbox.dayfly.dev", name, f"--namespace={TEAM}", "--wait=false")
        says("ObjectTerminating")
        serve(False)
        try:
            says("KindNotServed")
        finally:
            serve(True)
        says("ObjectTerminating")
        patch(*which, by={"op": "remove", "path": "/metadata/finalizers/0"})
        operator.wait_gone(name, TEAM)
        assert operator.items(kind.path(TEAM)) == []
    operator.check_nothing_left()
