"""The store: its schema, whole transactions, what it refuses to open."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from control import wishes
from control.client import serving, wait_for
from control.fake_host import FakeHost
from dayfly.control import migrations, records
from dayfly.control.store import ConflictError, NewerSchemaError, Store, StoreError
from dayfly.control.tables import clusters, ended_sandboxes, metadata
from dayfly.spec.sandbox import SandboxSpec


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "control.db")
    yield opened
    opened.close()


async def test_the_revisions_lead_to_todays_tables(store):
    def differences(connection):
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, metadata)

    assert await store.read(differences) == []


def test_the_known_revisions_are_those_on_disk():
    scripts = ScriptDirectory(migrations.__path__[0])
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(migrations.REVISIONS)


def test_the_schema_suits_postgresql():
    statements = [str(CreateTable(table).compile(dialect=postgresql.dialect())) for table in metadata.sorted_tables]
    assert len(statements) == 10
    assert not [word for word in ("DATETIME", "BLOB") if word in " ".join(statements)]


def test_a_store_of_today_opens_without_the_migrator(tmp_path):
    Store.open(tmp_path / "control.db").close()
    script = (
        "import sys; from pathlib import Path; from dayfly.control.store import Store;"
        "Store.open(Path(sys.argv[1])).close(); print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    for name, imported in (("control.db", "False"), ("other.db", "True")):
        done = subprocess.run([*command, tmp_path / name], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == imported


def test_nobody_else_reads_it(tmp_path):
    path = tmp_path / "control.db"
    Store.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_newer_schema_is_left_alone(tmp_path):
    path = tmp_path / "control.db"
    Store.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    before = path.read_bytes()
    with pytest.raises(NewerSchemaError, match="newer Dayfly"):
        Store.open(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_said_to_be_none(tmp_path):
    path = tmp_path / "control.db"
    path.write_bytes(b"hello, this is a plain text file" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(path)
    with pytest.raises(StoreError, match="No such file"):
        Store.open(tmp_path / "nowhere" / "control.db")


async def test_a_transaction_that_fails_leaves_nothing(store):
    row = {"org": "o", "name": "c", "created_at": 1}

    def half(connection):
        connection.execute(sa.insert(clusters), row)
        raise ZeroDivisionError

    def twice(connection):
        connection.execute(sa.insert(clusters), row)
        connection.execute(sa.insert(clusters), row)

    with pytest.raises(ZeroDivisionError):
        await store.write(half)
    with pytest.raises(ConflictError):
        await store.write(twice)
    assert await store.read(lambda connection: connection.execute(sa.select(clusters)).all()) == []


async def test_traces_are_kept_for_a_week(store):
    day = 24 * 3_600_000

    def archive(rows, name, now):
        record = records.Record(
            org="o", uid=name, name=name, routing_key=name, spec=sandbox_spec(), created_at=1, updated_at=1
        )
        records.save(rows, record)
        records.archive(rows, record, now)

    shelf = store.of("o")
    await shelf.write(lambda rows: archive(rows, "first", 100 * day))
    await shelf.write(lambda rows: archive(rows, "second", 107 * day))
    assert (await shelf.read(lambda rows: records.trace(rows, "first"))).ended_at == 100 * day
    await shelf.write(lambda rows: archive(rows, "third", 107 * day + 1))
    left = await store.read(lambda connection: connection.execute(sa.select(ended_sandboxes.c.name)).scalars().all())
    assert sorted(left) == ["second", "third"]


def sandbox_spec():
    return SandboxSpec(cluster="local")


async def _shrink(store, pages):
    await store.write(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar())


async def test_a_full_disk_refuses_writes_whole_and_serves_reads(client, host):
    client.put("resource-plugins/db", wishes.plugin())
    client.put("sandboxes/sb1", wishes.sandbox())
    before = client.get("sandboxes"), client.get("resource-plugins?version=all")
    await _shrink(client.store, 1)  # SQLite makes it what is there already
    big = wishes.empty(description="x" * 100_000)
    for path, body in (
        ("sandboxes/big", big),
        ("sandboxes/sb1", wishes.sandbox(description="x" * 100_000)),
        ("resource-plugins/db", wishes.plugin("db@9", description="x" * 100_000)),
        ("workloads/default/shop", wishes.baseline(env={"A": "x" * 100_000})),
    ):
        answer = client.call("PUT", path, body)
        assert answer.status == 503
        assert "disk is full" in answer.error
        assert "nothing was changed" in answer.error
    assert (client.get("sandboxes"), client.get("resource-plugins?version=all")) == before
    assert client.call("GET", "workloads").json == []
    assert len(host.calls) == 1
    await _shrink(client.store, 1_000_000)
    client.put("sandboxes/big", big)


def test_everything_is_there_after_a_restart_and_the_host_is_told_again(tmp_path):
    path = tmp_path / "control.db"
    first, second = FakeHost(), FakeHost()
    with serving(path, {"local": first}) as client:
        client.put("workloads/default/shop", wishes.baseline())
        client.put("resource-plugins/db", wishes.plugin())
        client.put("sandboxes/sb1", wishes.sandbox(forks=[wishes.fork()]) | {"lease": {"seconds": 60}})
        before = client.get("sandboxes/sb1"), client.get("resource-plugins"), client.get("clusters")
        (uid,) = first.offers
    second.offers = {uid: first.offers[uid]}
    with serving(path, {"local": second}) as client:
        assert (client.get("sandboxes/sb1"), client.get("resource-plugins"), client.get("clusters")) == before
        wait_for(lambda: second.calls == [("baseline", "default/shop"), ("offer", uid)])
    assert second.offers[uid].documents == first.offers[uid].documents
    assert second.offers[uid].forks == first.offers[uid].forks
    assert second.offers[uid].lease_until >= first.offers[uid].lease_until, "nobody could renew it meanwhile"


def test_a_host_that_lost_its_ledger_starts_nothing_again(tmp_path):
    path, host = tmp_path / "control.db", FakeHost()
    with serving(path, {"local": host}) as client:
        client.put("resource-plugins/db", wishes.plugin())
        client.put("sandboxes/sb1", wishes.sandbox())
        wait_for(lambda: sqlite(path, "SELECT taken_over FROM sandboxes") == [(1,)])
    empty = FakeHost()
    with serving(path, {"local": empty}) as client:
        wait_for(lambda: "no longer knows" in client.get("sandboxes/sb1")["status"]["message"])
        client.delete("sandboxes/sb1")
        assert client.get("sandboxes/sb1")["status"]["ready"] is False
        assert empty.offers == {}
        assert client.call("POST", "sandboxes/sb1/abandon", {"reason": "the disk died"}).status == 200
        assert client.call("GET", "sandboxes/sb1").status == 404


def test_a_sandbox_of_a_cluster_that_nobody_serves_waits(tmp_path):
    path, host = tmp_path / "control.db", FakeHost()
    with serving(path, {"far": host, "local": FakeHost()}) as client:
        client.put("sandboxes/sb1", wishes.empty(cluster="far"))
    with serving(path, {"local": FakeHost()}) as client:
        wait_for(lambda: "no host serves" in client.get("sandboxes/sb1")["status"]["message"])
        assert [cluster["name"] for cluster in client.get("clusters")] == ["local"]
        client.delete("sandboxes/sb1")
        assert client.get("sandboxes/sb1")["status"]["ready"] is False
        assert client.get("sandboxes/sb1/report")["message"]
    with serving(path, {"far": host}) as client:
        wait_for(lambda: host.closed)


def sqlite(path, query):
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()
