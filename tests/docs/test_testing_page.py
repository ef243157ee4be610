"""The guide to `dayfly plugin test` shows what its commands print, and lists every finding."""

import re

from tests.docs.conftest import ROOT, Person

from dayfly.testing import Fault

PAGE = ROOT / "docs" / "guides" / "test-plugins.md"


def test_plugin_test_guide_shows_the_real_output(person: Person):
    person.environment["PATH"] += f":{ROOT}"
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_plugin_test_guide_lists_every_finding():
    assert set(re.findall(r"^\| `(\w+)` ", PAGE.read_text(), re.MULTILINE)) == {*Fault}
