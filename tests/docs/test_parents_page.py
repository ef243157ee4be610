"""The commands of the page on shared parents have the shown output, and the page has the limits."""

import pytest
from tests.docs.conftest import ROOT, Person

from dayfly.spec.shared_parent import DEFAULT_CAPACITY, MAX_CAPACITY

PAGE = ROOT / "docs" / "guides/shared-parents.md"


@pytest.mark.slow
def test_parents_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)
    assert list((person.home / "servers").iterdir()) == []


def test_limits_of_parents_are_documented():
    assert f"by default {DEFAULT_CAPACITY} and at most {MAX_CAPACITY}" in PAGE.read_text()
