"""What is said of a baseline's route beside which a fork's stands."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import Beside
from dayfly.execute.gateway.run import HTTP_ROUTES
from dayfly.operator.routes.route_builder import MOST_REMARKS, MOST_SERVICES, _brief, _oldest, _remarks

TAKEN = {"parents": [{"parentRef": {"name": "edge"}, "conditions": [{"type": "Accepted", "status": "True"}]}]}


def route(status: dict) -> RouteObject:
    return msgspec.convert(
        {"metadata": {"namespace": "shop", "name": "web"}, "spec": {}, "status": status}, RouteObject
    )


@pytest.mark.parametrize(
    ("status", "made", "said"),
    [
        (TAKEN, Beside((), ()), []),
        ({}, Beside((), ()), ["no Gateway has taken HTTPRoute shop/web"]),
        (
            TAKEN,
            Beside((), (0, 2)),
            ["rules 1, 3 of HTTPRoute shop/web ask for so many headers that there is no room for a key"],
        ),
        (
            TAKEN,
            Beside((), (3,)),
            ["rule 4 of HTTPRoute shop/web asks for so many headers that there is no room for a key"],
        ),
        (
            TAKEN,
            Beside((), (), cut=True),
            ["HTTPRoute shop/web has so many rules, or the sandbox so many groups, that some keys reach the baseline"],
        ),
    ],
)
def test_each_has_its_words_and_rules_are_counted_from_one(status, made, said):
    assert list(_remarks(HTTP_ROUTES, route(status), made)) == said


def test_of_many_only_how_many_more_there_are_is_said():
    few, many = ["x"] * MOST_REMARKS, ["x"] * (MOST_REMARKS + 2)
    assert _brief(few) == "; ".join(few)
    assert _brief(many) == f"{'; '.join(few)}; and 2 more like these"
    assert _brief([]) == ""


def test_the_oldest_services_are_followed_by_name():
    from dayfly.execute.fork.read import Service

    def service(name: str, made: str) -> Service:
        return msgspec.convert({"metadata": {"name": name, "creationTimestamp": made}, "spec": {}}, Service)

    old = [service(f"s{number:02}", "2026-01-01T00:00:00Z") for number in reversed(range(MOST_SERVICES))]
    late = [service("a", "2026-01-02T00:00:00Z"), service("b", "2026-01-03T00:00:00Z")]
    followed, more = _oldest((*late, *old))
    assert [each.metadata.name for each in followed] == [f"s{number:02}" for number in range(MOST_SERVICES)]
    assert more == 2
