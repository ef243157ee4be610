"""The page on trying plugins: its commands find what it shows, and what it advises helps."""

import re

from tests.docs.conftest import ROOT, Person

from dayfly.testing import Fault

PAGE = ROOT / "docs" / "guides/test-plugins.md"


def test_testing_page_shows_the_real_output(person: Person):
    person.environment["PATH"] += f":{ROOT}"
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_the_page_has_every_finding():
    assert set(re.findall(r"^\| `(\w+)` ", PAGE.read_text(), re.MULTILINE)) == {*Fault}
