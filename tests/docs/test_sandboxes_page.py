"""The guide to sandbox files: its commands print what it shows, and it lists every part of a file."""

import msgspec
import pytest
from tests.docs.conftest import ROOT, Person

from dayfly.spec.sandbox import SandboxSpec

PAGE = ROOT / "docs" / "guides/sandboxes.md"
# Fields of other tools, which only the reference describes.
IGNORED_FIELDS = {
    "endpoints",
    "virtual",
    "middleware",
    "routing",
    "connection",
    "localMachineID",
    "disableSandboxTrafficManager",
}


@pytest.mark.slow
def test_sandboxes_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_sandbox_field_is_documented():
    page = PAGE.read_text()
    fields = {field.encode_name for field in msgspec.structs.fields(SandboxSpec)} - IGNORED_FIELDS - {"description"}
    assert {name for name in fields if f"| `{name}` |" not in page} == set()
