"""The guide to `dayfly plugin lint`, and the generated reference of its rules."""

import runpy

from tests.docs.conftest import ROOT, Person

DOCS = ROOT / "docs"


def test_lint_guide_shows_the_real_output(person: Person):
    person.environment["PATH"] += f":{ROOT}"
    found = person.follow(DOCS / "guides" / "lint-plugins.md")
    assert not found, "\n".join(found)


def test_lint_reference_is_current():
    made = runpy.run_path(str(ROOT / "scripts" / "lint_reference.py"))["page"]()
    assert (DOCS / "reference" / "lint-rules.md").read_text() == made, "run: scripts/reference.py"
