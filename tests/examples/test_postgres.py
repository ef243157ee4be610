"""The schema is usable and its own, and goes away whatever state it is in."""

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.examples.external_services import connect
from tests.examples.home import Home, until
from tests.examples.kinds import Example

pytestmark = pytest.mark.parametrize("example", ["postgres-schema"], indirect=True)


def as_owner(home: Home) -> psycopg.Connection:
    return psycopg.connect(home.outputs("postgres-demo")["db/provision.url"], autocommit=True)


def test_the_role_works_in_its_schema_and_nowhere_else(example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    outputs = home.outputs("postgres-demo")
    assert outputs["db/seed.tables"] == "2"
    with as_owner(home) as connection:
        assert connection.execute("SELECT name FROM customer ORDER BY id").fetchall() == [("Ada",), ("Grace",)]
        connection.execute("CREATE TABLE own (id integer)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE SCHEMA elsewhere")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE ROLE another")


def test_secrets_stay_out_of_reports_and_logs(example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    password = home.outputs("postgres-demo")["db/provision.password"]
    assert len(password) == 48
    shown = [
        home.dayfly("logs", "postgres-demo"),
        home.dayfly("sandbox", "get", "postgres-demo", "-o", "json"),
        home.dayfly("why", "postgres-demo"),
    ]
    assert not [each for each in shown if password in each]


def test_sessions_that_are_still_open_do_not_hold_the_schema(example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    with as_owner(home) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE customer")
        home.dayfly("sandbox", "delete", "postgres-demo")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert example.left() == []


def test_a_role_without_its_schema_is_removed(example: Example, home: Home, tmp_path: Path):
    def half(script: str) -> str:
        whole = script.replace("BEGIN;\n", "").replace("COMMIT;\n", "")
        return whole.replace("CREATE SCHEMA", "SELECT 1 / 0;\nCREATE SCHEMA")

    home.dayfly("apply", *example.changed(tmp_path, "provision", half), code=1)
    assert len(example.left()) == 1, "the role alone"
    home.dayfly("sandbox", "delete", "postgres-demo")
    assert example.left() == []


def test_a_creation_that_goes_on_in_the_server_is_waited_for(
    example: Example, home: Home, tmp_path: Path, postgres: dict[str, str]
):
    r"""`\;` sends the pause and the commit in one message: the server does both, whether or not its client lives."""
    wishes = example.changed(
        tmp_path, "provision", lambda script: script.replace("COMMIT;", r"SELECT pg_sleep(3)\; COMMIT;")
    )
    home.dayfly("apply", *wishes, "--wait=false")
    with connect(postgres) as eyes:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3)%'"
        until(lambda: eyes.execute(asleep).fetchone() == (1,), "the transaction pauses")
        began = time.monotonic()
        home.dayfly("sandbox", "delete", "postgres-demo")
        assert time.monotonic() - began > 1, "the delete step has not waited"
        assert eyes.execute(asleep).fetchone() == (0,)
    assert example.left() == []


@pytest.fixture
def modest(example: Example, postgres: dict[str, str]) -> Iterator[None]:
    """An administrator who is no superuser takes the superuser's place."""
    with connect(postgres) as connection:
        connection.execute("CREATE ROLE modest LOGIN CREATEROLE PASSWORD 'modest'")
        connection.execute("GRANT CREATE ON DATABASE postgres TO modest")
        example.environment = {**example.environment, "PGUSER": "modest", "PGPASSWORD": "modest"}
        yield
        connection.execute("DROP OWNED BY modest")
        connection.execute("DROP ROLE modest")


def test_no_superuser_is_needed(modest: None, example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    with as_owner(home) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE customer")
        home.dayfly("sandbox", "delete", "postgres-demo")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert example.left() == []


def test_without_the_administrators_variables_it_is_refused(example: Example, tmp_path: Path):
    example.environment = {name: value for name, value in example.environment.items() if name != "PGPASSWORD"}
    home = Home(tmp_path / "elsewhere", example.environment)
    home.environment.pop("PGPASSWORD", None)
    home.up()
    try:
        home.dayfly("apply", *example.arguments(), code=2)
        assert example.left() == []
    finally:
        home.down()
