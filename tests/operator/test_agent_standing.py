"""What a control plane asks of a cluster beside offers and stops, what it is told, and what its caches hear; each alone."""

from __future__ import annotations

import msgspec
import pytest
from rig.serving import API, BOX, BOXES, FIRST, MERGE, NAME, STOP, UID, Bench, gone, offer, over, played, report

from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import (
    ABANDON_ANNOTATION,
    FORGET_ANNOTATION,
    RETRY_ANNOTATION,
    SERVED_END_ANNOTATION,
    SERVED_FINALIZER,
    TARGET_FINALIZER,
)
from dayfly.plan.reasons import Reason
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Request
from dayfly.spec.wire import Verdict


class TestOthers:
    @pytest.mark.parametrize(
        ("request_", "said"),
        [
            (Request(at=1, reason="Abandoned"), "Abandoned"),
            (Request(at=1, reason="Abandoned", message="by hand", by="ann"), "by hand (by ann)"),
        ],
    )
    def test_what_is_given_up_says_why_and_goes(self, request_, said):
        async def story(bench: Bench):
            await bench.begun()
            assert await bench.served.abandon(UID, request_) is Verdict.TAKEN
            assert bench.notes[ABANDON_ANNOTATION] == said
            assert bench.box["metadata"]["deletionTimestamp"]
            assert bench.looked == [BOX, bench.run_name]
            await bench.served.abandon(UID, Request(at=2, reason="Again"))
            assert bench.notes[ABANDON_ANNOTATION] == said

        played(story)

    def test_what_is_given_up_and_was_never_there_never_begins(self):
        async def story(bench: Bench):
            assert await bench.served.abandon(UID, STOP) is Verdict.OVER
            assert bench.box["metadata"]["deletionTimestamp"]

        played(story)

    def test_of_attempts_that_are_to_be_tried_again_the_newest_count(self):
        async def story(bench: Bench):
            assert await bench.served.retry(UID, {"db/make": 1}, "ann") is Verdict.UNKNOWN
            await bench.begun()
            assert await bench.served.retry(UID, {"db/make": 3, "db/x": 1}, "ann") is Verdict.TAKEN
            assert bench.notes[RETRY_ANNOTATION] == "db/make=3 db/x=1"
            await bench.served.retry(UID, {"db/make": 2, "db/x": 2, "db/y": 1}, "ann")
            assert bench.notes[RETRY_ANNOTATION] == "db/make=3 db/x=2 db/y=1"
            bench.forget_run()
            assert await bench.served.retry(UID, {"db/make": 4}, "ann") is Verdict.UNKNOWN

        played(story)

    def test_a_lease_is_noted_while_it_lives(self):
        async def story(bench: Bench):
            assert await bench.served.lease(UID, 50) is Verdict.UNKNOWN
            await bench.begun()
            assert await bench.served.lease(UID, 50) is Verdict.TAKEN
            assert (bench.offered["leaseUntil"], bench.offered["generation"]) == (50, 7)
            bench.ledger(closed={"at": 1, "reason": "Deleted"})
            assert await bench.served.lease(UID, 60) is Verdict.CLOSED
            assert bench.offered["leaseUntil"] == 50
            bench.forget_run()
            assert await bench.served.lease(UID, 70) is Verdict.UNKNOWN

        played(story)

    @pytest.mark.parametrize(
        "how", ["said", "deleted", "bare", "cache behind", "unheard", "lives", "unknown", "gone", "put back"]
    )
    def test_an_end_that_is_noted_is_let_go_if_it_is_one(self, how):
        async def story(bench: Bench):
            await bench.served.offer(offer())
            if how != "unheard":
                bench.hears()
            if how == "unknown":
                bench.served._keys.clear()
            if how in ("said", "cache behind", "unheard", "unknown", "put back"):
                over(bench)
            if how in ("deleted", "bare"):
                bench.forget_run()
                bench.ask("DELETE", f"{BOXES}/{NAME}")
            if how == "bare":
                bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": None}}, MERGE)
            if how == "gone":
                gone(bench)
            if how in ("said", "deleted", "bare", "put back"):
                bench.hears()
            if how == "put back":
                notes = {"metadata": {"annotations": {SERVED_END_ANNOTATION: None}}}
                bench.ask("PATCH", f"{BOXES}/{NAME}", notes, MERGE)
            await bench.served.acknowledge((UID,))
            assert (bench.box is None) is (how not in ("lives", "unknown", "put back"))
            if how in ("said", "deleted"):
                runs = [each for each in bench.asked if each.startswith("GET")]
                assert len(runs) == (how == "deleted"), "of what has said its end nobody asks"
            assert bench.end.forgot == 1

        played(story)

    def test_what_was_deleted_and_has_a_run_has_not_ended(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.ask("DELETE", f"{BOXES}/{NAME}")
            bench.hears()
            await bench.served.acknowledge((UID,))
            assert bench.box is not None

        played(story)


class TestStanding:
    def test_as_a_turn_has_said_and_before_one_that_it_is_looked_at(self):
        async def story(bench: Bench):
            assert bench.served.standing(UID) is None
            await bench.begun()
            stands = bench.served.standing(UID)
            assert (stands.report.ready, stands.report.reason) == (False, Reason.RESOURCES_PENDING)
            assert (stands.uid, stands.report.uid, stands.seq) == (UID, UID, FIRST)
            [made] = bench.server.objects("runs")
            target = msgspec.convert(made["ledger"]["target"], Target)
            bench.caches.urls[bench.run_name] = {"web": "https://a.example.com"}
            bench.served.heard(target, report(unserved=("spec.x",)))
            stands = bench.served.standing(UID)
            assert (stands.report.ready, stands.report.reason, stands.seq) == (True, "r", FIRST + 1)
            assert [(each.host, each.port) for each in stands.endpoints] == [("a.example.com", 443)]
            assert stands.report.unserved == ("spec.x",)
            assert bench.end.news == [UID]
            bench.served.heard(target, report(unserved=("spec.x",)))
            assert bench.end.news == [UID], "the same is no news"

        played(story)

    def test_of_what_is_another_or_nobodys_nothing_is_told(self):
        async def story(bench: Bench):
            await bench.begun()
            target = Target(kind="Sandbox", namespace="acme-boxes", name=NAME, uid="another")
            bench.served.heard(target, report())
            bench.served.heard(msgspec.structs.replace(target, name="other"), report())
            plain = bench.ask("POST", BOXES, {"metadata": {"name": "plain"}, "spec": {"cluster": "c"}})
            bench.hears()
            own = msgspec.structs.replace(target, name="plain", uid=plain["metadata"]["uid"])
            bench.served.heard(own, report())
            assert (bench.end.news, list(bench.served.living())) == ([], [UID])

        played(story)

    def test_of_one_whose_ledger_is_lost_that_is_said(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.forget_run()
            bench.hears()
            assert bench.served.standing(UID) is None, "it is about to have one"
            bench.finalizers(TARGET_FINALIZER)
            bench.hears()
            stands = bench.served.standing(UID)
            assert (stands.report.reason, stands.report.ready) == (Reason.LEDGER_LOST, False)
            assert (stands.report.done, stands.report.total) == (0, 0)

        played(story)

    def test_of_one_that_is_held_and_has_a_run_nothing_is_lost(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.finalizers(TARGET_FINALIZER, SERVED_FINALIZER)
            bench.hears()
            assert bench.served.standing(UID).report.reason == Reason.RESOURCES_PENDING

        played(story)

    def test_of_one_that_is_over_its_last_word_is_told(self):
        async def story(bench: Bench):
            await bench.begun()
            assert (list(bench.served.living()), list(bench.served.unacknowledged())) == ([UID], [])
            assert not bench.served.has_ended(UID)
            [made] = bench.server.objects("runs")
            bench.caches.urls[bench.run_name] = {"web": "http://a"}
            bench.served.heard(msgspec.convert(made["ledger"]["target"], Target), report())
            over(bench)
            bench.hears()
            assert (list(bench.served.living()), list(bench.served.unacknowledged())) == ([], [UID])
            assert bench.served.has_ended(UID)
            assert not bench.served.has_ended("another")
            stands = bench.served.standing(UID)
            assert (stands.report.phase, stands.report.uid, stands.endpoints) == ("cleaned", UID, ())
            assert bench.end.over == [UID]
            assert bench.served.seen_run(UID) is not None
            assert bench.served.seen_run("another") is None

        played(story)


class TestHearing:
    def test_what_goes_before_its_end_was_lost(self):
        async def story(bench: Bench):
            await bench.begun()
            gone(bench)
            bench.hears()
            assert bench.lost == 1
            assert (list(bench.served.living()), bench.served.version(UID)) == ([], FIRST)
            assert bench.served._keys == {}

        played(story)

    def test_what_was_deleted_before_it_had_a_run_was_not_lost(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.forget_run()
            bench.hears()
            bench.lost = 0
            bench.ask("DELETE", f"{BOXES}/{NAME}")
            bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"annotations": None}}, MERGE)
            bench.hears()
            assert bench.end.over == [UID]
            bench.finalizers()
            bench.hears()
            assert bench.lost == 0

        played(story)

    def test_whoever_begins_hears_of_those_that_are_there(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.served._keys.clear()
            bench.ask("PATCH", f"{BOXES}/{NAME}", {"metadata": {"labels": {"a": "b"}}}, MERGE)
            bench.hears()
            assert list(bench.served.living()) == [UID]

        played(story)

    def test_and_what_goes_after_it_was_not(self):
        async def story(bench: Bench):
            await bench.begun()
            over(bench)
            bench.hears()
            gone(bench)
            bench.hears()
            assert bench.lost == 0
            assert bench.served.version(UID) == FIRST
            assert await bench.served.offer(offer()) is Verdict.TAKEN
            over(bench)
            bench.hears()
            assert bench.end.over == [UID, UID]

        played(story)

    def test_nobodys_sandbox_is_nothing_to_a_control_plane(self):
        async def story(bench: Bench):
            bench.ask("POST", BOXES, {"metadata": {"name": "plain"}, "spec": {"cluster": "c"}})
            bench.hears()
            bench.ask("DELETE", f"{BOXES}/plain")
            bench.hears()
            assert (bench.lost, bench.served._keys) == (0, {})

        played(story)

    def test_one_that_nobody_is_to_note_is_let_go(self):
        async def story(bench: Bench):
            await bench.begun()
            notes = {"metadata": {"annotations": {FORGET_ANNOTATION: "yes"}}}
            bench.ask("PATCH", f"{BOXES}/{NAME}", notes, MERGE)
            bench.hears()
            assert bench.end.begun == [], "it lives"
            over(bench)
            bench.hears()
            [work] = bench.end.begun
            await work
            assert bench.box is None

        played(story)

    def test_one_that_was_deleted_ends_with_its_run(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.ledger(closed={"at": 1, "reason": "Deleted"})
            bench.ask("DELETE", f"{BOXES}/{NAME}")
            bench.hears()
            assert bench.end.over == []
            bench.forget_run()
            bench.hears()
            assert (bench.end.over, bench.lost) == ([UID], 0)

        played(story)

    def test_a_run_that_knows_less_than_it_did_was_put_back(self):
        async def story(bench: Bench):
            await bench.begun()
            path = f"{API}/runs/{bench.run_name}"
            bench.ask("PATCH", path, {"spec": {"offered": {"generation": 6}}}, MERGE)
            bench.hears()
            assert bench.lost == 1
            bench.caches.runs.drop(Key("", "another"))
            assert bench.lost == 1

        played(story)
