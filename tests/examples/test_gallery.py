"""The gallery's examples: one life of them all together for each change, and in the proof whatever can befall each."""

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples import external_services, gallery
from tests.examples.home import ROOT, Home, until
from tests.examples.kinds import FOLDER, GALLERY, STEPS, Example


@pytest.mark.long_story
@pytest.mark.slow
@pytest.mark.builds("openbao", "moto", "versitygw", "awscli")
def test_all_of_the_gallery_lives_together(request: pytest.FixtureRequest, tmp_path: Path):
    """Made by one server at the same time, used, and gone."""
    examples = [gallery.MAKERS[name](request) for name in GALLERY]
    assert not [each.left() for each in examples if each.left()]
    home = Home(tmp_path / "home", merged(examples))
    home.up()
    try:
        for example in examples:
            home.dayfly("apply", *example.arguments(), "--wait=false")
        for example in examples:
            home.dayfly("apply", *example.arguments())
            assert example.left() != []
            example.use(home.outputs(example.sandbox))
        for example in examples:
            home.dayfly("sandbox", "delete", example.sandbox, "--wait=false")
        for example in examples:
            until(lambda example=example: example.left() == [], f"the end of what {example.name} has made")
        until(lambda: home.json("sandbox", "list") == [], "the end of the sandboxes")
    finally:
        for left in home.json("sandbox", "list"):  # by a failure; other tests have the same servers
            home.dayfly("sandbox", "delete", left["name"], code=(0, 3))
        home.down()


def merged(examples: list[Example]) -> dict[str, str]:
    """The variables of all of them; PATH of each."""
    environment = {name: value for each in examples for name, value in each.environment.items()}
    paths = [each.environment["PATH"] for each in examples if "PATH" in each.environment]
    return {**environment, "PATH": ":".join([*paths, os.environ["PATH"]])}


def test_gallery_page_lists_every_example():
    page = (ROOT / "docs" / "guides/gallery.md").read_text()
    listed = re.findall(r"^\| \[[\w-]+\]\(\.\./\.\./examples/([\w-]+)\)", page, re.MULTILINE)
    assert set(listed) >= {*STEPS, *GALLERY}
    assert [name for name in listed if not (FOLDER / name / "plugin.yaml").exists()] == []


@pytest.mark.parametrize("name", [*GALLERY, "k8s-apply"])
def test_secrets_of_a_plugin_are_named_in_its_readme(name: str):
    """Each Secret that a plugin reads, with its keys, and the annotation by which it may."""
    plugin, readme = (FOLDER / name / "plugin.yaml").read_text(), (FOLDER / name / "README.md").read_text()
    told = readme if name != "k8s-apply" else readme + (FOLDER / name / "k8s" / "account.yaml").read_text()
    for key in re.findall(r"secretKeyRef: {name: [\w-]+, key: (\w+)}", plugin):
        assert f"`{key}`" in told
    assert f"cluster:{name}" in told


@pytest.mark.parametrize("name", [*GALLERY, "k8s-apply"])
def test_a_readme_is_one_screen(name: str):
    lines = (FOLDER / name / "README.md").read_text().splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 130


HOSTILE = 'it\'s "quoted" $(touch /tmp/dayfly-hostile) `id` \\ %s; DROP TABLE customer; --\nin two lines'
TAKEN = {
    "postgres-database": {"seed": "INSERT INTO customer (name) VALUES ('{}');"},
    "mariadb-database": {"sql": "CREATE TABLE customer (name varchar(200)); INSERT INTO customer VALUES ('{}');"},
    "s3-seed": {"catalogue": "{}"},
    "sqs-queue": {"tags": '{{"team": {}}}'},
}
REFUSED = {
    "sqs-queue": {"region": "the param region must be", "attributes": "Error parsing parameter"},
    "s3-seed": {"region": "the param region must be"},
    "s3-bucket": {"region": "the param region must be"},
    "pooled-bucket": {"region": "the param region must be"},
    "nats-stream": {"topic": "NATS refuses"},
    "vault-secret": {"access": "must be read or write"},
    "postgres-database": {"schema": "syntax error"},
}


@pytest.mark.proof
@pytest.mark.parametrize("example", TAKEN, indirect=True)
def test_quotes_and_new_lines_in_a_param_arrive_as_they_are(example: Example, home: Home, tmp_path: Path):
    ((param, form),) = TAKEN[example.name].items()
    escaped = {"postgres-database": HOSTILE.replace("'", "''"), "sqs-queue": json.dumps(HOSTILE)}
    escaped["mariadb-database"] = HOSTILE.replace("\\", "\\\\").replace("'", "''")
    value = form.format(escaped.get(example.name, HOSTILE))
    home.dayfly("apply", *example.with_param(tmp_path, **{param: value}))
    assert HOSTILE in gallery.READERS[example.name](example.environment, home.outputs(example.sandbox))
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []
    assert not Path("/tmp/dayfly-hostile").exists()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("example", "param"),
    [pytest.param(name, param, id=f"{name}-{param}") for name, params in REFUSED.items() for param in params],
    indirect=["example"],
)
def test_invalid_param_is_refused_and_cleanup_still_succeeds(example: Example, param: str, home: Home, tmp_path: Path):
    """A delete step that cannot distinguish an invalid param from an unreachable server would retry forever."""
    home.dayfly("apply", *example.with_param(tmp_path, **{param: HOSTILE}), code=1)
    assert REFUSED[example.name][param] in home.dayfly("logs", example.sandbox)
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []
    assert not Path("/tmp/dayfly-hostile").exists()


def _slow_in_postgres(script: str) -> str:
    r"""`\;` sends both in one message: the server does both, whether or not its client lives."""
    return script.replace("CREATE ROLE", r"SELECT pg_sleep(4)\; CREATE ROLE")


def _slow_in_mariadb(script: str) -> str:
    """The same in one statement."""
    first, create, rest = script.partition("CREATE USER")
    statement, _, rest = rest.partition("\n")
    return f"{first}DELIMITER //\nBEGIN NOT ATOMIC DO SLEEP(4); {create}{statement} END //\nDELIMITER ;\n{rest}"


def _sleeps_in_postgres(settings: gallery.Settings) -> bool:
    with external_services.connect(dict(settings)) as connection:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        return connection.execute(asleep).fetchone() != (0,)


def _sleeps_in_mariadb(settings: gallery.Settings) -> bool:
    asleep = "SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'"
    return gallery.mariadb({**settings, "MARIADB_USER": "eyes"}, asleep).strip() != "0"


SLOW = {
    "postgres-database": (_slow_in_postgres, _sleeps_in_postgres),
    "mariadb-database": (_slow_in_mariadb, _sleeps_in_mariadb),
}


@pytest.mark.proof
@pytest.mark.parametrize("example", SLOW, indirect=True)
def test_a_creation_that_goes_on_in_the_server_is_waited_for(example: Example, home: Home, tmp_path: Path):
    """The client is killed during the creation. Resources that the server creates after that are removed as well."""
    slow, sleeps = SLOW[example.name]
    home.dayfly("apply", *example.changed(tmp_path, "provision", slow), "--wait=false")
    until(lambda: sleeps(example.environment), "the server pauses")
    home.dayfly("sandbox", "delete", example.sandbox)
    assert not sleeps(example.environment), "the delete step has not waited"
    assert example.left() == []


@pytest.fixture
def policy(example: Example) -> Iterator[None]:
    """A token with the policy of the README takes the place of the administrator's."""
    told = (FOLDER / "vault-secret" / "README.md").read_text()
    lines = re.findall(r"^    (path .*)$", told, re.MULTILINE)
    assert len(lines) == 4
    environment = {**os.environ, **example.environment}
    bao = functools.partial(subprocess.run, env=environment, check=True, capture_output=True, text=True)
    bao(["bao", "policy", "write", "steps", "-"], input="\n".join(lines))
    token = bao(["bao", "token", "create", "-policy=steps", "-field=token"]).stdout
    example.environment = {**example.environment, "BAO_TOKEN": token}
    yield
    bao(["bao", "policy", "delete", "steps"])


@pytest.fixture
def modest(example: Example, postgres: dict[str, str]) -> Iterator[None]:
    """An administrator with the rights that the README names takes the superuser's place."""
    with external_services.connect(postgres) as connection:
        connection.execute("CREATE ROLE creator LOGIN CREATEROLE CREATEDB PASSWORD 'creator'")
        example.environment = {**example.environment, "PGUSER": "creator", "PGPASSWORD": "creator"}
        yield
        connection.execute("DROP ROLE creator")


@pytest.mark.proof
@pytest.mark.parametrize(
    ("example", "administrator"),
    [("vault-secret", "policy"), ("postgres-database", "modest")],
    indirect=["example"],
)
def test_the_rights_that_a_readme_names_are_enough(
    example: Example, administrator: str, request: pytest.FixtureRequest
):
    request.getfixturevalue(administrator)
    home: Home = request.getfixturevalue("home")
    home.dayfly("apply", *example.arguments())
    example.use(home.outputs(example.sandbox))
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []
