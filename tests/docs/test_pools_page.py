"""The commands of the page on pools have the shown output, and the page has the limits."""

import pytest
from tests.docs.conftest import ROOT, Person

from dayfly.link.wire import PoolAction
from dayfly.server.runs.pool_strategy import MAX_POOLS

PAGE = ROOT / "docs" / "guides/pools.md"


@pytest.mark.slow
def test_pools_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)
    assert list((person.home / "workspaces").iterdir()) == []


def test_actions_and_limit_of_pools_are_documented():
    page = PAGE.read_text()
    assert f"at most {MAX_POOLS} pools" in page
    assert all(f"`pool {action}`" in page for action in PoolAction)
