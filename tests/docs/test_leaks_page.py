"""The commands of the page on leak checks have the shown output, and the page has the limits."""

import pytest
from tests.docs.conftest import ROOT, Person

from dayfly.plan.leaks.records import KEEP_RECORDS_MS
from dayfly.plan.leaks.verdict import MAX_DELETIONS, LeakVerdict

PAGE = ROOT / "docs" / "guides/leaks.md"


@pytest.mark.slow
def test_leaks_page_shows_the_real_output(person: Person):
    person.environment["PATH"] += f":{ROOT}"
    found = person.follow(PAGE)
    assert not found, "\n".join(found)
    assert list((person.home / "folders").iterdir()) == []


def test_verdicts_and_limits_of_leak_checks_are_documented():
    page = PAGE.read_text()
    assert all(f"| `{verdict}` |" in page for verdict in LeakVerdict)
    assert MAX_DELETIONS == 10
    assert "at most ten items" in page
    assert f"{KEEP_RECORDS_MS // 86_400_000} days" in page
