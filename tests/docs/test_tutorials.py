"""The tutorials show what their commands print. `tests/examples` types "Write a plugin", `tests/cluster` the one on clusters."""

import shutil
import sys

import pytest
from tests.docs.conftest import ROOT, Person


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: curl is not on this machine: install it")
def test_first_sandbox_tutorial_shows_the_real_output(person: Person):
    found = person.follow(ROOT / "docs" / "tutorials" / "first-sandbox.md")
    assert not found, "\n".join(found)
    assert list((person.home / "databases").iterdir()) == []


def test_tutorial_gives_each_test_a_database_of_a_pool(person: Person):
    programs = person.home / "bin"
    programs.mkdir()
    # The checkout's environment has no installed package, so pytest does not find the fixtures by itself.
    command = f"exec {sys.executable} -m pytest -p dayfly.pytest_plugin -p no:asyncio"
    (programs / "pytest").write_text(f'#!/bin/sh\n{command} "$@"\n')
    (programs / "pytest").chmod(0o755)
    path = f"{programs}:{person.home}/dayfly:{person.environment['PATH']}"
    kept = {name: value for name, value in person.environment.items() if not name.startswith("PYTEST_")}
    reader = person._replace(environment={**kept, "PATH": path, "PYTHONPATH": str(ROOT / "src")})
    found = reader.follow(ROOT / "docs" / "tutorials" / "database-per-test.md")
    assert not found, "\n".join(found)
