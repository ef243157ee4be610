"""The page on linting: its commands do what it shows, and its table is the program's own."""

from tests.docs.conftest import ROOT, Person

from dayfly.lint import as_tables

PAGE = ROOT / "docs" / "guides/lint-plugins.md"


def test_linting_page_shows_the_output_of_lint(person: Person):
    person.environment["PATH"] += f":{ROOT}"
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_the_page_has_every_rule():
    """Made by: python -c 'from dayfly.lint import as_tables; print(as_tables())'."""
    assert PAGE.read_text().partition("## All rules\n\n")[2].strip() == as_tables().strip()
