"""Leak checks of the examples, with real servers: an orphan is found and deleted, and its neighbours are not touched."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.examples import external_services, gallery
from tests.examples.gallery import Settings
from tests.examples.kinds import FOLDER
from tests.examples.leaks import delete_orphan, similar, write_check

from dayfly.client import files


class Neighbour(NamedTuple):
    """An item of another owner: functions that create and remove it, for the settings of its server and an ID."""

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


def _create_queue(settings: Settings, id_: str) -> None:
    gallery.queues(settings).create_queue(QueueName=f"dayfly-{id_}")


def _delete_queue(settings: Settings, id_: str) -> None:
    queues = gallery.queues(settings)
    queues.delete_queue(QueueUrl=queues.get_queue_url(QueueName=f"dayfly-{id_}")["QueueUrl"])


def _create_role(settings: Settings, id_: str) -> None:
    role = {"db_name": "shop", "creation_statements": 'CREATE ROLE "{{name}}"'}
    gallery.vault(settings, "POST", f"database/roles/dayfly-{id_}", role).close()


def _delete_role(settings: Settings, id_: str) -> None:
    gallery.vault(settings, "DELETE", f"database/roles/dayfly-{id_}").close()


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
    "vault-secret": Neighbour(_create_role, _delete_role),
    "sqs-queue": Neighbour(_create_queue, _delete_queue),
    "s3-bucket": _BUCKET,
    "s3-seed": _BUCKET,
    "pooled-bucket": _BUCKET,
}
PARAMS = {"webhook-dns": {"zone": "sandboxes.example"}}
# Plugins with leak tests in test_pools.py, test_parents.py and tests/cluster (test_gallery.py, test_examples.py).
ELSEWHERE = ("pytest-pool", "pooled-postgres", "k8s-apply", "mixed-tenant")


def test_every_inventory_of_the_gallery_has_a_leak_test():
    listed = [path.parent.name for path in FOLDER.glob("*/plugin.yaml") if "\n  inventory:" in path.read_text()]
    assert sorted(listed) == sorted([*NEIGHBOURS, *ELSEWHERE])


@pytest.mark.proof
@pytest.mark.parametrize("example", NEIGHBOURS, indirect=True)
def test_orphan_is_deleted_without_its_neighbour(example, home, tmp_path, request):
    settings = {**example.environment, **example.sets}
    if example.name == "webhook-dns":
        settings["names"] = request.getfixturevalue("names")
    home.dayfly("apply", *example.arguments())
    (id_,) = set(re.findall(r"[0-9a-f]{26}", " ".join(example.left())))
    neighbour, other = NEIGHBOURS[example.name], similar(id_)
    (plugin,) = files.load([str(FOLDER / example.name / "plugin.yaml")], [f"{k}={v}" for k, v in example.sets.items()])
    params = {name: value for name, value in example.sets.items() if name in ("folder", "region")}
    neighbour.create(settings, other)
    try:
        check = write_check(tmp_path, plugin.content.name, {**params, **PARAMS.get(example.name, {})})
        delete_orphan(home, example.sandbox, check, id_)
        left = example.left()
        assert left, "the item of the other owner was deleted"
        assert not [name for name in left if id_ in name], left
    finally:
        neighbour.remove(settings, other)
    assert example.left() == []
