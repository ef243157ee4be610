"""Namespaces of pods."""

from __future__ import annotations

import pytest

from dayfly.execute.pod.names import RUNNERS, namespace_of
from dayfly.spec.lifecycle import Exec, Kind, Object, Unit, WebhookUnit


@pytest.mark.parametrize(("wished", "found"), [("team", "team"), ("", RUNNERS), ("signadot", RUNNERS)])
def test_namespace_is_the_requested_one_or_the_runners(wished: str, found: str):
    units = (
        Unit(name="a", kind=Kind.EXEC, exec=Exec(script="", namespace=wished)),
        Unit(name="b", kind=Kind.WEBHOOK, webhook=WebhookUnit(request={}, namespace=wished)),
        Unit(name="c", kind=Kind.OBJECT, object=Object(namespace=wished)),
    )
    assert [namespace_of(unit) for unit in units] == [found] * 3
    assert namespace_of(Unit(name="d", kind=Kind.FORK)) == RUNNERS
