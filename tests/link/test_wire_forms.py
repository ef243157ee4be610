"""Within one protocol version, messages only gain fields, so that older peers understand them."""

from __future__ import annotations

import pytest
from tests.link import wire_forms

REMEDY = "see tests/link/wire_forms.py: it describes how to record additions; other changes are not allowed"


def test_todays_forms_are_those_that_are_written_down():
    before, now = wire_forms.read(), wire_forms.forms()
    assert not wire_forms.broken(before, now), REMEDY
    assert now == before, REMEDY


WAS = {"Stop.uid": "string required", "Stop.known": "boolean", "Verdict = taken": "value"}
CHANGES = {
    "a field is gone": ({"Stop.uid": "string required", "Verdict = taken": "value"}, "Stop.known was boolean and is"),
    "a field has another type": (WAS | {"Stop.known": "integer"}, "Stop.known was boolean and is integer"),
    "a field has to be there now": (WAS | {"Stop.known": "boolean required"}, "and is boolean required"),
    "a new field has to be there": (WAS | {"Stop.by": "string required"}, "Stop.by is new and required"),
    "an unknown value": (WAS | {"Verdict = perhaps": "value"}, "Verdict = perhaps is new"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_incompatible_form_is_found(what):
    now, said = CHANGES[what]
    [found] = wire_forms.broken(WAS, now)
    assert said in found
