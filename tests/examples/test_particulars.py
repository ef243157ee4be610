"""Special cases of single examples: their resources are real, and faults at their worst moments."""

import json
import sqlite3
import urllib.request
from pathlib import Path

import pytest
from tests.examples import external_services
from tests.examples.conftest import client
from tests.examples.external_services import REGION, S3
from tests.examples.home import Home, until
from tests.examples.kinds import FOLDER, Example


def only(name: str):
    return pytest.mark.parametrize("example", [name], indirect=True)


def get(home: Home, sandbox: str, path: str = "/"):
    (endpoint,) = home.json("sandbox", "get", sandbox)["endpoints"]
    with urllib.request.urlopen(endpoint["url"] + path, timeout=10) as answer:
        return json.load(answer)


@only("sqlite-notes")
def test_fork_reads_the_outputs_of_the_steps(example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    outputs = home.outputs("notes-demo")
    notes = get(home, "notes-demo", "/notes")
    assert len(notes) == int(outputs["db/schema-and-seed.notes"]) == 2
    with sqlite3.connect(outputs["db/provision.path"]) as connection:
        connection.execute("INSERT INTO notes (text) VALUES ('one more')")
    assert get(home, "notes-demo", "/notes") == [*notes, "one more"]


@only("sqlite-notes")
@pytest.mark.parametrize("wrong", ["", "relative", "/nowhere/at/all"])
def test_missing_folder_is_named_and_deletion_works(example: Example, home: Home, wrong: str):
    example.sets = {"folder": wrong}
    home.dayfly("apply", *example.arguments(), code=1)
    assert f"the param folder is '{wrong or '.'}'" in home.dayfly("logs", "notes-demo", "db", "provision")
    home.dayfly("sandbox", "delete", "notes-demo")


@only("python-step")
def test_json_goes_in_and_comes_out(example: Example, home: Home, folder: Path):
    home.dayfly("apply", *example.arguments())
    outputs = home.outputs("accounts-demo")
    accounts = json.loads(outputs["users/register.accounts"])
    assert [(each["name"], each["role"]) for each in accounts] == [("ada", "admin"), ("grace", "guest")]
    assert json.loads(outputs["users/register.names"]) == ["ada", "grace"]
    (registry,) = folder.iterdir()
    assert json.loads(registry.read_text()) == accounts
    assert registry.stat().st_mode & 0o777 == 0o600
    assert accounts[0]["password"] not in home.dayfly("logs", "accounts-demo")


@only("python-step")
def test_invalid_param_is_answered_with_the_expected_form(example: Example, home: Home, tmp_path: Path, folder: Path):
    sandbox = tmp_path / "sandbox.yaml"
    text = (FOLDER / "python-step" / "sandbox.yaml").read_text()
    sandbox.write_text(text.replace('"name": "ada"', '"nom": "ada"'))
    home.dayfly("apply", *example.arguments(FOLDER / "python-step" / "plugin.yaml", sandbox), code=1)
    assert "the param wanted must be like" in home.dayfly("logs", "accounts-demo", "users", "register")
    home.dayfly("sandbox", "delete", "accounts-demo")
    assert list(folder.iterdir()) == []


@only("s3-bucket")
def test_fork_receives_the_location_of_the_catalogue(example: Example, home: Home, s3: S3):
    home.dayfly("apply", *example.arguments())
    told = get(home, "s3-demo")
    there = client(s3).get_object(Bucket=told["bucket"], Key=told["prefix"] + "catalogue.json")
    assert there["Body"].read() == (FOLDER / "s3-bucket" / "seed" / "catalogue.json").read_bytes()
    assert client(s3).get_bucket_location(Bucket=told["bucket"])["LocationConstraint"] == REGION
    client(s3).put_object(Bucket=told["bucket"], Key="made/by/the/application", Body=b"later")
    home.dayfly("sandbox", "delete", "s3-demo")
    assert example.left() == []


@only("s3-bucket")
def test_a_server_that_does_not_answer_proves_nothing(example: Example, home: Home, s3: S3):
    home.dayfly("apply", *example.arguments())
    s3.stop()
    try:
        home.dayfly("sandbox", "delete", "s3-demo", "--wait=false")
        until(lambda: "files/deprovision: WaitingToRetry" in home.dayfly("why", "s3-demo"), "the delete step fails")
        assert s3.stored(), "it could not be removed"
    finally:
        s3.start()
    until(lambda: example.left() == [], "the next attempt")


def test_missing_tool_skips_locally_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("DAYFLY_CACHE", str(tmp_path))
    for ci, refusal in {"": pytest.skip.Exception, "true": pytest.fail.Exception}.items():
        monkeypatch.setenv("CI", ci)
        with pytest.raises(refusal, match=r"NOT TESTED.*needs Go to build terraform"):
            external_services.terraform()
