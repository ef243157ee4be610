"""Routes next to a baseline's, each rule separately: when a route is ready, and what is written and removed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.kube.fake import Fault, Harm
from tests.operator.rig import fake_istio
from tests.operator.rig.fork_bench import OWN, SERVICES, UNIT
from tests.operator.rig.gateways import PATH
from tests.operator.rig.route_bench import ENDS, MERGE, NAME, ROUTE, SLICES, THEIRS, Bench, routed, run_story

from dayfly.execute.gateway.render import LABELS_ANNOTATION, ROUTE_LABEL
from dayfly.execute.istio.read import Write
from dayfly.execute.istio.rules import RuleOwner
from dayfly.execute.pod.names import RUN_LABEL
from dayfly.execute.pod.read import format_time
from dayfly.kube.objects import AnnotatedMeta, Key
from dayfly.operator.cluster.objects import RunObject
from dayfly.operator.routes.differences import SETTLE_MS
from dayfly.operator.routes.route_reconciler import CONFLICT_RETRY_AFTER_S, EMPTY_SERVICE_RETRY_AFTER_S, namespaces_of
from dayfly.operator.routes.vs_writer import ISTIO_SETTLE_MS
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.plan.sealed import seal
from dayfly.plan.world import Ended, Running, UnitRefusal, Waiting
from dayfly.spec.lifecycle import DRAIN_MS, Target
from dayfly.spec.run import Run, State, UnitRecord


class TestStanding:
    def test_accepted_route_settles_before_it_is_ready(self):
        async def story(bench: Bench):
            [ours] = await bench.keep()
            assert isinstance(await bench.read_fact(), Waiting)
            bench.accept_route(ours["metadata"]["name"])
            bench.look()
            settling = Waiting(since=1, reason=Reason.ROUTE_PENDING, message=messages.waits_for_gateways())
            assert await bench.read_fact() == settling
            assert bench.later == [pytest.approx(SETTLE_MS / 1000 + 0.001)]
            bench.clock += SETTLE_MS - 1
            assert await bench.read_fact() == settling
            assert bench.later == [pytest.approx(0.002)]
            bench.clock += 1
            assert await bench.read_fact() == Running(since=1)
            assert bench.later == []

        run_story(story)

    @pytest.mark.parametrize(
        ("by", "why"),
        [
            ("nothing", "neither the Gateway API nor Istio is installed"),
            ("gateway", "routes cannot be read: no right"),
            ("istio", "routes cannot be read: no right"),
        ],
    )
    def test_fork_without_any_data_plane_is_ready_with_a_remark(self, by, why):
        async def story(bench: Bench):
            if by == "nothing":
                await bench.unserve()
            elif by == "istio":
                await bench.meshed()
            bench.watch.is_synced, bench.watch.error = False, SimpleNamespace(message="no right")
            sight = await bench.observe()
            assert sight.facts == {(NAME, 1): Running(since=1)}
            assert sight.lacking == (f"{NAME} ({why}: requests with its key reach the baseline)",)

        run_story(story)

    def test_new_rules_settle_before_the_route_is_ready(self):
        async def story(bench: Bench):
            await bench.meshed()
            written = messages.route_written("VirtualService", "shop/web")
            assert await bench.read_fact() == Waiting(since=1, reason=Reason.ROUTE_PENDING, message=written)
            await bench.keep()
            assert (await bench.read_fact()).message == messages.waits_for_istio()
            assert bench.later == [pytest.approx(ISTIO_SETTLE_MS / 1000 + 0.001)]
            bench.clock += ISTIO_SETTLE_MS - 1
            assert (await bench.read_fact()).message == messages.waits_for_istio()
            assert bench.later == [pytest.approx(0.002)]
            bench.clock += 1
            assert await bench.read_fact() == Running(since=1)
            bench.ask("PATCH", fake_istio.path(name="web"), {"spec": {"http": [THEIRS]}}, MERGE)
            bench.look()
            assert (await bench.read_fact()).message == written
            await bench.keep()
            assert (await bench.read_fact()).message == messages.waits_for_istio(), "once more"

        run_story(story)

    def test_rules_settle_from_when_they_were_written(self):
        async def story(bench: Bench):
            await bench.meshed()
            await bench.keep()
            [seen] = bench.caches.virtual_services
            wrote = [Write(manager="dayfly", time=format_time(bench.clock - ISTIO_SETTLE_MS))]
            meta = msgspec.structs.replace(seen.metadata, managed_fields=wrote, resource_version="999")
            bench.caches.virtual_services.put(msgspec.structs.replace(seen, metadata=meta))
            assert await bench.read_fact() == Running(since=1)

        run_story(story)

    def test_known_rules_stay_settled_after_other_changes(self):
        async def story(bench: Bench):
            await bench.meshed()
            await bench.keep()
            await bench.read_fact()
            bench.noted.rules_seen_at = dict.fromkeys(bench.noted.rules_seen_at, 0)
            [seen] = bench.caches.virtual_services
            wrote = [Write(manager="dayfly", time=format_time(bench.clock))]
            meta = msgspec.structs.replace(seen.metadata, managed_fields=wrote, resource_version="999")
            bench.caches.virtual_services.put(msgspec.structs.replace(seen, metadata=meta))
            assert await bench.read_fact() == Running(since=1)

        run_story(story)

    def test_uid_of_a_new_route_is_reported_until_it_is_recorded(self):
        async def story(bench: Bench):
            assert (await bench.observe()).object_refs == {}
            [ours] = await bench.keep()
            assert (await bench.observe()).object_refs == {(NAME, 1): ours["metadata"]["uid"]}
            bench.claim(ref=ours["metadata"]["uid"])
            assert (await bench.observe()).object_refs == {}

        run_story(story)

    def test_refusals_and_missing_routes_are_both_reported(self):
        async def story(bench: Bench):
            bench.ask("DELETE", f"{PATH}/web")
            bench.caches.gateway.routes["httproutes"].drop(Key("shop", "web"))
            bench.noted.stuck[NAME] = UnitRefusal(reason="Refused", message="a quota", since=bench.clock)
            sight = await bench.observe()
            assert sight.facts == {(NAME, 1): Waiting(since=1, reason="Refused", message="a quota")}
            assert sight.lacking == (f"{NAME} (no HTTPRoute or GRPCRoute leads to Deployment shop/web)",)

        run_story(story)

    def test_ended_route_has_no_facts(self):
        async def story(bench: Bench):
            bench.claim(State.DONE)
            assert (await bench.observe()).facts == {}

        run_story(story)


class TestWriting:
    @pytest.mark.parametrize("meshed", [False, True])
    def test_route_is_written_once_its_service_has_a_ready_pod(self, meshed):
        """A data plane would answer 503 for it. Existing routes to other Services are still updated."""

        async def story(bench: Bench):
            if meshed:
                await bench.meshed()
            bench.server.serve(SLICES)
            await bench.keep()
            assert (bench.changes, bench.later) == ([], [EMPTY_SERVICE_RETRY_AFTER_S])
            bench.add_endpoints(OWN)
            await bench.keep()
            assert (len(bench.changes), bench.later) == (2, []), "tried and made"
            bench.ask("DELETE", f"{ENDS}/{OWN}")
            bench.alter_route()
            await bench.keep()
            assert (len(bench.changes), bench.later) == (2, [])

        run_story(story)

    @pytest.mark.parametrize("forked", [False, True])
    def test_rule_for_another_workload_is_copied_unless_forked(self, forked):
        """Otherwise requests with the key would reach the baseline. The other namespace's route is not waited for."""

        async def story(bench: Bench):
            bench.add_service("page")
            bench.server.serve(SLICES)
            bench.add_endpoints(OWN)
            if forked:
                bench.plan = seal((), (UNIT, ROUTE, routed("page")))
            [ours] = await bench.keep()
            refs = {ref["name"] for rule in ours["spec"]["rules"] for ref in rule["backendRefs"]}
            assert refs == ({OWN} if forked else {OWN, "page"})

        run_story(story)

    def test_route_in_its_form_is_not_written_again(self):
        async def story(bench: Bench):
            bench.add_service("page", of="web")
            await bench.keep()
            assert len(bench.changes) == 3, "a Service, and a route that was tried and made"
            await bench.keep()
            assert bench.changes == []

        run_story(story)

    def test_conflict_is_retried_soon(self):
        async def story(bench: Bench):
            bench.server.faults = lambda call: Fault(Harm.CONFLICT) if call.write is not None else None
            assert await bench.keep() == []
            assert (bench.later, bench.noted.stuck) == ([CONFLICT_RETRY_AFTER_S], {})

        run_story(story)

    def test_service_without_our_labels_is_replaced_by_another(self):
        async def story(bench: Bench):
            bench.ask("PATCH", f"{SERVICES}/{OWN}", {"metadata": {"labels": None}}, MERGE)
            bench.look()
            [ours] = await bench.keep()
            [ref] = [ref for rule in ours["spec"]["rules"] for ref in rule["backendRefs"]]
            [service] = [each for each in bench.server.objects("services") if each["metadata"]["name"] == ref["name"]]
            assert service["metadata"]["labels"][ROUTE_LABEL] == OWN

        run_story(story)

    def test_defaults_of_the_server_stay_until_another_change(self):
        async def story(bench: Bench):
            def defaulted(operation: str, kind: Any, _old: Any, new: Any) -> Any:
                if kind.plural == "httproutes" and operation == "CREATE":
                    new["spec"]["added"] = "yes"
                return new

            bench.server.admission.append(defaulted)
            [ours] = await bench.keep()
            assert ours["spec"]["added"] == "yes"
            await bench.keep()
            assert bench.changes == []
            name = ours["metadata"]["name"]
            bench.ask("PATCH", f"{PATH}/{name}", {"spec": {"hostnames": ["other.example.org"]}}, MERGE)
            bench.look()
            [ours] = await bench.keep()
            assert "hostnames" not in ours["spec"]

        run_story(story)

    @pytest.mark.parametrize("off", [{"labels": {"team": None}}, {"annotations": {LABELS_ANNOTATION: None}}])
    def test_label_removed_from_the_baseline_route_leaves_ours(self, off):
        """Policies select routes by labels: one for the baseline would apply to requests with a key as well."""

        async def story(bench: Bench):
            on = {"labels": {"team": "a", "tier": "b"}, "annotations": {LABELS_ANNOTATION: "team"}}
            bench.ask("PATCH", f"{PATH}/web", {"metadata": on}, MERGE)
            bench.look()
            [ours] = await bench.keep()
            named = f"{PATH}/{ours['metadata']['name']}"
            assert (ours["metadata"]["labels"].get("team"), "tier" in ours["metadata"]["labels"]) == ("a", False)
            bench.ask("PATCH", named, {"metadata": {"labels": {"theirs": "x"}}}, MERGE)
            bench.look()
            await bench.keep()
            assert bench.changes == [], "a label that a user has added is not the baseline's"
            bench.ask("PATCH", f"{PATH}/web", {"metadata": off}, MERGE)
            bench.look()
            [ours] = await bench.keep()
            assert "team" not in ours["metadata"]["labels"]
            await bench.keep()
            assert bench.changes == []

        run_story(story)

    def test_route_being_deleted_is_created_again_afterwards(self):
        async def story(bench: Bench):
            [ours] = await bench.keep()
            name = ours["metadata"]["name"]
            bench.ask("PATCH", f"{PATH}/{name}", {"metadata": {"finalizers": ["example.org/slow"]}}, MERGE)
            bench.ask("PATCH", f"{PATH}/{name}", {"spec": {"hostnames": ["other.example.org"]}}, MERGE)
            bench.ask("DELETE", f"{PATH}/{name}")
            bench.look()
            await bench.keep()
            assert bench.changes == []
            bench.ask("PATCH", f"{PATH}/{name}", {"metadata": {"finalizers": None}}, MERGE)
            bench.caches.gateway.routes["httproutes"].drop(Key("shop", name))
            assert len(await bench.keep()) == 1

        run_story(story)

    def test_withdrawn_route_that_was_deleted_is_forgotten(self):
        """The route of the fork stays, next to fewer routes of the baseline."""

        async def story(bench: Bench):
            [ours] = await bench.keep()
            cache = bench.caches.gateway.routes["httproutes"]
            bench.ask("DELETE", f"{PATH}/web")
            cache.drop(Key("shop", "web"))
            for _ in range(2):
                await bench.keep()
            assert bench.noted.withdrawn_at[NAME, 1].keys() == {ours["metadata"]["uid"]}
            bench.ask("DELETE", f"{PATH}/{ours['metadata']['name']}")
            cache.drop(Key("shop", ours["metadata"]["name"]))
            await bench.keep()
            assert not bench.noted

        run_story(story)

    def test_refusal_is_reported_until_the_next_write(self):
        async def story(bench: Bench):
            bench.server.serve(SLICES)
            bench.noted.stuck[NAME] = said = UnitRefusal(reason="Refused", message="no", since=bench.clock)
            await bench.keep()
            assert bench.noted.stuck == {NAME: said}, "its Service has no pods yet"
            bench.server.forget("endpointslices")
            await bench.keep()
            assert bench.noted.stuck == {}

        run_story(story)

    @pytest.mark.parametrize("meshed", [False, True])
    def test_nothing_is_written_in_a_namespace_without_a_grant(self, meshed):
        async def story(bench: Bench):
            if meshed:
                await bench.meshed()
            team = msgspec.structs.replace(bench.run.ledger.target, namespace="team")
            bench.run = msgspec.structs.replace(
                bench.run, ledger=msgspec.structs.replace(bench.run.ledger, target=team)
            )
            await bench.keep()
            assert bench.noted.stuck[NAME].reason == Reason.NAMESPACE_NOT_GRANTED
            assert bench.changes == []

        run_story(story)


class TestBeginning:
    """Before the first list arrives, nothing seems to exist."""

    def test_routes_are_listed_before_one_counts_as_missing(self):
        async def story(bench: Bench):
            [ours] = await bench.keep()
            cache = bench.caches.gateway.routes["httproutes"]
            cache.drop(Key("shop", "web"))
            assert (await bench.listing(bench.observe())).lacking == ()
            cache.drop(Key("shop", "web"))
            await bench.listing(bench.routes.keep(bench.run, bench.plan, bench.noted))
            assert bench.ours() == [ours]

        run_story(story)

    def test_virtual_services_are_listed_before_one_is_created(self):
        async def story(bench: Bench):
            await bench.meshed()
            await bench.keep()
            cache = bench.caches.virtual_services
            assert (await bench.read_fact()).message == messages.waits_for_istio()
            cache.drop(Key("shop", "web"))
            found = await bench.listing(bench.observe())
            assert found.facts[NAME, 1].message == messages.waits_for_istio()
            cache.drop(Key("shop", "web"))
            await bench.listing(bench.routes.keep(bench.run, bench.plan, bench.noted))
            assert [each["metadata"]["name"] for each in bench.server.objects("virtualservices")] == ["web"]

        run_story(story)

    @pytest.mark.parametrize("how", ["over", "not served"])
    def test_run_without_routes_waits_for_no_list(self, how):
        async def story(bench: Bench):
            asked: list[str] = []

            async def seen():
                asked.append("the routes")

            bench.caches.gateway.wait_listed = seen
            if how == "over":
                bench.claim(State.DONE)
            else:
                await bench.unserve()
            assert await bench.keep() == []
            assert (asked, bench.changes) == ([], [])

        run_story(story)


class TestLeaving:
    def test_rules_are_looked_for_where_it_has_or_had_routes(self):
        kinds = {"route:shop/web": "route", "route:bank/api": "route", "fork:evil/x": "fork", "db/make": "exec"}
        units = {name: UnitRecord(attempt=1, state=State.DONE, kind=kind) for name, kind in kinds.items()}
        ledger = Run(
            uid="u", target=Target(kind="Sandbox", namespace="shop", name="box", uid="u"), plan="", units=units
        )
        assert namespaces_of(RunObject(metadata=AnnotatedMeta(name="box"), ledger=ledger)) == {"shop", "bank"}

    def test_route_with_copied_labels_stays_and_delays_nothing(self):
        async def story(bench: Bench):
            labels = {RUN_LABEL: "box", ROUTE_LABEL: OWN}
            bench.ask("POST", PATH, {"metadata": {"name": "like", "labels": labels}, "spec": {"rules": []}})
            bench.changes.clear()
            await bench.routes.remove(bench.run, NAME, bench.noted)
            assert bench.changes == []
            assert isinstance(await bench.read_ending_fact(), Ended)

        run_story(story)

    def test_route_that_reappears_restarts_the_drain(self):
        async def story(bench: Bench):
            bench.claim(ref="r")
            for _ in range(2):
                assert (await bench.read_ending_fact()).message == messages.draining()
                bench.clock += DRAIN_MS - 1
                [ours] = await bench.keep()
                assert await bench.read_ending_fact() == Running(since=1, ready=False)
                bench.ask("DELETE", f"{PATH}/{ours['metadata']['name']}")
                bench.caches.gateway.routes["httproutes"].drop(Key("shop", ours["metadata"]["name"]))
            assert (await bench.read_ending_fact()).message == messages.draining()
            bench.clock += DRAIN_MS
            assert isinstance(await bench.read_ending_fact(), Ended)

        run_story(story)

    @pytest.mark.parametrize(("state", "goes"), [(State.CLAIMED, False), (State.DONE, True)])
    def test_late_route_of_a_peer_is_removed_once_its_unit_is_over(self, state, goes):
        """While its unit is still claimed, ending the unit removes it."""

        async def story(bench: Bench):
            await bench.keep()
            bench.claim(state)
            bench.plan = seal((), (UNIT,))
            assert (await bench.keep() == []) is goes

        run_story(story)

    def test_removal_keeps_rules_of_others_in_a_virtual_service(self):
        async def story(bench: Bench):
            own, other = ({**THEIRS, "name": RuleOwner(1, run, OWN).name(0)} for run in ("box", "other"))
            await bench.meshed(own, other)
            await bench.routes.remove(bench.run, NAME, bench.noted)
            [left] = bench.server.objects("virtualservices")
            assert left["spec"]["http"] == [other, THEIRS]

        run_story(story)

    @pytest.mark.parametrize("harm", [None, Harm.CONFLICT])
    def test_conflict_at_a_virtual_service_is_retried_soon(self, harm):
        async def story(bench: Bench):
            await bench.meshed({**THEIRS, "name": RuleOwner(1, "box", OWN).name(0)})
            bench.later.clear()
            bench.server.faults = lambda call: Fault(harm) if harm and call.write is not None else None
            await bench.routes.remove(bench.run, NAME, bench.noted)
            assert bench.later == ([CONFLICT_RETRY_AFTER_S] if harm else [])

        run_story(story)
