"""The tutorials show what their commands print. `tests/examples` types "Write a plugin", `tests/cluster` the one on clusters."""

import shutil

import pytest
from tests.docs.conftest import ROOT, Person


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: curl is not on this machine: install it")
def test_first_sandbox_tutorial_shows_the_real_output(person: Person):
    found = person.follow(ROOT / "docs" / "tutorials" / "first-sandbox.md")
    assert not found, "\n".join(found)
    assert list((person.home / "databases").iterdir()) == []
