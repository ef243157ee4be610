"""The guide to the installation: its commands build, install and remove the package."""

import os
from pathlib import Path

import pytest
from tests.docs.conftest import ROOT, Person
from tests.docs.transcript import differences, follow


@pytest.mark.proof
def test_install_guide_shows_the_real_output(person: Person):
    # An empty home has no compiler yet, and downloading it takes minutes.
    person.environment["DAYFLY_CACHE"] = os.environ.get("DAYFLY_CACHE") or str(Path.home() / ".cache" / "dayfly")
    typed = follow(ROOT / "docs" / "guides" / "install.md", person.home, person.environment, {}, seconds=900)
    found = [found for command, printed in typed if (found := differences(command, printed))]
    assert not found, "\n".join(found)
    assert not (person.home / "dayfly-venv").exists()
