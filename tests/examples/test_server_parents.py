"""A PostgreSQL server in a container as shared parent: started by its first copy, and stopped after its last one."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.examples import container_engine
from tests.examples.home import Home, until
from tests.examples.kinds import FOLDER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DEMO = "served-demo"


@pytest.fixture(scope="module")
def docker() -> Iterator[dict[str, str]]:
    with container_engine.engine() as environment:
        yield environment


@pytest.fixture
def home(tmp_path: Path, docker: dict[str, str]) -> Iterator[Home]:
    home = Home(tmp_path / "home", docker)
    home.up()
    try:
        yield home
    finally:
        home.down()
        for name in servers(home):  # what a failed test has left
            subprocess.run(["docker", "rm", "--force", "--volumes", name], env=home.environment, check=True)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return a copy of the example with the image of the test, in which no parent lingers."""
    folder = shutil.copytree(FOLDER / "pooled-postgres", tmp_path / "example") / "server"
    for path in folder.glob("*.yaml"):
        text = path.read_text().replace(", linger: 30m", "").replace("    linger: 30m\n", "")
        path.write_text(text.replace("postgres:17", container_engine.IMAGE))
    return folder


def plugins(folder: Path) -> tuple[str, ...]:
    return tuple(word for name in ("server", "golden", "plugin") for word in ("-f", str(folder / f"{name}.yaml")))


def servers(home: Home) -> list[str]:
    """Return the names of all containers."""
    listed = ["docker", "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.check_output(listed, env=home.environment, text=True).split()


def listed(home: Home, folder: Path) -> list[str]:
    """Return the names that the inventory of the server lists."""
    lines = subprocess.check_output([folder / "inventory.sh"], env=home.environment, text=True).splitlines()
    *things, last = map(json.loads, lines)
    assert last == {"complete": True, "count": len(things)}
    return [thing["name"] for thing in things]


def databases(url: str) -> list[str]:
    """Return the databases of Dayfly in the server of a sandbox, without their ids."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE datname ~ '_[a-z0-9]{26}$'")
        return sorted(name.rpartition("_")[0] for (name,) in found)


def test_copies_share_a_server_that_stops_after_the_last_one(home: Home, example: Path):
    home.dayfly("apply", *plugins(example), "-f", str(example / "sandbox.yaml"))
    (server,) = servers(home)
    assert listed(home, example) == [server]
    second = example / "second.yaml"
    second.write_text((example / "sandbox.yaml").read_text().replace(DEMO, "second"))
    home.dayfly("apply", "-f", str(second))
    urls = [home.outputs(name)["db/grant.url"] for name in (DEMO, "second")]
    assert servers(home) == [server]
    assert databases(urls[0]) == ["golden", "second", DEMO]
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("INSERT INTO customer (name) VALUES ('Own')")
            assert connection.execute("SELECT count(*) FROM customer").fetchone() == (3,)
    home.dayfly("sandbox", "delete", DEMO)
    assert databases(urls[1]) == ["golden", "second"]
    home.dayfly("sandbox", "delete", "second")
    until(lambda: servers(home) == [], "the server ends without its copies")
    assert listed(home, example) == []


def test_ready_copies_keep_the_server_across_a_kill(home: Home, example: Path):
    home.dayfly("apply", *plugins(example), "-f", str(example / "pool.yaml"))
    (server,) = servers(home)
    home.kill()
    home.up()
    home.dayfly("apply", "-f", str(example / "sandbox.yaml"))
    assert home.json("pool", "get", "served")["status"]["hits"] == 1
    assert servers(home) == [server]
    home.dayfly("pool", "delete", "served")
    assert servers(home) == [server]
    home.dayfly("sandbox", "delete", DEMO)
    until(lambda: servers(home) == [], "the server ends without its copies")


def test_server_that_cannot_start_fails_its_copy(home: Home, example: Path):
    server = example / "server.yaml"
    server.write_text(server.read_text().replace(container_engine.IMAGE, "localhost/none:1"))
    home.dayfly("apply", *plugins(example), "-f", str(example / "sandbox.yaml"), code=1)
    assert "localhost/none:1" in home.dayfly("logs", DEMO)
    home.dayfly("sandbox", "delete", DEMO)
    until(lambda: servers(home) == [], "nothing is left")
