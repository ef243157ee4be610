"""A Sandbox becomes a run once, with its documents; and what is done for one whose run is lost; each rule alone."""

from __future__ import annotations

import pytest
from rig.birth import API, BOXES
from rig.fronting import BOX, Front
from rig.scenes import wish

from dayfly.operator.cluster.objects import DOCUMENT_FINALIZER, RUN_FINALIZER, SERVED_LABEL, TARGET_FINALIZER
from dayfly.plan.reasons import Reason
from kube.fake import run


class TestBirth:
    async def born(self, spec: dict | None = None, **box):
        bench = Front(**box)
        bench.wishes(spec if spec is not None else wish(), creationTimestamp="1970-01-01T00:00:05Z", finalizers=[])
        bench.publishes("pg")
        assert await bench.look() is None
        return bench

    def test_its_documents_come_first_and_it_pins_them(self):
        bench = run(self.born())
        [made] = bench.server.objects("runs")
        [*documents] = bench.server.objects("objectlifecyclemethods")
        assert {(pin["name"], pin["uid"]) for pin in made["spec"]["documents"]} == {
            (each["metadata"]["name"], each["metadata"]["uid"]) for each in documents
        }
        assert len(documents) == 2, "of its resource, and its own"
        assert all(each["metadata"]["finalizers"] == [DOCUMENT_FINALIZER] for each in documents)
        assert made["metadata"]["finalizers"] == [RUN_FINALIZER]
        assert made["metadata"]["name"] == bench.run_name
        assert (made["ledger"]["uid"], made["ledger"]["bornAt"]) == (bench.uid, 5_000)
        assert (bench.marked, bench.doubts) == (["box"], [])
        assert bench.looked == [bench.run_name]

    @pytest.mark.parametrize("anew", [False, True])
    def test_of_one_that_goes_meanwhile_nothing_is_remembered(self, anew):
        async def story():
            bench = Front()
            seen = bench.wishes({})

            def goes(call):
                if (call.request.method, call.request.path) == ("POST", f"{API}/runs"):
                    bench.goes(seen, anew=anew)

            bench.server.faults = goes
            await bench.look()
            assert bench.server.objects("runs"), "whoever looks at it next takes it away"
            return bench.front._done, bench.looked[-1] == bench.run_name

        assert run(story()) == ({}, True)

    def test_what_it_asks_for_in_vain_is_told(self):
        spec = {"resources": [{"name": "db", "plugin": "pg", "params": {"nosuch": "x"}}]}
        [doubt] = run(self.born(spec)).doubts
        assert doubt.startswith("spec.resources[0].params.nosuch")

    @pytest.mark.parametrize(
        "box", [{"finalizers": (TARGET_FINALIZER,)}, {"finalizers": ("x/y",), "deleted": True}, {"deleted": True}]
    )
    def test_where_the_cache_is_behind_nothing_is_born(self, box):
        """By now it was fenced once, is on its way out, or gone."""
        bench = run(self.born(**box))
        assert (bench.server.objects("runs"), bench.marked) == ([], [])
        assert bench.looked == [BOX]
        assert bench.later[-1] == 1.0

    def test_nothing_is_born_for_another_of_its_name(self):
        async def story():
            bench = Front()
            bench.wishes({"resources": [{"name": "db", "plugin": "chain"}]}, uid="that one")
            bench.publishes("chain")
            await bench.look()
            return bench.server.objects("runs"), bench.looked, bench.later[-1]

        assert run(story()) == ([], [BOX], 1.0)

    def test_documents_that_an_earlier_try_has_written_are_taken_as_they_are(self):
        async def story():
            bench = await self.born()
            before = {each["metadata"]["uid"] for each in bench.server.objects("objectlifecyclemethods")}
            bench.change(f"{API}/runs/{bench.run_name}", {"metadata": {"finalizers": None}})
            bench.ask("DELETE", f"{API}/runs/{bench.run_name}")
            bench.caches.ledger.forget(bench.run_name)
            await bench.look()
            [made] = bench.server.objects("runs")
            return {pin["uid"] for pin in made["spec"]["documents"]} == before

        assert run(story())

    def test_a_sandbox_that_is_deleted_gets_no_run(self):
        async def story():
            bench = Front()
            bench.wishes(wish(), deletionTimestamp="2026-01-01T00:00:00Z")
            bench.publishes("pg")
            return await bench.look(), bench.server.objects("runs"), bench.looked

        assert run(story()) == (None, [], [])

    def test_nor_one_that_comes_from_a_control_plane(self):
        """It comes with its documents."""

        async def story():
            bench = Front()
            bench.wishes({}, labels={SERVED_LABEL: "there"})
            return await bench.look(), bench.server.objects("runs"), bench.looked

        assert run(story()) == (None, [], [])

    def test_nor_one_that_nobody_has(self):
        async def story():
            bench = Front()
            return await bench.look(), bench.server.objects("runs")

        assert run(story()) == (None, [])


class TestLost:
    """Our finalizer is on the Sandbox, and the cache has no run of it."""

    async def looked(self, **box):
        bench = Front(**{"finalizers": (TARGET_FINALIZER,), **box})
        bench.wishes({}, finalizers=[TARGET_FINALIZER])
        return bench

    def test_a_run_that_the_cache_has_not_heard_of_is_looked_at(self):
        async def story():
            bench = await self.looked()
            meta = {"name": bench.run_name, "finalizers": [RUN_FINALIZER]}
            body = {"metadata": meta, "ledger": {"uid": bench.uid, "target": bench.target(), "plan": ""}}
            bench.ask("POST", f"{API}/runs", body)
            return await bench.look(), bench.looked == [bench.run_name]

        assert run(story()) == (None, True)

    @pytest.mark.parametrize("deleted", [False, True])
    def test_where_both_have_gone_meanwhile_all_is_over(self, deleted):
        async def story():
            bench = await self.looked(finalizers=(), deleted=deleted)
            return await bench.look(), bench.looked

        assert run(story()) == (None, [])

    def test_without_it_nothing_is_done_until_somebody_says_so(self):
        async def story():
            bench = await self.looked()
            why = await bench.look()
            assert bench.run_name in str(why)
            bench.change(f"{BOXES}/box", {"metadata": {"annotations": {"dayfly.dev/abandon": "nobody knows"}}})

            def named(call):
                if call.request.method == "DELETE":
                    assert bench.uid.encode() in call.request.body, "not whatever has its name by then"

            bench.server.faults = named
            return why.reason, await bench.look(), bench.server.objects("sandboxes")

        assert run(story()) == (Reason.LEDGER_LOST, None, [])

    def test_one_that_was_deleted_as_well_is_let_go(self):
        async def story():
            bench = await self.looked(deleted=True)
            bench.change(f"{BOXES}/box", {"metadata": {"annotations": {"dayfly.dev/abandon": "nobody knows"}}})
            return await bench.look(), bench.server.objects("sandboxes")

        assert run(story()) == (None, [])
