"""Remarks on a baseline's route that a fork's route is derived from."""

from __future__ import annotations

import msgspec
import pytest
from tests.operator.rig.gateways import EDGE, PATH
from tests.operator.rig.route_bench import MERGE, NAME, Bench, run_story

from dayfly.execute.gateway.rules import KeyMatch
from dayfly.execute.gateway.run import AlteredRouteError, ForeignRouteError
from dayfly.execute.istio.read import VirtualService
from dayfly.execute.istio.rules import MAX_MATCHES, ForkRules, RuleOwner
from dayfly.kube import errors
from dayfly.kube.objects import Key
from dayfly.operator.pods.namespaces import NotGrantedError
from dayfly.operator.routes.differences import to_objection
from dayfly.operator.routes.route_builder import MAX_REMARKS
from dayfly.operator.routes.vs_edits import VirtualServiceEdit
from dayfly.plan.reasons import Reason


def rule(match: list[dict] | None = None) -> dict:
    """Return a rule of a VirtualService."""
    return {"match": match or [{}], "route": [{"destination": {"host": "web"}}]}


FULL = [{"headers": [{"name": f"x-{number}", "value": "y"} for number in range(16)]}]
BACKEND = {"group": "", "kind": "Service", "name": "web", "port": 80}
CROWDED = {"matches": FULL, "backendRefs": [BACKEND]}
FREE = {"backendRefs": [BACKEND]}
RULES = "of HTTPRoute shop/web match"
MANY = "HTTPRoute shop/web has too many rules, or the sandbox too many groups: some keys reach the baseline"


def reported(rules: list[dict], *, taken: bool = True, more: int = 0) -> str:
    """Return the remark on a fork whose baseline's route has these rules, with `more` routes that no Gateway accepts."""

    async def story(bench: Bench) -> str:
        bench.ask("PATCH", f"{PATH}/web", {"spec": {"rules": rules}}, MERGE)
        if taken:
            bench.accept_route("web")
        else:
            bench.ask("PATCH", f"{PATH}/web/status", {"status": None}, MERGE)
        for number in range(more):
            spec = {"parentRefs": [EDGE], "rules": [FREE]}
            bench.ask("POST", PATH, {"metadata": {"name": f"r{number:02}"}, "spec": spec})
        bench.look()
        [said] = (await bench.observe()).lacking or (f"{NAME} ()",)
        return said.removeprefix(f"{NAME} (").removesuffix(")")

    return run_story(story)


@pytest.mark.parametrize(
    ("rules", "taken", "said"),
    [
        ([FREE], True, ""),
        ([FREE], False, "no Gateway has accepted HTTPRoute shop/web"),
        ([CROWDED, FREE, CROWDED], True, f"rules 1, 3 {RULES} on too many headers to add a routing key"),
        ([FREE, CROWDED], True, f"rule 2 {RULES}es on too many headers to add a routing key"),
        ([{**FREE, "matches": [{"path": {"value": f"/{n}"}} for n in range(8)]}] * 160, True, MANY),
    ],
    ids=["all", "not taken", "full rules", "full rule", "many rules"],
)
def test_route_that_leads_only_in_part_is_reported(rules, taken, said):
    assert reported(rules, taken=taken) == said


@pytest.mark.parametrize("more", [0, 2])
def test_remarks_beyond_the_limit_are_counted(more):
    said = reported([FREE], more=MAX_REMARKS + more).split("; ")
    assert len(said) == MAX_REMARKS + bool(more)
    assert ("and 2 more like these" in said) is bool(more)


SIGNED = [{"headers": {"baggage": {"exact": "x"}}}]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (None, []),
        ([rule()], []),
        (
            [rule(), rule(SIGNED), rule(SIGNED)],
            ["rule 2, 3 of VirtualService shop/web already matches on all headers that could carry a key"],
        ),
        (
            [rule([{}] * (MAX_MATCHES + 1))],
            [
                "VirtualService shop/web has too many rules, or the sandbox too many groups: some keys reach the baseline"
            ],
        ),
    ],
    ids=["none yet", "room", "no room", "many"],
)
def test_virtual_service_without_room_for_a_key_is_reported(rules, said):
    thread = ForkRules(RuleOwner(1, "box", "f-web"), "shop", {"web": "f-web"}, (KeyMatch("baggage", "k"),))
    meta = {"namespace": "shop", "name": "web"}
    seen = rules and msgspec.convert({"metadata": meta, "spec": {"http": rules}}, VirtualService)
    assert list(VirtualServiceEdit(Key("shop", "web"), thread, seen, "web").remarks) == said


@pytest.mark.parametrize(
    ("error", "reason", "advice"),
    [
        (errors.Forbidden("POST", "exceeded quota", status=403, reason="Forbidden"), "Forbidden", False),
        (errors.Forbidden("POST", 'x is forbidden: User "op" cannot create resource "y"', status=403), "Refused", True),
        (NotGrantedError(Reason.NAMESPACE_NOT_GRANTED, "m"), "NamespaceNotGranted", False),
        (AlteredRouteError("m"), "Refused", False),
        (ForeignRouteError("m"), "NameConflict", False),
    ],
)
def test_obstacle_is_reported_with_advice_if_any_exists(error, reason, advice):
    found = to_objection(error, 5)
    assert (found.reason, found.since) == (reason, 5)
    assert ("an administrator can bind the ClusterRole dayfly-forks" in found.message) is advice
