"""Leases, retries and releases that a server orders, and the reports that it receives."""

from __future__ import annotations

import logging

import msgspec
import pytest
from tests.operator.rig.cluster_host_bench import (
    API,
    BOX,
    BOXES,
    FIRST,
    MERGE,
    NAME,
    STOP,
    UID,
    Bench,
    delete_sandbox,
    offer,
    report,
    run_story,
    with_bench,
    write_end,
)

from dayfly.kube.objects import Key
from dayfly.link.wire import Verdict
from dayfly.operator.agent.release import MAX_CONCURRENT_RELEASES, ReleaseQueue
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    FORGET_ANNOTATION,
    RETRY_ANNOTATION,
    SERVED_END_ANNOTATION,
    TARGET_FINALIZER,
)
from dayfly.plan.reasons import Reason
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import EndRequest


class TestOthers:
    @pytest.mark.parametrize(
        ("request_", "said"),
        [
            (EndRequest(at=1, reason="Abandoned"), "Abandoned"),
            (EndRequest(at=1, reason="Abandoned", message="by hand", by="ann"), "by hand (by ann)"),
        ],
    )
    @with_bench
    async def test_abandoned_object_is_annotated_and_deleted(self, bench: Bench, request_, said):
        await bench.offer_sandbox()
        assert await bench.served.abandon(UID, request_) is Verdict.TAKEN
        assert bench.annotations[ABANDON_ANNOTATION] == said
        assert bench.box["metadata"]["deletionTimestamp"]
        assert bench.looked == [BOX, bench.run_name]
        await bench.served.abandon(UID, EndRequest(at=2, reason="Again"))
        assert bench.annotations[ABANDON_ANNOTATION] == said

    @with_bench
    async def test_abandoned_object_that_is_missing_never_begins(self, bench: Bench):
        assert await bench.served.abandon(UID, STOP) is Verdict.OVER
        assert bench.box["metadata"]["deletionTimestamp"]

    @with_bench
    async def test_retry_keeps_the_newest_attempts(self, bench: Bench):
        assert await bench.served.retry(UID, {"db/make": 1}, "ann") is Verdict.UNKNOWN
        await bench.offer_sandbox()
        assert await bench.served.retry(UID, {"db/make": 3, "db/x": 1}, "ann") is Verdict.TAKEN
        assert bench.annotations[RETRY_ANNOTATION] == "db/make=3 db/x=1"
        await bench.served.retry(UID, {"db/make": 2, "db/x": 2, "db/y": 1}, "ann")
        assert bench.annotations[RETRY_ANNOTATION] == "db/make=3 db/x=2 db/y=1"
        bench.forget_run()
        assert await bench.served.retry(UID, {"db/make": 4}, "ann") is Verdict.UNKNOWN

    @with_bench
    async def test_lease_is_recorded_while_the_run_is_open(self, bench: Bench):
        assert await bench.served.lease(UID, 50) is Verdict.UNKNOWN
        await bench.offer_sandbox()
        assert await bench.served.lease(UID, 50) is Verdict.TAKEN
        assert (bench.offered["leaseUntil"], bench.offered["generation"]) == (50, 7)
        bench.ledger(closed={"at": 1, "reason": "Deleted"})
        assert await bench.served.lease(UID, 60) is Verdict.CLOSED
        assert bench.offered["leaseUntil"] == 50
        bench.forget_run()
        assert await bench.served.lease(UID, 70) is Verdict.UNKNOWN

    @pytest.mark.parametrize(
        "how",
        [
            "said",
            "deleted",
            "bare",
            "cache behind",
            "unheard",
            "lives",
            "deleted with a run",
            "unknown",
            "gone",
            "put back",
        ],
    )
    @with_bench
    async def test_acknowledged_object_is_released_only_if_it_ended(self, bench: Bench, how):
        await bench.served.offer(offer())
        if how != "unheard":
            bench.sync_caches()
        if how == "unknown":
            bench.caches.sandboxes.drop(BOX)
        if how in ("said", "cache behind", "unheard", "unknown", "put back"):
            write_end(bench)
        if how in ("deleted", "bare"):
            bench.forget_run()
            bench.ask("DELETE", f"{BOXES}/{NAME}")
        if how == "deleted with a run":
            bench.ask("DELETE", f"{BOXES}/{NAME}")
            bench.sync_caches()
        if how == "bare":
            bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": None}}, MERGE)
        if how == "gone":
            delete_sandbox(bench)
        if how in ("said", "deleted", "bare", "put back"):
            bench.sync_caches()
        if how == "put back":
            notes = {"metadata": {"annotations": {SERVED_END_ANNOTATION: None}}}
            bench.ask("PATCH", f"{BOXES}/{NAME}", notes, MERGE)
        await bench.served.acknowledge((UID,))
        assert (bench.box is None) is (how not in ("lives", "deleted with a run", "unknown", "put back"))
        if how in ("said", "deleted"):
            runs = [each for each in bench.asked if each.startswith("GET")]
            assert len(runs) == (how == "deleted"), "no request if the object shows its end"
        assert bench.end.forgot == 1

    def test_refused_release_does_not_block_the_others(self, caplog):
        async def story(bench: Bench):
            asked = []

            async def ended(uid):
                asked.append(uid)
                if uid.startswith("theirs"):
                    raise DocumentsRefusedError(f"Sandbox {uid} is not the server's")

            theirs = [f"theirs-{number}" for number in range(MAX_CONCURRENT_RELEASES)]
            await ReleaseQueue(bench.caches).release_acknowledged([*theirs, "ours"], ended)
            assert asked == [*theirs, "ours"]

        with caplog.at_level(logging.WARNING):
            run_story(story)
        assert caplog.text.count("is not released: Sandbox theirs-") == MAX_CONCURRENT_RELEASES


class TestStanding:
    @with_bench
    async def test_standing_is_pending_before_the_first_report(self, bench: Bench):
        assert bench.served.run_status(UID) is None
        await bench.offer_sandbox()
        stands = bench.served.run_status(UID)
        assert (stands.report.ready, stands.report.reason) == (False, Reason.RESOURCES_PENDING)
        assert (stands.uid, stands.report.uid, stands.seq) == (UID, UID, FIRST)
        [made] = bench.server.objects("runs")
        target = msgspec.convert(made["ledger"]["target"], Target)
        bench.caches.urls[bench.run_name] = {"api": "http://b.example.com", "web": "https://a.example.com:8443"}
        bench.served.record_report(target, report(unsupported=("spec.x",)))
        stands = bench.served.run_status(UID)
        assert (stands.report.ready, stands.report.reason, stands.seq) == (True, "r", FIRST + 1)
        assert [(each.host, each.port) for each in stands.endpoints] == [
            ("b.example.com", 80),
            ("a.example.com", 8443),
        ]
        assert stands.report.unsupported == ("spec.x",)
        assert bench.end.news == [UID]
        bench.served.record_report(target, report(unsupported=("spec.x",)))
        assert bench.end.news == [UID], "the same report is not sent again"

    @with_bench
    async def test_reports_of_other_objects_are_ignored(self, bench: Bench):
        await bench.offer_sandbox()
        target = Target(kind="Sandbox", namespace="acme-boxes", name=NAME, uid="another")
        bench.served.record_report(target, report())
        bench.served.record_report(msgspec.structs.replace(target, name="other"), report())
        plain = bench.ask("POST", BOXES, {"metadata": {"name": "plain"}, "spec": {"cluster": "c"}})
        bench.sync_caches()
        own = msgspec.structs.replace(target, name="plain", uid=plain["metadata"]["uid"])
        bench.served.record_report(own, report())
        assert (bench.end.news, list(bench.served.living_runs())) == ([], [UID])

    @with_bench
    async def test_lost_ledger_is_reported(self, bench: Bench):
        await bench.offer_sandbox()
        bench.forget_run()
        bench.sync_caches()
        assert bench.served.run_status(UID) is None, "it is about to have one"
        bench.finalizers(TARGET_FINALIZER)
        bench.sync_caches()
        stands = bench.served.run_status(UID)
        assert (stands.report.reason, stands.report.ready) == (Reason.LEDGER_LOST, False)
        assert (stands.report.done, stands.report.total) == (0, 0)

    @with_bench
    async def test_unreadable_end_is_reported_as_cleaned(self, bench: Bench):
        await bench.offer_sandbox()
        notes = {"metadata": {"annotations": {SERVED_END_ANNOTATION: "no ledger"}}}
        bench.ask("PATCH", f"{BOXES}/{NAME}", notes, MERGE)
        bench.sync_caches()
        report = bench.served.run_status(UID).report
        assert (report.phase, report.uid) == ("cleaned", UID)

    @with_bench
    async def test_ended_object_reports_its_last_state(self, bench: Bench):
        await bench.offer_sandbox()
        assert (list(bench.served.living_runs()), list(bench.served.unacknowledged_ends())) == ([UID], [])
        assert not bench.served.has_ended(UID)
        [made] = bench.server.objects("runs")
        bench.caches.urls[bench.run_name] = {"web": "http://a"}
        bench.served.record_report(msgspec.convert(made["ledger"]["target"], Target), report())
        write_end(bench)
        bench.sync_caches()
        assert (list(bench.served.living_runs()), list(bench.served.unacknowledged_ends())) == ([], [UID])
        assert bench.served.has_ended(UID)
        assert not bench.served.has_ended("another")
        stands = bench.served.run_status(UID)
        assert (stands.report.phase, stands.report.uid, stands.endpoints) == ("cleaned", UID, ())
        assert bench.end.over == [UID]
        assert bench.served.cached_run(UID) is not None
        assert bench.served.cached_run("another") is None


class TestHearing:
    @with_bench
    async def test_object_that_disappears_before_its_end_is_lost(self, bench: Bench):
        await bench.offer_sandbox()
        delete_sandbox(bench)
        bench.sync_caches()
        assert bench.lost == 1
        assert (list(bench.served.living_runs()), bench.served.version(UID)) == ([], FIRST)

    @with_bench
    async def test_object_deleted_before_its_run_is_not_lost(self, bench: Bench):
        await bench.offer_sandbox()
        bench.forget_run()
        bench.sync_caches()
        bench.lost = 0
        bench.ask("DELETE", f"{BOXES}/{NAME}")
        bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": None}}, MERGE)
        bench.sync_caches()
        assert bench.end.over == [UID]
        bench.finalizers()
        bench.sync_caches()
        assert bench.lost == 0

    @with_bench
    async def test_starting_operator_lists_existing_objects(self, bench: Bench):
        await bench.offer_sandbox()
        bench.start()
        assert list(bench.served.living_runs()) == [UID]

    @with_bench
    async def test_object_that_disappears_after_its_end_is_not_lost(self, bench: Bench):
        await bench.offer_sandbox()
        write_end(bench)
        bench.sync_caches()
        delete_sandbox(bench)
        bench.sync_caches()
        assert bench.lost == 0
        assert bench.served.version(UID) == FIRST
        assert await bench.served.offer(offer()) is Verdict.TAKEN
        write_end(bench)
        bench.sync_caches()
        assert bench.end.over == [UID, UID]

    @with_bench
    async def test_local_sandbox_is_not_reported(self, bench: Bench):
        bench.ask("POST", BOXES, {"metadata": {"name": "plain"}, "spec": {"cluster": "c"}})
        bench.sync_caches()
        bench.ask("DELETE", f"{BOXES}/plain")
        bench.sync_caches()
        assert (bench.lost, list(bench.served.living_runs())) == (0, [])

    @with_bench
    async def test_ended_object_with_forget_annotation_is_released(self, bench: Bench):
        await bench.offer_sandbox()
        notes = {"metadata": {"annotations": {FORGET_ANNOTATION: "yes"}}}
        bench.ask("PATCH", f"{BOXES}/{NAME}", notes, MERGE)
        bench.sync_caches()
        assert bench.end.begun == [], "it lives"
        write_end(bench)
        bench.sync_caches()
        [work] = bench.end.begun
        await work
        assert bench.box is None

    @with_bench
    async def test_deleted_object_ends_with_its_run(self, bench: Bench):
        await bench.offer_sandbox()
        bench.ledger(closed={"at": 1, "reason": "Deleted"})
        bench.ask("DELETE", f"{BOXES}/{NAME}")
        bench.sync_caches()
        assert bench.end.over == []
        bench.forget_run()
        bench.sync_caches()
        assert (bench.end.over, bench.lost) == ([UID], 0)

    @with_bench
    async def test_run_with_an_older_offer_was_restored(self, bench: Bench):
        await bench.offer_sandbox()
        path = f"{API}/runs/{bench.run_name}"
        bench.ask("PATCH", path, {"spec": {"offered": {"generation": 6}}}, MERGE)
        bench.sync_caches()
        assert bench.lost == 1
        bench.caches.runs.drop(Key("", "another"))
        assert bench.lost == 1
