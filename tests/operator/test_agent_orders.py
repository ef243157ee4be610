"""Orders of a server: the objects that each creates, and refused orders."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.kube.fake import Harm, rest
from tests.operator.rig.cluster_host_bench import (
    API,
    BOX,
    BOXES,
    DOCUMENTS,
    FIRST,
    LED,
    MERGE,
    NAME,
    STOP,
    UID,
    WEB,
    Bench,
    offer,
    report,
    with_bench,
    write_end,
)

from dayfly.link import wire
from dayfly.link.host_end import HostEnd
from dayfly.link.wire import Verdict
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    RETRY_ANNOTATION,
    SERVED_FINALIZER,
    SERVED_KEY_ANNOTATION,
    SERVED_NAME_ANNOTATION,
    TARGET_FINALIZER,
)
from dayfly.spec.host_errors import DocumentsRefusedError, HostUnavailableError
from dayfly.spec.lifecycle import Lifecycle, Route, Target
from dayfly.spec.run import EndRequest, Phase


class TestOffer:
    @with_bench
    async def test_offer_creates_an_object_and_its_run(self, bench: Bench):
        assert await bench.served.offer(offer(routing_key="k1")) is Verdict.TAKEN
        [made], meta = bench.server.objects("runs"), bench.box["metadata"]
        assert (meta["name"], meta["finalizers"]) == (NAME, [SERVED_FINALIZER])
        target = made["ledger"]["target"]
        assert (target["namespace"], target["name"], target["uid"]) == ("acme-boxes", NAME, meta["uid"])
        assert all(each["spec"]["target"] == target for each in bench.server.objects("objectlifecyclemethods"))
        told = {"uid": UID, "org": "acme", "name": "shop", "kind": "Sandbox"}
        assert bench.offered == {**told, "generation": 7, "expiresAt": 9, "leaseUntil": 8}
        assert bench.looked[-1] == bench.run_name
        assert bench.box["metadata"]["namespace"] == BOX.namespace
        assert bench.annotations[SERVED_NAME_ANNOTATION] == "shop"
        assert bench.annotations[SERVED_KEY_ANNOTATION] == "k1"
        bench.sync_caches()
        assert await bench.served.offer(offer()) is Verdict.TAKEN
        assert bench.asked == [], "it is carried out"

    @with_bench
    async def test_route_group_is_marked_by_the_name_annotation(self, bench: Bench):
        group = Lifecycle(target=Target(kind="RouteGroup", name="shop", uid=UID))
        assert await bench.served.offer(offer(documents=(group,))) is Verdict.TAKEN
        assert bench.annotations[SERVED_NAME_ANNOTATION] == "routegroup/shop"
        assert bench.offered["kind"] == "RouteGroup"

    @with_bench
    async def test_new_session_knows_no_routes_and_refuses_invalid_uids(self, bench: Bench):
        assert (bench.served.routes, bench.served.begin_session()) == (False, 3)
        with pytest.raises(DocumentsRefusedError, match="is not a UID"):
            await bench.served.stop("../x", STOP, known=True)

    @with_bench
    async def test_offer_without_birth_does_not_begin_an_unknown_run(self, bench: Bench):
        assert await bench.served.offer(offer(birth=False)) is Verdict.UNKNOWN
        assert bench.box is None
        await bench.offer_sandbox()
        bench.forget_run()
        bench.sync_caches()
        assert await bench.served.offer(offer(birth=False)) is Verdict.UNKNOWN
        assert bench.server.objects("runs") == []
        assert await bench.served.offer(offer()) is Verdict.TAKEN

    @with_bench
    async def test_object_is_found_after_a_lost_response(self, bench: Bench):
        bench.harms["POST sandboxes"] = Harm.LOST_ANSWER
        assert await bench.served.offer(offer()) is Verdict.TAKEN

    @with_bench
    async def test_object_that_was_not_created_is_ordered_again(self, bench: Bench):
        bench.harms["POST sandboxes"] = Harm.LOST_REQUEST
        with pytest.raises(HostUnavailableError, match="its Sandbox is gone again"):
            await bench.served.offer(offer())

    @with_bench
    async def test_newer_offer_is_accepted_and_an_older_one_is_not(self, bench: Bench):
        await bench.offer_sandbox()
        assert await bench.served.offer(offer(generation=8, expires_at=0, forks=(LED,))) is Verdict.TAKEN
        [made] = bench.server.objects("runs")
        assert [unit["route"]["keys"] for unit in made["spec"]["forks"]] == [["k"]]
        assert (bench.offered["generation"], bench.offered["leaseUntil"]) == (8, 8)
        assert not bench.offered.get("expiresAt")
        assert bench.looked == [bench.run_name, bench.run_name]
        assert "POST sandboxes" not in bench.asked
        assert await bench.served.offer(offer(generation=7)) is Verdict.TAKEN
        assert bench.offered["generation"] == 8
        other = msgspec.structs.replace(LED, route=Route(baseline=WEB, keys=("l",)))
        assert await bench.served.offer(offer(generation=8, forks=(other,))) is Verdict.TAKEN
        [made] = bench.server.objects("runs")
        assert [unit["route"]["keys"] for unit in made["spec"]["forks"]] == [["l"]], "another key of the same spec"

    @with_bench
    async def test_run_without_offer_is_not_changed(self, bench: Bench):
        await bench.offer_sandbox()
        bench.ask("PATCH", f"{API}/runs/{bench.run_name}", {"spec": {"offered": None}}, MERGE)
        bench.sync_caches()
        assert await bench.served.offer(offer(generation=8)) is Verdict.TAKEN
        assert await bench.served.stop(UID, STOP, known=True) is Verdict.TAKEN
        [made] = bench.server.objects("runs")
        assert not made["spec"].get("offered")

    @with_bench
    async def test_invalid_routing_key_is_refused_in_a_revision(self, bench: Bench):
        await bench.offer_sandbox()
        wrong = msgspec.structs.replace(LED, route=Route(baseline=WEB, keys=("",)))
        with pytest.raises(DocumentsRefusedError):
            await bench.served.offer(offer(generation=8, forks=(wrong,)))
        assert bench.offered["generation"] == 7

    @with_bench
    async def test_closed_run_is_not_revised(self, bench: Bench):
        await bench.offer_sandbox()
        bench.ledger(closed={"at": 1, "reason": "Deleted"})
        assert await bench.served.offer(offer(generation=8)) is Verdict.TAKEN
        assert bench.offered["generation"] == 7

    @with_bench
    async def test_conflict_on_the_ledger_is_ordered_again(self, bench: Bench):
        await bench.offer_sandbox()
        bench.harms[f"PUT {bench.run_name}"] = Harm.CONFLICT
        with pytest.raises(HostUnavailableError, match="its ledger has changed since it was read"):
            await bench.served.offer(offer(generation=8))

    @with_bench
    async def test_ended_run_is_reported_once(self, bench: Bench):
        await bench.offer_sandbox()
        write_end(bench)
        newer = offer(generation=8)
        assert [await bench.served.offer(newer) for _ in range(2)] == [Verdict.OVER, Verdict.OVER]
        assert (bench.end.over, bench.served.version(UID)) == ([UID], FIRST + 1)

    @with_bench
    async def test_run_with_lost_ledger_does_not_begin_again(self, bench: Bench):
        await bench.offer_sandbox()
        bench.finalizers(TARGET_FINALIZER)
        bench.forget_run()
        bench.sync_caches()
        assert await bench.served.offer(offer()) is Verdict.UNKNOWN
        assert bench.server.objects("runs") == []

    @with_bench
    async def test_foreign_object_of_the_name_is_left_alone(self, bench: Bench):
        bench.ask("POST", BOXES, {"metadata": {"name": NAME}, "spec": {"cluster": "c"}})
        with pytest.raises(DocumentsRefusedError, match="is not the server's"):
            await bench.served.offer(offer())
        assert bench.server.objects("runs") == []

    @with_bench(bound=False)
    async def test_without_a_namespace_nothing_can_be(self, bench: Bench):
        with pytest.raises(DocumentsRefusedError, match="--agent-namespace acme=NAMESPACE"):
            bench.served.admit(DOCUMENTS, ())
        with pytest.raises(HostUnavailableError, match="no namespace is bound to the organisation acme"):
            await bench.served.offer(offer())

    @with_bench
    async def test_admission_checks_publisher_and_forks(self, bench: Bench):
        bench.served.admit(DOCUMENTS, (LED,))
        assert bench.admitted == [(DOCUMENTS, (LED,))]
        other = msgspec.structs.replace(DOCUMENTS[0].origin, publisher="umbrella")
        with pytest.raises(DocumentsRefusedError, match="was not published by acme"):
            bench.served.admit((msgspec.structs.replace(DOCUMENTS[0], origin=other),), ())
        group = Lifecycle(target=Target(kind="RouteGroup", name="g", uid=UID))
        with pytest.raises(DocumentsRefusedError, match="a route group has no forks"):
            bench.served.admit((group,), (LED,))


class TestStop:
    @pytest.mark.parametrize("known", [True, False])
    @with_bench
    async def test_stop_of_a_missing_object_bars_its_birth(self, bench: Bench, known):
        verdict = await bench.served.stop(UID, STOP, known=known)
        if known:
            assert (verdict, bench.box) == (Verdict.UNKNOWN, None)
            return
        assert verdict is Verdict.OVER
        assert bench.box["metadata"]["deletionTimestamp"]
        assert bench.end.over == [UID]
        assert await bench.served.offer(offer()) is Verdict.OVER

    @with_bench
    async def test_barred_object_is_found_after_a_lost_response(self, bench: Bench):
        bench.harms["POST sandboxes"] = Harm.LOST_ANSWER
        assert await bench.served.stop(UID, STOP, known=False) is Verdict.OVER
        assert bench.box["metadata"]["deletionTimestamp"]

    @with_bench
    async def test_first_stop_request_is_kept(self, bench: Bench):
        await bench.offer_sandbox()
        assert await bench.served.stop(UID, STOP, known=True) is Verdict.TAKEN
        assert bench.looked == [bench.run_name]
        await bench.served.stop(UID, EndRequest(at=9, reason="Again"), known=True)
        assert bench.offered["stop"]["at"] == 5
        assert bench.asked.count(f"PUT {bench.run_name}") == 1

    @with_bench
    async def test_deleted_object_with_run_has_not_ended(self, bench: Bench):
        await bench.offer_sandbox()
        bench.ask("DELETE", f"{BOXES}/{NAME}")
        bench.sync_caches()
        assert bench.served.run_status(UID).report.phase == "open"
        assert await bench.served.stop(UID, STOP, known=True) is Verdict.TAKEN
        assert await bench.served.lease(UID, 50) is Verdict.TAKEN
        bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": None}}, MERGE)
        assert await bench.served.retry(UID, {"db/make": 0}, "ann") is Verdict.TAKEN
        assert await bench.served.retry(UID, {"db/x": 1}, "ann") is Verdict.TAKEN
        assert bench.annotations[RETRY_ANNOTATION] == "db/make=0 db/x=1"
        bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": None}}, MERGE)
        assert await bench.served.abandon(UID, STOP) is Verdict.TAKEN

    @pytest.mark.parametrize("lost", [True, False])
    @with_bench
    async def test_stop_without_run_ends_unless_the_ledger_is_lost(self, bench: Bench, lost):
        await bench.offer_sandbox()
        bench.finalizers(*([TARGET_FINALIZER] if lost else [SERVED_FINALIZER]))
        bench.forget_run()
        assert await bench.served.stop(UID, STOP, known=True) is (Verdict.UNKNOWN if lost else Verdict.OVER)
        assert ("deletionTimestamp" in bench.box["metadata"]) is not lost

    @with_bench
    async def test_orders_to_an_ended_run_answer_over(self, bench: Bench):
        await bench.offer_sandbox()
        write_end(bench)
        assert await bench.served.stop(UID, STOP, known=True) is Verdict.OVER
        assert await bench.served.abandon(UID, STOP) is Verdict.OVER
        assert await bench.served.lease(UID, 50) is Verdict.OVER
        assert "stop" not in bench.offered
        assert ABANDON_ANNOTATION not in bench.annotations
        assert bench.offered["leaseUntil"] == 8


class TestAhead:
    """The caches receive each object a moment after it was read or written."""

    @pytest.mark.parametrize("how", ["never there", "without a run", "has said its end"])
    @with_bench
    async def test_end_is_reported_before_caches_show_it(self, bench: Bench, how):
        """Otherwise the order would get no answer, and the end would be reported half a minute later."""
        heard: list[wire.AnyToServer] = []
        end = bench.served.end = HostEnd(bench.served)
        end.attach(heard.append)
        if how != "never there":
            await bench.offer_sandbox()
            bench.served.record_report(
                msgspec.convert(bench.server.objects("runs")[0]["ledger"]["target"], Target), report()
            )
            await asyncio.sleep(0)
        if how == "without a run":
            bench.finalizers(SERVED_FINALIZER)
            bench.forget_run()
        if how == "has said its end":
            write_end(bench)
        heard.clear()
        end.send(wire.Stop(session=3, number=2, uid=UID, request=STOP))
        await rest(1)
        for _ in range(2):
            assert [(type(each), each.number) for each in heard] == [(wire.RunEnded, 0), (wire.RunEnded, 2)]
            assert {each.run.report.phase for each in heard} == {Phase.CLEANED}
            bench.sync_caches()
            await asyncio.sleep(0)
        stands = bench.served.run_status(UID)
        assert (stands.report.phase, stands.endpoints) == (Phase.CLEANED, ())
        bench.finalizers()
        if how == "has said its end":
            bench.ask("DELETE", f"{BOXES}/{NAME}")
        bench.sync_caches()
        assert bench.served.run_status(UID) is None
