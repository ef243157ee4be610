"""The store: schema, transactions, and databases that it does not open."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading

import msgspec
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import sqlite
from tests.server import specs, stored_records
from tests.server.client import serving, wait_for
from tests.server.fake_host import FakeHost

from dayfly.server.admin import cluster_tokens
from dayfly.server.db import migrations
from dayfly.server.db.store import NewerSchemaError, Store, StoreError, WriteConflictError
from dayfly.server.db.tables import clusters, ended_route_groups, ended_sandboxes, metadata, sandboxes
from dayfly.server.records import run_records, tombstones


@pytest.fixture
def store(place):
    opened = Store.open(place)
    yield opened
    opened.close()


def differences(connection):
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return compare_metadata(context, metadata)


async def test_migrations_end_in_current_tables(store):
    assert await store.read(differences) == []


def test_tables_load_no_postgresql_dialect():
    named = {key for table in metadata.sorted_tables for index in table.indexes for key in index.dialect_kwargs}
    assert named == {"sqlite_where"}


def test_revisions_match_migration_files():
    scripts = ScriptDirectory(migrations.__path__[0])
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(migrations.REVISIONS)


def test_new_store_has_schema_of_migrated_one(tmp_path):
    """Compare columns, types, defaults, keys, references and indexes, as SQLite describes them."""
    pragmas = ("table_info", "foreign_key_list", "index_list", "index_info")

    def shape(path):
        with contextlib.closing(sqlite3.connect(path)) as database:
            names = sorted(row[0] for row in database.execute("SELECT name FROM sqlite_master"))
            # The first column is a number that depends on the order of creation.
            found = {
                (pragma, name): sorted((row[1:] for row in database.execute(f"PRAGMA {pragma}({name})")), key=str)
                for name in names
                for pragma in pragmas
            }
            return found, database.execute("SELECT version_num FROM alembic_version").fetchall()

    Store.open(tmp_path / "new.db").close()
    Store.migrate(tmp_path / "old.db", migrations.REVISIONS[0])
    Store.open(tmp_path / "old.db").close()
    assert shape(tmp_path / "new.db") == shape(tmp_path / "old.db")


def test_current_store_opens_without_importing_alembic(tmp_path):
    Store.open(tmp_path / "control.db").close()
    Store.migrate(tmp_path / "other.db", migrations.REVISIONS[-2])
    script = (
        "import sys; from pathlib import Path; from dayfly.server.db.store import Store;"
        "Store.open(Path(sys.argv[1])).close(); print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    for name, imported in (("control.db", "False"), ("other.db", "True")):
        done = subprocess.run([*command, tmp_path / name], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == imported


def test_store_file_is_private(tmp_path):
    path = tmp_path / "control.db"
    Store.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_newer_schema_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "control.db"
    Store.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    before = path.read_bytes()
    with pytest.raises(NewerSchemaError, match="newer Dayfly"):
        Store.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("folder", ["is it?", "a#b", "100%20", "x&uri=true"])
def test_store_path_may_have_special_characters(tmp_path, folder):
    """A misread path would create a file with other permissions, or in another home."""
    path = tmp_path / folder / "control.db"
    path.parent.mkdir()
    Store.open(path).close()
    assert path.stat().st_size > 0
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == [folder]


def test_file_without_database_is_refused(tmp_path):
    path = tmp_path / "control.db"
    path.write_bytes(b"hello, this is a plain text file" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(path)
    with pytest.raises(StoreError, match="No such file"):
        Store.open(tmp_path / "nowhere" / "control.db")


async def test_failed_transaction_writes_nothing(store):
    row, org_store = {"name": "c", "created_at": 1}, store.for_org("o")

    def half(rows):
        rows.insert(clusters, row)
        raise ZeroDivisionError

    def twice(rows):
        rows.insert(clusters, row)
        rows.insert(clusters, row)

    with pytest.raises(ZeroDivisionError):
        await org_store.write(half)
    with pytest.raises(WriteConflictError):
        await org_store.write(twice)
    assert await org_store.read(lambda rows: rows.execute(rows.select(clusters)).all()) == []


async def test_look_up_waits_for_no_other_reader(tmp_path):
    store, released = Store.open(tmp_path / "store.db"), threading.Event()
    try:
        readers = [asyncio.ensure_future(store.read(lambda _: released.wait(60))) for _ in range(20)]
        await asyncio.sleep(0)
        found = await store.for_org("acme").look_up(lambda rows: rows.find(clusters, name="none"))
        assert (found, released.is_set()) == (None, False)
        released.set()
        assert all(await asyncio.gather(*readers))
    finally:
        released.set()
        store.close()


async def test_row_of_another_organisation_is_not_found(store):
    for org in ("acme", "bolt"):
        await store.for_org(org).write(lambda rows: rows.insert(clusters, {"name": f"of-{rows.org}", "created_at": 1}))
    find = lambda rows: rows.find(clusters, name="of-acme")  # noqa: E731
    found = [await store.for_org(org).look_up(find) for org in ("acme", "bolt")]
    assert [row is not None for row in found] == [True, False]


async def test_write_notifies_even_when_it_fails(store):

    def fail(_connection):
        raise ValueError("a defect")

    await store.read(differences)
    assert store.notifier.changes == 0
    await store.write(lambda _connection: None)
    assert store.notifier.changes == 1
    with pytest.raises(ValueError, match="a defect"):
        await store.write(fail)
    assert store.notifier.changes == 2


async def test_downgrade_to_first_schema_and_upgrade_keep_rows(store, place):

    def fill(rows):
        run_records.save(rows, stored_records.sandbox(org="o", name="n"))
        rows.insert(clusters, [{"name": name, "created_at": 1, "agent": name == "far"} for name in ("own", "far")])
        cluster_tokens.create(rows, "far")

    def found(rows):
        return [rows.execute(rows.select(table)).scalars().all() for table in (clusters.c.name, sandboxes.c.uid)]

    await store.for_org("o").write(fill)
    for revision in reversed(migrations.REVISIONS[:-1]):
        Store.migrate(place, revision)
    names = await store.read(lambda connection: set(sa.inspect(connection).get_table_names()))
    assert not names & {"api_keys", "cluster_tokens", "organisations"}
    columns = await store.read(lambda connection: sa.inspect(connection).get_columns("clusters"))
    assert [column["name"] for column in columns] == ["org", "name", "created_at"]
    Store.migrate(place, migrations.REVISIONS[-1])
    assert await store.read(differences) == []
    assert await store.for_org("o").read(found) == [["own"], ["u"]], (
        "a cluster with an agent exists only in newer schemas"
    )
    with pytest.raises(StoreError, match="there is no schema 9999"):
        Store.migrate(place, "9999")


async def test_query_without_organisation_finds_no_rows(postgres):
    """Row-level security of each table holds even if a query omits the organisation."""
    store = Store.open(postgres.fresh())
    try:
        row = {"name": "c", "created_at": 1}
        await store.for_org("ours").write(lambda rows: rows.insert(clusters, row))
        everything = lambda connection: connection.execute(sa.select(clusters.c.org)).scalars().all()  # noqa: E731
        assert await store.read(everything) == []
        assert await store.read(everything, "theirs") == []
        assert await store.read(everything, "ours") == ["ours"]
        assert await store.all_orgs().read(lambda rows: everything(rows.connection)) == ["ours"]
        change = sa.update(clusters).values(created_at=2)
        assert await store.write(lambda connection: connection.execute(change).rowcount, "theirs") == 0
        with pytest.raises(StoreError, match="row-level security"):
            await store.write(lambda connection: connection.execute(sa.insert(clusters), {**row, "org": "o"}), "theirs")
        guarded = sa.text("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity")
        names = set(await store.read(lambda connection: connection.execute(guarded).scalars().all()))
        assert names == {table.name for table in metadata.sorted_tables if "org" in table.c}
    finally:
        store.close()


def test_database_superuser_is_refused(postgres):
    with pytest.raises(StoreError, match="is no superuser") as refused:
        Store.open(postgres.as_superuser)
    assert "administrator" not in str(refused.value)


@pytest.mark.parametrize(
    "where", ["mysql://a:geheim@b/c", "postgresql://[", "sqlite://", "x://", "postgresql+pg8000://a/b"]
)
def test_bad_database_address_is_refused_without_repeating_it(where):
    with pytest.raises(StoreError) as refused:
        Store.open(where)
    assert "geheim" not in str(refused.value)


def test_message_of_failed_connection_omits_password():
    with pytest.raises(StoreError, match=r"database d at 127\.0\.0\.1") as refused:
        Store.open("postgresql://u:geheim@127.0.0.1:1/d")
    assert "geheim" not in str(refused.value)


async def test_concurrent_changes_of_several_servers_all_count(place):
    stores = [Store.open(place) for _ in range(3)]

    def raise_by_one(rows):
        at = rows.execute(rows.select(clusters.c.created_at)).scalar_one()
        rows.execute(rows.update(clusters).values(created_at=at + 1))

    try:
        await stores[0].for_org("o").write(lambda rows: rows.insert(clusters, {"name": "c", "created_at": 0}))
        await asyncio.gather(*(stores[number % 3].for_org("o").write(raise_by_one) for number in range(30)))
        assert (
            await stores[1].for_org("o").read(lambda rows: rows.execute(rows.select(clusters.c.created_at)).scalar())
            == 30
        )
    finally:
        for each in stores:
            each.close()


async def test_several_servers_may_migrate_at_once(place):
    Store.migrate(place, migrations.REVISIONS[0])
    stores = await asyncio.gather(*(asyncio.to_thread(Store.open, place) for _ in range(3)))
    assert await stores[0].read(differences) == []
    for each in stores:
        each.close()


async def test_second_write_of_same_revision_conflicts(store):
    """Otherwise the second write would undo the first, whose caller got a success."""
    new = stored_records.sandbox(org="o", name="n")
    org_store = store.for_org("o")
    read = await org_store.write(lambda rows: run_records.save(rows, new))
    assert await stored_records.read(store, "o", "n") == read
    changed = [msgspec.structs.replace(read, updated_at=at) for at in (2, 3)]
    await org_store.write(lambda rows: run_records.save(rows, changed[0]))
    with pytest.raises(WriteConflictError):
        await org_store.write(lambda rows: run_records.save(rows, changed[1]))
    assert (await stored_records.read(store, "o", "n")).updated_at == 2
    await org_store.write(lambda rows: run_records.mark_sealed(rows, ["u"]))
    late = await org_store.write(lambda rows: run_records.save(rows, msgspec.structs.replace(changed[1], revision=2)))
    assert (late.sealed, (await stored_records.read(store, "o", "n")).sealed) == (False, True)


async def test_tombstones_are_kept_for_a_week(store):
    day = 24 * 3_600_000

    def archive(rows, name, now):
        record = stored_records.sandbox(name, org="o")
        run_records.save(rows, record)
        tombstones.archive(rows, record, now)

    org_store = store.for_org("o")
    await org_store.write(lambda rows: archive(rows, "first", 100 * day))
    await org_store.write(lambda rows: archive(rows, "second", 107 * day))
    assert (
        await org_store.read(lambda rows: tombstones.find(rows, run_records.SANDBOXES, "first"))
    ).ended_at == 100 * day
    await org_store.write(lambda rows: archive(rows, "third", 107 * day + 1))
    left = await org_store.read(lambda rows: rows.execute(rows.select(ended_sandboxes.c.name)).scalars().all())
    assert sorted(left) == ["second", "third"]


@pytest.mark.parametrize("table", [ended_route_groups, ended_sandboxes], ids=str)
def test_queries_of_ended_rows_use_the_index(tmp_path, table):
    Store.open(tmp_path / "state.db").close()
    drop = sa.delete(table).where(table.c.org == "ours", table.c.ended_at < 7)
    show = sa.select(table).where(table.c.org == "ours").order_by(table.c.ended_at.desc(), table.c.uid).limit(9)
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as database:
        for query in (drop, show):
            text = str(query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
            plan = " ".join(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {text}"))
            assert f"INDEX {table.name}_by_end" in plan, plan


async def _shrink(store, pages):
    await store.write(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar())


@pytest.mark.usefixtures("on_sqlite")
async def test_full_disk_refuses_writes_and_serves_reads(client, host):
    client.put("resource-plugins/db", specs.plugin())
    client.put("sandboxes/sb1", specs.sandbox())
    before = client.get("sandboxes"), client.get("resource-plugins?version=all")
    await _shrink(client.store, 1)  # SQLite raises it to the current size
    big = specs.empty(description="x" * 100_000)
    for path, body in (
        ("sandboxes/big", big),
        ("sandboxes/sb1", specs.sandbox(description="x" * 100_000)),
        ("resource-plugins/db", specs.plugin("db@9", description="x" * 100_000)),
        ("workloads/default/shop", specs.baseline(env={"A": "x" * 100_000})),
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


def test_nul_characters_are_refused_as_bad_request(place):
    """PostgreSQL cannot store this character."""
    with serving(place, {"local": FakeHost()}) as client:
        for method, path in (
            ("GET", "sandboxes/a%00b"),
            ("GET", "sandboxes?after=%00"),
            ("PUT", "clusters/a%00b"),
            ("DELETE", "keys/%00"),
            ("GET", "/api/v2/orgs/%00/sandboxes"),
        ):
            assert client.call(method, path).status == 400, path
        answer = client.call("PUT", "sandboxes/sb1", specs.empty(description="a\0b", labels={"a": "\0"}))
        assert answer.status in (200, 400), answer.body
        assert client.call("POST", "keys", {"name": "a\0", "role": "viewer"}).status == 400
        assert client.call("GET", "sandboxes", headers={"signadot-api-key": "dfk_a_\xe9"}).status == 401
        assert client.call("GET", "audit?after=999999999999999999").status == 200


def test_restart_keeps_everything_and_resends_it(place):
    first, second = FakeHost(), FakeHost()
    with serving(place, {"local": first}) as client:
        client.put("workloads/default/shop", specs.baseline())
        client.put("resource-plugins/db", specs.plugin())
        client.put("sandboxes/sb1", specs.sandbox(forks=[specs.fork()]) | {"lease": {"seconds": 60}})
        before = client.get("sandboxes/sb1"), client.get("resource-plugins"), client.get("clusters")
        (uid,) = first.offers
    second.offers = {uid: first.offers[uid]}
    with serving(place, {"local": second}) as client:
        assert (client.get("sandboxes/sb1"), client.get("resource-plugins"), client.get("clusters")) == before
        wait_for(lambda: second.calls == [("baseline", "default/shop"), ("offer", uid)])
    assert second.offers[uid].documents == first.offers[uid].documents
    assert second.offers[uid].forks == first.offers[uid].forks
    assert second.offers[uid].lease_until >= first.offers[uid].lease_until, "it could not be renewed during the stop"


def test_host_without_its_ledger_starts_nothing_again(place):
    host = FakeHost()
    with serving(place, {"local": host}) as client:
        client.put("resource-plugins/db", specs.plugin())
        client.put("sandboxes/sb1", specs.sandbox())
        wait_for(lambda: sealed(client))
    empty = FakeHost()
    with serving(place, {"local": empty}) as client:
        wait_for(lambda: "no longer knows" in client.get("sandboxes/sb1")["status"]["message"])
        client.delete("sandboxes/sb1")
        assert client.get("sandboxes/sb1")["status"]["ready"] is False
        assert empty.offers == {}
        assert client.call("POST", "sandboxes/sb1/abandon", {"reason": "the disk died"}).status == 200
        assert client.call("GET", "sandboxes/sb1").status == 404


def test_sandbox_of_unserved_cluster_waits(place):
    host = FakeHost()
    with serving(place, {"far": host, "local": FakeHost()}) as client:
        client.put("sandboxes/sb1", specs.empty(cluster="far"))
    with serving(place, {"local": FakeHost()}) as client:
        wait_for(lambda: "no host serves" in client.get("sandboxes/sb1")["status"]["message"])
        assert [cluster["name"] for cluster in client.get("clusters")] == ["local"]
        client.delete("sandboxes/sb1")
        assert client.get("sandboxes/sb1")["status"]["ready"] is False
        assert client.get("sandboxes/sb1/report")["message"]
    with serving(place, {"far": host}) as client:
        wait_for(lambda: host.closed)


def sealed(client):
    """Return whether the store has it, which the next server reads."""
    return asyncio.run(stored_records.read_all(client.store, "local"))[0].sealed


async def test_mark_changes_with_writes_of_every_server(place, monkeypatch):
    monkeypatch.setattr("dayfly.server.db.store.CHANGE_MARKER_MAX_AGE_S", 0)
    ours = Store.open(place)
    others = Store.open(place) if not ours.is_sqlite else ours

    async def stays() -> bool:
        before = await ours.read_change_marker()
        await stored_records.read_all(others, "local")
        return await ours.read_change_marker() == before

    try:
        # PostgreSQL's autovacuum is a write, too.
        assert any([await stays() for _ in range(3)])
        for name, writer in (("a", ours), ("b", others)):
            before = await ours.read_change_marker()
            row = {"name": name, "created_at": 1, "agent": False}
            await writer.for_org("local").write(lambda rows, row=row: rows.insert(clusters, row))
            assert await ours.read_change_marker() != before
    finally:
        ours.close()
        if others is not ours:
            others.close()


async def test_marks_survive_loss_of_connection(postgres, monkeypatch):
    monkeypatch.setattr("dayfly.server.db.store.CHANGE_MARKER_MAX_AGE_S", 0)
    url = postgres.fresh()
    store = Store.open(url)
    try:
        before = await store.read_change_marker()
        lost = postgres.backends(url)
        for pid in lost:
            postgres.administrate(f"SELECT pg_terminate_backend({pid})")
        assert await store.read_change_marker() == before
        assert set(postgres.backends(url)).isdisjoint(lost)
        postgres.administrate(f"ALTER DATABASE {url.rpartition('/')[2]} ALLOW_CONNECTIONS false")
        for pid in postgres.backends(url):
            postgres.administrate(f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(StoreError, match="not currently accepting connections"):
            await store.read_change_marker()
    finally:
        store.close()
