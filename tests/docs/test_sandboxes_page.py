"""The page on sandbox files: what it says to type is typed, and no part of a file is missing."""

import msgspec
import pytest
from tests.docs.conftest import ROOT, Person

from dayfly.spec.sandbox import SandboxSpec

PAGE = ROOT / "docs" / "guides/sandboxes.md"
# Kept for files of others: told in the reference alone.
KEPT = {"endpoints", "virtual", "middleware", "routing", "connection", "localMachineID", "disableSandboxTrafficManager"}


@pytest.mark.slow
def test_sandboxes_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_sandbox_field_is_documented():
    page = PAGE.read_text()
    fields = {field.encode_name for field in msgspec.structs.fields(SandboxSpec)} - KEPT - {"description"}
    assert {name for name in fields if f"| `{name}` |" not in page} == set()
