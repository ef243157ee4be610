"""Label matches: selected labels, and places of faults."""

import pytest

from dayfly.spec.errors import SpecError
from dayfly.spec.routing import label_match

TEAM = {"label": {"key": "team", "value": "pay*"}}
DRAFT = {"label": {"key": "draft", "value": "yes"}}


@pytest.mark.parametrize(
    ("match", "takes"),
    [
        (TEAM, [0, 1]),
        ({"any": [TEAM, DRAFT]}, [0, 1, 2]),
        ({"all": [TEAM, DRAFT]}, [1]),
        ({"any": [{"all": [TEAM, DRAFT]}, {"label": {"key": "draft", "value": "y?s"}}]}, [1, 2]),
        ({"label": TEAM["label"], "any": None, "all": []}, [0, 1]),
        ({"label": {"key": "team*", "value": "*"}}, []),  # keys are not patterns
    ],
)
def test_match_selects_by_labels(match, takes):
    labels = [{"team": "pay"}, {"team": "payments", "draft": "yes"}, {"draft": "yes"}, {}, {"team": "p"}]
    found = label_match.parse(match)
    assert [index for index, each in enumerate(labels) if found.matches(each)] == takes


def nested(depth):
    return {"any": [nested(depth - 1)]} if depth else TEAM


@pytest.mark.parametrize(
    ("match", "path", "sentence"),
    [
        ({}, "match", "needs exactly one of label, any and all; 0 are given"),
        ({**TEAM, "any": [DRAFT]}, "match", "needs exactly one of label, any and all; 2 are given"),
        ({"any": []}, "match", "needs exactly one of label, any and all; 0 are given"),
        ({"not": TEAM}, "match.not", 'unknown field "not"; known here: label, any, all'),
        ({"any": TEAM}, "match.any", "must be a list, not a mapping"),
        ({"any": [TEAM, 5]}, "match.any[1]", "must be a mapping with label, any or all, not a number"),
        ({"label": "team"}, "match.label", "must be a mapping with key and value, not a string"),
        ({"label": {"key": "a", "vaule": "b"}}, "match.label.vaule", 'unknown field "vaule"; known here: key, value'),
        ({"label": {"key": "a"}}, "match.label.value", 'missing required field "value"'),
        ({"label": {"key": "a", "value": True}}, "match.label.value", "must be a string, not a boolean"),
        ({"label": {"key": "", "value": "b"}}, "match.label.key", "a label's key has 1 to 317 characters"),
        ({"all": [{"label": {"key": "a", "value": "["}}]}, "match.all[0].label.value", "at character 1, the class"),
        ({"any": [TEAM] * 65}, "match", "names 65 labels; a route group has at most 64"),
        (nested(16), "match" + ".any[0]" * 16, "is nested more than 16 deep"),
    ],
)
def test_invalid_match_is_refused(match, path, sentence):
    with pytest.raises(SpecError) as caught:
        label_match.parse(match, ("match",))
    assert caught.value.path == path
    assert sentence in caught.value.problem


def test_every_fault_is_reported():
    wrong = {"any": [{"label": {"key": "a", "value": "["}}, {"all": [{"label": {"value": "x\\"}}]}]}
    with pytest.raises(SpecError) as caught:
        label_match.parse(wrong)
    assert [line.partition(": ")[0] for line in caught.value.lines()] == [
        "any[0].label.value",
        "any[1].all[0].label.key",
    ]


def test_as_deep_as_it_may_be():
    assert label_match.parse(nested(15)).matches({"team": "pay"})
