"""The guide for Terraform: its commands print the shown output, its variables and limits are current."""

import os

import pytest
from tests.docs.conftest import ROOT, Person
from tests.examples import external_services

from dayfly.execute.state import access, head, seal
from dayfly.operator.states import state_secrets

PAGE = ROOT / "docs" / "guides/terraform.md"


@pytest.mark.slow
@pytest.mark.builds("terraform")
def test_terraform_page_shows_the_real_output(person: Person):
    person.environment["PATH"] = f"{external_services.terraform().parent}:{os.environ['PATH']}"
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_terraform_variable_is_documented():
    page = PAGE.read_text()
    told = access.variables(access.StateEndpoint("https://x", "PEM"), access.state_caller("u", "r", "r/a", 1))
    assert [name for name in (*told, access.PASSWORD) if f"`{name}`" not in page] == []
    retries = [told[f"TF_HTTP_RETRY_{each}"] for each in ("MAX", "WAIT_MIN", "WAIT_MAX")]
    assert f"{retries[0]}, {retries[1]} and {retries[2]}: " in page


def test_terraform_page_states_the_limits_of_the_program():
    page = PAGE.read_text()
    assert f"{seal.MAX_BODY >> 20} MiB, and {seal.MAX_STORED >> 20} MiB when compressed" in page
    assert (
        f"The last {head.MAX_VERSIONS} versions are kept** (or as many as have {head.MAX_STORED_BYTES >> 20} MiB together)"
        in page
    )
    assert f"{state_secrets.MAX_STATES}, and {state_secrets.MAX_BYTES >> 20} MiB when compressed" in page
