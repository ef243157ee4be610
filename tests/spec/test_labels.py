"""Label selectors, as in kubectl's `-l`."""

import pytest

from dayfly.spec.errors import SpecError
from dayfly.spec.scalars import label_selector

HAS = {"team": "pay", "empty": "", "example.com/repo": "a/b"}


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("team=pay", True), ("team==pay", True), ("team=sho", False), ("team", True), ("none", False), ("empty=", True),
        ("team!=pay", False), ("team!=sho", True), ("none!=x", True), ("!none", True), ("!team", False),
        ("team=pay,example.com/repo=a/b", True), ("team=pay, none", False), ("empty", True), ("team=a=b", False),
    ],
)  # fmt: skip
def test_terms(text, taken):
    assert label_selector.matches(label_selector.parse([text]), HAS) is taken


def test_several_selectors_are_combined_and_none_selects_all():
    assert label_selector.matches(label_selector.parse([]), {})
    assert not label_selector.matches(label_selector.parse(["team=pay", "none"]), HAS)


@pytest.mark.parametrize("text", ["", "=x", "!", "a,,b", "a in (b)", "!a=b", "a b=c"])
def test_invalid_selector_is_refused(text):
    with pytest.raises(SpecError, match="is not a label selector: write label=value"):
        label_selector.parse([text])
