"""Runs made of Sandboxes, each rule alone: which wish a run goes by, and what of a new one is refused."""

from __future__ import annotations

import msgspec
import pytest
from rig.fronting import BOX, Front
from rig.scenes import CHAIN

from dayfly.kube.objects import Key
from dayfly.operator.cluster.objects import TARGET_FINALIZER, SandboxObject
from dayfly.operator.status.sandbox_status import Heeded
from dayfly.plan.reasons import Reason
from dayfly.spec import lifecycle
from dayfly.spec.lifecycle import Fork, Unit
from kube.fake import run

FORK = {"forkOf": {"kind": "Deployment", "namespace": "shop", "name": "web"}}
WEB = Unit(
    name="web", kind="fork", fork=Fork(baseline=lifecycle.Baseline(kind="Deployment", namespace="shop", name="web"))
)


class TestHeeding:
    @pytest.mark.parametrize(
        ("spoken", "generation"), [(None, 3), ({"observedGeneration": 2}, 2), ({"observedGeneration": 0}, 3)]
    )
    def test_after_a_restart_its_run_speaks_of_the_wish_that_it_spoke_of_before(self, spoken, generation):
        async def story():
            bench = Front()
            return bench.front.heeded(bench.wishes({}, generation=3, status=spoken))

        assert run(story()) == Heeded(generation)

    def test_once_it_was_looked_at_of_the_one_that_it_took_up(self):
        async def story():
            bench = Front()
            seen = bench.wishes({}, generation=3, status={"observedGeneration": 2})
            bench.runs()
            await bench.look()
            return bench.front.heeded(seen), bench.looked == [bench.run_name]

        assert run(story()) == (Heeded(3), True)

    def test_what_it_speaks_of_already_is_not_said_again(self):
        async def story():
            bench = Front()
            bench.wishes({}, generation=3, status={"observedGeneration": 3})
            bench.runs()
            await bench.look()
            return bench.looked

        assert run(story()) == []

    def test_with_its_sandbox_all_is_forgotten(self):
        async def story():
            bench = Front()
            bench.wishes({}, generation=2)
            bench.runs()
            await bench.look()
            bench.front._refused[bench.uid] = Heeded(2)
            bench.caches.sandboxes.drop(BOX)
            return bench.front._done, bench.front._refused

        assert run(story()) == ({}, {})


class TestRevising:
    async def revised(self, *, closed: bool = False, written: bool = True, had: tuple[Unit, ...] = ()):
        bench = Front()
        bench.wishes({"forks": [FORK]}, generation=2, finalizers=[TARGET_FINALIZER])
        bench.runs(had, closed=closed)
        bench.written = written
        await bench.look()
        return bench

    def test_new_forks_are_written_into_the_run(self):
        bench = run(self.revised())
        [after] = bench.replaced
        assert [unit.fork.baseline.name for unit in after.spec.forks] == ["web"]
        assert bench.front.heeded(bench.caches.sandboxes.get("box", "shop")) == Heeded(2)

    @pytest.mark.parametrize("anew", [False, True])
    @pytest.mark.parametrize("fork", [FORK, {"forkOf": {"kind": "Deployment"}}], ids=["taken up", "refused"])
    def test_of_one_that_goes_meanwhile_nothing_is_remembered(self, fork, anew):
        async def story():
            bench = Front()
            seen = bench.wishes({"forks": [fork]}, generation=2, finalizers=[TARGET_FINALIZER])
            bench.runs()

            async def looked():
                bench.goes(seen, anew=anew)

            bench.caches.looked = looked
            await bench.look()
            return bench.front._done, bench.front._refused

        assert run(story()) == ({}, {})

    def test_where_somebody_was_first_it_is_looked_at_again(self):
        bench = run(self.revised(written=False))
        assert (bench.looked, bench.later[-1]) == ([BOX], 0.1)
        assert bench.front._done == {}

    def test_a_closed_run_gets_no_forks_any_more(self):
        assert run(self.revised(closed=True)).replaced == []

    def test_nothing_is_written_twice(self):
        async def story():
            bench = await self.revised()
            [after] = bench.replaced
            bench.runs(after.spec.forks)
            bench.front._done.clear()
            bench.replaced.clear()
            await bench.look()
            return bench.replaced

        assert run(story()) == []

    def test_what_was_taken_up_is_not_compiled_again(self, monkeypatch):
        async def story():
            bench = await self.revised(had=(WEB,))
            compiled = []
            monkeypatch.setattr(bench.front, "_compile", lambda *_args, **_more: compiled.append(1))
            await bench.look()
            return compiled

        assert run(story()) == []


class TestRefusing:
    BAD = {"resources": [{"name": "db", "plugin": "nosuch"}]}

    async def refused(self, *, status: dict | None = None, closed: bool = False, looks: int = 1):
        bench = Front()
        bench.wishes(self.BAD, generation=2, status=status)
        bench.runs(closed=closed)
        for _ in range(looks):
            assert await bench.look() is None
        return bench

    @pytest.mark.parametrize("looks", [1, 2])
    def test_a_wish_that_cannot_be_taken_up_is_said_once_and_the_run_goes_on(self, looks):
        bench = run(self.refused(looks=looks))
        generation, refusal = bench.front._refused[bench.uid]
        assert (generation, refusal.reason) == (2, Reason.PLUGIN_MISSING)
        assert bench.looked == [bench.run_name]
        assert bench.front.heeded(bench.caches.sandboxes.get("box", "shop")).refusal is refusal

    @pytest.mark.parametrize(
        ("status", "said"),
        [
            ({"observedGeneration": 2, "reason": "AllDesiredWorkloadsReady"}, False),
            ({"observedGeneration": 2, "reason": "PluginMissing"}, True),
            ({"observedGeneration": 2, "reason": "Refused"}, True),
            ({"observedGeneration": 1, "reason": "AllDesiredWorkloadsReady"}, True),
        ],
    )
    def test_what_was_taken_up_once_is_not_refused_by_a_later_compiler(self, status, said):
        assert bool(run(self.refused(status=status)).front._refused) is said

    def test_what_else_stands_in_its_way_by_then_is_said_as_well(self):
        async def story():
            bench = await self.refused()
            bench.publishes("nosuch", {"runner": {"image": "busybox:1"}, "create": [{"name": "a"}]})
            await bench.look()
            return bench.front._refused[bench.uid].refusal.reason, bench.looked == [bench.run_name]

        assert run(story()) == (Reason.REFUSED, True)

    def test_of_a_run_that_ends_nothing_is_refused(self):
        assert run(self.refused(closed=True)).front._refused == {}

    def test_a_plugin_that_comes_may_be_what_it_lacked(self):
        async def story():
            bench = await self.refused()
            other = {"metadata": {"name": "other", "namespace": "shop", "uid": "other"}, "spec": {}}
            bench.caches.sandboxes.put(msgspec.convert(other, SandboxObject))
            bench.looked.clear()
            bench.front._published_anew(None)
            asked = list(bench.looked)
            bench.publishes("nosuch")
            await bench.look()
            bench.looked.clear()
            bench.front._published_anew(None)
            return asked, bench.front._refused, bench.looked

        assert run(story()) == ([BOX], {}, [])

    @pytest.mark.parametrize(
        ("place", "whose"), [("spec", "the plugin is wrong"), ("plugin", "the plugin bad is wrong")]
    )
    def test_a_step_of_which_no_pod_may_be_made_is_refused_with_its_place(self, place, whose):
        host = {**CHAIN, "runner": {"image": "busybox:1", "podTemplateOverlay": "spec: {hostPID: true}"}}

        async def story():
            bench = Front()
            bench.publishes("pg")
            bench.publishes("bad", host)
            wrong = {"name": "db", "spec": host} if place == "spec" else {"name": "db", "plugin": "bad"}
            bench.wishes({"resources": [{"name": "mq", "plugin": "pg"}, wrong]})
            return await bench.look()

        why = run(story())
        assert why.reason == Reason.REFUSED
        assert str(why).startswith(f"spec.resources[1]: {whose}")
        assert "spec.hostPID must be false" in str(why)

    def test_a_secret_that_no_resource_makes_is_refused_with_its_place(self):
        """Nobody can hand one over beside a Sandbox object."""
        take = {"name": "key", "valueFromSandbox": True, "secret": True}
        step = {"name": "make", "script": "#!/bin/sh", "inputs": [take]}

        async def story():
            bench = Front()
            bench.publishes("pg")
            bench.publishes("door", {"runner": {"image": "busybox:1"}, "create": [step]})
            bench.wishes({"resources": [{"name": "mq", "plugin": "pg"}, {"name": "db", "plugin": "door"}]})
            return await bench.look()

        why = run(story())
        assert why.reason == Reason.REFUSED
        assert str(why).startswith("spec.resources[1]: key is a secret, and --secrets-file gives it on")

    def test_without_a_run_the_wish_waits(self):
        async def story():
            bench = Front()
            bench.wishes(self.BAD)
            missing = await bench.look()
            bench.wishes({"resources": [{"name": "db", "plugin": "pg"}, {"name": "db", "plugin": "pg"}]})
            bench.publishes("pg")
            return (missing.reason, str(missing)), (await bench.look()).reason

        missing, twice = run(story())
        assert missing == (
            Reason.PLUGIN_MISSING,
            "resource plugin nosuch is not in this cluster (there is no version of it)",
        )
        assert twice == Reason.REFUSED


class TestUpdates:
    """When a wish was changed is written down before it is taken up, where a time to live counts from there."""

    TTL = {"ttl": {"duration": "1h", "offsetFrom": "updatedAt"}}

    async def noted(self, spec: dict, generation: int = 2, known: int = 0, *, closed=False, written=True):
        bench = Front()
        bench.wishes(spec, generation=generation)
        bench.runs(closed=closed, generation=known)
        bench.written = written
        await bench.look()
        return bench

    def test_the_moment_of_a_change_is_written_first(self):
        bench = run(self.noted(self.TTL))
        [after] = bench.replaced
        assert (after.spec.generation, after.spec.updated_at) == (2, 9_000)
        assert bench.looked == [bench.run_name, BOX]
        assert bench.later[-2:] == [0.0, 0.1]
        assert bench.front._done == {}

    def test_where_somebody_was_first_it_is_tried_again(self):
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
    def test_and_nothing_where_none_counts(self, spec, generation, known, closed):
        bench = run(self.noted(spec, generation, known, closed=closed))
        assert bench.replaced == []
        assert bench.front._done != {}


class TestPlugins:
    async def asked(self, reference: str, *published: tuple[str, dict]):
        bench = Front()
        for name, spec in published:
            bench.publishes(name, spec)
        bench.wishes({"resources": [{"name": "db", "plugin": reference}]})
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
    def test_it_is_found_by_its_name_and_version(self, reference, said):
        why = run(self.asked(reference, ("pg@1.10.0", CHAIN), ("pg@1.9.0", CHAIN), ("other@2.0.0", CHAIN)))
        assert (None if why is None else str(why)) == said

    def test_of_many_versions_the_newest_are_named(self):
        """Whoever publishes each build has thousands, and no status takes a sentence with all of them."""
        why = run(self.asked("pg@9.0.0", *((f"pg@1.{minor}.0", CHAIN) for minor in range(12))))
        newest = ", ".join(f"1.{minor}.0" for minor in range(4, 12))
        assert str(why) == f"resource plugin pg@9.0.0 is not in this cluster (there are {newest} and 4 older ones)"

    @pytest.mark.parametrize(("reference", "refused"), [("pg@1.0.0", False), ("pg@2.0.0", True), ("pg", True)])
    def test_one_that_is_wrong_is_refused_to_whoever_asks_for_it(self, reference, refused):
        why = run(self.asked(reference, ("pg@1.0.0", CHAIN), ("pg@2.0.0", self.BAD)))
        assert (why is not None) is refused
        assert why is None or "spec.resources[0].plugin: the plugin pg@2.0.0 is wrong" in str(why)

    def test_one_whose_name_is_wrong_stands_in_nobodys_way(self):
        assert run(self.asked("pg@1.0.0", ("pg@1.0.0", CHAIN), ("pg@one", CHAIN))) is None

    def test_each_is_read_once_and_no_longer_than_it_is_there(self):
        async def story():
            bench = Front()
            bench.publishes("pg@1.0.0")
            bench.publishes("other")
            bench.front._published({"pg"})
            [first] = bench.front._parsed.values()
            bench.front._published({"pg"})
            [again] = bench.front._parsed.values()
            bench.caches.plugins.drop(Key("", "pg.1.0.0"))
            bench.front._published({"pg"})
            return first is again, bench.front._parsed

        assert run(story()) == (True, {})
