"""What is said of a baseline's route beside which a fork's stands."""

from __future__ import annotations

import msgspec
import pytest

from dayfly.execute.gateway.read import RouteObject
from dayfly.execute.gateway.render import Beside
from dayfly.execute.gateway.rules import Sign
from dayfly.execute.gateway.run import HTTP_ROUTES, AlteredRouteError, ForeignRouteError
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.rules import MOST_MATCHES, Mark, Thread
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.routes.route_builder import MOST_REMARKS, MOST_SERVICES, _brief, _oldest, _remarks
from dayfly.operator.routes.standing import objection
from dayfly.operator.routes.strands import Strand
from dayfly.plan.reasons import Reason

TAKEN = {"parents": [{"parentRef": {"name": "edge"}, "conditions": [{"type": "Accepted", "status": "True"}]}]}


def route(status: dict) -> RouteObject:
    return msgspec.convert(
        {"metadata": {"namespace": "shop", "name": "web"}, "spec": {}, "status": status}, RouteObject
    )


def rule(match: list[dict] | None = None) -> dict:
    """Of a VirtualService."""
    return {"match": match or [{}], "route": [{"destination": {"host": "web"}}]}


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


SIGNED = [{"headers": {"baggage": {"exact": "x"}}}]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (None, []),
        ([rule()], []),
        (
            [rule(), rule(SIGNED), rule(SIGNED)],
            ["rule 2, 3 of VirtualService shop/web asks for all the headers that could carry a key itself"],
        ),
        (
            [rule([{}] * (MOST_MATCHES + 1))],
            [
                "VirtualService shop/web has so many rules, or the sandbox so many groups, that some keys reach the baseline"
            ],
        ),
    ],
    ids=["none yet", "room", "no room", "many"],
)
def test_rules_of_a_virtual_service_that_have_no_room_for_a_key_are_said(rules, said):
    thread = Thread(Mark(1, "box", "f-web"), "shop", {"web": "f-web"}, (Sign("baggage", "k"),))
    meta = {"namespace": "shop", "name": "web"}
    seen = rules and msgspec.convert({"metadata": meta, "spec": {"http": rules}}, VirtualService)
    assert list(Strand(Key("shop", "web"), thread, seen, "web").remarks) == said


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


@pytest.mark.parametrize(
    ("error", "reason", "advice"),
    [
        (errors.Forbidden("POST", "exceeded quota", status=403, reason="Forbidden"), "Forbidden", False),
        (errors.Forbidden("POST", 'x is forbidden: User "op" cannot create resource "y"', status=403), "Refused", True),
        (NotGrantedError(Reason.NAMESPACE_NOT_GRANTED, "m"), "NamespaceNotGranted", False),
        (AlteredRouteError("m"), "Refused", False),
        (ForeignRouteError("m"), "NameTaken", False),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_to_do_where_somebody_can(error, reason, advice):
    found = objection(error, 5)
    assert (found.reason, found.since) == (reason, 5)
    assert ("an administrator can bind the ClusterRole dayfly-forks" in found.message) is advice
