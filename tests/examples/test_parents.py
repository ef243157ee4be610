"""The example with a shared parent, on a real PostgreSQL server: copies of one template, from a pool and without it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.examples.external_services import connect
from tests.examples.home import Home, until
from tests.examples.kinds import FOLDER
from tests.examples.leaks import delete_orphan, similar, write_check

HERE = FOLDER / "pooled-postgres"
PLUGINS = ("-f", str(HERE / "golden"), "-f", str(HERE / "plugin.yaml"))
DEMO = "clone-demo"


@pytest.fixture
def home(tmp_path: Path, postgres: dict[str, str]) -> Iterator[Home]:
    home = Home(tmp_path / "home", postgres)
    home.up()
    try:
        yield home
    finally:
        home.down()
        with connect(postgres) as connection:  # the templates that would linger, and what a failed test has left
            named = "SELECT datname FROM pg_database WHERE datname ~ '_[a-z0-9]{26}$'"
            for (name,) in connection.execute(named).fetchall():
                connection.execute(f'ALTER DATABASE "{name}" WITH IS_TEMPLATE false')
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
            for (name,) in connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'dayfly%'").fetchall():
                connection.execute(f'DROP ROLE "{name}"')


def databases(settings: dict[str, str]) -> list[str]:
    """Return the databases of Dayfly, without their ids."""
    with connect(settings) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE datname ~ '_[a-z0-9]{26}$'")
        return sorted(name.rpartition("_")[0] for (name,) in found)


def customers(home: Home, sandbox: str = DEMO) -> list[str]:
    with psycopg.connect(home.outputs(sandbox)["db/grant.url"], autocommit=True) as connection:
        connection.execute("INSERT INTO customer (name) VALUES ('Own')")
        return [name for (name,) in connection.execute("SELECT name FROM customer ORDER BY id")]


def test_copies_of_a_pool_share_one_template(home: Home, postgres: dict[str, str]):
    home.dayfly("apply", *PLUGINS, "-f", str(HERE / "pool"))
    assert databases(postgres) == ["dayfly", "dayfly", "golden"]
    home.dayfly("apply", "-f", str(HERE / "sandbox.yaml"))
    assert customers(home) == ["Ada", "Grace", "Own"]
    assert home.json("pool", "get", "clones")["status"]["hits"] == 1
    until(lambda: databases(postgres) == [DEMO, "dayfly", "dayfly", "golden"], "the pool has made another copy")
    home.dayfly("sandbox", "delete", DEMO)
    home.dayfly("pool", "delete", "clones")
    until(lambda: databases(postgres) == ["golden"], "the template lingers without its copies")


def test_copies_share_a_template_whose_outputs_stay_hidden(home: Home, postgres: dict[str, str]):
    home.dayfly("apply", *PLUGINS, "-f", str(HERE / "sandbox.yaml"))
    assert databases(postgres) == [DEMO, "golden"]
    assert set(home.outputs(DEMO)) == {"db/clone.copy", "db/grant.database", "db/grant.url"}
    second = home.path / "second.yaml"
    second.write_text((HERE / "sandbox.yaml").read_text().replace(DEMO, "second").replace("./golden", f"{HERE}/golden"))
    home.dayfly("apply", "-f", str(second))
    assert customers(home, "second") == customers(home) == ["Ada", "Grace", "Own"]
    assert databases(postgres) == [DEMO, "golden", "second"]
    for name in (DEMO, "second"):
        home.dayfly("sandbox", "delete", name)
    assert databases(postgres) == ["golden"]


def test_template_accepts_no_connections(home: Home, postgres: dict[str, str]):
    """PostgreSQL copies no database that has connections."""
    home.dayfly("apply", *PLUGINS, "-f", str(HERE / "sandbox.yaml"))
    with connect(postgres) as connection:
        [(name,)] = connection.execute("SELECT datname FROM pg_database WHERE datname ~ '^golden_'").fetchall()
    with pytest.raises(psycopg.OperationalError, match="not currently accepting connections"):
        connect({**postgres, "PGDATABASE": name})


def test_other_sql_has_another_template(home: Home, postgres: dict[str, str], tmp_path: Path):
    home.dayfly("apply", *PLUGINS, "-f", str(HERE / "sandbox.yaml"))
    other = tmp_path / "other.yaml"
    sql = "CREATE TABLE customer (id serial, name text); INSERT INTO customer (name) VALUES ('Edith')"
    other.write_text((HERE / "sandbox.yaml").read_text().replace(DEMO, "other").replace("@{embed: ./golden.sql}", sql))
    home.dayfly("apply", "-f", str(other))
    assert customers(home, "other") == ["Edith", "Own"]
    assert customers(home) == ["Ada", "Grace", "Own"]
    assert databases(postgres) == [DEMO, "golden", "golden", "other"]


def test_copy_in_use_is_removed_with_its_role(home: Home, postgres: dict[str, str]):
    home.dayfly("apply", *PLUGINS, "-f", str(HERE / "sandbox.yaml"))
    roles = "SELECT rolconnlimit FROM pg_roles WHERE rolname = %s"
    with connect(postgres) as admin, psycopg.connect(home.outputs(DEMO)["db/grant.url"], autocommit=True) as user:
        role = (user.info.user,)
        assert admin.execute(roles, role).fetchall() == [(20,)]
        user.execute("BEGIN")
        user.execute("LOCK TABLE customer")
        home.dayfly("sandbox", "delete", DEMO)
        with pytest.raises(psycopg.OperationalError):
            user.execute("SELECT 1")
        assert admin.execute(roles, role).fetchall() == []
    assert databases(postgres) == ["golden"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [("SELECT 1", "created no table"), ("CREATE TABLE a (); SELECT 1 / 0", "division by zero")],
)
def test_failed_template_fails_the_copy_with_its_reason(
    home: Home, postgres: dict[str, str], tmp_path: Path, sql: str, reason: str
):
    broken = tmp_path / "broken.yaml"
    broken.write_text((HERE / "sandbox.yaml").read_text().replace("@{embed: ./golden.sql}", sql))
    home.dayfly("apply", *PLUGINS, "-f", str(broken), code=1)
    assert reason in home.dayfly("logs", DEMO)
    until(lambda: databases(postgres) == [], "the failed template is removed")
    home.dayfly("sandbox", "delete", DEMO)


@pytest.mark.proof
def test_orphan_copy_is_deleted_without_its_neighbour(home: Home, postgres: dict[str, str], tmp_path: Path):
    home.dayfly("apply", *PLUGINS, "-f", str(HERE / "sandbox.yaml"))
    id_ = home.outputs(DEMO)["db/grant.database"].rpartition("_")[2]
    with connect(postgres) as connection:
        connection.execute(f'CREATE DATABASE "other_{similar(id_)}"')
    delete_orphan(home, DEMO, write_check(tmp_path, "pooled-postgres", {}), id_)
    assert databases(postgres) == ["golden", "other"]
    with connect(postgres) as connection:
        assert connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE %s", (f"%{id_}",)).fetchall() == []
