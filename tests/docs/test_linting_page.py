"""The guide to `dayfly plugin lint`."""

from tests.docs.conftest import ROOT, Person

DOCS = ROOT / "docs"


def test_lint_guide_shows_the_real_output(person: Person):
    person.environment["PATH"] += f":{ROOT}"
    found = person.follow(DOCS / "guides" / "lint-plugins.md")
    assert not found, "\n".join(found)
