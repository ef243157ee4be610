"""Runs that are created from Sandboxes: which generation a run uses, what is refused, and what is sealed."""

from __future__ import annotations

import pytest
from tests.kube.fake import run
from tests.operator.rig.run_creation import API, BOXES
from tests.operator.rig.sandbox_bench import BOX, SandboxBench
from tests.operator.rig.scenes import CHAIN, wish

from dayfly.operator.cluster.objects import DOCUMENT_FINALIZER, RUN_FINALIZER, SERVED_LABEL, TARGET_FINALIZER
from dayfly.operator.status.sandbox_status import AppliedSpec
from dayfly.plan.reasons import Reason
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import ForkUnit, Unit

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
WEB = Unit(
    name="web", kind="fork", fork=ForkUnit(baseline=lifecycle.Baseline(kind="Deployment", namespace="shop", name="web"))
)


class TestHeeding:
    @pytest.mark.parametrize(
        ("spoken", "generation"), [(None, 3), ({"observedGeneration": 2}, 2), ({"observedGeneration": 0}, 3)]
    )
    async def test_heeded_generation_after_restart_is_that_of_the_status(self, spoken, generation):
        bench = SandboxBench()
        assert bench.front.applied_spec(bench.set_spec({}, generation=3, status=spoken)) == AppliedSpec(generation)

    async def test_heeded_generation_after_reconcile_is_the_newest(self):
        bench = SandboxBench()
        seen = bench.set_spec({}, generation=3, status={"observedGeneration": 2})
        bench.cache_run()
        await bench.look()
        assert (bench.front.applied_spec(seen), bench.looked == [bench.run_name]) == (AppliedSpec(3), True)

    async def test_run_is_not_queued_if_the_generation_is_already_observed(self):
        bench = SandboxBench()
        bench.set_spec({}, generation=3, status={"observedGeneration": 3})
        bench.cache_run()
        await bench.look()
        assert bench.looked == []


class TestRevising:
    async def revised(self, *, closed: bool = False, written: bool = True, had: tuple[Unit, ...] = ()):
        bench = SandboxBench()
        bench.set_spec({"forks": [FORK]}, generation=2, finalizers=[TARGET_FINALIZER])
        bench.cache_run(had, closed=closed)
        bench.written = written
        await bench.look()
        return bench

    def test_new_forks_are_written_into_the_run(self):
        bench = run(self.revised())
        [after] = bench.replaced
        assert [unit.fork.baseline.name for unit in after.spec.forks] == ["web"]
        assert bench.applied_spec() == AppliedSpec(2)

    def test_conflict_while_writing_forks_is_retried(self):
        bench = run(self.revised(written=False))
        assert (bench.looked, bench.later[-1]) == ([BOX], 0.1)

    def test_closed_run_gets_no_new_forks(self):
        assert run(self.revised(closed=True)).replaced == []

    async def test_same_forks_are_not_written_again_after_restart(self):
        bench = await self.revised()
        [after] = bench.replaced
        bench.cache_run(after.spec.forks)
        bench.restart()
        bench.replaced.clear()
        await bench.look()
        assert bench.replaced == []


class TestRefusing:
    BAD = {"resources": [{"name": "db", "plugin": "nosuch"}]}

    async def refused(self, *, status: dict | None = None, closed: bool = False, looks: int = 1):
        bench = SandboxBench()
        bench.set_spec(self.BAD, generation=2, status=status)
        bench.cache_run(closed=closed)
        for _ in range(looks):
            assert await bench.look() is None
        return bench

    @pytest.mark.parametrize("looks", [1, 2])
    def test_invalid_spec_is_reported_once_and_the_run_continues(self, looks):
        bench = run(self.refused(looks=looks))
        applied_spec = bench.applied_spec()
        assert (applied_spec.generation, applied_spec.refusal.reason) == (2, Reason.PLUGIN_MISSING)
        assert bench.looked == [bench.run_name]

    @pytest.mark.parametrize(
        ("status", "said"),
        [
            ({"observedGeneration": 2, "reason": "AllDesiredWorkloadsReady"}, False),
            ({"observedGeneration": 2, "reason": "PluginMissing"}, True),
            ({"observedGeneration": 2, "reason": "Refused"}, True),
            ({"observedGeneration": 1, "reason": "AllDesiredWorkloadsReady"}, True),
        ],
    )
    def test_accepted_spec_is_not_refused_after_an_upgrade(self, status, said):
        assert bool(run(self.refused(status=status)).applied_spec().refusal) is said

    async def test_next_refusal_of_the_same_spec_is_reported(self):
        bench = await self.refused()
        bench.publish_plugin("nosuch", {"runner": {"image": "busybox:1"}, "create": [{"name": "a"}]})
        await bench.look()
        assert (bench.applied_spec().refusal.reason, bench.looked == [bench.run_name]) == (Reason.REFUSED, True)

    def test_spec_of_a_closed_run_is_not_refused(self):
        assert run(self.refused(closed=True)).applied_spec().refusal is None

    async def test_published_plugin_requeues_a_refused_sandbox(self):
        bench = await self.refused()
        woken = bench.publish_plugin("unrelated")
        bench.publish_plugin("nosuch")
        await bench.look()
        assert (woken, bench.applied_spec().refusal, bench.publish_plugin("another")) == ([BOX], None, [])

    @pytest.mark.parametrize(
        ("place", "whose"), [("spec", "the plugin is wrong"), ("plugin", "the plugin bad is wrong")]
    )
    def test_forbidden_pod_template_is_refused_with_its_path(self, place, whose):
        host = {**CHAIN, "runner": {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}}

        async def story():
            bench = SandboxBench()
            bench.publish_plugin("pg")
            bench.publish_plugin("bad", host)
            wrong = {"name": "db", "spec": host} if place == "spec" else {"name": "db", "plugin": "bad"}
            bench.set_spec({"resources": [{"name": "mq", "plugin": "pg"}, wrong]})
            return await bench.look()

        why = run(story())
        assert why.reason == Reason.REFUSED
        assert str(why).startswith(f"spec.resources[1]: {whose}")
        assert "spec.hostPID must be false" in str(why)

    def test_secret_from_sandbox_input_is_refused_with_its_path(self):
        """A Sandbox object has no field for secrets."""
        take = {"name": "key", "valueFromSandbox": True, "secret": True}
        step = {"name": "make", "script": "#!/bin/sh", "inputs": [take]}

        async def story():
            bench = SandboxBench()
            bench.publish_plugin("pg")
            bench.publish_plugin("door", {"runner": {"image": "busybox:1"}, "create": [step]})
            bench.set_spec({"resources": [{"name": "mq", "plugin": "pg"}, {"name": "db", "plugin": "door"}]})
            return await bench.look()

        why = run(story())
        assert why.reason == Reason.REFUSED
        assert str(why).startswith("spec.resources[1]: key is a secret, and --secrets-file can set it only on")

    def test_sandbox_without_run_reports_why_it_waits(self):
        async def story():
            bench = SandboxBench()
            bench.set_spec(self.BAD)
            missing = await bench.look()
            bench.set_spec({"resources": [{"name": "db", "plugin": "pg"}, {"name": "db", "plugin": "pg"}]})
            bench.publish_plugin("pg")
            return (missing.reason, str(missing)), (await bench.look()).reason

        missing, twice = run(story())
        assert missing == (
            Reason.PLUGIN_MISSING,
            "resource plugin nosuch is not in this cluster (there is no version of it)",
        )
        assert twice == Reason.REFUSED


class TestUpdates:
    """The time of a change is written before its forks if the TTL counts from it."""

    TTL = {"ttl": {"duration": "1h", "offsetFrom": "updatedAt"}}

    async def noted(self, spec: dict, generation: int = 2, known: int = 0, *, closed=False, written=True):
        bench = SandboxBench()
        bench.set_spec(spec, generation=generation)
        bench.cache_run(closed=closed, generation=known)
        bench.written = written
        await bench.look()
        return bench

    def test_time_of_a_change_is_written_before_its_forks(self):
        bench = run(self.noted(self.TTL))
        [after] = bench.replaced
        assert (after.spec.generation, after.spec.updated_at) == (2, 9_000)
        assert bench.looked == [bench.run_name, BOX]
        assert bench.later[-2:] == [0.0, 0.1]

    def test_conflict_while_writing_the_time_is_retried(self):
        assert run(self.noted(self.TTL, written=False)).looked == [BOX]

    @pytest.mark.parametrize(
        ("spec", "generation", "known", "closed"),
        [
            ({}, 2, 0, False),
            ({"ttl": {"duration": "1h"}}, 2, 0, False),
            (TTL, 1, 0, False),
            (TTL, 2, 2, False),
            (TTL, 2, 0, True),
        ],
        ids=["without", "from its birth", "the first", "noted", "closed"],
    )
    def test_time_of_a_change_is_not_written_without_need(self, spec, generation, known, closed):
        assert run(self.noted(spec, generation, known, closed=closed)).replaced == []


class TestPlugins:
    async def asked(self, reference: str, *published: tuple[str, dict]):
        bench = SandboxBench()
        for name, spec in published:
            bench.publish_plugin(name, spec)
        bench.set_spec({"resources": [{"name": "db", "plugin": reference}]})
        return await bench.look()

    BAD = {**CHAIN, "create": [*CHAIN["create"], CHAIN["create"][0]]}

    @pytest.mark.parametrize(
        ("reference", "said"),
        [
            ("pg", None),
            ("pg@1.10.0", None),
            ("pg@1.9.0", None),
            ("pg@2.0.0", "resource plugin pg@2.0.0 is not in this cluster (there are 1.9.0, 1.10.0)"),
            ("pgx", "resource plugin pgx is not in this cluster (there is no version of it)"),
        ],
    )
    def test_plugin_is_found_by_name_and_version(self, reference, said):
        why = run(self.asked(reference, ("pg@1.10.0", CHAIN), ("pg@1.9.0", CHAIN), ("other@2.0.0", CHAIN)))
        assert (None if why is None else str(why)) == said

    def test_missing_version_message_names_the_newest_versions(self):
        """A team that publishes each build has thousands of versions, more than a status can list."""
        why = run(self.asked("pg@9.0.0", *((f"pg@1.{minor}.0", CHAIN) for minor in range(12))))
        newest = ", ".join(f"1.{minor}.0" for minor in range(4, 12))
        assert str(why) == f"resource plugin pg@9.0.0 is not in this cluster (there are {newest} and 4 older ones)"

    @pytest.mark.parametrize(("reference", "refused"), [("pg@1.0.0", False), ("pg@2.0.0", True), ("pg", True)])
    def test_invalid_plugin_refuses_only_sandboxes_that_use_it(self, reference, refused):
        why = run(self.asked(reference, ("pg@1.0.0", CHAIN), ("pg@2.0.0", self.BAD)))
        assert (why is not None) is refused
        assert why is None or "spec.resources[0].plugin: the plugin pg@2.0.0 is wrong" in str(why)

    def test_plugin_with_invalid_name_is_ignored(self):
        assert run(self.asked("pg@1.0.0", ("pg@1.0.0", CHAIN), ("pg@one", CHAIN))) is None


class TestBirth:
    async def create_run(self, spec: dict | None = None, **box):
        bench = SandboxBench(**box)
        bench.set_spec(spec if spec is not None else wish(), creationTimestamp="1970-01-01T00:00:05Z", finalizers=[])
        bench.publish_plugin("pg")
        assert await bench.look() is None
        return bench

    def test_run_pins_the_documents_that_were_created_first(self):
        bench = run(self.create_run())
        [made] = bench.server.objects("runs")
        [*documents] = bench.server.objects("objectlifecyclemethods")
        assert {(pin["name"], pin["uid"]) for pin in made["spec"]["documents"]} == {
            (each["metadata"]["name"], each["metadata"]["uid"]) for each in documents
        }
        assert len(documents) == 2, "one of the resource, one of the sandbox"
        assert all(each["metadata"]["finalizers"] == [DOCUMENT_FINALIZER] for each in documents)
        assert made["metadata"]["finalizers"] == [RUN_FINALIZER]
        assert made["metadata"]["name"] == bench.run_name
        assert (made["ledger"]["uid"], made["ledger"]["bornAt"]) == (bench.uid, 5_000)
        assert (bench.marked, bench.doubts) == (["box"], [])
        assert bench.looked == [bench.run_name]

    def test_compiler_warnings_are_reported(self):
        spec = {
            "hooks": {"preStop": [{"name": "late", "webhook": {"method": "POST", "url": "https://hooks.example.com/"}}]}
        }
        [doubt] = run(self.create_run(spec)).doubts
        assert doubt.startswith("spec.hooks.preStop")

    @pytest.mark.parametrize(
        "box", [{"finalizers": (TARGET_FINALIZER,)}, {"finalizers": ("x/y",), "deleted": True}, {"deleted": True}]
    )
    def test_stale_sandbox_in_cache_gets_no_run(self, box):
        """The server's Sandbox already has our finalizer, is being deleted, or is gone."""
        bench = run(self.create_run(**box))
        assert (bench.server.objects("runs"), bench.marked) == ([], [])
        assert bench.looked == [BOX]
        assert bench.later[-1] == 1.0

    async def test_recreated_sandbox_gets_no_run_of_the_old_one(self):
        bench = SandboxBench()
        bench.set_spec({"resources": [{"name": "db", "plugin": "chain"}]}, uid="that one")
        bench.publish_plugin("chain")
        await bench.look()
        assert (bench.server.objects("runs"), bench.looked, bench.later[-1]) == ([], [BOX], 1.0)

    async def test_existing_documents_are_reused(self):
        bench = await self.create_run()
        before = {each["metadata"]["uid"] for each in bench.server.objects("objectlifecyclemethods")}
        bench.change(f"{API}/runs/{bench.run_name}", {"metadata": {"finalizers": None}})
        bench.ask("DELETE", f"{API}/runs/{bench.run_name}")
        bench.caches.ledger.forget(bench.run_name)
        await bench.look()
        [made] = bench.server.objects("runs")
        assert {pin["uid"] for pin in made["spec"]["documents"]} == before

    async def test_deleted_sandbox_gets_no_run(self):
        bench = SandboxBench()
        bench.set_spec(wish(), deletionTimestamp="2026-01-01T00:00:00Z")
        bench.publish_plugin("pg")
        assert (await bench.look(), bench.server.objects("runs"), bench.looked) == (None, [], [])

    async def test_served_sandbox_gets_no_run_from_the_front(self):
        """The agent creates its run from the server's documents."""
        bench = SandboxBench()
        bench.set_spec({}, labels={SERVED_LABEL: "there"})
        assert (await bench.look(), bench.server.objects("runs"), bench.looked) == (None, [], [])

    async def test_missing_sandbox_gets_no_run(self):
        bench = SandboxBench()
        assert (await bench.look(), bench.server.objects("runs")) == (None, [])


class TestLost:
    """Our finalizer is on the Sandbox, and the cache has no run of it."""

    async def looked(self, **box):
        bench = SandboxBench(**{"finalizers": (TARGET_FINALIZER,), **box})
        bench.set_spec({}, finalizers=[TARGET_FINALIZER])
        return bench

    async def test_run_missing_only_in_the_cache_is_queued(self):
        bench = await self.looked()
        meta = {"name": bench.run_name, "finalizers": [RUN_FINALIZER]}
        body = {"metadata": meta, "ledger": {"uid": bench.uid, "target": bench.target(), "plan": ""}}
        bench.ask("POST", f"{API}/runs", body)
        assert (await bench.look(), bench.looked == [bench.run_name]) == (None, True)

    @pytest.mark.parametrize("deleted", [False, True])
    async def test_sandbox_without_finalizer_has_not_lost_its_run(self, deleted):
        bench = await self.looked(finalizers=(), deleted=deleted)
        assert (await bench.look(), bench.looked) == (None, [])

    async def test_lost_run_blocks_the_sandbox_until_it_is_abandoned(self):
        bench = await self.looked()
        why = await bench.look()
        assert bench.run_name in str(why)
        bench.change(f"{BOXES}/box", {"metadata": {"annotations": {"dayfly.dev/abandon": "nobody knows"}}})
        still = await bench.look()
        assert (still.reason, str(still)) == (why.reason, str(why)), "it is not being deleted"
        bench.change(f"{BOXES}/box", {"metadata": {"annotations": {"dayfly.dev/abandon": "force: nobody knows"}}})

        def named(call):
            if call.request.method == "DELETE":
                assert bench.uid.encode() in call.request.body, "not whatever has its name by then"

        bench.server.faults = named
        assert (why.reason, await bench.look(), bench.server.objects("sandboxes")) == (Reason.LEDGER_LOST, None, [])

    async def test_deleted_sandbox_with_lost_run_can_be_abandoned(self):
        bench = await self.looked(deleted=True)
        bench.change(f"{BOXES}/box", {"metadata": {"annotations": {"dayfly.dev/abandon": "nobody knows"}}})
        assert (await bench.look(), bench.server.objects("sandboxes")) == (None, [])
