"""Whose rules in VirtualServices are nobody's any more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.execute.istio.rules import Mark
from dayfly.kube import errors
from dayfly.operator.routes import weaver
from dayfly.operator.routes.weaver import Weaver

FORKS = {
    "a": {("box", "f-web"), ("box", "f-api")},
    "b": {("other", "f-web"), ("box", "f-web")},
    "c": {("other", "f-x")},
}


@pytest.fixture
def found(monkeypatch):
    """One who knows the VirtualServices of a, b and c."""
    marks = lambda rules: frozenset(Mark(1, run, fork) for run, fork in FORKS[rules])  # noqa: E731
    monkeypatch.setattr(weaver, "marks", marks)
    spaces = {"a": "shop", "b": "bank", "c": "bank"}
    seen = [SimpleNamespace(rules=name, metadata=SimpleNamespace(name=name, namespace=spaces[name])) for name in FORKS]
    return Weaver(SimpleNamespace(client=None, woven=SimpleNamespace(of=lambda _run: seen)))


@pytest.mark.parametrize(
    ("run", "fork", "namespace", "names"),
    [
        ("box", "f-web", "shop", ["a"]),
        ("box", "f-web", "bank", ["b"]),
        ("box", "f-api", "bank", []),
        ("other", "f-web", "bank", ["b"]),
    ],
)
def test_a_forks_own_are_those_with_rules_for_it(found, run, fork, namespace, names):
    assert [each.metadata.name for each in found.of(run, fork, namespace)] == names


@pytest.mark.parametrize(
    ("stays", "within", "taken"),
    [
        (set(), None, [("a", "f-api"), ("a", "f-web"), ("b", "f-web")]),
        ({"f-web"}, None, [("a", "f-api")]),
        ({"f-web", "f-api"}, None, []),
        (set(), {"bank"}, [("b", "f-web")]),
        (set(), set(), []),
    ],
)
async def test_only_the_runs_own_that_no_route_is_for_are_taken_out(found, stays, within, taken):
    """Elsewhere than where it has routes somebody else writes in its name."""
    done = []

    async def take_out(run, each, fork=""):
        assert run == "box"
        done.append((each.metadata.name, fork))

    found.take_out = take_out
    assert found.has_strays("box", stays, within) is bool(taken)
    await found.tidy("box", stays, within)
    assert done == taken


async def test_one_that_may_not_be_changed_keeps_none_of_the_others(found):
    """Of nobody else the collector takes the rules out."""
    done = []

    async def take_out(_run, each, fork=""):
        done.append((each.metadata.name, fork))
        if each.metadata.name == "a":
            raise errors.Forbidden("PUT", "no", status=403)

    found.take_out = take_out
    with pytest.raises(errors.Forbidden):
        await found.tidy("box", set())
    assert done == [("a", "f-api"), ("a", "f-web"), ("b", "f-web")]
