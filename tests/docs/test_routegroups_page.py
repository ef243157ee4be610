"""The commands of the page on route groups have the shown output, and the page has every form, offset and limit."""

import pytest
from tests.docs.conftest import ROOT, Person

from dayfly.operator.route_groups.group_status import MAX_LISTED
from dayfly.plan.reasons import Reason
from dayfly.plan.route_groups import CONFLICT_CONDITION, EXPIRES_SOON_CONDITION
from dayfly.server.runs.group_forms import MAX_QUERIED
from dayfly.server.runs.group_strategy import MAX_GROUPS
from dayfly.spec.errors import SpecError
from dayfly.spec.route_group import OFFSETS
from dayfly.spec.routing import label_match
from dayfly.spec.scalars.glob import MAX_NON_ASCII_LENGTH, MAX_PATTERN_LENGTH, MAX_VALUE_LENGTH, MAX_WILDCARDS

PAGE = ROOT / "docs" / "guides/route-groups.md"


@pytest.mark.slow
def test_route_groups_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_match_form_offset_and_limit_is_documented():
    page = " ".join(PAGE.read_text().split())
    with pytest.raises(SpecError, match="known here: label, any, all"):
        label_match.parse({"none": []})
    assert all(f"| `{form}: " in page for form in ("label", "any", "all"))
    assert all(f"| `{offset}` |" in page for offset in OFFSETS)
    assert f"at most {label_match.MAX_LABELS} labels, {label_match.MAX_DEPTH} deep" in page
    assert f"at most {MAX_PATTERN_LENGTH} characters and {MAX_WILDCARDS} of " in page
    assert f"A server has at most {MAX_GROUPS} groups. A value longer than {MAX_VALUE_LENGTH} characters" in page
    assert f"({MAX_NON_ASCII_LENGTH} if they are not" in page
    assert f"the first {MAX_QUERIED} in that order" in page
    assert f"first {MAX_LISTED}; `matched`" in page
    assert all(f"`{word}`" in page for word in (CONFLICT_CONDITION, EXPIRES_SOON_CONDITION, Reason.EXPIRES_SOON))
