"""Leak checks of the examples, with real servers: an orphan is found and deleted, and its neighbours are not touched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.examples import external_services, gallery
from tests.examples.gallery import Settings
from tests.examples.home import Home, until
from tests.examples.kinds import FOLDER, Example

from dayfly.client import files

REASON = "a test of leak checks"


class Neighbour(NamedTuple):
    """A thing of another owner: functions that create and remove it, for the settings of its server and an ID."""

    create: Callable[[Settings, str], object]
    remove: Callable[[Settings, str], object]


def _in_postgres(create: str, remove: str) -> Neighbour:
    def run(sql: str) -> Callable[[Settings, str], object]:
        def execute(settings: Settings, id_: str) -> None:
            with external_services.connect(dict(settings)) as connection:
                connection.execute(sql.format(id_))

        return execute

    return Neighbour(run(create), run(remove))


def _in_files(suffix: str) -> Neighbour:
    def file(settings: Settings, id_: str) -> Path:
        return Path(settings["folder"]) / f"{id_}{suffix}"

    return Neighbour(lambda *of: file(*of).write_text("{}"), lambda *of: file(*of).unlink())


def _in_mariadb(sql: str) -> Callable[[Settings, str], object]:
    return lambda settings, id_: gallery.mariadb(settings, sql.format(id_))


def _in_redis(command: str) -> Callable[[Settings, str], object]:
    return lambda settings, id_: gallery.redis({**settings, "REDIS_USER": "eyes"}, command.format(id_))


def _create_stream(settings: Settings, id_: str) -> None:
    wish = {"name": f"dayfly-{id_}", "subjects": [f"other-{id_}"]}
    assert "error" not in gallery.jetstream(settings)(f"STREAM.CREATE.dayfly-{id_}", wish)


_BUCKET = Neighbour(
    lambda settings, id_: gallery.buckets(settings).create_bucket(Bucket=f"dayfly-{id_}"),
    lambda settings, id_: gallery.buckets(settings).delete_bucket(Bucket=f"dayfly-{id_}"),
)
NEIGHBOURS = {
    "sqlite-notes": _in_files(".db"),
    "python-step": _in_files(".json"),
    "webhook-dns": Neighbour(
        lambda settings, id_: settings["names"].add(id_), lambda settings, id_: settings["names"].remove(id_)
    ),
    "postgres-database": _in_postgres("CREATE DATABASE dayfly_{}", "DROP DATABASE dayfly_{}"),
    "postgres-schema": _in_postgres("CREATE SCHEMA dayfly_{}", "DROP SCHEMA dayfly_{}"),
    "mariadb-database": Neighbour(_in_mariadb("CREATE DATABASE dayfly{}"), _in_mariadb("DROP DATABASE dayfly{}")),
    "redis-acl": Neighbour(_in_redis("ACL SETUSER dayfly-{} off"), _in_redis("ACL DELUSER dayfly-{}")),
    "nats-stream": Neighbour(
        _create_stream, lambda settings, id_: gallery.jetstream(settings)(f"STREAM.DELETE.dayfly-{id_}", {})
    ),
    "s3-bucket": _BUCKET,
    "s3-seed": _BUCKET,
}
PARAMS = {"webhook-dns": {"zone": "sandboxes.example"}}


def write_check(example: Example, folder: Path) -> Path:
    """Write a check for the plugin of an example, which may delete what is older than a second."""
    (plugin,) = files.load([str(FOLDER / example.name / "plugin.yaml")], [f"{k}={v}" for k, v in example.sets.items()])
    params = {name: value for name, value in example.sets.items() if name in ("folder", "region")}
    spec = {
        "cluster": "local",
        "plugin": plugin.content.name,
        "params": {**params, **PARAMS.get(example.name, {})},
        "every": "1h",
        "grace": "1s",
    }
    target = folder / "check.json"
    target.write_text(json.dumps({"kind": "LeakCheck", "name": "check", "spec": spec}))
    return target


def sweep(home: Home) -> dict[str, Any]:
    """Sweep, and return the status of the check."""
    (check,) = json.loads(home.dayfly("leaks", "--sweep", "-o", "json"))
    assert not check["status"]["error"], check["status"]["error"]
    return check["status"]


def similar(id_: str) -> str:
    """Return an ID that differs by one character."""
    return id_[:-1] + ("0" if id_[-1] != "0" else "1")


@pytest.mark.proof
@pytest.mark.parametrize("example", NEIGHBOURS, indirect=True)
def test_orphan_is_deleted_without_its_neighbour(example, home, tmp_path, request):
    settings = {**example.environment, **example.sets}
    if example.name == "webhook-dns":
        settings["names"] = request.getfixturevalue("names")
    home.dayfly("apply", *example.arguments())
    made = example.left()
    (id_,) = set(re.findall(r"[0-9a-f]{26}", " ".join(made)))
    neighbour = NEIGHBOURS[example.name]
    neighbour.create(settings, similar(id_))
    try:
        home.dayfly("apply", "-f", str(write_check(example, tmp_path)))
        assert sweep(home)["counts"]["held"] > 0
        home.dayfly("abandon", example.sandbox, "--force", "--reason", REASON)
        found = until(lambda: (seen := sweep(home))["counts"].get("orphan") and seen, "orphans in two lists")
        assert {each["id"] for each in found["findings"] if each["verdict"] == "orphan"} == {id_}
        assert {each["id"] for each in found["findings"] if each["verdict"] == "foreign"} == {similar(id_)}
        home.dayfly("leaks", "--plan", str(tmp_path / "plan.json"))
        home.dayfly("leaks", "--apply", str(tmp_path / "plan.json"))
        left = example.left()
        assert left, "the thing of the other owner was deleted"
        assert not [name for name in left if id_ in name], left
        counts = sweep(home)["counts"]
        assert "orphan" not in counts
        assert counts["foreign"] > 0
    finally:
        neighbour.remove(settings, similar(id_))
    assert example.left() == []
